//! Reviews: what the API server sends, and what it was not asked to send.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::callers::{Callers, OFTEN, Struck};
use crate::wire::{Answer, answer, post, request};
use tokio::io::AsyncWriteExt as _;

const KIND: &str = r#"{"group":"","version":"v1","kind":"Event"}"#;
const RESOURCE: &str = r#"{"group":"","version":"v1","resource":"events"}"#;

/// The members of an Event of this name, which no row looks at.
fn event(namespace: &str, name: &str, count: i64) -> String {
    format!(
        r#""kind":"Event","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"{namespace}"}},"involvedObject":{{"kind":"Pod","namespace":"{namespace}","name":"{name}","apiVersion":"v1"}},"reason":"Struck","source":{{"component":"kubelet","host":"node-1"}},"firstTimestamp":"2026-11-21T08:54:00Z","lastTimestamp":"2026-11-21T08:54:00Z","count":{count},"type":"Normal""#
    )
}

fn review(namespace: &str, operation: &str, name: &str, objects: &str) -> String {
    format!(
        r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{{"uid":"705ab4f5-6393-11e8-b7cc-42010a800002","kind":{KIND},"resource":{RESOURCE},"requestKind":{KIND},"requestResource":{RESOURCE},"name":"{name}","namespace":"{namespace}","operation":"{operation}","userInfo":{{"username":"system:node:node-1","groups":["system:nodes"]}},{objects},"dryRun":false,"options":{{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}}}}}}"#
    )
}

/// A CREATE of an Event with these members more; each begins with a comma.
pub(crate) fn create(namespace: &str, more: &str) -> String {
    let object = event(namespace, "struck", 1);
    review(namespace, "CREATE", "struck", &format!(r#""object":{{{object}{more}}},"oldObject":null"#))
}

/// An UPDATE with these members more in what is written and in what was stored.
pub(crate) fn update_with(namespace: &str, more: &str, stored: &str) -> String {
    let objects = format!(
        r#""object":{{{}{more}}},"oldObject":{{{}{stored}}}"#,
        event(namespace, "struck", 2),
        event(namespace, "struck", 1)
    );
    review(namespace, "UPDATE", "struck", &objects)
}

/// An UPDATE that tells of the occurrence of this number of the same, over and over.
pub(crate) fn update(namespace: &str, number: i64) -> String {
    let objects = format!(
        r#""object":{{{}}},"oldObject":{{{}}}"#,
        event(namespace, "paced", number + 1),
        event(namespace, "paced", number)
    );
    review(namespace, "UPDATE", "paced", &objects)
}

/// A DELETE and a CONNECT, told of in a review and asked by HTTP.
pub(crate) async fn other_operations(callers: &Callers) -> Result<String> {
    let usual = create(&callers.struck, "");
    let reviews =
        ["DELETE", "CONNECT"].map(|operation| usual.replace("\"CREATE\"", &format!("\"{operation}\"")));
    callers
        .endure(OFTEN, async |place| {
            let mut slowest = Duration::ZERO;
            for review in &reviews {
                let (answer, took) = place.ask(&post(&callers.path(), review.as_bytes())).await?;
                ensure!(answer.is_allowed(), "{answer:?}");
                slowest = slowest.max(took);
            }
            let path = callers.path();
            for (method, target, status) in
                [("DELETE", path.as_str(), 405), ("DELETE", "/", 404), ("CONNECT", "squelch:443", 404)]
            {
                let (answer, took) = place.ask(&request(method, target, b"")).await?;
                ensure!(answer.is(status), "{method} {answer:?}");
                slowest = slowest.max(took);
            }
            Ok(Struck::new("reviews 200 allowed, methods 405 and 404", slowest))
        })
        .await
}

/// Versions and resources that squelch's rules do not name.
pub(crate) async fn other_versions(callers: &Callers) -> Result<String> {
    let usual = create(&callers.struck, "");
    let old = usual.replace("admission.k8s.io/v1", "admission.k8s.io/v1beta1");
    let part = usual.replace("\"operation\":", "\"subResource\":\"status\",\"operation\":");
    callers
        .endure(OFTEN, async |place| {
            let (answer, took) = place.ask(&post(&callers.path(), old.as_bytes())).await?;
            ensure!(answer.is_allowed(), "{answer:?}");
            let Answer::Http { body, .. } = &answer else { unreachable!("it is allowed") };
            ensure!(body.contains("admission.k8s.io/v1beta1"), "{body}");
            let (answer, other) = place.ask(&post(&callers.path(), part.as_bytes())).await?;
            ensure!(answer.is_allowed(), "{answer:?}");
            Ok(Struck::new("200 allowed, in the version asked", took.max(other)))
        })
        .await
}

/// Nobody proves anything: each is answered, and nothing is counted or written. (That the other caller's counts are
/// exact in the same namespace is seen at the end.)
pub(crate) async fn without_token(callers: &Callers) -> Result<String> {
    let wrong = "0123456789abcdef".repeat(4);
    let paths =
        ["/", "/events/", &format!("/events/{wrong}"), &format!("/events/{wrong}/proof")].map(str::to_owned);
    // Of the series that the other caller tells of.
    let review = update(&callers.quiet, 1_000_000);
    let strays = async || {
        Ok::<_, anyhow::Error>(callers.squelch.metrics().await?.sum("squelch_stray_requests_total", &[]))
    };
    let (before, mut asked) = (strays().await?, 0.0);
    let measured = callers
        .endure(OFTEN, async |place| {
            let mut slowest = Duration::ZERO;
            for path in &paths {
                asked += 1.0;
                let mut stream = place.dial().await?;
                stream.write_all(&post(path, review.as_bytes())).await?;
                let sent = Instant::now();
                let answer = answer(&mut stream).await?;
                slowest = slowest.max(sent.elapsed());
                ensure!(
                    answer.is_allowed() && matches!(answer, Answer::Http { last: true, .. }),
                    "{answer:?}"
                );
            }
            Ok(Struck::new("200 allowed, connection closed", slowest))
        })
        .await?;
    let counted = strays().await? - before;
    ensure!(counted == asked, "{counted} strangers were counted of {asked}");
    let written = callers.written().await?;
    ensure!(written.is_empty(), "written: {written}");
    Ok(format!("{measured}; {asked} asked, nothing counted or written"))
}
