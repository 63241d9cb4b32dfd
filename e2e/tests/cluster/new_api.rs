//! Recorders that write through events.k8s.io: kube's, and client-go's new one (tools/events).

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::emitters::Report;
use e2e::events;
use e2e::policy::idle_after;
use e2e::writes::{Write, every_change_raised, history, never_lowered};
use e2e::{Emission, GENEROUS, STORM, Test};

/// A series of client-go's new recorder with shortened timers ends 3 s after its last occurrence, checked every 3 s.
const LAST_PATCH: Duration = Duration::from_secs(12);
/// log2(1,000) + 1, one at the close, and one for the value 3, which is always admitted.
const MOST_WRITES: usize = 14;

fn every_call_succeeded(report: &Report) -> Result<()> {
    ensure!(report.refused().is_empty(), "not every call succeeded: {:?}", report.refused());
    ensure!(report.error_lines().is_empty(), "the client logged {:?}", report.error_lines());
    Ok(())
}

/// client-go's new recorder sends each call from a goroutine of its own: with a slow API server, the first PATCH can
/// overtake the CREATE (404), and the CREATE that follows it is refused (409). Ten seconds later the recorder retries with
/// the count of the first PATCH.
fn every_call_succeeded_or_overtook(report: &Report) -> Result<()> {
    let refused: Vec<u16> = report.refused().iter().map(|call| call.status).collect();
    let is_overtaken = matches!(*refused, [] | [404, 409]);
    ensure!(is_overtaken, "not every call succeeded: {:?}", report.refused());
    Ok(())
}

/// Checks that each suppressed PATCH was answered with the stored Event, with a `resourceVersion` of a flush. Returns
/// the number of suppressed PATCHes.
fn count_suppressed_patches(report: &Report, writes: &[Write]) -> Result<usize> {
    let mut suppressed = 0;
    for call in report.calls.iter().filter(|call| call.verb == "patch") {
        let shown = call.returned_series_count.unwrap_or(1);
        if call.sent_series_count == Some(shown) {
            continue;
        }
        suppressed += 1;
        let stored = writes.iter().find(|write| write.resource_version == call.resource_version);
        let matches = stored.is_some_and(|write| events::value(&write.event) == shown);
        ensure!(
            matches,
            "a PATCH was answered with an Event that was never stored: {call:?}\n{}",
            history(writes)
        );
    }
    Ok(suppressed)
}

#[tokio::test]
async fn a_thousand_repeats_of_kubes_recorder_succeed_and_become_one_event() -> Result<()> {
    let test = Test::begin("kube").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&idle_after("3s")).await?;
    let writes = test.writes().await?;

    let storm = Emission::kube().about("pod", 1).count(1000).rate(50);
    let report = test.emit(&storm)?.finish(STORM).await?;
    let event = test.one_event("pod-0", 1000).await?;
    squelch.wait_until_idle(GENEROUS).await?;

    assert_eq!(event.series.and_then(|series| series.count), Some(1000));
    every_call_succeeded(&report)?;
    let writes = writes.about("pod-0").await?;
    ensure!(writes.len() <= MOST_WRITES, "{} writes:\n{}", writes.len(), history(&writes));
    // A suppressed PATCH that changed the resourceVersion would be a write without a higher count.
    every_change_raised(&writes)?;
    let suppressed = count_suppressed_patches(&report, &writes)?;
    ensure!(suppressed > 900, "only {suppressed} PATCHes were suppressed");
    policy.received(1000).await?;
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn two_kube_recorders_with_one_identity_share_one_event_whose_count_never_falls() -> Result<()> {
    let test = Test::begin("kube-twins").await?;
    let squelch = test.squelch().await?;
    // The second process may start seconds after the first has ended.
    let policy = test.policy(&idle_after("12s")).await?;
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
    squelch.wait_until_idle(GENEROUS).await?;

    let writes = writes.about("pod-0").await?;
    ensure!(writes.len() <= MOST_WRITES, "{} writes:\n{}", writes.len(), history(&writes));
    never_lowered(&writes)?;
    policy.received(500).await?;
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn both_calls_of_the_new_recorder_succeed() -> Result<()> {
    let test = Test::begin("new").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&idle_after("3s")).await?;

    let storm = Emission::new_style().about("pod", 3).count(10).rate(3).in_turn();
    let report = test.emit(&storm)?.finish(STORM).await?;
    every_call_succeeded(&report)?;
    assert_eq!(report.calls.len(), 2 * 3, "{:?}", report.calls);
    for object in ["pod-0", "pod-1", "pod-2"] {
        // All that the recorder reported within its 30 minutes.
        let event = test.one_event(object, 2).await?;
        assert_eq!(event.series.and_then(|series| series.count), Some(2));
    }
    policy.received(2 * 3).await?;
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn refreshes_of_a_live_series_keep_the_count_right() -> Result<()> {
    let test = Test::begin("new-live").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&idle_after("20s")).await?;
    let writes = test.writes().await?;

    let storm = Emission::new_style_fast().rate(30).linger(LAST_PATCH);
    let alone = test.emit(&storm.clone().about("alone", 1).count(450))?;
    let one = test.emit(&storm.clone().about("shared", 1).count(420).instance("one"))?;
    let two = test.emit(&storm.about("shared", 1).count(390).instance("two"))?;
    for emitter in [alone, one, two] {
        let report = emitter.finish(STORM).await?;
        every_call_succeeded_or_overtook(&report)?;
        refreshed(&report)?;
    }
    test.one_event("alone-0", 450).await?;
    // Each identity has its own series.
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
async fn refreshes_of_a_closed_series_keep_the_count_right() -> Result<()> {
    let test = Test::begin("new-closed").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&idle_after("2s")).await?;
    let writes = test.writes().await?;

    let storm = Emission::new_style_fast().about("pod", 1).count(450).rate(30).linger(LAST_PATCH);
    let report = test.emit(&storm)?.finish(STORM).await?;
    test.one_event("pod-0", 450).await?;
    every_call_succeeded_or_overtook(&report)?;
    refreshed(&report)?;
    never_lowered(&writes.so_far().await?)?;
    policy.received(450).await?;
    squelch.stop().await?;
    test.passed()
}

/// The first and second occurrence, two refreshes, and the last.
fn refreshed(report: &Report) -> Result<()> {
    ensure!(report.calls.len() >= 5, "the recorder did not refresh: {:?}", report.calls);
    Ok(())
}
