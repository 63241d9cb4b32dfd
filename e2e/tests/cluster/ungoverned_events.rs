//! Events without a governing policy are stored as without squelch.

use anyhow::{Context, Result};
use e2e::{Emission, GENEROUS, Test};
use kube::Client;
use serde_json::{Value, json};

/// Two Events as clients write them: one with every field, one minimal.
fn samples(namespace: &str) -> [(&'static str, Value); 2] {
    let regarding = json!({
        "apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": "p", "uid": "u-1",
        "fieldPath": "spec.containers{app}",
    });
    let core = json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {
            "name": "core", "namespace": namespace,
            "labels": { "a": "b" }, "annotations": { "note": "ünï \"quoted\" \n line, \u{1F980}" },
        },
        "involvedObject": regarding, "reason": "BackOff", "message": "tab\t and </script> & \u{7f}",
        "type": "Warning", "count": 7, "firstTimestamp": "2026-01-02T03:04:05Z",
        "lastTimestamp": "2026-01-02T04:04:05Z", "source": { "component": "kubelet", "host": "node-1" },
        "related": { "kind": "Node", "name": "node-1" },
    });
    let new = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": { "name": "new", "namespace": namespace },
        "regarding": regarding, "reason": "BackOff", "note": "first", "type": "Warning", "action": "Restarting",
        "eventTime": "2026-01-02T03:04:05.678901Z", "reportingController": "example.com/c",
        "reportingInstance": "c-0",
    });
    [("api/v1", core), ("apis/events.k8s.io/v1", new)]
}

/// A repeat of each, as a recorder would report it.
fn repeat(name: &str) -> Value {
    match name {
        "core" => json!({ "count": 8, "lastTimestamp": "2026-01-02T05:04:05Z", "message": "again" }),
        _ => json!({ "series": { "count": 2, "lastObservedTime": "2026-01-02T05:04:05.000001Z" } }),
    }
}

/// Creates and changes each sample as the emitters' user, and returns the stored Events after each step.
async fn stored(client: &Client, namespace: &str) -> Result<Vec<Value>> {
    let mut stored = Vec::new();
    for (api, object) in samples(namespace) {
        let name = object["metadata"]["name"].as_str().context("a sample without a name")?.to_owned();
        let all = format!("/{api}/namespaces/{namespace}/events");
        let one = format!("{all}/{name}");
        let create = http::Request::post(&all).header("content-type", "application/json");
        client.request_text(create.body(object.to_string().into_bytes())?).await?;
        stored.push(read(client, &one).await?);
        let patch = http::Request::patch(&one).header("content-type", "application/merge-patch+json");
        client.request_text(patch.body(repeat(&name).to_string().into_bytes())?).await?;
        stored.push(read(client, &one).await?);
    }
    Ok(stored)
}

/// The stored Event, without fields that differ between any two writes.
async fn read(client: &Client, path: &str) -> Result<Value> {
    let text = client.request_text(http::Request::get(path).body(Vec::new())?).await?;
    let mut event: Value = serde_json::from_str(&text)?;
    let metadata = event["metadata"].as_object_mut().context("an Event without metadata")?;
    for field in ["uid", "resourceVersion", "creationTimestamp"] {
        metadata.remove(field);
    }
    for entry in metadata.get_mut("managedFields").and_then(Value::as_array_mut).into_iter().flatten() {
        entry["time"].take();
    }
    Ok(event)
}

async fn clear(test: &Test) -> Result<()> {
    test.kubectl().run(&["delete", "events", "--all"]).await?;
    Ok(())
}

#[tokio::test]
async fn an_event_without_a_policy_is_stored_unchanged() -> Result<()> {
    let test = Test::begin("untouched").await?;
    let client = test.emitter_client().await?;
    let without_squelch = stored(&client, &test.namespace).await?;
    clear(&test).await?;

    let squelch = test.squelch().await?;
    // A policy in another namespace arms the webhook.
    let neighbour = test.neighbour().await?;
    let policy = neighbour.policy(&json!({})).await?;
    assert_eq!(stored(&client, &test.namespace).await?, without_squelch, "in a namespace without a policy");
    clear(&test).await?;

    // The webhook is called, but no policy governs.
    test.policy(&json!({ "match": [{ "types": ["Normal"] }] })).await?;
    assert_eq!(
        stored(&client, &test.namespace).await?,
        without_squelch,
        "under a policy that does not match"
    );
    clear(&test).await?;

    test.policy(&json!({ "mode": "Observe" })).await?;
    assert_eq!(stored(&client, &test.namespace).await?, without_squelch, "under Observe");
    clear(&test).await?;

    test.policy(&json!({ "exempt": [{ "reasons": ["BackOff"] }] })).await?;
    assert_eq!(stored(&client, &test.namespace).await?, without_squelch, "exempt");

    // squelch was active throughout.
    let storm = Emission::legacy().about("pod", 1).count(20).rate(50);
    neighbour.emit(&storm)?.finish(GENEROUS).await?;
    policy.received(20).await?;
    squelch.stop().await?;
    test.passed()
}
