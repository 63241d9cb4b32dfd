//! Real recorders as processes, and what they say of their calls. e2e/emitters has the programs.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::cluster::given;
use crate::process::Process;
use crate::wait::{told, wait_for};

/// An older client-go that the emitters are built with as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OldClientGo {
    /// Its new recorder counts from 1, and its legacy one leaves `reportingComponent` empty.
    V0_24,
    /// A program that was not rebuilt for a year.
    V0_32,
}

impl OldClientGo {
    fn program(self) -> &'static str {
        match self {
            Self::V0_24 => "SQUELCH_EMITTER_GO_V0_24",
            Self::V0_32 => "SQUELCH_EMITTER_GO_V0_32",
        }
    }

    /// What the emitters built with it call themselves, up to the patch release.
    pub fn says(self) -> &'static str {
        match self {
            Self::V0_24 => "client-go v0.24.",
            Self::V0_32 => "client-go v0.32.",
        }
    }
}

/// What one emitter process is to do.
#[derive(Clone, Debug)]
pub struct Emission {
    program: &'static str,
    recorder: Option<&'static str>,
    arguments: Vec<String>,
}

impl Emission {
    /// client-go's legacy recorder (tools/record), its own limits opened wide.
    pub fn legacy() -> Self {
        Self::go("SQUELCH_EMITTER_GO", "legacy").with("--spam-filter", "open").with("--aggregation", "open")
    }

    /// client-go's new recorder (tools/events), its timers as they are: 30 and 6 minutes.
    pub fn new_style() -> Self {
        Self::go("SQUELCH_EMITTER_GO", "events")
    }

    /// The same with the timers shortened to 6 s (refresh) and 3 s (a series is over).
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

    fn go(program: &'static str, recorder: &'static str) -> Self {
        Self { program, recorder: Some(recorder), arguments: Vec::new() }
    }

    /// The same recorder of an older client-go, with the timers of [`Self::new_style_fast`].
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

    /// How long the recorder is kept after its last occurrence.
    #[must_use]
    pub fn linger(self, time: Duration) -> Self {
        self.with("--linger", &format!("{}ms", time.as_millis()))
    }

    /// The API server makes the Events' names.
    #[must_use]
    pub fn generate_name(mut self) -> Self {
        self.arguments.push("--generate-name".to_owned());
        self
    }

    /// The new recorder's second and third occurrence of an object each wait for the answer to the one before.
    #[must_use]
    pub fn in_turn(mut self) -> Self {
        self.arguments.push("--in-turn".to_owned());
        self
    }

    /// Any other flag of the emitters (e2e/emitters/README.md tells them).
    #[must_use]
    pub fn with(mut self, flag: &str, value: &str) -> Self {
        self.arguments.extend([flag.to_owned(), value.to_owned()]);
        self
    }

    /// Starts it.
    ///
    /// # Errors
    /// That the program is not there.
    pub fn start(&self, name: &str, kubeconfig: &Path, namespace: &str, folder: &Path) -> Result<Emitting> {
        let mut command = Command::new(given(self.program)?);
        command.arg("--kubeconfig").arg(kubeconfig).args(["--namespace", namespace]);
        command.args(self.recorder.iter().flat_map(|recorder| ["--recorder", recorder]));
        command.args(&self.arguments);
        Ok(Emitting { process: Process::start(name, &mut command, folder)? })
    }
}

/// A running emitter.
pub struct Emitting {
    process: Process,
}

impl Emitting {
    /// What it has said so far.
    ///
    /// # Errors
    /// That a line is not what an emitter says.
    pub fn so_far(&self) -> Result<Told> {
        let text = std::fs::read_to_string(&self.process.output)?;
        // A line that is being written is not there yet.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        Told::parse(whole)
    }

    /// Waits until it has made at least this many calls.
    ///
    /// # Errors
    /// That it has not within `deadline`.
    pub async fn has_called(&self, calls: usize, deadline: Duration) -> Result<Told> {
        wait_for(&format!("{calls} calls of an emitter"), deadline, async || {
            let told_so_far = self.so_far().map_err(told)?;
            let seen = told_so_far.calls.len();
            if seen >= calls { Ok(told_so_far) } else { Err(format!("{seen} calls")) }
        })
        .await
    }

    /// Waits until it has emitted everything and has all answers.
    ///
    /// # Errors
    /// That it has not within `deadline`, or that it failed.
    pub async fn finish(mut self, deadline: Duration) -> Result<Told> {
        self.process.success(deadline).await?;
        let told = self.so_far()?;
        let summary = told.summary.as_ref().context("an emitter ended without a summary")?;
        anyhow::ensure!(summary.settled, "an emitter did not get all its answers: {summary:?}");
        Ok(told)
    }
}

/// All that an emitter says.
#[derive(Debug, Default)]
pub struct Told {
    /// Its API calls in the order of their answers.
    pub calls: Vec<Call>,
    /// What the client library logged.
    pub logs: Vec<Log>,
    /// There once it has ended.
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
    /// Whether the API server took it.
    pub fn succeeded(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// A line that the client library logged.
#[derive(Clone, Debug, Deserialize)]
pub struct Log {
    /// error or info.
    pub level: String,
    /// What it says.
    pub message: String,
}

/// An emitter's last line.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// The client library, and for client-go its version.
    pub emitter: String,
    /// What happened, as far as the emitter knows.
    pub occurrences: i64,
    /// What its calls told of it: the highest count under each Event name, added up.
    pub sent: i64,
    /// Verb to status to number of calls.
    pub calls: BTreeMap<String, BTreeMap<String, usize>>,
    /// Whether every answer came.
    pub settled: bool,
}

#[derive(Deserialize)]
#[serde(tag = "line", rename_all = "lowercase")]
enum Line {
    Call(Call),
    Log(Log),
    Summary(Summary),
}

impl Told {
    fn parse(text: &str) -> Result<Self> {
        let mut told = Self::default();
        for line in text.lines() {
            match serde_json::from_str(line).with_context(|| format!("an emitter's line: {line}"))? {
                Line::Call(call) => told.calls.push(call),
                Line::Log(log) => told.logs.push(log),
                Line::Summary(summary) => told.summary = Some(summary),
            }
        }
        Ok(told)
    }

    /// What its calls told of, once it has ended.
    pub fn sent(&self) -> i64 {
        self.summary.as_ref().map_or(0, |summary| summary.sent)
    }

    /// The error lines of the client library.
    pub fn error_lines(&self) -> Vec<&Log> {
        self.logs.iter().filter(|log| log.level == "error").collect()
    }

    /// The calls that were not taken.
    pub fn refused(&self) -> Vec<&Call> {
        self.calls.iter().filter(|call| !call.succeeded()).collect()
    }
}
