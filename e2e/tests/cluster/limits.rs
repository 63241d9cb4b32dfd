//! The spam filter and the budget: Events without a token are dropped and counted exactly.

use anyhow::{Result, ensure};
use e2e::emitters::Report;
use e2e::policy::Counters;
use e2e::{Emission, STORM, Test, conservation};
use serde_json::{Value, json};

/// A policy with this spam filter, without refill in the time of the test, and without aggregation.
fn filtering(mut filter: Value) -> Value {
    filter["refillInterval"] = json!("720h");
    json!({ "warningPolicy": "Limit", "aggregation": { "mode": "Disabled" }, "spamFilter": filter })
}

/// All refused calls had this status.
fn was_refused(report: &Report, status: u16, times: usize) -> Result<()> {
    let refused = report.refused();
    ensure!(refused.iter().all(|call| call.status == status), "{refused:?}");
    assert_eq!(refused.len(), times);
    Ok(())
}

#[tokio::test]
async fn events_beyond_the_burst_of_an_object_are_filtered() -> Result<()> {
    let test = Test::begin("filter").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&filtering(json!({ "burst": 5 }))).await?;
    let writes = test.writes().await?;

    let clients = [
        ("legacy", Emission::legacy()),
        ("core", Emission::creates_core()),
        ("new", Emission::creates_new_style()),
        ("generated", Emission::creates_core().generate_name()),
    ];
    for (prefix, emission) in clients {
        let storm = emission.about(prefix, 2).with("--messages", "distinct").count(50).rate(200);
        let report = test.emit(&storm)?.finish(STORM).await?;
        was_refused(&report, 409, 2 * 45)?;
        ensure!(report.error_lines().is_empty(), "{prefix} logged {:?}", report.error_lines());
        for object in [format!("{prefix}-0"), format!("{prefix}-1")] {
            assert_eq!(test.events(Some(&object)).await?.len(), 5, "{object}");
        }
    }
    let counters = conservation::holds(&test, squelch, &policy, 4 * 100).await?;
    assert_eq!((counters.admitted, counters.filtered), (4 * 10, 4 * 90), "{counters:?}");
    assert_eq!(writes.so_far().await?.len(), 4 * 10, "dropped Events must not be written");
    test.passed()
}

#[tokio::test]
async fn by_default_no_warning_is_dropped() -> Result<()> {
    let test = Test::begin("keeps-warnings").await?;
    let squelch = test.squelch().await?;
    let off = json!({ "mode": "Disabled" });
    let filter = json!({ "burst": 5, "refillInterval": "720h" });
    let budget = json!({ "burst": 20, "refillInterval": "720h" });
    let policy = test.policy(&json!({ "aggregation": off, "spamFilter": filter, "budget": budget })).await?;
    let distinct = Emission::creates_core().with("--messages", "distinct").count(50).rate(200);
    for event_type in ["Warning", "Normal"] {
        let storm = distinct.clone().about(&event_type.to_lowercase(), 1).with("--type", event_type);
        test.emit(&storm)?.finish(STORM).await?;
    }
    let counters = conservation::holds(&test, squelch, &policy, 2 * 50).await?;
    // Warnings take no token, so the budget has all of them for Normal Events.
    let expected = (50 + 5, 45, 0, 0);
    let Counters { admitted, filtered, throttled, dropped_warnings, .. } = counters;
    assert_eq!((admitted, filtered, throttled, dropped_warnings), expected, "{counters:?}");
    assert_eq!(test.events(Some("warning-0")).await?.len(), 50);
    test.passed()
}

#[tokio::test]
async fn buckets_use_the_keys_of_the_policy() -> Result<()> {
    let test = Test::begin("filter-per").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&filtering(json!({ "burst": 5, "per": ["Type", "Reason"] }))).await?;
    let storm = Emission::creates_core().with("--messages", "distinct").count(20).rate(200);
    // Two reasons, each about two objects from two emitters: two buckets.
    for (instance, reason) in [("one", "BackOff"), ("two", "BackOff"), ("one", "Failed"), ("two", "Failed")] {
        let storm = storm.clone().about(instance, 2).instance(instance).reason(reason);
        test.emit(&storm)?.finish(STORM).await?;
    }
    let counters = conservation::holds(&test, squelch, &policy, 4 * 40).await?;
    assert_eq!((counters.admitted, counters.filtered), (2 * 5, 4 * 40 - 10), "{counters:?}");
    test.passed()
}

#[tokio::test]
async fn the_budget_counts_admitted_events_of_the_namespace_only() -> Result<()> {
    let test = Test::begin("budget").await?;
    let squelch = test.squelch().await?;
    let off = json!({ "mode": "Disabled" });
    let budget = json!({ "burst": 20, "refillInterval": "720h" });
    let spec = json!({ "warningPolicy": "Limit", "aggregation": off, "spamFilter": off, "budget": budget });
    let policy = test.policy(&spec).await?;

    // Two tokens for 200 occurrences: the repeats are compacted.
    let report = test.emit(&Emission::legacy().about("same", 2).count(100).rate(200))?.finish(STORM).await?;
    ensure!(report.error_lines().is_empty(), "{:?}", report.error_lines());
    let distinct = Emission::creates_core().with("--messages", "distinct").count(30).rate(200);
    was_refused(&test.emit(&distinct.clone().about("a", 1))?.finish(STORM).await?, 409, 30 - 18)?;
    was_refused(&test.emit(&distinct.about("b", 1))?.finish(STORM).await?, 409, 30)?;
    let counters = conservation::holds(&test, squelch, &policy, 200 + 60).await?;
    assert_eq!(counters.admitted + counters.compacted, 200 + 18, "{counters:?}");
    assert_eq!((counters.throttled, counters.filtered), (60 - 18, 0), "{counters:?}");
    test.passed()
}

#[tokio::test]
async fn a_token_is_refilled_after_each_refill_interval() -> Result<()> {
    let test = Test::begin("refill").await?;
    let squelch = test.squelch().await?;
    let filter = json!({ "burst": 1 });
    let mut spec = filtering(filter);
    spec["spamFilter"]["refillInterval"] = json!("1s");
    let policy = test.policy(&spec).await?;
    let storm = Emission::creates_core().about("pod", 1).with("--messages", "distinct").count(120).rate(20);
    let began = std::time::Instant::now();
    test.emit(&storm)?.finish(STORM).await?;
    let seconds = began.elapsed().as_secs() as i64;
    let counters = conservation::holds(&test, squelch, &policy, 120).await?;
    // The storm lasts 6 s; start and end of the emitter take additional time. Writes that waited for the processor take one
    // token together.
    ensure!((2..=seconds + 2).contains(&counters.admitted), "{counters:?} in {seconds} s");
    test.passed()
}

#[tokio::test]
async fn rejection_forbidden_answers_403() -> Result<()> {
    let test = Test::begin("forbidden").await?;
    let squelch = test.squelch().await?;
    let mut spec = filtering(json!({ "burst": 1 }));
    spec["rejection"] = json!("Forbidden");
    let policy = test.policy(&spec).await?;
    let storm = Emission::creates_core().about("pod", 1).with("--messages", "distinct").count(10).rate(100);
    let report = test.emit(&storm)?.finish(STORM).await?;
    was_refused(&report, 403, 9)?;
    for call in report.refused() {
        ensure!(call.reason == "Forbidden" && call.error.contains("filtered"), "{call:?}");
    }
    conservation::holds(&test, squelch, &policy, 10).await?;
    test.passed()
}

#[tokio::test]
async fn a_policy_with_all_stages_off_counts_and_hides_lower_policies() -> Result<()> {
    let test = Test::begin("all-off").await?;
    let squelch = test.squelch().await?;
    // The Events that it governs do not reach the next policy, which would drop all but one.
    let below = filtering(json!({ "burst": 1 }));
    let kubectl = test.kubectl();
    e2e::Policy::apply(test.client(), &kubectl, &test.namespace, "below", &below).await?;
    let off = json!({ "mode": "Disabled" });
    let spec = json!({
        "priority": 1, "match": [{ "reasons": ["Audit*"] }], "series": off, "aggregation": off, "spamFilter": off,
    });
    let policy = test.policy(&spec).await?;
    for emission in [Emission::legacy(), Emission::kube(), Emission::creates_core()] {
        let storm = emission.about("pod", 1).reason("AuditFailed").count(20).rate(100);
        let report = test.emit(&storm)?.finish(STORM).await?;
        ensure!(report.refused().is_empty(), "{:?}", report.refused());
    }
    let counters = conservation::holds(&test, squelch, &policy, 60).await?;
    assert_eq!(counters.admitted, 60, "{counters:?}");
    test.passed()
}

#[tokio::test]
async fn observe_and_enforce_count_the_same_at_every_stage() -> Result<()> {
    let test = Test::begin("enforce").await?;
    let squelch = test.squelch().await?;
    let spec = json!({
        "warningPolicy": "Limit",
        "aggregation": { "maxEvents": 5 },
        "spamFilter": { "burst": 3, "refillInterval": "720h" },
        "budget": { "burst": 6, "refillInterval": "720h" },
    });
    let observing = test.neighbour().await?;
    let mut observe = spec.clone();
    observe["mode"] = json!("Observe");
    let policies = [test.policy(&spec).await?, observing.policy(&observe).await?];
    let writes = observing.writes().await?;

    let storms = [
        Emission::creates_core().about("same", 1).count(50),
        Emission::creates_core().about("core", 1).count(50).with("--messages", "distinct"),
        Emission::creates_new_style().about("new", 1).count(50).with("--messages", "distinct"),
    ];
    for (test, policy) in [&test, &observing].into_iter().zip(&policies) {
        for storm in &storms {
            let report = test.emit(&storm.clone().rate(100))?.finish(STORM).await?;
            let enforced = policy.namespace != observing.namespace;
            ensure!(enforced || report.refused().is_empty(), "refused in Observe: {:?}", report.refused());
        }
    }
    let mut counted = Vec::new();
    for (test, policy) in [&test, &observing].into_iter().zip(&policies) {
        counted.push(conservation::status_matches_metrics(test, &squelch, policy, 150).await?);
    }
    assert_eq!(counted[0], counted[1]);
    // The first of its series; then three of four by their bucket, two of four by the budget.
    let counters = &counted[0];
    assert_eq!((counters.admitted, counters.compacted), (1 + 3 + 2, 49), "{counters:?}");
    assert_eq!((counters.filtered, counters.throttled, counters.aggregated), (1, 2, 2 * 46), "{counters:?}");
    squelch.stop().await?;
    assert_eq!(
        writes.so_far().await?.len(),
        150,
        "in Observe all Events are stored, and squelch writes none"
    );
    test.passed()
}
