//! The API server refuses squelch's writes, and accepts all others.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::matrix::Row;
use e2e::metrics::Samples;
use e2e::proxy::{Fault, ProxiedCall, Rule};
use e2e::squelch::StartOptions;
use e2e::wait::not_yet;
use e2e::{Emission, FaultProxy, GENEROUS, STORM, Squelch, Test, wait_for};
use tokio::time::interval;

/// Rate per second, far below the capacity of the API server.
const RATE: u32 = 100;
const OBJECTS: usize = 10;
/// Consecutive failures of a namespace pause its flushes for 1, 2, 4, 8, 16, and then 30 s: more than ten of them fit in.
const FAILURES_IN_A_ROW: Duration = Duration::from_secs(300);
/// Allowed growth: a pending series takes a few KiB per object; the rest is for the allocator.
const MOST_GROWTH: f64 = (16 << 20) as f64;
/// Latency bound: a decision takes microseconds; the rest is for the scheduler of two busy cores.
const SOON: &str = "0.025";

/// Matches squelch's writes of Events, but not of its Leases, statuses and webhook configuration.
fn writes_of_events(asked: &ProxiedCall) -> bool {
    asked.writes() && asked.is_about("events")
}

/// Number of reviews, and of those within [`SOON`].
fn decided(metrics: &Samples) -> (f64, f64) {
    let soon = metrics.sum("squelch_admission_duration_seconds_bucket", &[("le", SOON)]);
    (metrics.sum("squelch_admission_duration_seconds_count", &[]), soon)
}

fn memory(metrics: &Samples) -> f64 {
    metrics.sum("process_resident_memory_bytes", &[])
}

/// Checks that decisions continue and memory does not grow for `time`; returns the pending occurrences.
async fn outlasts(squelch: &Squelch, time: Duration) -> Result<f64> {
    let before = squelch.metrics().await?;
    let mut ends = interval(time);
    ends.tick().await;
    // A fixed time, not a condition.
    ends.tick().await;
    let after = squelch.metrics().await?;
    let ((all, soon), (all_before, soon_before)) = (decided(&after), decided(&before));
    let (all, soon) = (all - all_before, soon - soon_before);
    let grown = memory(&after) - memory(&before);
    let pending = after.sum("squelch_pending_occurrences", &[]);
    eprintln!(
        "in {time:?}: {all} reviews, {soon} of them within {SOON} s; {:.1} MiB more memory; {pending} pending",
        grown / f64::from(1 << 20)
    );
    let expected = f64::from(RATE) * time.as_secs_f64();
    ensure!(all > 0.8 * expected, "{all} reviews in {time:?} at {RATE} a second");
    ensure!(soon >= 0.99 * all, "only {soon} of {all} reviews were answered within {SOON} s");
    ensure!(grown < MOST_GROWTH, "{grown} bytes more");
    Ok(pending)
}

/// Waits until the Events of each object show `each` occurrences together.
async fn all_are_stored(test: &Test, objects: usize, each: i64) -> Result<()> {
    for object in 0..objects {
        let name = format!("pod-{object}");
        wait_for(&format!("{each} of {name}"), GENEROUS, async || {
            let stored = test.events(Some(&name)).await.map_err(not_yet)?;
            let shown: i64 = stored.iter().map(e2e::events::value).sum();
            if shown == each { Ok(()) } else { Err(e2e::events::list(&stored)) }
        })
        .await?;
    }
    Ok(())
}

async fn pending_counts_are_flushed_after(time: Duration) -> Result<()> {
    let test = Test::begin("outage").await?;
    let proxy = FaultProxy::start(&test.cluster).await?;
    let squelch =
        test.squelch_with_options(StartOptions { proxy: Some(&proxy), ..StartOptions::default() }).await?;
    let policy = test.policy(&Row::Series.policy()).await?;

    let each = f64::from(RATE) * (time.as_secs_f64() + 10.0) / OBJECTS as f64;
    // Clients with absolute counts would report most occurrences themselves.
    let storm = Emission::creates_core().about("pod", OBJECTS).count(each as i64).rate(RATE);
    let storm = test.emit(&storm)?;
    storm.wait_for_calls(OBJECTS * 5, STORM).await?;
    let ways = [Fault::Refuse(500), Fault::Refuse(503), Fault::RefuseFor(429, 1), Fault::Refuse(409)];
    proxy.to_api_server.follow([Rule::new(writes_of_events, 100, ways)]);
    let pending = outlasts(&squelch, time).await?;
    // All occurrences meanwhile, if the machine keeps the rate.
    let least = 0.8 * f64::from(RATE) * time.as_secs_f64();
    ensure!(pending > least, "squelch_pending_occurrences is {pending}, expected more than {least}");
    let injected = proxy.to_api_server.injected();
    ensure!(injected.len() == ways.len(), "not every refusal was injected: {injected:?}");

    proxy.end_all_faults();
    let sent = storm.finish(STORM).await?.sent();
    squelch.wait_until_idle(GENEROUS).await?;
    all_are_stored(&test, OBJECTS, each as i64).await?;
    policy.received(sent).await?;
    let metrics = squelch.metrics().await?;
    assert_eq!(metrics.sum("squelch_lost_occurrences_total", &[]) as i64, 0);
    squelch.stop_after_trouble().await?;
    test.passed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_refused_for_ten_seconds_are_flushed_afterwards() -> Result<()> {
    pending_counts_are_flushed_after(Duration::from_secs(10)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: just test-nothing-lost"]
async fn writes_refused_for_a_minute_are_flushed_afterwards() -> Result<()> {
    pending_counts_are_flushed_after(Duration::from_secs(60)).await
}

/// Half of the flushes are executed without an answer: each is counted once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushes_without_an_answer_are_counted_once() -> Result<()> {
    let test = Test::begin("answers").await?;
    let proxy = FaultProxy::start(&test.cluster).await?;
    let squelch =
        test.squelch_with_options(StartOptions { proxy: Some(&proxy), ..StartOptions::default() }).await?;
    let policy = test.policy(&Row::ByObject.policy()).await?;
    // Not the probe, which writes into another namespace.
    let namespace = test.namespace.clone();
    let flushes = move |asked: &ProxiedCall| writes_of_events(asked) && asked.is_within(&namespace);
    proxy.to_api_server.follow([Rule::new(flushes, 50, [Fault::CutAfter])]);

    let storm = Emission::creates_core().about("pod", 10).count(20).rate(40).with("--messages", "10");
    let sent = test.emit(&storm)?.finish(STORM).await?.sent();
    squelch.wait_until_idle(FAILURES_IN_A_ROW).await?;
    let cut = proxy.to_api_server.injected().get("cut after").copied().unwrap_or_default();
    ensure!(cut >= 5, "only {cut} answers were lost");
    all_are_stored(&test, 10, 20).await?;
    let counters = policy.received(sent).await?;
    let aggregated = usize::try_from(counters.aggregated).context("a count below zero")?;
    ensure!(aggregated > 0, "{counters:?}");
    squelch.stop_after_trouble().await?;
    test.passed()
}
