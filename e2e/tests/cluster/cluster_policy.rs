//! ClusterEventPolicies: which namespaces they govern, and which policies go before them.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::wait::told;
use e2e::{Emission, GENEROUS, Policy, Squelch, Test, wait_for};
use serde_json::{Value, json};

const STORM: Duration = Duration::from_secs(60);

/// How soon a changed label is to take effect: a second, on a machine that has nothing else to do.
const SOON: Duration = Duration::from_secs(5);

/// A spec for the namespaces of this test alone: they carry a label that no other has.
fn selecting(test: &Test, rest: &Value) -> Value {
    let mut spec = json!({ "namespaceSelector": { "matchLabels": { "test": test.namespace } } });
    if let (Some(spec), Some(rest)) = (spec.as_object_mut(), rest.as_object()) {
        spec.extend(rest.clone());
    }
    spec
}

/// Labels the namespace of `labelled`, or takes the label away.
async fn label(labelled: &Test, value: Option<&str>) -> Result<()> {
    let change = value.map_or_else(|| "test-".to_owned(), |value| format!("test={value}"));
    labelled.kubectl().run(&["label", "--overwrite", "namespace", &labelled.namespace, &change]).await?;
    Ok(())
}

/// How many occurrences of this namespace a policy has received.
async fn received(squelch: &Squelch, test: &Test, policy: &Policy) -> Result<i64> {
    let labels = [("event_namespace", test.namespace.as_str()), ("policy", policy.label.as_str())];
    Ok(squelch.metrics().await?.sum("squelch_events_total", &labels) as i64)
}

/// Waits until a write in the namespace of `test` is decided by `policy`, or by none. Each look makes one write.
async fn decided_by(test: &Test, squelch: &Squelch, policy: Option<&Policy>, within: Duration) -> Result<()> {
    let began = std::time::Instant::now();
    wait_for("the policy that governs", within, async || {
        let labels = [("event_namespace", test.namespace.as_str())];
        let all =
            async || Ok::<_, anyhow::Error>(squelch.metrics().await?.sum("squelch_events_total", &labels));
        let by = async || match policy {
            Some(policy) => received(squelch, test, policy).await.map(|received| received as f64),
            None => Ok(0.0),
        };
        let before = (all().await.map_err(told)?, by().await.map_err(told)?);
        write_one(test).await.map_err(told)?;
        let after = (all().await.map_err(told)?, by().await.map_err(told)?);
        let expected = if policy.is_some() { 1.0 } else { 0.0 };
        let grew = (after.0 - before.0, after.1 - before.1);
        if grew == (expected, expected) { Ok(()) } else { Err(format!("(by any, by it) grew by {grew:?}")) }
    })
    .await?;
    eprintln!("another policy decides after {} ms", began.elapsed().as_millis());
    Ok(())
}

/// One more Event, which is stored unless its policy folds repeats.
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

/// Counts, and holds nothing back.
fn counting() -> Value {
    let off = json!({ "disabled": true });
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
    // One status sums both up.
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
    // What is owed is paid.
    test.one_event("pod-0", 30).await?;
    second.one_event("pod-0", 30).await?;
    test.passed()
}

#[tokio::test]
async fn a_changed_label_takes_effect_within_a_second_and_what_is_owed_is_paid() -> Result<()> {
    let test = Test::begin("relabel").await?;
    let squelch = test.squelch().await?;
    let policy = test.cluster_policy();
    policy.put(&test.kubectl(), &selecting(&test, &counting())).await?;
    policy.says("Effective", "False", "NoNamespaces", "No namespace has the labels").await?;
    label(&test, Some(&test.namespace)).await?;
    decided_by(&test, &squelch, Some(&policy), SOON).await?;
    policy.effective().await?;
    label(&test, None).await?;
    decided_by(&test, &squelch, None, SOON).await?;
    policy.says("Effective", "False", "NoNamespaces", "").await?;

    // With a series that owes when the label goes.
    label(&test, Some(&test.namespace)).await?;
    policy
        .change(&test.kubectl(), &selecting(&test, &json!({ "series": { "idleTimeout": "8760h" } })))
        .await?;
    let before = policy.counters().await?.received;
    test.emit(&Emission::creates_core().about("pod", 1).count(100).rate(100))?.finish(STORM).await?;
    policy.received(before + 100).await?;
    label(&test, None).await?;
    test.one_event("pod-0", 100).await?;
    squelch.is_quiet(GENEROUS).await?;
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn override_beats_the_policies_of_the_namespace_and_default_yields_to_them() -> Result<()> {
    let test = Test::begin("precedence").await?;
    label(&test, Some(&test.namespace)).await?;
    let squelch = test.squelch().await?;
    let kubectl = test.kubectl();
    let own = test.policy(&counting()).await?;
    let cluster = test.cluster_policy();
    let mut spec = selecting(&test, &counting());
    spec["priority"] = json!(100_000);

    cluster.put(&kubectl, &spec).await?;
    let by_own = format!("in {} it is EventPolicy policy", test.namespace);
    cluster.says("Effective", "False", "Overridden", &by_own).await?;
    own.effective().await?;
    decided_by(&test, &squelch, Some(&own), GENEROUS).await?;

    spec["precedence"] = json!("Override");
    cluster.change(&kubectl, &spec).await?;
    let by_cluster = format!("ClusterEventPolicy {} has precedence", cluster.name);
    own.says("Effective", "False", "Overridden", &by_cluster).await?;
    decided_by(&test, &squelch, Some(&cluster), GENEROUS).await?;

    // One that leaves something leaves it to the namespace.
    spec["match"] = json!({ "types": ["Warning"] });
    cluster.change(&kubectl, &spec).await?;
    own.effective().await?;
    decided_by(&test, &squelch, Some(&own), GENEROUS).await?;
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn a_policy_for_every_namespace_governs_one_that_is_made_later() -> Result<()> {
    let test = Test::begin("everywhere").await?;
    let squelch = test.squelch().await?;
    let policy = test.cluster_policy();
    policy.change(&test.kubectl(), &counting()).await?;
    let later = test.neighbour().await?;
    // The very first write.
    write_one(&later).await?;
    wait_for("the first write to be counted", GENEROUS, async || {
        let received = received(&squelch, &later, &policy).await.map_err(told)?;
        if received == 1 { Ok(()) } else { Err(format!("{received} received")) }
    })
    .await?;
    let metrics = squelch.metrics().await?;
    for condition in ["Accepted", "Effective"] {
        let labels = [("kind", "ClusterEventPolicy"), ("condition", condition)];
        assert_eq!(metrics.sum("squelch_policies", &labels) as i64, 1, "{condition}");
    }
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn a_wrong_cluster_policy_is_refused_and_its_sentence_says_what_is_wrong() -> Result<()> {
    let test = Test::begin("wrong").await?;
    let squelch = test.squelch().await?;
    let policy = test.cluster_policy();
    let texts: Vec<_> = (10..30).map(|number| format!("*{number}{}*", "x".repeat(120))).collect();
    for (spec, sentence) in [
        (
            json!({ "namespaceSelector": { "matchLabels": { "my team": "shop" } } }),
            "spec.namespaceSelector.matchLabels: Invalid value: key must be the key of a label",
        ),
        (json!({ "match": { "reasons": texts } }), "comparing its texts takes too long"),
    ] {
        let refused = policy.put(&test.kubectl(), &spec).await.err().map(told).unwrap_or_default();
        ensure!(refused.contains(sentence), "{spec}: {refused}");
    }
    let explained = test.kubectl().run(&["explain", "clustereventpolicy.spec", "--recursive"]).await?;
    for field in ["namespaceSelector", "matchExpressions", "operator", "precedence", "spamFilter"] {
        ensure!(explained.contains(field), "{field} is not explained:\n{explained}");
    }
    squelch.stop().await?;
    test.passed()
}
