//! The API server calls squelch for the Event writes that a policy can match, and for no others.

mod churn;
mod oracle;
mod worst_policies;

use anyhow::{Result, ensure};
use e2e::{Cluster, Test};
use kube::Client;
use serde_json::{Value, json};

/// The webhook's entry in the API server's metrics.
const ENTRY: [(&str, &str); 1] = [("name", "events.squelch.dev")];

/// How often the API server has called squelch for an Event write, and how often a match condition excluded one.
async fn calls_and_exclusions(cluster: &Cluster) -> Result<[i64; 2]> {
    let metrics = cluster.metrics().await?;
    let names =
        ["apiserver_admission_webhook_request_total", "apiserver_admission_match_condition_exclusions_total"];
    Ok(names.map(|name| metrics.sum(name, &ENTRY) as i64))
}

async fn evaluation_errors(cluster: &Cluster) -> Result<i64> {
    let metrics = cluster.metrics().await?;
    Ok(metrics.sum("apiserver_admission_match_condition_evaluation_errors_total", &ENTRY) as i64)
}

/// An Event about pod `p`, through core/v1.
fn event(namespace: &str, reason: &str, message: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": { "generateName": "p-", "namespace": namespace },
        "involvedObject": { "apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": "p" },
        "reason": reason, "message": message, "type": "Normal", "count": 1,
        "firstTimestamp": "2026-01-02T03:04:05Z", "lastTimestamp": "2026-01-02T03:04:05Z",
        "source": { "component": "kubelet" },
    })
}

/// The same through events.k8s.io, without the optional fields.
fn new_style(namespace: &str, reason: &str, note: &str) -> Value {
    json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": { "generateName": "p-", "namespace": namespace },
        "regarding": { "apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": "p" },
        "reason": reason, "note": note, "type": "Normal", "action": "Pull",
        "eventTime": "2026-01-02T03:04:05.678901Z", "reportingController": "kubelet", "reportingInstance": "n",
    })
}

/// Creates an Event with these parameters of the request, and returns its name.
async fn create(client: &Client, event: &Value, parameters: &str) -> Result<String> {
    let api = if event["apiVersion"] == "v1" { "api/v1" } else { "apis/events.k8s.io/v1" };
    let namespace = event["metadata"]["namespace"].as_str().unwrap_or_default();
    let request = http::Request::post(format!("/{api}/namespaces/{namespace}/events{parameters}"))
        .header("content-type", "application/json")
        .body(event.to_string().into_bytes())?;
    let stored: Value = serde_json::from_str(&client.request_text(request).await?)?;
    Ok(stored["metadata"]["name"].as_str().unwrap_or_default().to_owned())
}

async fn patch(client: &Client, namespace: &str, name: &str, patch: &Value) -> Result<()> {
    let request = http::Request::patch(format!("/api/v1/namespaces/{namespace}/events/{name}"))
        .header("content-type", "application/merge-patch+json")
        .body(patch.to_string().into_bytes())?;
    client.request_text(request).await?;
    Ok(())
}

/// A policy that counts the writes that match, and suppresses none.
fn observing(clause: &Value) -> Value {
    json!({ "mode": "Observe", "match": [clause] })
}

#[tokio::test]
async fn only_writes_that_a_policy_can_match_are_sent_to_squelch() -> Result<()> {
    let test = Test::begin("matched").await?;
    let squelch = test.squelch().await?;
    let client = test.emitter_client().await?;
    let namespace = &*test.namespace;
    let neighbour = test.neighbour().await?;
    neighbour.policy(&json!({ "match": [{ "types": ["Warning"] }] })).await?;
    let policy =
        test.policy(&observing(&json!({ "reasons": ["Pulled", "Back*"], "messages": ["*image*"] }))).await?;
    let errors = evaluation_errors(&test.cluster).await?;
    let [calls, exclusions] = calls_and_exclusions(&test.cluster).await?;

    let mut names = Vec::new();
    for number in 0..10 {
        for event in [event, new_style] {
            for (reason, message) in [
                ("Pulled", format!("image {number}")),
                ("Pulled", format!("{number}")),
                ("Other", "image".to_owned()),
            ] {
                names.push(create(&client, &event(namespace, reason, &message), "").await?);
            }
        }
        create(&client, &event(namespace, "Pulled", "image"), "?dryRun=All").await?;
        // The neighbour's policy matches Warnings only.
        create(&client, &event(&neighbour.namespace, "Pulled", "image"), "").await?;
    }
    // The message of the stored Event decides, as in squelch: the first Event matched, the second did not.
    let repeat = |message: &str| json!({ "count": 2, "message": message });
    patch(&client, namespace, &names[0], &repeat("renamed")).await?;
    patch(&client, namespace, &names[1], &repeat("image")).await?;

    policy.received(20 + 1).await?;
    let [called, excluded] = calls_and_exclusions(&test.cluster).await?;
    assert_eq!(called - calls, 20 + 1, "the API server called squelch for other writes");
    let excluded = excluded - exclusions;
    ensure!(excluded > 40 + 10 + 10, "{excluded} exclusions");
    assert_eq!(evaluation_errors(&test.cluster).await?, errors, "a failed evaluation skips squelch silently");
    squelch.stop().await?;
    neighbour.passed()?;
    test.passed()
}
