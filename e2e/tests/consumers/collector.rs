//! `--export-otlp` against a real OpenTelemetry collector that is stalled, stopped and started again under load.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::collector::Exports;
use e2e::wait::{not_yet, pass};
use e2e::writer::percentile;
use e2e::{Collector, GENEROUS, Test, Writer, wait_for};
use serde_json::json;

/// Writes a second.
const RATE: u32 = 60;

/// How long the collector is away, and how long it does not answer, which is longer than a request of squelch waits.
const AWAY: Duration = Duration::from_secs(60);
const STALLED: Duration = Duration::from_secs(15);

/// The 99th percentile of the writes that began while `meanwhile` ran.
async fn latency(writer: &Writer, meanwhile: impl Future<Output = ()>) -> Result<Duration> {
    let from = writer.elapsed();
    meanwhile.await;
    Ok(percentile(&writer.times(), 99, from, writer.elapsed()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_stalls_stops_and_starts_again_gets_every_occurrence() -> Result<()> {
    let test = Test::begin("collector").await?;
    let mut collector = Collector::new(test.folder())?;
    collector.start().await?;
    let squelch = test.squelch_with(&["--export-otlp", &collector.url()]).await?;
    let spec = json!({ "export": { "include": "All" }, "series": { "idleTimeout": "10m" } });
    let policy = test.policy(&spec).await?;
    let writer = test.writer(RATE).await?;

    let with_collector = latency(&writer, pass(AWAY)).await?;
    collector.stop().await?;
    let without = latency(&writer, pass(AWAY)).await?;
    ensure!(Exports::of(&squelch).await?.pending > 0, "nothing was pending while the collector was away");
    collector.start().await?;
    collector.process()?.signal("STOP")?;
    let stalled = latency(&writer, pass(STALLED)).await?;
    collector.process()?.signal("CONT")?;
    println!(
        "p99 with the collector: {with_collector:?}; without: {without:?}; while it stalls: {stalled:?}"
    );

    let sent = writer.stop().await.occurrences() as i64;
    let counters = policy.received(sent).await?;
    let expected = Exports { exported: sent, lost: 0, pending: 0 };
    wait_for("everything to be exported", GENEROUS, async || {
        let exports = Exports::of(&squelch).await.map_err(not_yet)?;
        if exports == expected { Ok(()) } else { Err(format!("{exports:?}")) }
    })
    .await?;
    squelch.stop_after_trouble().await?;
    collector.stop().await?;
    let received = collector.received()?;
    println!("{sent} occurrences sent; the collector has {received:?}");
    let [(namespace, received)] = received.into_iter().collect::<Vec<_>>().try_into().expect("one namespace");
    assert_eq!((namespace, received.occurrences), (test.namespace.clone(), counters.included(|_| true)));
    test.passed()
}
