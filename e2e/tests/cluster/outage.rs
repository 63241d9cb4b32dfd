//! The API server refuses what squelch writes, and takes everything else.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::matrix::Row;
use e2e::metrics::Samples;
use e2e::proxy::{Asked, Fault, Rule};
use e2e::squelch::Way;
use e2e::wait::told;
use e2e::{Detour, Emission, GENEROUS, Squelch, Test, wait_for};
use tokio::time::interval;

const STORM: Duration = Duration::from_secs(240);
/// 100 occurrences a second are far below what the API server takes.
const RATE: u32 = 100;
const OBJECTS: usize = 10;
/// What a debt of each object may take is a few KiB: this is room for the allocator's habits.
const MOST_GROWTH: f64 = (16 << 20) as f64;
/// A decision takes microseconds; a scheduler on two busy cores takes its turns.
const SOON: &str = "0.025";

/// Every write of an Event by squelch; its Leases, statuses and the webhook's configuration pass.
fn writes_of_events(asked: &Asked) -> bool {
    asked.writes() && asked.is_about("events")
}

/// How many reviews were decided, and how many of them soon.
fn decided(metrics: &Samples) -> (f64, f64) {
    let soon = metrics.sum("squelch_admission_duration_seconds_bucket", &[("le", SOON)]);
    (metrics.sum("squelch_admission_duration_seconds_count", &[]), soon)
}

fn memory(metrics: &Samples) -> f64 {
    metrics.sum("process_resident_memory_bytes", &[])
}

/// What is owed after the outage has lasted `time`; decisions went on meanwhile, and memory did not grow.
async fn outlasts(squelch: &Squelch, time: Duration) -> Result<f64> {
    let before = squelch.metrics().await?;
    let mut ends = interval(time);
    ends.tick().await;
    // It is the time that is waited for.
    ends.tick().await;
    let after = squelch.metrics().await?;
    let ((all, soon), (all_before, soon_before)) = (decided(&after), decided(&before));
    let (all, soon) = (all - all_before, soon - soon_before);
    let grown = memory(&after) - memory(&before);
    let owed = after.sum("squelch_owed_occurrences", &[]);
    eprintln!(
        "in {time:?}: {all} reviews, {soon} of them within {SOON} s; {:.1} MiB more memory; {owed} owed",
        grown / f64::from(1 << 20)
    );
    let expected = f64::from(RATE) * time.as_secs_f64();
    ensure!(all > 0.8 * expected, "{all} reviews in {time:?} at {RATE} a second");
    ensure!(soon >= 0.99 * all, "only {soon} of {all} reviews were answered within {SOON} s");
    ensure!(grown < MOST_GROWTH, "{grown} bytes more");
    Ok(owed)
}

async fn debts_are_paid_after(time: Duration) -> Result<()> {
    let test = Test::begin("outage").await?;
    let detour = Detour::start(&test.cluster).await?;
    let squelch = test.squelch_by(Way { by: Some(&detour), ..Way::default() }).await?;
    let policy = test.policy(&Row::Series.policy()).await?;

    let each = f64::from(RATE) * (time.as_secs_f64() + 10.0) / OBJECTS as f64;
    // Clients with a count of their own would pay most of it themselves.
    let storm = Emission::creates_core().about("pod", OBJECTS).count(each as i64).rate(RATE);
    let storm = test.emit(&storm)?;
    storm.has_called(OBJECTS * 5, STORM).await?;
    let ways = [Fault::Refuse(500), Fault::Refuse(503), Fault::RefuseFor(429, 1), Fault::Refuse(409)];
    detour.to_api_server.follow([Rule::new(writes_of_events, 100, ways)]);
    let owed = outlasts(&squelch, time).await?;
    // All that came meanwhile, on a machine that keeps the pace.
    let least = 0.8 * f64::from(RATE) * time.as_secs_f64();
    ensure!(owed > least, "squelch_owed_occurrences tells {owed}, expected more than {least}");
    let dealt = detour.to_api_server.dealt();
    ensure!(dealt.len() == ways.len(), "not every refusal came up: {dealt:?}");

    detour.end_all_faults();
    let sent = storm.finish(STORM).await?.sent();
    squelch.is_quiet(GENEROUS).await?;
    for object in 0..OBJECTS {
        test.one_event(&format!("pod-{object}"), each as i64).await?;
    }
    policy.received(sent).await?;
    let metrics = squelch.metrics().await?;
    assert_eq!(metrics.sum("squelch_lost_occurrences_total", &[]) as i64, 0);
    squelch.stop_after_trouble().await?;
    test.passed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_seconds_of_refused_writes_are_paid_afterwards() -> Result<()> {
    debts_are_paid_after(Duration::from_secs(10)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: just test-nothing-lost"]
async fn a_minute_of_refused_writes_is_paid_afterwards() -> Result<()> {
    debts_are_paid_after(Duration::from_secs(60)).await
}

/// A quarter of the writes are carried out without an answer: each is counted once all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_whose_answers_are_lost_count_once() -> Result<()> {
    let test = Test::begin("answers").await?;
    let detour = Detour::start(&test.cluster).await?;
    let squelch = test.squelch_by(Way { by: Some(&detour), ..Way::default() }).await?;
    let policy = test.policy(&Row::ByObject.policy()).await?;
    detour.to_api_server.follow([Rule::new(writes_of_events, 50, [Fault::CutAfter])]);

    let storm = Emission::creates_core().about("pod", 10).count(20).rate(40).with("--messages", "10");
    let sent = test.emit(&storm)?.finish(STORM).await?.sent();
    squelch.is_quiet(GENEROUS).await?;
    let cut = detour.to_api_server.dealt().get("cut after").copied().unwrap_or_default();
    ensure!(cut >= 5, "only {cut} answers were lost");
    for object in 0..10 {
        let name = format!("pod-{object}");
        wait_for(&format!("20 of {name}"), GENEROUS, async || {
            let stored = test.events(Some(&name)).await.map_err(told)?;
            let shown: i64 = stored.iter().map(e2e::events::value).sum();
            if shown == 20 { Ok(()) } else { Err(e2e::events::list(&stored)) }
        })
        .await?;
    }
    let counters = policy.received(sent).await?;
    let aggregated = usize::try_from(counters.aggregated).context("a count below zero")?;
    ensure!(aggregated > 0, "{counters:?}");
    squelch.stop_after_trouble().await?;
    test.passed()
}
