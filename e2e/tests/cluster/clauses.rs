//! `match`, `exclude`, `exempt` and `mute`: what a policy governs, and what becomes of it.

use anyhow::{Result, ensure};
use e2e::policy::series_alone;
use e2e::{Emission, Policy, STORM, Test, conservation};
use serde_json::json;

fn pulled(emission: Emission, object: &str, event_type: &str) -> Emission {
    emission.about(object, 1).reason("Pulled").with("--type", event_type).count(20).rate(50)
}

#[tokio::test]
async fn muted_events_of_every_client_are_counted_and_not_stored() -> Result<()> {
    let test = Test::begin("mute").await?;
    let squelch = test.squelch().await?;
    let mute = json!([{ "types": ["Normal"], "reasons": ["Pull*"] }]);
    let exempt = json!([{ "messages": ["*kept*"] }]);
    let policy = test.policy(&series_alone(&json!({ "mute": mute, "exempt": exempt }))).await?;
    let writes = test.writes().await?;

    let (mut muted, mut sent) = (0, 0);
    for (object, emission) in Emission::of_each_kind() {
        let report = test.emit(&pulled(emission, object, "Normal"))?.finish(STORM).await?;
        muted += report.sent();
        let stored = test.events(Some(&format!("{object}-0"))).await?;
        ensure!(stored.is_empty(), "{object}: {}", e2e::events::list(&stored));
    }
    sent += muted;
    ensure!(writes.so_far().await?.is_empty(), "squelch or a client wrote a muted Event");
    // A Warning of the same reason, and an exempt Event.
    let warning = pulled(Emission::legacy(), "warning", "Warning");
    let kept = pulled(Emission::legacy(), "kept", "Normal").message("must be kept");
    for emission in [warning, kept] {
        sent += test.emit(&emission)?.finish(STORM).await?.sent();
    }
    let counters = conservation::holds(&test, squelch, &policy, sent).await?;
    assert_eq!((counters.muted, counters.dropped_warnings), (muted, 0), "{counters:?}");
    for object in ["warning-0", "kept-0"] {
        test.one_event(object, 20).await?;
    }
    test.passed()
}

#[tokio::test]
async fn an_update_of_a_muted_event_changes_nothing() -> Result<()> {
    let test = Test::begin("mute-later").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&series_alone(&json!({}))).await?;
    let kubectl = test.kubectl();
    let event = |count: i64| {
        json!({
            "apiVersion": "v1", "kind": "Event", "metadata": { "name": "pod.1" }, "count": count, "type": "Normal",
            "reason": "Pulled", "message": "m", "source": { "component": "kubelet" },
            "involvedObject": { "kind": "Pod", "name": "pod", "namespace": test.namespace },
            "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": format!("2026-01-01T00:00:{count:02}Z"),
        })
        .to_string()
    };
    kubectl.run_with(&["create", "-f", "-"], event(1)).await?;
    policy.received(1).await?;

    policy.change(&kubectl, &series_alone(&json!({ "mute": [{ "reasons": ["Pulled"] }] }))).await?;
    for count in 2..=4 {
        let refused = kubectl.run_with(&["replace", "-f", "-"], event(count)).await;
        ensure!(refused.is_err_and(|error| error.to_string().contains("muted")), "an update was not refused");
    }
    test.one_event("pod", 1).await?;
    // A label is no occurrence.
    for label in ["seen=true", "seen-"] {
        kubectl.run(&["label", "event", "pod.1", label]).await?;
    }

    // From then on it counts again. Its client's count includes what was muted.
    policy.change(&kubectl, &series_alone(&json!({}))).await?;
    let merged = kubectl.run_with(&["replace", "-f", "-"], event(5)).await;
    let counters = policy.received(5).await?;
    assert_eq!(counters.muted, 3, "{counters:?} {merged:?}");
    conservation::holds(&test, squelch, &policy, 5).await?;
    test.passed()
}

#[tokio::test]
async fn excluded_events_are_left_to_the_next_policy() -> Result<()> {
    let test = Test::begin("exclude").await?;
    let squelch = test.squelch().await?;
    let kubectl = test.kubectl();
    let rest =
        Policy::apply(test.client(), &kubectl, &test.namespace, "rest", &series_alone(&json!({}))).await?;
    let first = series_alone(&json!({
        "priority": 1,
        // Alternatives: one entry has to match.
        "match": [{ "reasons": ["Audit*"] }, { "messages": ["*refused*"] }],
        "exclude": [{ "reasons": ["AuditSlow"], "types": ["Normal"] }],
    }));
    let policy = test.policy(&first).await?;
    let storm = |object: &str, reason: &str, event_type: &str, message: &str| {
        let emission = Emission::legacy().about(object, 1).reason(reason).message(message);
        emission.with("--type", event_type).count(10).rate(50)
    };
    for (object, reason, event_type, message) in [
        ("one", "AuditFailed", "Normal", "m"),
        ("two", "BackOff", "Warning", "connection refused by peer"),
        ("three", "AuditSlow", "Warning", "m"),
        ("excluded", "AuditSlow", "Normal", "connection refused by peer"),
        ("other", "BackOff", "Normal", "m"),
    ] {
        test.emit(&storm(object, reason, event_type, message))?.finish(STORM).await?;
    }
    policy.received(30).await?;
    rest.received(20).await?;
    squelch.stop().await?;
    for object in ["one-0", "two-0", "three-0", "excluded-0", "other-0"] {
        test.one_event(object, 10).await?;
    }
    test.passed()
}

#[tokio::test]
async fn observe_counts_what_enforce_would_mute() -> Result<()> {
    let test = Test::begin("mute-observe").await?;
    let squelch = test.squelch().await?;
    let spec = series_alone(&json!({
        "mode": "Observe", "warningPolicy": "Limit", "mute": [{ "reasons": ["Pulled"] }],
    }));
    let policy = test.policy(&spec).await?;
    test.emit(&pulled(Emission::creates_core(), "pod", "Warning"))?.finish(STORM).await?;
    let counters = policy.received(20).await?;
    assert_eq!((counters.muted, counters.dropped_warnings), (20, 20), "{counters:?}");
    let namespace = ("event_namespace", test.namespace.as_str());
    let observed = squelch.metrics().await?.sum("squelch_observed_dropped_warnings_total", &[namespace]);
    assert_eq!(observed as i64, 20);
    assert_eq!(test.events(None).await?.len(), 20, "Observe stores every write");
    squelch.stop().await?;
    test.passed()
}
