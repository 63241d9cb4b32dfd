//! `--export-otlp` against a real OpenTelemetry collector that is stalled, stopped and started again under load.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::cluster::given;
use e2e::process::{Process, free_port};
use e2e::wait::{not_yet, pass};
use e2e::writer::percentile;
use e2e::{GENEROUS, Squelch, Test, Writer, wait_for};
use serde_json::json;
use tokio::net::TcpStream;

use crate::recordings::{array, attribute, json_lines};

/// Writes a second.
const RATE: u32 = 60;

/// How long the collector is away, and how long it does not answer, which is longer than a request of squelch waits.
const AWAY: Duration = Duration::from_secs(60);
const STALLED: Duration = Duration::from_secs(15);

/// A collector at an address of this machine, and the file that it appends to.
struct Collector {
    address: String,
    folder: PathBuf,
    starts: u32,
    process: Option<Process>,
}

impl Collector {
    fn new(test: &Test) -> Result<Self> {
        let folder = test.folder().join("collector");
        std::fs::create_dir_all(&folder)?;
        Ok(Self { address: format!("127.0.0.1:{}", free_port()?), folder, starts: 0, process: None })
    }

    async fn start(&mut self) -> Result<()> {
        let mut collector = Command::new(given("SQUELCH_PROGRAM_OTEL_COLLECTOR")?);
        collector.env("COLLECTOR_ADDRESS", &self.address).env("CONSUMER_OUT", &self.folder).arg("--config");
        collector.arg(e2e::cluster::checkout("e2e/consumers/otel-collector/otlp.yaml"));
        self.starts += 1;
        let name = format!("collector-{}", self.starts);
        self.process = Some(Process::start(&name, &mut collector, &self.folder)?);
        wait_for("the collector to listen", GENEROUS, async || {
            TcpStream::connect(&self.address).await.map(drop).map_err(not_yet)
        })
        .await
    }

    fn process(&mut self) -> Result<&mut Process> {
        self.process.as_mut().context("the collector does not run")
    }

    /// Ends it as a rollout does: it writes what it has received.
    async fn stop(&mut self) -> Result<()> {
        self.process()?.terminate()?;
        self.process()?.success(GENEROUS).await?;
        self.process = None;
        Ok(())
    }
}

/// The occurrences of a namespace by disposition, and how many records came a second time.
fn received(file: &Path, namespace: &str) -> Result<(BTreeMap<String, i64>, usize)> {
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let (mut occurrences, mut repeated, mut uids) = (BTreeMap::new(), 0, BTreeSet::new());
    for request in json_lines(&text) {
        let resources = array(&request["resourceLogs"]);
        let scopes = resources.flat_map(|resource| array(&resource["scopeLogs"]));
        for log in scopes.flat_map(|scope| array(&scope["logRecords"])) {
            let text = |name: &str| attribute(log, name).as_str().unwrap_or_default().to_owned();
            ensure!(
                text("k8s.namespace.name") == namespace && !text("squelch.policy.name").is_empty(),
                "{log}"
            );
            if !uids.insert(text("log.record.uid")) {
                repeated += 1;
                continue;
            }
            // Protobuf writes 64-bit integers as texts in JSON.
            let of = attribute(log, "squelch.occurrences");
            *occurrences.entry(text("squelch.disposition")).or_default() +=
                of.as_str().and_then(|number| number.parse::<i64>().ok()).with_context(|| log.to_string())?;
        }
    }
    Ok((occurrences, repeated))
}

async fn exports(squelch: &Squelch) -> Result<[i64; 3]> {
    let metrics = squelch.metrics().await?;
    let names = [
        "squelch_exported_occurrences_total",
        "squelch_export_lost_occurrences_total",
        "squelch_export_pending_occurrences",
    ];
    Ok(names.map(|name| metrics.sum(name, &[]) as i64))
}

/// The 99th percentile of the writes that began while `meanwhile` ran.
async fn latency(writer: &Writer, meanwhile: impl Future<Output = ()>) -> Result<Duration> {
    let from = writer.elapsed();
    meanwhile.await;
    Ok(percentile(&writer.times(), 99, from, writer.elapsed()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_stalls_stops_and_starts_again_gets_every_occurrence() -> Result<()> {
    let test = Test::begin("collector").await?;
    let mut collector = Collector::new(&test)?;
    collector.start().await?;
    let url = format!("http://{}", collector.address);
    let squelch = test.squelch_with(&["--export-otlp", &url]).await?;
    let spec = json!({ "export": { "include": "All" }, "series": { "idleTimeout": "10m" } });
    let policy = test.policy(&spec).await?;
    let writer = test.writer(RATE).await?;

    let with_collector = latency(&writer, pass(AWAY)).await?;
    collector.stop().await?;
    let without = latency(&writer, pass(AWAY)).await?;
    let [.., pending] = exports(&squelch).await?;
    ensure!(pending > 0, "nothing was pending while the collector was away");
    collector.start().await?;
    collector.process()?.signal("STOP")?;
    let stalled = latency(&writer, pass(STALLED)).await?;
    collector.process()?.signal("CONT")?;
    println!(
        "p99 with the collector: {with_collector:?}; without: {without:?}; while it stalls: {stalled:?}"
    );

    let sent = writer.stop().await.occurrences() as i64;
    let counters = policy.received(sent).await?;
    wait_for("everything to be exported", GENEROUS, async || {
        let [exported, lost, pending] = exports(&squelch).await.map_err(not_yet)?;
        let state = format!("{exported} exported, {lost} lost, {pending} pending of {sent}");
        if (exported, lost, pending) == (sent, 0, 0) { Ok(()) } else { Err(state) }
    })
    .await?;
    squelch.stop_after_trouble().await?;
    collector.stop().await?;
    let (occurrences, repeated) = received(&collector.folder.join("otlp.jsonl"), &test.namespace)?;
    println!("{sent} occurrences sent; the collector has {occurrences:?}, {repeated} records came twice");
    assert_eq!(occurrences, counters.included(|_| true));
    test.passed()
}
