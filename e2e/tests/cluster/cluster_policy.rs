//! ClusterEventPolicies: the namespaces that they govern, and their precedence.

use anyhow::{Result, ensure};
use e2e::wait::not_yet;
use e2e::{Emission, GENEROUS, Policy, STORM, Squelch, Test, wait_for};
use serde_json::{Value, json};

/// A spec for the namespaces of this test, which have a unique label.
fn selecting(test: &Test, rest: &Value) -> Value {
    let mut spec = json!({ "namespaceSelector": { "matchLabels": { "test": test.namespace } } });
    if let (Some(spec), Some(rest)) = (spec.as_object_mut(), rest.as_object()) {
        spec.extend(rest.clone());
    }
    spec
}

/// Sets or removes the label of the namespace of `labelled`.
async fn label(labelled: &Test, value: Option<&str>) -> Result<()> {
    let change = value.map_or_else(|| "test-".to_owned(), |value| format!("test={value}"));
    labelled.kubectl().run(&["label", "--overwrite", "namespace", &labelled.namespace, &change]).await?;
    Ok(())
}

/// The occurrences of this namespace that a policy has received.
async fn received(squelch: &Squelch, test: &Test, policy: &Policy) -> Result<i64> {
    let labels = policy.labels(&test.namespace);
    Ok(squelch.metrics().await?.sum("squelch_occurrences_total", &labels) as i64)
}

/// Waits until writes in the namespace of `test` are governed by `policy`, or by none. Each poll makes one write.
async fn decided_by(test: &Test, squelch: &Squelch, policy: Option<&Policy>) -> Result<()> {
    let began = std::time::Instant::now();
    wait_for("the expected policy to govern", GENEROUS, async || {
        let labels = [("event_namespace", test.namespace.as_str())];
        let all = async || {
            Ok::<_, anyhow::Error>(squelch.metrics().await?.sum("squelch_occurrences_total", &labels))
        };
        let by = async || match policy {
            Some(policy) => received(squelch, test, policy).await.map(|received| received as f64),
            None => Ok(0.0),
        };
        let before = (all().await.map_err(not_yet)?, by().await.map_err(not_yet)?);
        write_one(test).await.map_err(not_yet)?;
        let after = (all().await.map_err(not_yet)?, by().await.map_err(not_yet)?);
        let expected = if policy.is_some() { 1.0 } else { 0.0 };
        let grew = (after.0 - before.0, after.1 - before.1);
        if grew == (expected, expected) { Ok(()) } else { Err(format!("(by any, by it) grew by {grew:?}")) }
    })
    .await?;
    eprintln!("another policy governs after {} ms", began.elapsed().as_millis());
    Ok(())
}

/// Writes one more Event, which is stored unless its policy compacts repeats.
async fn write_one(test: &Test) -> Result<()> {
    let event = json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": { "generateName": "one-", "namespace": test.namespace },
        "involvedObject": { "kind": "Pod", "name": "p", "namespace": test.namespace },
        "reason": "Tried", "message": "once", "type": "Normal", "source": { "component": "test" },
    });
    let path = format!("/api/v1/namespaces/{}/events", test.namespace);
    let request = http::Request::post(path).header("content-type", "application/json");
    test.emitter_client().await?.request_text(request.body(event.to_string().into_bytes())?).await?;
    Ok(())
}

/// A spec that counts and suppresses nothing.
fn counting() -> Value {
    let off = json!({ "mode": "Disabled" });
    json!({ "series": off, "aggregation": off, "spamFilter": off })
}

#[tokio::test]
async fn a_cluster_policy_governs_the_namespaces_with_its_labels() -> Result<()> {
    let test = Test::begin("labels").await?;
    let (second, other) = (test.neighbour().await?, test.neighbour().await?);
    for labelled in [&test, &second] {
        label(labelled, Some(&test.namespace)).await?;
    }
    label(&other, Some("another")).await?;
    let squelch = test.squelch().await?;
    let policy = test.cluster_policy();
    policy.change(&test.kubectl(), &selecting(&test, &json!({}))).await?;

    let storm = Emission::legacy().about("pod", 1).count(30).rate(50);
    for namespace in [&test, &second, &other] {
        namespace.emit(&storm)?.finish(STORM).await?;
    }
    // One status has the sum of both.
    let counters = policy.received(60).await?;
    ensure!(counters.compacted > 40, "{counters:?}");
    assert_eq!(received(&squelch, &test, &policy).await?, 30);
    assert_eq!(received(&squelch, &second, &policy).await?, 30);
    assert_eq!(received(&squelch, &other, &policy).await?, 0);
    let shown = test.kubectl().run(&["get", "cevp", "--output=wide"]).await?;
    for word in ["MODE", "ACCEPTED", "EFFECTIVE", "PRECEDENCE", "RECEIVED", "Default", "60"] {
        ensure!(shown.contains(word), "{word} is not shown:\n{shown}");
    }
    squelch.stop().await?;
    // Pending occurrences are flushed.
    test.one_event("pod-0", 30).await?;
    second.one_event("pod-0", 30).await?;
    test.passed()
}

#[tokio::test]
async fn a_changed_label_takes_effect_and_pending_counts_are_flushed() -> Result<()> {
    let test = Test::begin("relabel").await?;
    let squelch = test.squelch().await?;
    let policy = test.cluster_policy();
    policy.put(&test.kubectl(), &selecting(&test, &counting())).await?;
    policy.says("Effective", "False", "NoNamespaces", "selects no namespace").await?;
    label(&test, Some(&test.namespace)).await?;
    decided_by(&test, &squelch, Some(&policy)).await?;
    policy.effective().await?;
    label(&test, None).await?;
    decided_by(&test, &squelch, None).await?;
    policy.says("Effective", "False", "NoNamespaces", "").await?;

    // With a series that is pending when the label is removed.
    label(&test, Some(&test.namespace)).await?;
    policy
        .change(&test.kubectl(), &selecting(&test, &json!({ "series": { "idleTimeout": "8760h" } })))
        .await?;
    let before = policy.counters().await?.received;
    test.emit(&Emission::creates_core().about("pod", 1).count(100).rate(100))?.finish(STORM).await?;
    policy.received(before + 100).await?;
    label(&test, None).await?;
    test.one_event("pod-0", 100).await?;
    squelch.wait_until_idle(GENEROUS).await?;
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn override_precedes_the_policies_of_the_namespace_and_default_follows_them() -> Result<()> {
    let test = Test::begin("precedence").await?;
    label(&test, Some(&test.namespace)).await?;
    let squelch = test.squelch().await?;
    let kubectl = test.kubectl();
    let own = test.policy(&counting()).await?;
    let cluster = test.cluster_policy();
    let mut spec = selecting(&test, &counting());
    spec["priority"] = json!(100_000);

    cluster.put(&kubectl, &spec).await?;
    let by_own = format!("In namespace {} it is EventPolicy policy", test.namespace);
    cluster.says("Effective", "False", "Overridden", &by_own).await?;
    own.effective().await?;
    decided_by(&test, &squelch, Some(&own)).await?;

    spec["precedence"] = json!("Override");
    cluster.change(&kubectl, &spec).await?;
    let by_cluster = format!("ClusterEventPolicy {} has precedence", cluster.name);
    own.says("Effective", "False", "Overridden", &by_cluster).await?;
    decided_by(&test, &squelch, Some(&cluster)).await?;

    // A policy that does not match everything leaves the rest to the namespace.
    spec["match"] = json!([{ "types": ["Warning"] }]);
    cluster.change(&kubectl, &spec).await?;
    own.effective().await?;
    decided_by(&test, &squelch, Some(&own)).await?;
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn a_policy_for_every_namespace_governs_a_new_namespace() -> Result<()> {
    let test = Test::begin("everywhere").await?;
    let squelch = test.squelch().await?;
    let policy = test.cluster_policy();
    policy.change(&test.kubectl(), &counting()).await?;
    let later = test.neighbour().await?;
    decided_by(&later, &squelch, Some(&policy)).await?;
    let metrics = squelch.metrics().await?;
    for (state, number) in [("effective", 1), ("not_effective", 0), ("invalid", 0)] {
        let labels = [("kind", "ClusterEventPolicy"), ("state", state)];
        assert_eq!(metrics.sum("squelch_policies", &labels) as i64, number, "{state}");
    }
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn an_invalid_cluster_policy_is_refused_with_its_reason() -> Result<()> {
    let test = Test::begin("wrong").await?;
    let squelch = test.squelch().await?;
    let policy = test.cluster_policy();
    let texts: Vec<_> = (10..30).map(|number| format!("*{number}{}*", "x".repeat(120))).collect();
    // Some versions of Kubernetes name the type of the value between these.
    let label = ["spec.namespaceSelector.matchLabels: Invalid value: ", "key must be a label key"];
    for (spec, parts) in [
        (json!({ "namespaceSelector": { "matchLabels": { "my team": "shop" } } }), &label[..]),
        (json!({ "match": [{ "reasons": texts }] }), &["the texts have a total weight above 2048"]),
    ] {
        let refused = policy.put(&test.kubectl(), &spec).await.err().map(not_yet).unwrap_or_default();
        ensure!(parts.iter().all(|part| refused.contains(part)), "{spec}: {refused}");
    }
    let explained = test.kubectl().run(&["explain", "clustereventpolicy.spec", "--recursive"]).await?;
    for field in ["namespaceSelector", "matchExpressions", "operator", "precedence", "spamFilter"] {
        ensure!(explained.contains(field), "{field} is not explained:\n{explained}");
    }
    squelch.stop().await?;
    test.passed()
}
