//! Real recorders as processes, and their reports. The programs are in e2e/emitters.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::cluster::given;
use crate::process::Process;
use crate::wait::{not_yet, wait_for};

/// An older client-go that the emitters are also built with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OldClientGo {
    /// Its new recorder counts from 1, and its legacy recorder leaves `reportingComponent` empty.
    V0_24,
    /// A client that is a year old.
    V0_32,
    /// The client before the last two releases.
    V0_35,
}

impl OldClientGo {
    fn program(self) -> &'static str {
        match self {
            Self::V0_24 => "SQUELCH_EMITTER_GO_V0_24",
            Self::V0_32 => "SQUELCH_EMITTER_GO_V0_32",
            Self::V0_35 => "SQUELCH_EMITTER_GO_V0_35",
        }
    }

    /// The client-go version in the emitters' summary, without the patch release.
    pub fn says(self) -> &'static str {
        match self {
            Self::V0_24 => "client-go v0.24.",
            Self::V0_32 => "client-go v0.32.",
            Self::V0_35 => "client-go v0.35.",
        }
    }
}

/// The command line of one emitter process.
#[derive(Clone, Debug)]
pub struct Emission {
    program: &'static str,
    recorder: Option<&'static str>,
    arguments: Vec<String>,
}

impl Emission {
    /// client-go's legacy recorder (tools/record), with its own limits disabled.
    pub fn legacy() -> Self {
        Self::go("SQUELCH_EMITTER_GO", "legacy").with("--spam-filter", "open").with("--aggregation", "open")
    }

    /// client-go's new recorder (tools/events), with its default timers: 30 and 6 minutes.
    pub fn new_style() -> Self {
        Self::go("SQUELCH_EMITTER_GO", "events")
    }

    /// Same as `new_style`, with timers of 6 s (refresh) and 3 s (end of a series).
    pub fn new_style_fast() -> Self {
        Self::go("SQUELCH_EMITTER_GO_FAST", "events")
    }

    /// No recorder: one CREATE through core/v1 per occurrence.
    pub fn creates_core() -> Self {
        Self::go("SQUELCH_EMITTER_GO", "create-core")
    }

    /// No recorder: one CREATE through events.k8s.io per occurrence.
    pub fn creates_new_style() -> Self {
        Self::go("SQUELCH_EMITTER_GO", "create-events")
    }

    /// kube's Recorder: a PATCH through events.k8s.io per repeat.
    pub fn kube() -> Self {
        Self { program: "SQUELCH_EMITTER_KUBE", recorder: None, arguments: Vec::new() }
    }

    /// One of each kind of client, with a prefix for its objects.
    pub fn of_each_kind() -> [(&'static str, Self); 5] {
        [
            ("legacy", Self::legacy()),
            ("new", Self::new_style_fast()),
            ("kube", Self::kube()),
            ("core", Self::creates_core()),
            ("generated", Self::creates_new_style().generate_name()),
        ]
    }

    fn go(program: &'static str, recorder: &'static str) -> Self {
        Self { program, recorder: Some(recorder), arguments: Vec::new() }
    }

    /// Same recorder of an older client-go, with the timers of [`Self::new_style_fast`].
    #[must_use]
    pub fn of(self, old: OldClientGo) -> Self {
        Self { program: old.program(), ..self }
    }

    /// About objects named PREFIX-0, PREFIX-1, ...
    #[must_use]
    pub fn about(self, prefix: &str, objects: usize) -> Self {
        self.with("--name-prefix", prefix).with("--objects", &objects.to_string())
    }

    /// Occurrences per object.
    #[must_use]
    pub fn count(self, occurrences: i64) -> Self {
        self.with("--count", &occurrences.to_string())
    }

    /// Occurrences per second over all objects together.
    #[must_use]
    pub fn rate(self, per_second: u32) -> Self {
        self.with("--rate", &per_second.to_string())
    }

    /// `source.host` and `reportingInstance`.
    #[must_use]
    pub fn instance(self, instance: &str) -> Self {
        self.with("--instance", instance)
    }

    /// The message of every Event.
    #[must_use]
    pub fn message(self, message: &str) -> Self {
        self.with("--message", message)
    }

    /// The reason of every Event.
    #[must_use]
    pub fn reason(self, reason: &str) -> Self {
        self.with("--reason", reason)
    }

    /// Time that the recorder runs after its last occurrence.
    #[must_use]
    pub fn linger(self, time: Duration) -> Self {
        self.with("--linger", &format!("{}ms", time.as_millis()))
    }

    /// The API server generates the names of the Events.
    #[must_use]
    pub fn generate_name(mut self) -> Self {
        self.arguments.push("--generate-name".to_owned());
        self
    }

    /// Clients without a recorder wait for each answer, and the new recorder does before an object's second and third
    /// occurrence.
    #[must_use]
    pub fn in_turn(mut self) -> Self {
        self.arguments.push("--in-turn".to_owned());
        self
    }

    /// Any other flag of the emitters (e2e/emitters/README.md).
    #[must_use]
    pub fn with(mut self, flag: &str, value: &str) -> Self {
        self.arguments.extend([flag.to_owned(), value.to_owned()]);
        self
    }

    /// Starts the emitter.
    ///
    /// # Errors
    /// If the program does not exist.
    pub fn start(
        &self,
        name: &str,
        kubeconfig: &Path,
        namespace: &str,
        folder: &Path,
    ) -> Result<RunningEmitter> {
        let mut command = Command::new(given(self.program)?);
        command.arg("--kubeconfig").arg(kubeconfig).args(["--namespace", namespace]);
        command.args(self.recorder.iter().flat_map(|recorder| ["--recorder", recorder]));
        command.args(&self.arguments);
        Ok(RunningEmitter { process: Process::start(name, &mut command, folder)? })
    }
}

/// A running emitter.
pub struct RunningEmitter {
    process: Process,
}

impl RunningEmitter {
    /// Its report so far.
    ///
    /// # Errors
    /// If a line is invalid.
    pub fn so_far(&self) -> Result<Report> {
        let text = std::fs::read_to_string(&self.process.output)?;
        // The last line may be incomplete.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        Report::parse(whole)
    }

    /// Waits until it has made at least this many calls.
    ///
    /// # Errors
    /// If the deadline passes.
    pub async fn wait_for_calls(&self, calls: usize, deadline: Duration) -> Result<Report> {
        wait_for(&format!("{calls} calls of an emitter"), deadline, async || {
            let last_report = self.so_far().map_err(not_yet)?;
            let seen = last_report.calls.len();
            if seen >= calls { Ok(last_report) } else { Err(format!("{seen} calls")) }
        })
        .await
    }

    /// Waits until it has emitted everything and has all answers.
    ///
    /// # Errors
    /// If the deadline passes, or if it failed.
    pub async fn finish(mut self, deadline: Duration) -> Result<Report> {
        self.process.success(deadline).await?;
        let report = self.so_far()?;
        let summary = report.summary.as_ref().context("an emitter ended without a summary")?;
        anyhow::ensure!(summary.settled, "an emitter has unanswered calls: {summary:?}");
        Ok(report)
    }
}

/// The output of an emitter.
#[derive(Debug, Default)]
pub struct Report {
    /// Its API calls in the order of their answers.
    pub calls: Vec<Call>,
    /// What the client library logged.
    pub logs: Vec<Log>,
    /// Present after its end.
    pub summary: Option<Summary>,
}

/// One API call with its answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Call {
    /// create, patch or update.
    pub verb: String,
    /// The Event's name.
    pub name: String,
    /// The HTTP status; 0: no answer.
    pub status: u16,
    /// The reason of a refusal.
    pub reason: String,
    /// `count` in the request.
    pub sent_count: Option<i64>,
    /// `series.count` in the request.
    pub sent_series_count: Option<i64>,
    /// `series.count` in the answer.
    pub returned_series_count: Option<i64>,
    /// `resourceVersion` in the answer.
    pub resource_version: String,
    /// The message of a refusal.
    pub error: String,
}

impl Call {
    /// Whether the call succeeded.
    pub fn succeeded(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// A line that the client library logged.
#[derive(Clone, Debug, Deserialize)]
pub struct Log {
    /// error or info.
    pub level: String,
    /// The message.
    pub message: String,
    /// The error that it reports; empty without one.
    pub error: String,
}

/// An emitter's last line.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// The client library, and for client-go its version.
    pub emitter: String,
    /// Occurrences by the emitter's own count.
    pub occurrences: i64,
    /// Occurrences reported by its calls: the sum of the highest counts of all Event names.
    pub sent: i64,
    /// Verb to status to number of calls.
    pub calls: BTreeMap<String, BTreeMap<String, usize>>,
    /// Whether every call was answered.
    pub settled: bool,
}

#[derive(Deserialize)]
#[serde(tag = "line", rename_all = "lowercase")]
enum Line {
    Call(Call),
    Log(Log),
    Summary(Summary),
}

impl Report {
    fn parse(text: &str) -> Result<Self> {
        let mut report = Self::default();
        for line in text.lines() {
            match serde_json::from_str(line).with_context(|| format!("an emitter's line: {line}"))? {
                Line::Call(call) => report.calls.push(call),
                Line::Log(log) => report.logs.push(log),
                Line::Summary(summary) => report.summary = Some(summary),
            }
        }
        Ok(report)
    }

    /// Occurrences reported by its calls, after its end.
    pub fn sent(&self) -> i64 {
        self.summary.as_ref().map_or(0, |summary| summary.sent)
    }

    /// The error lines of the client library.
    pub fn error_lines(&self) -> Vec<&Log> {
        self.logs.iter().filter(|log| log.level == "error").collect()
    }

    /// The refused calls.
    pub fn refused(&self) -> Vec<&Call> {
        self.calls.iter().filter(|call| !call.succeeded()).collect()
    }
}
