//! A trace: one write a line.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;
use squelch_engine::{Api, Moment, Observation, Operation};

use super::{Entries, Failure, LeftOut, Told, Wrong, time};
use crate::replay::course::Course;
use crate::webhook::review::{Spelled, Unreadable, Write};

/// A line of a trace.
#[derive(Debug, Deserialize)]
struct Line<'a> {
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

/// A write of an Event, if it is one.
pub(super) struct Entry<'a> {
    at: Moment,
    user: Cow<'a, str>,
    dry_run: bool,
    bytes: u64,
    /// In a box: an entry goes from hand to hand.
    events: Option<Box<Events<'a>>>,
}

/// What was written, and over what.
struct Events<'a> {
    operation: Operation,
    namespace: String,
    object: Spelled<'a>,
    old_object: Option<Spelled<'a>>,
}

/// Reads a trace.
#[derive(Debug, Default)]
pub(super) struct Trace {
    last: Moment,
}

impl Entries for Trace {
    type Entry<'a> = Entry<'a>;
    type Seen<'r> = Option<Observation<'r>>;

    fn read(text: &str) -> Result<Entry<'_>, Wrong> {
        let line: Line<'_> = serde_json::from_str(text).map_err(|error| Wrong::json(&error))?;
        let at = time::seconds(line.at.get()).ok_or_else(|| {
            Wrong::new("at is a number of seconds, 0 or more, since whatever moment the trace begins")
        })?;
        let operation = match &*line.operation {
            "CREATE" => Some(Operation::Create),
            "UPDATE" => Some(Operation::Update),
            "DELETE" | "CONNECT" => None,
            _ => return Err(Wrong::new("operation is CREATE or UPDATE (a PATCH is an UPDATE)")),
        };
        let events =
            operation.map(|operation| events(operation, line.object, line.old_object)).transpose()?;
        let bytes = line.object.get().len() as u64;
        Ok(Entry { at, user: line.user, dry_run: line.dry_run, bytes, events })
    }

    fn see<'r>(entry: &'r Entry<'_>, own_user: &str) -> Result<Option<Observation<'r>>, Wrong> {
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
        let seen = write.observe(own_user, wall(entry.at));
        seen.map(Some).map_err(|_| Wrong::new("there is no Event in it with metadata"))
    }

    fn replay<'r>(
        &mut self,
        entry: &'r Entry<'_>,
        seen: Option<Observation<'r>>,
        course: &mut Course,
        told: &mut Told,
    ) -> Result<(), Failure> {
        let now = self.moment(entry.at)?;
        let Some(mut seen) = seen else {
            told.leave_out(LeftOut::NoWrite);
            return Ok(());
        };
        course.write(now, &mut seen, entry.bytes)?;
        Ok(())
    }
}

fn events<'a>(
    operation: Operation,
    object: &'a RawValue,
    old_object: Option<&'a RawValue>,
) -> Result<Box<Events<'a>>, Wrong> {
    let object = Spelled::read(object.get(), Some(Api::Core)).map_err(|error| no_event("object", &error))?;
    let old_object = old_object.map(|old| Spelled::read(old.get(), Some(object.api)));
    let old_object = old_object.transpose().map_err(|error| no_event("oldObject", &error))?;
    if operation == Operation::Update && old_object.is_none() {
        return Err(Wrong::new("an UPDATE has an oldObject: the Event as it was stored"));
    }
    let namespace = object.event.namespace().into_owned();
    Ok(Box::new(Events { operation, namespace, object, old_object }))
}

impl Trace {
    fn moment(&mut self, now: Moment) -> Result<Moment, Wrong> {
        if now < self.last {
            let [before, now] = [self.last, now].map(|at| at.since(Moment::default()).as_secs_f64());
            return Err(Wrong::new(format!("at goes back, from {before} to {now}; sort the lines by at")));
        }
        self.last = now;
        Ok(now)
    }
}

fn no_event(member: &str, error: &Unreadable) -> Wrong {
    Wrong::new(format!("{member} is no Event of v1 or events.k8s.io/v1: {error}"))
}

/// The wall clock of a trace, whose epoch is that of Unix: for Events that tell no time.
fn wall(now: Moment) -> Timestamp {
    Timestamp::UNIX_EPOCH.saturating_add(now.since(Moment::default())).unwrap_or(Timestamp::MAX)
}
