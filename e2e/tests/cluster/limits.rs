//! The spam filter and the budget: what has no token is dropped, and counted to the last one.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::emitters::Told;
use e2e::{Emission, Test, law};
use serde_json::{Value, json};

const STORM: Duration = Duration::from_secs(120);

/// A policy with this spam filter, whose tokens do not come back, and no aggregation.
fn filtering(mut filter: Value) -> Value {
    filter["refillInterval"] = json!("720h");
    json!({ "aggregation": { "disabled": true }, "spamFilter": filter })
}

/// Everything that was refused was refused with this status.
fn was_refused(told: &Told, status: u16, times: usize) -> Result<()> {
    let refused = told.refused();
    ensure!(refused.iter().all(|call| call.status == status), "{refused:?}");
    assert_eq!(refused.len(), times);
    Ok(())
}

#[tokio::test]
async fn beyond_the_burst_of_each_object_all_is_filtered() -> Result<()> {
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
        let told = test.emit(&storm)?.finish(STORM).await?;
        was_refused(&told, 409, 2 * 45)?;
        ensure!(told.error_lines().is_empty(), "{prefix} logged {:?}", told.error_lines());
        for object in [format!("{prefix}-0"), format!("{prefix}-1")] {
            assert_eq!(test.events(Some(&object)).await?.len(), 5, "{object}");
        }
    }
    let counters = law::holds(&test, squelch, &policy, 4 * 100).await?;
    assert_eq!((counters.admitted, counters.filtered), (4 * 10, 4 * 90), "{counters:?}");
    assert_eq!(writes.so_far().await?.len(), 4 * 10, "nothing is written for what was dropped");
    test.passed()
}

#[tokio::test]
async fn buckets_are_per_what_the_policy_says() -> Result<()> {
    let test = Test::begin("filter-per").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&filtering(json!({ "burst": 5, "per": ["Type", "Reason"] }))).await?;
    let storm = Emission::creates_core().with("--messages", "distinct").count(20).rate(200);
    // Two reasons, each told of two objects by two emitters: two buckets.
    for (instance, reason) in [("one", "BackOff"), ("two", "BackOff"), ("one", "Failed"), ("two", "Failed")] {
        let storm = storm.clone().about(instance, 2).instance(instance).reason(reason);
        test.emit(&storm)?.finish(STORM).await?;
    }
    let counters = law::holds(&test, squelch, &policy, 4 * 40).await?;
    assert_eq!((counters.admitted, counters.filtered), (2 * 5, 4 * 40 - 10), "{counters:?}");
    test.passed()
}

#[tokio::test]
async fn the_budget_is_the_namespaces_and_folds_are_free() -> Result<()> {
    let test = Test::begin("budget").await?;
    let squelch = test.squelch().await?;
    let off = json!({ "disabled": true });
    let budget = json!({ "burst": 20, "refillInterval": "720h" });
    let policy = test.policy(&json!({ "aggregation": off, "spamFilter": off, "budget": budget })).await?;

    // Two tokens for 200 occurrences: the repeats are folded.
    let told = test.emit(&Emission::legacy().about("same", 2).count(100).rate(200))?.finish(STORM).await?;
    ensure!(told.error_lines().is_empty(), "{:?}", told.error_lines());
    let distinct = Emission::creates_core().with("--messages", "distinct").count(30).rate(200);
    was_refused(&test.emit(&distinct.clone().about("a", 1))?.finish(STORM).await?, 409, 30 - 18)?;
    was_refused(&test.emit(&distinct.about("b", 1))?.finish(STORM).await?, 409, 30)?;
    let counters = law::holds(&test, squelch, &policy, 200 + 60).await?;
    assert_eq!(counters.admitted + counters.compacted, 200 + 18, "{counters:?}");
    assert_eq!((counters.throttled, counters.filtered), (60 - 18, 0), "{counters:?}");
    test.passed()
}

#[tokio::test]
async fn a_token_comes_back_after_each_refill_interval() -> Result<()> {
    let test = Test::begin("refill").await?;
    let squelch = test.squelch().await?;
    let filter = json!({ "burst": 1, "refillInterval": "1s" });
    let policy = test.policy(&json!({ "aggregation": { "disabled": true }, "spamFilter": filter })).await?;
    let storm = Emission::creates_core().about("pod", 1).with("--messages", "distinct").count(120).rate(20);
    let began = std::time::Instant::now();
    test.emit(&storm)?.finish(STORM).await?;
    let seconds = began.elapsed().as_secs() as i64;
    let counters = law::holds(&test, squelch, &policy, 120).await?;
    // The storm lasts 6 s, and the emitter may take as long as it likes to begin and to end.
    ensure!((6..=seconds + 2).contains(&counters.admitted), "{counters:?} in {seconds} s");
    test.passed()
}

#[tokio::test]
async fn rejection_forbidden_is_told_with_403() -> Result<()> {
    let test = Test::begin("forbidden").await?;
    let squelch = test.squelch().await?;
    let mut spec = filtering(json!({ "burst": 1 }));
    spec["rejection"] = json!("Forbidden");
    let policy = test.policy(&spec).await?;
    let storm = Emission::creates_core().about("pod", 1).with("--messages", "distinct").count(10).rate(100);
    let told = test.emit(&storm)?.finish(STORM).await?;
    was_refused(&told, 403, 9)?;
    for call in told.refused() {
        ensure!(call.reason == "Forbidden" && call.error.contains("filtered"), "{call:?}");
    }
    law::holds(&test, squelch, &policy, 10).await?;
    test.passed()
}

#[tokio::test]
async fn a_policy_whose_stages_are_all_off_counts_and_shields() -> Result<()> {
    let test = Test::begin("all-off").await?;
    let squelch = test.squelch().await?;
    // What it governs is kept from the policy below it, which would drop all but one.
    let below = filtering(json!({ "burst": 1 }));
    let kubectl = test.kubectl();
    e2e::Policy::apply(test.client(), &kubectl, &test.namespace, "below", &below).await?;
    let off = json!({ "disabled": true });
    let spec = json!({
        "priority": 1, "match": { "reasons": ["Audit*"] }, "series": off, "aggregation": off, "spamFilter": off,
    });
    let policy = test.policy(&spec).await?;
    for emission in [Emission::legacy(), Emission::kube(), Emission::creates_core()] {
        let storm = emission.about("pod", 1).reason("AuditFailed").count(20).rate(100);
        let told = test.emit(&storm)?.finish(STORM).await?;
        ensure!(told.refused().is_empty(), "{:?}", told.refused());
    }
    let counters = law::holds(&test, squelch, &policy, 60).await?;
    assert_eq!(counters.admitted, 60, "{counters:?}");
    test.passed()
}

#[tokio::test]
async fn observe_decides_at_every_stage_what_enforce_decides() -> Result<()> {
    let test = Test::begin("enforce").await?;
    let squelch = test.squelch().await?;
    let spec = json!({
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
            let told = test.emit(&storm.clone().rate(100))?.finish(STORM).await?;
            let enforced = policy.namespace != observing.namespace;
            ensure!(enforced || told.refused().is_empty(), "refused under Observe: {:?}", told.refused());
        }
    }
    let mut counted = Vec::new();
    for (test, policy) in [&test, &observing].into_iter().zip(&policies) {
        counted.push(law::counted(test, &squelch, policy, 150).await?);
    }
    assert_eq!(counted[0], counted[1]);
    // The first of its series; then three of four by their bucket, two of four by the budget.
    let counters = &counted[0];
    assert_eq!((counters.admitted, counters.compacted), (1 + 3 + 2, 49), "{counters:?}");
    assert_eq!((counters.filtered, counters.throttled, counters.aggregated), (1, 2, 2 * 46), "{counters:?}");
    squelch.stop().await?;
    assert_eq!(writes.so_far().await?.len(), 150, "under Observe all is stored, and squelch adds nothing");
    test.passed()
}
