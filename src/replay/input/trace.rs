//! A trace: one write per line.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;
use squelch_engine::{Api, Moment, Observation, Operation};

use super::{Entries, EntryError, EntryFailure, InputStats, LeftOut, time};
use crate::replay::WriteSink;
use crate::webhook::review::{ParseError, ParsedEvent, Write};

/// A line of a trace.
#[derive(Debug, Deserialize)]
struct TraceLine<'a> {
    #[serde(borrow)]
    at: &'a RawValue,
    #[serde(borrow)]
    operation: Cow<'a, str>,
    #[serde(borrow, default)]
    user: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
    #[serde(borrow, rename = "oldObject")]
    old_object: Option<&'a RawValue>,
    #[serde(default, rename = "dryRun")]
    dry_run: bool,
}

/// A line, parsed.
pub(super) struct TraceEntry<'a> {
    at: Moment,
    user: Cow<'a, str>,
    dry_run: bool,
    bytes: u64,
    /// `None` if the line is no write of an Event. Boxed because entries are moved often.
    events: Option<Box<Events<'a>>>,
}

/// The written Event, and the one before it.
struct Events<'a> {
    operation: Operation,
    namespace: String,
    object: ParsedEvent<'a>,
    old_object: Option<ParsedEvent<'a>>,
}

/// Reads a trace.
#[derive(Debug, Default)]
pub(super) struct Trace {
    last: Moment,
}

impl Entries for Trace {
    type Entry<'a> = TraceEntry<'a>;
    type Observed<'r> = Option<Observation<'r>>;

    fn read(text: &str) -> Result<TraceEntry<'_>, EntryError> {
        let line: TraceLine<'_> = serde_json::from_str(text).map_err(|error| EntryError::json(&error))?;
        let at = time::seconds(line.at.get()).ok_or_else(|| {
            EntryError::new("at must be a number of seconds, 0 or more, since the start of the trace")
        })?;
        let operation = match &*line.operation {
            "CREATE" => Some(Operation::Create),
            "UPDATE" => Some(Operation::Update),
            "DELETE" | "CONNECT" => None,
            _ => return Err(EntryError::new("operation must be CREATE or UPDATE (UPDATE for a PATCH)")),
        };
        let events =
            operation.map(|operation| events(operation, line.object, line.old_object)).transpose()?;
        let bytes = line.object.get().len() as u64;
        Ok(TraceEntry { at, user: line.user, dry_run: line.dry_run, bytes, events })
    }

    fn observe<'r>(entry: &'r TraceEntry<'_>, own_user: &str) -> Result<Option<Observation<'r>>, EntryError> {
        let Some(events) = &entry.events else { return Ok(None) };
        let write = Write {
            operation: events.operation,
            api: events.object.api,
            user: &entry.user,
            dry_run: entry.dry_run,
            namespace: &events.namespace,
            name: "",
            object: &events.object.event,
            old_object: events.old_object.as_ref().map(|old| &old.event),
            stale: false,
        };
        let observation = write.observe(own_user, wall(entry.at));
        observation.map(Some).map_err(|_| EntryError::new("object must be an Event with metadata"))
    }

    fn replay<'r>(
        &mut self,
        entry: &'r TraceEntry<'_>,
        observation: Option<Observation<'r>>,
        sink: &mut dyn WriteSink,
        stats: &mut InputStats,
    ) -> Result<(), EntryFailure> {
        let now = self.moment(entry.at)?;
        let Some(observation) = observation else {
            stats.leave_out(LeftOut::NoWrite);
            return Ok(());
        };
        sink.write(now, &observation, entry.bytes)?;
        Ok(())
    }
}

fn events<'a>(
    operation: Operation,
    object: &'a RawValue,
    old_object: Option<&'a RawValue>,
) -> Result<Box<Events<'a>>, EntryError> {
    let object =
        ParsedEvent::parse(object.get(), Some(Api::Core)).map_err(|error| no_event("object", &error))?;
    let old_object = old_object.map(|old| ParsedEvent::parse(old.get(), Some(object.api)));
    let old_object = old_object.transpose().map_err(|error| no_event("oldObject", &error))?;
    if operation == Operation::Update && old_object.is_none() {
        return Err(EntryError::new("an UPDATE must have an oldObject, the Event as it was stored"));
    }
    let namespace = object.event.namespace().into_owned();
    Ok(Box::new(Events { operation, namespace, object, old_object }))
}

impl Trace {
    fn moment(&mut self, now: Moment) -> Result<Moment, EntryError> {
        if now < self.last {
            let [before, now] = [self.last, now].map(|at| at.since(Moment::default()).as_secs_f64());
            return Err(EntryError::new(format!(
                "at goes back from {before} to {now}; sort the lines by at"
            )));
        }
        self.last = now;
        Ok(now)
    }
}

fn no_event(member: &str, error: &ParseError) -> EntryError {
    EntryError::new(format!("{member} is not an Event of v1 or events.k8s.io/v1: {error}"))
}

/// The wall clock of a trace, for Events without a time.
fn wall(now: Moment) -> Timestamp {
    Timestamp::UNIX_EPOCH.saturating_add(now.since(Moment::default())).unwrap_or(Timestamp::MAX)
}
