//! Recorders that write through events.k8s.io: kube's, and client-go's new one (tools/events).

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::emitters::Told;
use e2e::events;
use e2e::policy::idle_after;
use e2e::writes::{Write, every_change_raised, history, never_lowered};
use e2e::{Emission, GENEROUS, Test};

const STORM: Duration = Duration::from_secs(120);
/// A series of client-go's new recorder with shortened timers is over 3 s after its last occurrence, which is
/// looked at every 3 s.
const LAST_PATCH: Duration = Duration::from_secs(8);
/// log2(1,000) + 1, one for the closing, and one for the value 3, which always passes.
const MOST_WRITES: usize = 14;

fn every_call_succeeded(told: &Told) -> Result<()> {
    ensure!(told.refused().is_empty(), "not every call succeeded: {:?}", told.refused());
    ensure!(told.error_lines().is_empty(), "the client logged {:?}", told.error_lines());
    Ok(())
}

/// A PATCH that was held back was answered with the Event as it was stored, under a `resourceVersion` that a
/// payment had left. Returns how many there were.
fn held_back_unseen(told: &Told, writes: &[Write]) -> Result<usize> {
    let mut held_back = 0;
    for call in told.calls.iter().filter(|call| call.verb == "patch") {
        let shown = call.returned_series_count.unwrap_or(1);
        if call.sent_series_count == Some(shown) {
            continue;
        }
        held_back += 1;
        let stored = writes.iter().find(|write| write.resource_version == call.resource_version);
        let matches = stored.is_some_and(|write| events::value(&write.event) == shown);
        ensure!(matches, "a PATCH was answered with what was never stored: {call:?}\n{}", history(writes));
    }
    Ok(held_back)
}

#[tokio::test]
async fn a_thousand_repeats_of_kubes_recorder_all_succeed_and_are_one_event() -> Result<()> {
    let test = Test::begin("kube").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&idle_after("3s")).await?;
    let writes = test.writes().await?;

    let storm = Emission::kube().about("pod", 1).count(1000).rate(50);
    let told = test.emit(&storm)?.finish(STORM).await?;
    let event = test.one_event("pod-0", 1000).await?;
    squelch.is_quiet(GENEROUS).await?;

    assert_eq!(event.series.and_then(|series| series.count), Some(1000));
    every_call_succeeded(&told)?;
    let writes = writes.about("pod-0").await?;
    ensure!(writes.len() <= MOST_WRITES, "{} writes:\n{}", writes.len(), history(&writes));
    // Had a PATCH that was held back changed the resourceVersion, it would be a write that raised nothing.
    every_change_raised(&writes)?;
    let held_back = held_back_unseen(&told, &writes)?;
    ensure!(held_back > 900, "only {held_back} PATCHes were held back");
    policy.received(1000).await?;
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn two_kube_recorders_with_one_identity_share_one_event_that_neither_lowers() -> Result<()> {
    let test = Test::begin("kube-twins").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&idle_after("3s")).await?;
    let writes = test.writes().await?;

    let storm = Emission::kube().about("pod", 1).rate(40);
    let longer = test.emit(&storm.clone().count(300))?;
    let shorter = test.emit(&storm.count(200))?;
    let mut sent = 0;
    for twin in [longer, shorter] {
        sent += twin.finish(STORM).await?.sent();
    }
    assert_eq!(sent, 500);
    test.one_event("pod-0", 500).await?;
    squelch.is_quiet(GENEROUS).await?;

    let writes = writes.about("pod-0").await?;
    ensure!(writes.len() <= MOST_WRITES, "{} writes:\n{}", writes.len(), history(&writes));
    never_lowered(&writes)?;
    policy.received(500).await?;
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn the_new_recorder_has_both_its_calls_taken() -> Result<()> {
    let test = Test::begin("new").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&idle_after("3s")).await?;

    let storm = Emission::new_style().about("pod", 3).count(20).rate(15);
    let told = test.emit(&storm)?.finish(STORM).await?;
    every_call_succeeded(&told)?;
    assert_eq!(told.calls.len(), 2 * 3, "{:?}", told.calls);
    for object in ["pod-0", "pod-1", "pod-2"] {
        // All that the recorder has told within its 30 minutes.
        let event = test.one_event(object, 2).await?;
        assert_eq!(event.series.and_then(|series| series.count), Some(2));
    }
    policy.received(2 * 3).await?;
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn refreshes_of_a_live_series_leave_the_right_count() -> Result<()> {
    let test = Test::begin("new-live").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&idle_after("20s")).await?;
    let writes = test.writes().await?;

    let storm = Emission::new_style_fast().rate(30).linger(LAST_PATCH);
    let alone = test.emit(&storm.clone().about("alone", 1).count(450))?;
    let one = test.emit(&storm.clone().about("shared", 1).count(420).instance("one"))?;
    let two = test.emit(&storm.about("shared", 1).count(390).instance("two"))?;
    for emitter in [alone, one, two] {
        let told = emitter.finish(STORM).await?;
        every_call_succeeded(&told)?;
        refreshed(&told)?;
    }
    test.one_event("alone-0", 450).await?;
    // Each identity has a series of its own.
    let mut stored = test.events(Some("shared-0")).await?;
    stored.sort_by_key(|event| event.reporting_instance.clone());
    let values: Vec<i64> = stored.iter().map(events::value).collect();
    assert_eq!(values, [420, 390], "{}", events::list(&stored));
    never_lowered(&writes.so_far().await?)?;
    policy.received(450 + 420 + 390).await?;
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn refreshes_of_a_closed_series_leave_the_right_count() -> Result<()> {
    let test = Test::begin("new-closed").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&idle_after("2s")).await?;
    let writes = test.writes().await?;

    let storm = Emission::new_style_fast().about("pod", 1).count(450).rate(30).linger(LAST_PATCH);
    let told = test.emit(&storm)?.finish(STORM).await?;
    test.one_event("pod-0", 450).await?;
    every_call_succeeded(&told)?;
    refreshed(&told)?;
    never_lowered(&writes.so_far().await?)?;
    policy.received(450).await?;
    squelch.stop().await?;
    test.passed()
}

/// The first, the second, two refreshes, and the last.
fn refreshed(told: &Told) -> Result<()> {
    ensure!(told.calls.len() >= 5, "the recorder did not refresh: {:?}", told.calls);
    Ok(())
}
