//! The three kinds of input, each read as a stream.

mod audit;
mod batch;
mod last_seen;
mod lines;
mod list;
mod recognise;
mod time;
mod trace;
mod unfold;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Cursor, Read};

use self::audit::Audit;
use self::batch::{Batch, in_parts};
use self::lines::Lines;
use self::recognise::{PREFIX, recognise};
use self::trace::Trace;
use super::course::Course;
use super::options::{Format, Options};
use super::progress::Progress;
use super::text::clean;
use super::{Error, name};

/// How much of a reason is shown: it may quote the input.
const REASON: usize = 300;

/// A place in the input that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}{place}: {reason}")]
pub struct BadInput {
    /// The file, as it is named on the command line.
    pub file: String,
    /// Line and column, or the item of a List; empty where it is about the file as a whole.
    pub place: String,
    /// What is wrong, and what to do.
    pub reason: String,
}

/// What is known of an input once it is read.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    pub(super) format: Option<Format>,
    /// Lines of a trace or an audit log, or items of a List.
    pub(super) entries: u64,
    /// Entries that are no writes, or cannot be rebuilt, by the reason.
    pub(super) left_out: BTreeMap<LeftOut, u64>,
    /// Entries that could not be read, and were left out as asked.
    pub(super) bad: u64,
    /// Occurrences that are told several to a write, for there are too many in one Event.
    pub(super) bundled: u64,
}

impl Told {
    fn leave_out(&mut self, reason: LeftOut) {
        *self.left_out.entry(reason).or_default() += 1;
    }
}

/// Why an entry of the input became no write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LeftOut {
    /// Of an audit log: about another resource.
    OtherResource,
    /// Of an audit log: a stage before or beside the answer.
    OtherStage,
    /// A read, a watch or a deletion.
    NoWrite,
    /// Of an audit log: refused or failed, so that it changed nothing.
    Failed,
    /// Of an audit log: refused by squelch itself. A log recorded under squelch does not tell what would be without.
    RefusedBySquelch,
    /// Of an audit log: its level holds no bodies.
    NoBody,
    /// An UPDATE of an Event that was last seen before the log begins, or too long ago.
    NoOldObject,
    /// An Event that tells no time.
    NoTime,
    /// squelch's own summary.
    OwnSummary,
}

impl LeftOut {
    /// The word for it in JSON.
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
        }
    }

    /// What it means, for people.
    pub(super) fn sentence(self) -> &'static str {
        match self {
            Self::OtherResource => "about other resources",
            Self::OtherStage => "of other stages than ResponseComplete",
            Self::NoWrite => "reads, watches and deletions",
            Self::Failed => "refused or failed: they changed nothing",
            Self::RefusedBySquelch => {
                "refused by squelch: record a log without it to see what a policy would do"
            }
            Self::NoBody => "without bodies: the audit level of events has to be RequestResponse",
            Self::NoOldObject => {
                "updates of Events that the log has not shown before: what they changed is not known"
            }
            Self::NoTime => "Events that do not tell when they happened",
            Self::OwnSummary => "summaries of squelch's own: what they count cannot be unfolded",
        }
    }

    /// Whether a write is missing in the replay because of it.
    pub(super) fn is_a_write(self) -> bool {
        matches!(
            self,
            Self::RefusedBySquelch | Self::NoBody | Self::NoOldObject | Self::NoTime | Self::OwnSummary
        )
    }
}

/// What is wrong with one line or item.
#[derive(Clone, Debug)]
struct Wrong {
    column: Option<usize>,
    reason: String,
}

impl Wrong {
    fn new(reason: impl Into<String>) -> Self {
        Self { column: None, reason: reason.into() }
    }

    /// Of JSON, without the position that serde repeats in words.
    fn json(error: &serde_json::Error) -> Self {
        let said = error.to_string();
        let reason = said.rsplit_once(" at line ").map_or(said.as_str(), |(reason, _)| reason);
        Self { column: Some(error.column()).filter(|column| *column > 0), reason: reason.to_owned() }
    }
}

/// Why an entry was not replayed.
#[derive(Debug)]
enum Failure {
    /// It cannot be read.
    Wrong(Wrong),
    /// The replay cannot go on.
    Fatal(Error),
}

impl From<Wrong> for Failure {
    fn from(wrong: Wrong) -> Self {
        Self::Wrong(wrong)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Fatal(error)
    }
}

/// A format of one entry a line.
trait Entries {
    /// A line that was read.
    type Entry<'a>: Send + Sync;
    /// What can be told of it without knowing any other.
    type Seen<'r>: Send;

    /// Reads one line, by itself.
    fn read(text: &str) -> Result<Self::Entry<'_>, Wrong>;

    /// Looks at what was read, by itself.
    fn see<'r>(entry: &'r Self::Entry<'_>, own_user: &str) -> Result<Self::Seen<'r>, Wrong>;

    /// Replays it, after all before it.
    fn replay<'r>(
        &mut self,
        entry: &'r Self::Entry<'_>,
        seen: Self::Seen<'r>,
        course: &mut Course,
        told: &mut Told,
    ) -> Result<(), Failure>;
}

/// Replays all of the input.
pub(super) fn replay(
    mut reader: Box<dyn Read>,
    options: &Options,
    course: &mut Course,
    progress: &Progress,
) -> Result<Told, Error> {
    let mut beginning = Vec::with_capacity(PREFIX);
    let read = (&mut reader).take(PREFIX as u64).read_to_end(&mut beginning);
    read.map_err(|source| Error::read(&options.input, source))?;
    let format = match options.format {
        Some(format) => format,
        None => recognise(&beginning).map_err(|reason| bad(options, String::new(), reason))?,
    };
    let whole = BufReader::with_capacity(1 << 18, Cursor::new(beginning).chain(reader));
    let mut told = Told { format: Some(format), ..Told::default() };
    match format {
        Format::List => list::replay(whole, options, course, &mut told, progress)?,
        Format::Trace => each_line(Lines::new(whole), Trace::default(), options, course, &mut told)?,
        Format::Audit => each_line(Lines::new(whole), Audit::default(), options, course, &mut told)?,
    }
    Ok(told)
}

fn each_line<R: BufRead, E: Entries>(
    mut lines: Lines<R>,
    mut entries: E,
    options: &Options,
    course: &mut Course,
    told: &mut Told,
) -> Result<(), Error> {
    let own_user = course.own_user.clone();
    let mut batch = Batch::default();
    loop {
        let filled = batch.fill(&mut lines);
        let read = in_parts(batch.lines(), |line| E::read(batch.text(line)?));
        let seen = in_parts(&read, |entry| {
            let entry = entry.as_ref().map_err(Wrong::clone)?;
            Ok((entry, E::see(entry, &own_user)?))
        });
        let at_end = seen.is_empty();
        for (line, seen) in batch.lines().iter().zip(seen) {
            let number = line.number;
            told.entries += 1;
            let replayed = seen.map_err(Failure::Wrong);
            let replayed = replayed.and_then(|(entry, seen)| entries.replay(entry, seen, course, told));
            match replayed {
                Ok(()) => {}
                Err(Failure::Fatal(error)) => return Err(error),
                Err(Failure::Wrong(_)) if options.skip_bad => told.bad += 1,
                Err(Failure::Wrong(Wrong { column, reason })) => {
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

/// The error about a place in the input.
fn bad(options: &Options, place: String, reason: &str) -> BadInput {
    let remedy = if place.is_empty() { "" } else { "; mend it, or leave such entries out with --skip-bad" };
    BadInput { file: name(&options.input), place, reason: clean(reason, REASON) + remedy }
}
