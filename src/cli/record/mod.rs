//! `squelch record`: watches Events, and writes a trace for `squelch replay`.
//!
//! `recording` is the state: pages of lists and events of a watch in, lines and counts out. `stream` talks to the API
//! server, `output` writes the file, `summary` is the text at the end.

mod event;
mod output;
mod progress;
mod recording;
mod stream;
mod summary;

use std::future::pending;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::sleep;

use super::{ClusterConnection, ClusterFlags};
use crate::api::parse_duration;
use crate::clock;
use output::{TraceOutput, is_standard_output};
use progress::RecordProgress;
use stream::RecordedEvents;
use summary::summary;

/// The end of `squelch record --help`.
const MORE: &str = "\
Examples:
  squelch record -n shop --for 30m --file trace.jsonl
  squelch record --all-namespaces --for 10m | gzip > trace.jsonl.gz
  squelch replay --policy policy.yaml --all-namespaces trace.jsonl

Exit codes: 0 recorded to the end, also after Ctrl-C; 1 the Events cannot be read, or the file cannot be written;
2 wrong usage. The user needs the verbs list and watch on events. docs/kubectl-squelch.md says what a recording lacks.";

/// Flags of `squelch record`.
#[derive(Clone, Debug, Args)]
#[command(after_help = MORE)]
pub struct RecordOptions {
    /// The cluster and the namespace.
    #[command(flatten)]
    pub cluster: ClusterFlags,

    /// Record the Events of all namespaces, whatever -n says
    #[arg(short = 'A', long, help_heading = "Cluster")]
    pub all_namespaces: bool,

    /// Time to record, such as 30m [default: until Ctrl-C]
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    pub duration: Option<Duration>,

    /// File for the trace. - is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub file: PathBuf,

    /// Replace an existing file
    #[arg(long)]
    pub force: bool,
}

/// Records until the time is over, a signal arrives, or the reader of standard output has closed it.
///
/// # Errors
/// The Events cannot be read, or the file cannot be written.
pub async fn run(options: &RecordOptions) -> Result<()> {
    output::check(&options.file, options.force)?;
    let ClusterConnection { client, namespace } = ClusterConnection::connect(&options.cluster).await?;
    let events = RecordedEvents::new(client, (!options.all_namespaces).then_some(namespace.as_str()));
    let (mut recording, watch) = events.begin().await?;
    let end = End::new(options.duration)?;
    let trace = TraceOutput::open(&options.file, options.force)?;
    let shares_terminal = is_standard_output(&options.file) && io::stdout().is_terminal();
    let progress = RecordProgress::new(shares_terminal);
    tokio::select! {
        biased;
        () = end.wait() => {}
        () = events.record(&mut recording, watch, &trace.lines, &progress) => {}
    }
    progress.finish();
    let file = output::name(&options.file);
    match trace.finish().await {
        // As a reader such as `head` does.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
        written => written.with_context(|| {
            format!(
                "cannot write {file}; its last line may be cut: replay it with --skip-bad, or record again"
            )
        })?,
    }
    let text = summary(&recording.counts(clock::now()), &events.place, &file);
    // The trace is complete, also if nobody reads standard error.
    let _ = io::stderr().write_all(text.as_bytes());
    Ok(())
}

/// What ends a recording.
struct End {
    duration: Option<Duration>,
    signals: [Signal; 2],
}

impl End {
    fn new(duration: Option<Duration>) -> Result<Self> {
        let terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
        let interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
        Ok(Self { duration, signals: [terminate, interrupt] })
    }

    async fn wait(mut self) {
        let [terminate, interrupt] = &mut self.signals;
        let over = async {
            match self.duration {
                Some(duration) => sleep(duration).await,
                None => pending().await,
            }
        };
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = over => {}
        }
    }
}

/// Parses the time to record.
fn duration(text: &str) -> Result<Duration, String> {
    let found = parse_duration(text).map_err(|bad| format!("the duration {bad}"))?;
    if found.is_zero() {
        return Err("the duration must be longer than 0, such as 30m".to_owned());
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
