//! Reviews: as the API server sends them, and as it does not.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::callers::{Attempt, Callers, OFTEN};
use crate::wire::{Answer, answer, post, request};
use tokio::io::AsyncWriteExt as _;

const KIND: &str = r#"{"group":"","version":"v1","kind":"Event"}"#;
const RESOURCE: &str = r#"{"group":"","version":"v1","resource":"events"}"#;

/// The fields of an Event that no row changes.
fn event(namespace: &str, name: &str, count: i64) -> String {
    format!(
        r#""kind":"Event","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"{namespace}"}},"involvedObject":{{"kind":"Pod","namespace":"{namespace}","name":"{name}","apiVersion":"v1"}},"reason":"Attempt","source":{{"component":"kubelet","host":"node-1"}},"firstTimestamp":"2026-11-21T08:54:00Z","lastTimestamp":"2026-11-21T08:54:00Z","count":{count},"type":"Normal""#
    )
}

fn review(namespace: &str, operation: &str, name: &str, objects: &str) -> String {
    format!(
        r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{{"uid":"705ab4f5-6393-11e8-b7cc-42010a800002","kind":{KIND},"resource":{RESOURCE},"requestKind":{KIND},"requestResource":{RESOURCE},"name":"{name}","namespace":"{namespace}","operation":"{operation}","userInfo":{{"username":"system:node:node-1","groups":["system:nodes"]}},{objects},"dryRun":false,"options":{{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}}}}}}"#
    )
}

/// A review of a CREATE with additional fields; each begins with a comma.
pub(crate) fn create(namespace: &str, more: &str) -> String {
    let object = event(namespace, "hostile", 1);
    review(namespace, "CREATE", "hostile", &format!(r#""object":{{{object}{more}}},"oldObject":null"#))
}

/// A review of an UPDATE with additional fields in the new and in the stored object.
pub(crate) fn update_with(namespace: &str, more: &str, stored: &str) -> String {
    let objects = format!(
        r#""object":{{{}{more}}},"oldObject":{{{}{stored}}}"#,
        event(namespace, "hostile", 2),
        event(namespace, "hostile", 1)
    );
    review(namespace, "UPDATE", "hostile", &objects)
}

/// A review of an UPDATE with this count of the same Event.
pub(crate) fn update(namespace: &str, number: i64) -> String {
    let objects = format!(
        r#""object":{{{}}},"oldObject":{{{}}}"#,
        event(namespace, "paced", number + 1),
        event(namespace, "paced", number)
    );
    review(namespace, "UPDATE", "paced", &objects)
}

/// DELETE and CONNECT, in a review and as HTTP methods.
pub(crate) async fn other_operations(callers: &Callers) -> Result<String> {
    let usual = create(&callers.hostile_namespace, "");
    let reviews =
        ["DELETE", "CONNECT"].map(|operation| usual.replace("\"CREATE\"", &format!("\"{operation}\"")));
    callers
        .measure(OFTEN, async |place| {
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
            Ok(Attempt::new("reviews 200 allowed, methods 405 and 404", slowest))
        })
        .await
}

/// Versions and resources outside of squelch's rules.
pub(crate) async fn other_versions(callers: &Callers) -> Result<String> {
    let usual = create(&callers.hostile_namespace, "");
    let old = usual.replace("admission.k8s.io/v1", "admission.k8s.io/v1beta1");
    let part = usual.replace("\"operation\":", "\"subResource\":\"status\",\"operation\":");
    callers
        .measure(OFTEN, async |place| {
            let (answer, took) = place.ask(&post(&callers.path(), old.as_bytes())).await?;
            ensure!(answer.is_allowed(), "{answer:?}");
            let Answer::Http { body, .. } = &answer else { unreachable!("the review was allowed") };
            ensure!(body.contains("admission.k8s.io/v1beta1"), "{body}");
            let (answer, other) = place.ask(&post(&callers.path(), part.as_bytes())).await?;
            ensure!(answer.is_allowed(), "{answer:?}");
            Ok(Attempt::new("200 allowed, in the version asked", took.max(other)))
        })
        .await
}

/// Reviews without the token: each is answered, nothing is counted or written. (The exact counts of the other caller
/// in the same namespace are checked at the end.)
pub(crate) async fn without_token(callers: &Callers) -> Result<String> {
    let wrong = "0123456789abcdef".repeat(4);
    let paths =
        ["/", "/events/", &format!("/events/{wrong}"), &format!("/events/{wrong}/probe")].map(str::to_owned);
    // Of the series of the other caller.
    let review = update(&callers.quiet, 1_000_000);
    let unauthenticated = async || {
        Ok::<_, anyhow::Error>(
            callers.squelch.metrics().await?.sum("squelch_unauthenticated_requests_total", &[]),
        )
    };
    let (before, mut asked) = (unauthenticated().await?, 0.0);
    let measured = callers
        .measure(OFTEN, async |place| {
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
            Ok(Attempt::new("200 allowed, connection closed", slowest))
        })
        .await?;
    let counted = unauthenticated().await? - before;
    ensure!(counted == asked, "{counted} of {asked} unauthenticated reviews were counted");
    let written = callers.written().await?;
    ensure!(written.is_empty(), "written: {written}");
    Ok(format!("{measured}; {asked} reviews, nothing counted or written"))
}
