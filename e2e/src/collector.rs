//! An OpenTelemetry collector, and what it has received of squelch's export.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tokio::net::TcpStream;

use crate::cluster::{checkout, given};
use crate::process::{Process, free_port};
use crate::wait::{GENEROUS, not_yet, wait_for};
use crate::{Squelch, otlp};

/// A collector at an address of this machine, and the file that it appends to.
pub struct Collector {
    address: String,
    folder: PathBuf,
    starts: u32,
    process: Option<Process>,
}

/// The records of a namespace.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Occurrences by disposition.
    pub occurrences: BTreeMap<String, i64>,
    /// Records that came a second time, which are not in the occurrences.
    pub repeated: usize,
}

/// Occurrences of squelch's export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exports {
    /// Accepted by the collector.
    pub exported: i64,
    /// Lost and counted.
    pub lost: i64,
    /// Not yet sent.
    pub pending: i64,
}

impl Collector {
    /// A collector that does not run yet, with its files in this folder.
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn new(folder: &Path) -> Result<Self> {
        let folder = folder.join("collector");
        std::fs::create_dir_all(&folder)?;
        Ok(Self { address: format!("127.0.0.1:{}", free_port()?), folder, starts: 0, process: None })
    }

    /// Its URL, for `--export-otlp`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Starts it, and waits until it listens.
    ///
    /// # Errors
    /// If it does not listen in time.
    pub async fn start(&mut self) -> Result<()> {
        let mut collector = Command::new(given("SQUELCH_PROGRAM_OTEL_COLLECTOR")?);
        collector.env("COLLECTOR_ADDRESS", &self.address).env("CONSUMER_OUT", &self.folder).arg("--config");
        collector.arg(checkout("e2e/consumers/otel-collector/otlp.yaml"));
        self.starts += 1;
        let name = format!("collector-{}", self.starts);
        self.process = Some(Process::start(&name, &mut collector, &self.folder)?);
        wait_for("the collector to listen", GENEROUS, async || {
            TcpStream::connect(&self.address).await.map(drop).map_err(not_yet)
        })
        .await
    }

    /// Whether it was started and not stopped.
    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// Its process.
    ///
    /// # Errors
    /// If it does not run.
    pub fn process(&mut self) -> Result<&mut Process> {
        self.process.as_mut().context("the collector does not run")
    }

    /// Ends it as a rollout does: it writes what it has received.
    ///
    /// # Errors
    /// If it does not run, or does not end in time.
    pub async fn stop(&mut self) -> Result<()> {
        self.process()?.terminate()?;
        self.process()?.success(GENEROUS).await?;
        self.process = None;
        Ok(())
    }

    /// What it has received, by namespace.
    ///
    /// # Errors
    /// If its file is unreadable, or a record has no namespace, policy or number.
    pub fn received(&self) -> Result<BTreeMap<String, Received>> {
        let file = self.folder.join("otlp.jsonl");
        let lines = BufReader::new(File::open(&file).with_context(|| file.display().to_string())?).lines();
        let (mut received, mut uids) = (BTreeMap::<String, Received>::new(), BTreeSet::new());
        for line in lines {
            let request: Value = serde_json::from_str(&line?)?;
            for log in otlp::log_records(&request) {
                let text = |name: &str| otlp::attribute(log, name).as_str().unwrap_or_default().to_owned();
                let namespace = text("k8s.namespace.name");
                ensure!(!namespace.is_empty() && !text("squelch.policy.name").is_empty(), "{log}");
                let of = received.entry(namespace).or_default();
                if !uids.insert(text("log.record.uid")) {
                    of.repeated += 1;
                    continue;
                }
                // Protobuf writes 64-bit integers as texts in JSON.
                let number = text("squelch.occurrences").parse::<i64>().with_context(|| log.to_string())?;
                *of.occurrences.entry(text("squelch.disposition")).or_default() += number;
            }
        }
        Ok(received)
    }
}

impl Exports {
    /// What squelch's metrics say.
    ///
    /// # Errors
    /// If they are unreadable.
    pub async fn of(squelch: &Squelch) -> Result<Self> {
        let metrics = squelch.metrics().await?;
        let sum = |name| metrics.sum(name, &[]) as i64;
        Ok(Self {
            exported: sum("squelch_exported_occurrences_total"),
            lost: sum("squelch_export_lost_occurrences_total"),
            pending: sum("squelch_export_pending_occurrences"),
        })
    }

    /// Waits until no occurrence is pending; returns those that were exported and lost.
    ///
    /// # Errors
    /// If the deadline passes.
    pub async fn finished(squelch: &Squelch) -> Result<Self> {
        wait_for("everything to be exported", GENEROUS, async || {
            let exports = Self::of(squelch).await.map_err(not_yet)?;
            if exports.pending == 0 { Ok(exports) } else { Err(format!("{exports:?}")) }
        })
        .await
    }
}
