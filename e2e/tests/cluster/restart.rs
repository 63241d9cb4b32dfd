//! squelch is restarted during a storm.

use anyhow::{Result, ensure};
use e2e::emitters::{Call, RunningEmitter};
use e2e::policy::idle_after;
use e2e::squelch::StartOptions;
use e2e::wait::{not_yet, wait_for};
use e2e::writes::never_lowered;
use e2e::{Emission, GENEROUS, STORM, Test};
use serde_json::{Value, json};

const OCCURRENCES: i64 = 500;
const RATE: u32 = 50;

/// Waits for more calls of an emitter.
async fn wait_for_calls(storm: &RunningEmitter, calls: usize) -> Result<usize> {
    let seen = storm.so_far()?.calls.len();
    Ok(storm.wait_for_calls(seen + calls, STORM).await?.calls.len())
}

/// Checks that each call succeeded, or found no Event and was followed by a CREATE.
fn none_was_refused(calls: &[Call]) -> Result<()> {
    let refused: Vec<_> = calls.iter().filter(|call| !call.succeeded() && call.status != 404).collect();
    ensure!(refused.is_empty(), "refused while squelch was down: {refused:?}");
    ensure!(!calls.is_empty(), "there was no call while squelch was down");
    Ok(())
}

async fn rules(test: &Test) -> Result<Value> {
    let configuration = "mutatingwebhookconfiguration/squelch";
    let text = test.kubectl().run(&["get", configuration, "--output=json"]).await?;
    let configuration: Value = serde_json::from_str(&text)?;
    Ok(configuration["webhooks"][0]["rules"].clone())
}

async fn nothing_is_lost(label: &str, emission: Emission) -> Result<()> {
    let test = Test::begin(label).await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&idle_after("3s")).await?;
    let writes = test.writes().await?;

    let storm = test.emit(&emission.about("pod", 2).count(OCCURRENCES / 2).rate(RATE))?;
    storm.wait_for_calls(100, STORM).await?;
    squelch.stop().await?;
    ensure!(rules(&test).await?.as_array().is_none_or(Vec::is_empty), "the rules are still configured");

    let gone = storm.so_far()?.calls.len();
    // Two calls may have been in flight when squelch exited.
    let back = wait_for_calls(&storm, 100).await?;
    none_was_refused(&storm.so_far()?.calls[gone + 2..back])?;

    let squelch = test.squelch().await?;
    policy.effective().await?;
    storm.finish(STORM).await?;
    for object in ["pod-0", "pod-1"] {
        test.one_event(object, OCCURRENCES / 2).await?;
    }
    squelch.wait_until_idle(GENEROUS).await?;
    let counters = policy.counters().await?;
    // Most of the storm was reviewed, except for the writes during the restart.
    ensure!(counters.are_conserved(), "{counters:?}");
    ensure!(counters.compacted > 50 && counters.received < OCCURRENCES, "{counters:?}");
    never_lowered(&writes.so_far().await?)?;
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn a_restart_in_a_storm_of_the_legacy_recorder_loses_nothing() -> Result<()> {
    nothing_is_lost("restart-legacy", Emission::legacy()).await
}

#[tokio::test]
async fn a_restart_in_a_storm_of_kubes_recorder_loses_nothing() -> Result<()> {
    nothing_is_lost("restart-kube", Emission::kube()).await
}

/// Two clients of one identity: during shutdown squelch still refuses lower counts, so that occurrences stay pending.
#[tokio::test]
async fn shutdown_does_not_wait_for_a_storm() -> Result<()> {
    let test = Test::begin("end").await?;
    let squelch = test.squelch().await?;
    test.policy(&idle_after("3s")).await?;
    let storm = Emission::legacy().about("pod", 1).count(100_000).rate(RATE);
    let one = test.emit(&storm)?;
    one.wait_for_calls(50, STORM).await?;
    let other = test.emit(&storm)?;
    other.wait_for_calls(50, STORM).await?;
    squelch.stop().await?;
    ensure!(rules(&test).await?.as_array().is_none_or(Vec::is_empty), "the rules are still configured");
    ensure!(one.so_far()?.summary.is_none() && other.so_far()?.summary.is_none(), "the storm ended first");
    test.passed()
}

#[tokio::test]
async fn after_a_crash_every_write_succeeds_and_counting_resumes() -> Result<()> {
    let test = Test::begin("crash").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&idle_after("3s")).await?;

    let storm = test.emit(&Emission::legacy().about("pod", 1).count(OCCURRENCES / 2).rate(RATE))?;
    storm.wait_for_calls(80, STORM).await?;
    squelch.crash()?;
    let gone = storm.so_far()?.calls.len();
    let back = wait_for_calls(&storm, 50).await?;
    // The configuration still has rules; without an answer, failurePolicy admits the writes.
    none_was_refused(&storm.so_far()?.calls[gone + 2..back])?;

    let squelch = test.squelch().await?;
    policy.effective().await?;
    storm.finish(STORM).await?;
    // A client's absolute count reports the occurrences that the crash lost.
    test.one_event("pod-0", OCCURRENCES / 2).await?;
    squelch.stop().await?;
    test.passed()
}

/// Pending occurrences are in etcd when the process has exited, with an error code.
#[tokio::test]
async fn a_panicked_task_ends_the_process_after_a_flush() -> Result<()> {
    let test = Test::begin("panic").await?;
    let environment = &[("SQUELCH_TEST_PANIC", "status")];
    let mut squelch =
        test.squelch_with_options(StartOptions { environment, ..StartOptions::default() }).await?;
    test.policy(&idle_after("3s")).await?;
    let storm = test.emit(&Emission::legacy().about("pod", 1).count(OCCURRENCES / 2).rate(RATE))?;
    storm.wait_for_calls(80, STORM).await?;
    squelch.panic_task()?;
    let status = wait_for("squelch to end", GENEROUS, async || {
        squelch.ended().map_err(not_yet)?.ok_or_else(|| "it still runs".to_owned())
    })
    .await?;
    ensure!(status.code() == Some(1), "{status}");
    let log = squelch.log()?;
    ensure!(log.contains("the task status panicked"), "the log does not name the task");
    ensure!(!log.contains("pending occurrences lost"), "occurrences are lost");
    ensure!(rules(&test).await?.as_array().is_none_or(Vec::is_empty), "the rules are still configured");
    storm.finish(STORM).await?;
    test.one_event("pod-0", OCCURRENCES / 2).await?;
    test.passed()
}

/// Clients that create an Event per occurrence report nothing again.
#[tokio::test]
async fn a_crash_loses_only_pending_occurrences() -> Result<()> {
    let test = Test::begin("crash-cost").await?;
    let squelch = test.squelch().await?;
    let pace = |heartbeat: &str| json!({"series": {"idleTimeout": "10m", "heartbeatInterval": heartbeat}});
    let policy = test.policy(&pace("1s")).await?;
    let storm = Emission::creates_core().about("pod", 1).count(100).rate(RATE);
    assert_eq!(test.emit(&storm)?.finish(STORM).await?.sent(), 100);
    test.one_event("pod-0", 100).await?;

    policy.change(&test.kubectl(), &pace("30m")).await?;
    assert_eq!(test.emit(&storm.count(10))?.finish(STORM).await?.sent(), 10);
    policy.received(110).await?;
    let pending = squelch.metrics().await?.sum("squelch_pending_occurrences", &[]);
    assert_eq!(pending, 10.0, "less than the stored count: no flush is due");
    squelch.crash()?;
    test.one_event("pod-0", 100).await?;
    test.passed()
}
