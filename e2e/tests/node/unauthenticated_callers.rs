//! Callers other than the API server.

use anyhow::{Context, Result, ensure};
use e2e::Policy;
use e2e::metrics::Samples;
use e2e::node::{HTTP_PORT, SQUELCH};
use e2e::policy::Counters;
use serde_json::{Value, json};

use e2e::stage::{Stage, TEST_POD_PREFIX};

/// Forged reviews per path.
const FORGED: &str = "20";

/// Reviews from another pod, without and with a wrong token, are answered and change nothing.
pub(crate) async fn forged_reviews() -> Result<String> {
    let stage = Stage::begin("row-forged", &json!({}), 2).await?;
    let node = &stage.node;
    stage.wait_for_decisions(Counters::default()).await?;
    // A namespace without other writes: every count comes from a forged review.
    let quiet = format!("{}-quiet", node.namespace);
    let kubectl = &node.cluster.kubectl;
    kubectl.run(&["create", "namespace", &quiet]).await?;
    let client = node.cluster.client.clone();
    let of_quiet = kubectl.namespace(&quiet);
    let policy = Policy::apply(client, &of_quiet, &quiet, "policy", &json!({ "mode": "Enforce" })).await?;
    let service = kubectl.namespace(SQUELCH).run(&["get", "service", SQUELCH, "--output=json"]).await?;
    let service: Value = serde_json::from_str(&service)?;
    let address = service["spec"]["clusterIP"].as_str().context("the Service has no address")?;

    let before = metrics(node).await?;
    let wrong = "0123456789abcdef".repeat(4);
    let paths =
        ["/".to_owned(), "/events/".to_owned(), format!("/events/{wrong}"), format!("/events/{wrong}/..")];
    for (number, path) in paths.iter().enumerate() {
        let url = format!("https://{address}{path}");
        let answers = node
            .run_pod(&format!("{TEST_POD_PREFIX}{number}"), &["post", &url, &review(&quiet), FORGED])
            .await?;
        for answer in answers.lines() {
            ensure!(answer.starts_with("200 ") && answer.contains(r#""allowed":true"#), "{path}: {answer}");
            ensure!(!answer.contains("patch"), "{path}: {answer}");
        }
        ensure!(answers.lines().count() == FORGED.parse::<usize>()?, "{path}: {answers}");
    }
    let after = metrics(node).await?;
    let grown = |name, labels: &[(&str, &str)]| after.sum(name, labels) - before.sum(name, labels);
    let unauthenticated = grown("squelch_unauthenticated_requests_total", &[]);
    ensure!(
        unauthenticated == (paths.len() * FORGED.parse::<usize>()?) as f64,
        "{unauthenticated} unauthenticated reviews were counted"
    );
    for name in ["squelch_occurrences_total", "squelch_recovered_occurrences_total"] {
        let counted = grown(name, &[("event_namespace", &quiet)]);
        ensure!(counted == 0.0, "{name} has grown by {counted}");
    }
    let counters = policy.counters().await?;
    ensure!(counters == Counters::default(), "the policy has counted {counters:?}");
    let written = of_quiet.run(&["get", "events", "--field-selector=reason=Forged", "--output=name"]).await?;
    ensure!(written.trim().is_empty(), "written: {written}");
    kubectl.run(&["delete", "namespace", &quiet, "--wait=false"]).await?;
    let measured = stage.passed().await?;
    Ok(format!("{unauthenticated} forged reviews, none counted; {measured}"))
}

/// The metrics of all replicas.
async fn metrics(node: &e2e::Node) -> Result<Samples> {
    let mut all = String::new();
    for pod in node.squelch_pods().await? {
        all += &node.get(SQUELCH, &pod, HTTP_PORT, "/metrics").await?;
    }
    Ok(Samples::parse(&all))
}

/// A review as of the API server, of an Event that does not exist.
fn review(namespace: &str) -> String {
    let kind = json!({ "group": "", "version": "v1", "kind": "Event" });
    let resource = json!({ "group": "", "version": "v1", "resource": "events" });
    json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "kind": kind, "resource": resource,
            "requestKind": kind, "requestResource": resource, "name": "forged.1", "namespace": namespace,
            "operation": "CREATE", "userInfo": { "username": "system:node:node1", "groups": ["system:nodes"] },
            "object": {
                "kind": "Event", "apiVersion": "v1", "metadata": { "name": "forged.1", "namespace": namespace },
                "involvedObject": { "kind": "Pod", "namespace": namespace, "name": "forged", "apiVersion": "v1" },
                "reason": "Forged", "message": "never happened", "source": { "component": "kubelet", "host": "node1" },
                "firstTimestamp": "2026-11-21T08:54:00Z", "lastTimestamp": "2026-11-21T08:54:00Z", "count": 1000,
                "type": "Warning",
            },
            "oldObject": null, "dryRun": false,
            "options": { "kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1" },
        },
    })
    .to_string()
}
