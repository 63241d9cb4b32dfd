//! The three input formats, each read as a stream.

mod audit;
mod batch;
mod detect;
mod expand;
mod last_seen;
mod lines;
mod list;
mod time;
mod trace;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Cursor, Read};

pub(crate) use self::last_seen::LastSeen;

use self::audit::Audit;
use self::batch::{Batch, in_parts};
use self::detect::{PREFIX, detect};
use self::lines::Lines;
use self::trace::Trace;
use super::options::{Format, Options};
use super::progress::Progress;
use super::text::clean;
use super::{Error, WriteSink, name};

/// Maximum characters of a reason: it may quote the input.
const REASON: usize = 300;

/// An entry of the input that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}{place}: {reason}")]
pub struct BadInput {
    /// The name of the file on the command line.
    pub file: String,
    /// Line and column, or the item of a List; empty for the file as a whole.
    pub place: String,
    /// What is wrong, and what to do.
    pub reason: String,
}

/// Numbers of an input that was read.
#[derive(Clone, Debug, Default)]
pub(super) struct InputStats {
    pub(super) format: Option<Format>,
    /// Lines of a trace or an audit log, or items of a List.
    pub(super) entries: u64,
    /// Entries that are no write, or that cannot be reconstructed, by reason.
    pub(super) left_out: BTreeMap<LeftOut, u64>,
    /// Entries that `--skip-bad` skipped.
    pub(super) bad: u64,
    /// Occurrences without a write of their own, because an Event has too many.
    pub(super) bundled: u64,
}

impl InputStats {
    fn leave_out(&mut self, reason: LeftOut) {
        *self.left_out.entry(reason).or_default() += 1;
    }
}

/// Why an entry of the input is not replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LeftOut {
    /// Audit log: another resource.
    OtherResource,
    /// Audit log: a stage other than ResponseComplete.
    OtherStage,
    /// A read, a watch or a deletion.
    NoWrite,
    /// Audit log: refused or failed, so nothing changed.
    Failed,
    /// Audit log: refused by squelch. Such a log does not show the writes without squelch.
    RefusedBySquelch,
    /// Audit log: a level without bodies.
    NoBody,
    /// An UPDATE of an Event that the log does not contain before, or too long before.
    NoOldObject,
    /// An Event without a time.
    NoTime,
    /// A summary of squelch.
    OwnSummary,
    /// An Event about squelch or what it has dropped.
    OwnEvent,
}

impl LeftOut {
    /// The name in JSON.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::OtherResource => "otherResource",
            Self::OtherStage => "otherStage",
            Self::NoWrite => "noWrite",
            Self::Failed => "failed",
            Self::RefusedBySquelch => "refusedBySquelch",
            Self::NoBody => "noBody",
            Self::NoOldObject => "noOldObject",
            Self::NoTime => "noTime",
            Self::OwnSummary => "ownSummary",
            Self::OwnEvent => "ownEvent",
        }
    }

    /// The description in a note.
    pub(super) fn description(self) -> &'static str {
        match self {
            Self::OtherResource => "other resources",
            Self::OtherStage => "stages other than ResponseComplete",
            Self::NoWrite => "reads, watches and deletions",
            Self::Failed => "failed requests, which changed nothing",
            Self::RefusedBySquelch => {
                "refused by squelch; record a log without squelch to see the effect of a policy"
            }
            Self::NoBody => "no request body; set the audit level of events to RequestResponse",
            Self::NoOldObject => "updates of Events that the log does not contain before",
            Self::NoTime => "Events without a time",
            Self::OwnSummary => "summaries written by squelch, whose occurrences are unknown",
            Self::OwnEvent => "Events in which squelch reports what it did",
        }
    }

    /// Whether the replay lacks a write because of it.
    pub(super) fn is_write(self) -> bool {
        matches!(
            self,
            Self::RefusedBySquelch | Self::NoBody | Self::NoOldObject | Self::NoTime | Self::OwnSummary
        )
    }
}

/// What is wrong with one line or item.
#[derive(Clone, Debug)]
struct EntryError {
    column: Option<usize>,
    reason: String,
}

impl EntryError {
    fn new(reason: impl Into<String>) -> Self {
        Self { column: None, reason: reason.into() }
    }

    /// From an error of serde_json, without the position that its message repeats.
    fn json(error: &serde_json::Error) -> Self {
        let message = error.to_string();
        let reason = message.rsplit_once(" at line ").map_or(message.as_str(), |(reason, _)| reason);
        Self { column: Some(error.column()).filter(|column| *column > 0), reason: reason.to_owned() }
    }
}

/// Why an entry was not replayed.
#[derive(Debug)]
enum EntryFailure {
    /// The entry cannot be read.
    Entry(EntryError),
    /// The replay cannot continue.
    Fatal(Error),
}

impl From<EntryError> for EntryFailure {
    fn from(error: EntryError) -> Self {
        Self::Entry(error)
    }
}

impl From<Error> for EntryFailure {
    fn from(error: Error) -> Self {
        Self::Fatal(error)
    }
}

/// A format with one entry per line.
trait Entries {
    /// A parsed line.
    type Entry<'a>: Send + Sync;
    /// What an entry alone shows of its write.
    type Observed<'r>: Send;

    /// Parses one line.
    fn read(text: &str) -> Result<Self::Entry<'_>, EntryError>;

    /// Observes one entry.
    fn observe<'r>(entry: &'r Self::Entry<'_>, own_user: &str) -> Result<Self::Observed<'r>, EntryError>;

    /// Replays an entry, after all entries before it.
    fn replay<'r>(
        &mut self,
        entry: &'r Self::Entry<'_>,
        observed: Self::Observed<'r>,
        sink: &mut dyn WriteSink,
        stats: &mut InputStats,
    ) -> Result<(), EntryFailure>;
}

/// Passes all writes of the input to the sink.
pub(super) fn replay(
    mut reader: Box<dyn Read + '_>,
    options: &Options,
    sink: &mut dyn WriteSink,
    progress: &Progress,
) -> Result<InputStats, Error> {
    let mut beginning = Vec::with_capacity(PREFIX);
    let read = (&mut reader).take(PREFIX as u64).read_to_end(&mut beginning);
    read.map_err(|source| Error::read(&options.input, source))?;
    let format = match options.format {
        Some(format) => format,
        None => detect(&beginning).map_err(|reason| bad(options, String::new(), reason))?,
    };
    let whole = BufReader::with_capacity(1 << 18, Cursor::new(beginning).chain(reader));
    let mut stats = InputStats { format: Some(format), ..InputStats::default() };
    match format {
        Format::List => list::replay(whole, options, sink, &mut stats, progress)?,
        Format::Trace => each_line(Lines::new(whole), Trace::default(), options, sink, &mut stats)?,
        Format::Audit => each_line(Lines::new(whole), Audit::default(), options, sink, &mut stats)?,
    }
    Ok(stats)
}

fn each_line<R: BufRead, E: Entries>(
    mut lines: Lines<R>,
    mut entries: E,
    options: &Options,
    sink: &mut dyn WriteSink,
    stats: &mut InputStats,
) -> Result<(), Error> {
    let own_user = sink.own_user().to_owned();
    let mut batch = Batch::default();
    loop {
        let filled = batch.fill(&mut lines);
        let read = in_parts(batch.lines(), |line| E::read(batch.text(line)?));
        let observed = in_parts(&read, |entry| {
            let entry = entry.as_ref().map_err(EntryError::clone)?;
            Ok((entry, E::observe(entry, &own_user)?))
        });
        let at_end = observed.is_empty();
        for (line, observed) in batch.lines().iter().zip(observed) {
            let number = line.number;
            stats.entries += 1;
            let replayed = observed.map_err(EntryFailure::Entry);
            let replayed =
                replayed.and_then(|(entry, observed)| entries.replay(entry, observed, sink, stats));
            match replayed {
                Ok(()) => {}
                Err(EntryFailure::Fatal(error)) => return Err(error),
                Err(EntryFailure::Entry(_)) if options.skip_bad => stats.bad += 1,
                Err(EntryFailure::Entry(EntryError { column, reason })) => {
                    let column = column.map_or_else(String::new, |column| format!(", column {column}"));
                    return Err(bad(options, format!(", line {number}{column}"), &reason).into());
                }
            }
        }
        filled.map_err(|source| Error::read(&options.input, source))?;
        if at_end {
            return Ok(());
        }
    }
}

/// Returns the error for a place in the input.
fn bad(options: &Options, place: String, reason: &str) -> BadInput {
    let remedy = if place.is_empty() { "" } else { "; repair it, or skip such entries with --skip-bad" };
    BadInput { file: name(&options.input), place, reason: clean(reason, REASON) + remedy }
}
