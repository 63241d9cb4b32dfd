//! A List of Events, as kubectl prints it. Each stored Event is expanded into its occurrences.
//!
//! The items stay text, so that memory is bounded by the Events and not by their occurrences. The occurrences are
//! generated one by one, in the order of their times.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::io::BufRead;

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use squelch_engine::{Api, Moment, Observation, Operation};

use super::expand::EventOccurrences;
use super::{EntryError, InputStats, LeftOut, bad, time};
use crate::REPORTING_CONTROLLER;
use crate::replay::options::Options;
use crate::replay::progress::Progress;
use crate::replay::{Error, WriteSink};
use crate::webhook::review::{ParsedEvent, Write};

/// The number of writes between two updates of the progress bar.
const SHOWN_EVERY: u64 = 4096;

/// Replays a List.
pub(super) fn replay(
    reader: impl BufRead,
    options: &Options,
    sink: &mut dyn WriteSink,
    stats: &mut InputStats,
    progress: &Progress,
) -> Result<(), Error> {
    let list = read(reader, options)?;
    stats.entries = list.items.len() as u64;
    // In the order of the borrows: the text, the Events in it, their observations.
    let mut events = Vec::new();
    for (at, item) in list.items.iter().enumerate() {
        match event(item, list.api()) {
            Ok(Ok(event)) => events.push(event),
            Ok(Err(reason)) => stats.leave_out(reason),
            Err(_) if options.skip_bad => stats.bad += 1,
            Err(EntryError { reason, .. }) => {
                return Err(bad(options, format!(", item {}", at + 1), &reason).into());
            }
        }
    }
    let mut items: Vec<Item<'_>> = events.iter().filter_map(|event| event.item(sink.own_user())).collect();
    stats.bundled = items.iter().map(|item| item.occurrences.bundled()).sum();
    progress.expanding(items.iter().map(|item| item.occurrences.writes()).sum());
    sink.adapt_clients();
    expand(&mut items, sink, progress)
}

/// Replays all occurrences in the order of their times; those of the same time in the order of the items.
fn expand(items: &mut [Item<'_>], sink: &mut dyn WriteSink, progress: &Progress) -> Result<(), Error> {
    let next = |at: usize, item: &Item<'_>| item.occurrences.next_at().map(|when| Reverse((when, at)));
    let mut queue: BinaryHeap<_> = items.iter().enumerate().filter_map(|(at, item)| next(at, item)).collect();
    let mut writes = 0;
    while let Some(Reverse((now, at))) = queue.pop() {
        let item = &mut items[at];
        item.next_occurrence(now);
        sink.write(now, &item.write, item.bytes)?;
        queue.extend(next(at, item));
        writes += 1;
        if writes % SHOWN_EVERY == 0 {
            progress.at(writes);
        }
    }
    Ok(())
}

/// A List.
#[derive(Debug, Default)]
struct List {
    /// The items of an EventList leave their apiVersion to the list.
    api_version: String,
    items: Vec<Box<RawValue>>,
}

impl List {
    fn api(&self) -> Api {
        if self.api_version.starts_with("events.k8s.io/") { Api::Events } else { Api::Core }
    }
}

/// Reads the List item by item. The items are kept as text.
fn read(mut reader: impl BufRead, options: &Options) -> Result<List, Error> {
    let mut deserializer = serde_json::Deserializer::from_reader(&mut reader);
    let read = ListVisitor.deserialize(&mut deserializer).and_then(|list| deserializer.end().map(|()| list));
    read.map_err(|error| match error.io_error_kind() {
        Some(kind) => Error::read(&options.input, kind.into()),
        None => {
            let place = format!(", line {}, column {}", error.line(), error.column());
            bad(options, place, &EntryError::json(&error).reason).into()
        }
    })
}

struct ListVisitor;

impl<'de> DeserializeSeed<'de> for ListVisitor {
    type Value = List;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<List, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ListVisitor {
    type Value = List;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a List of Events")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<List, A::Error> {
        let mut list = List::default();
        let mut has_items = false;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "apiVersion" => list.api_version = map.next_value()?,
                "items" => {
                    has_items = true;
                    map.next_value_seed(Items(&mut list.items))?;
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        if !has_items {
            return Err(A::Error::custom(
                "the object has no items; provide the output of `kubectl get events -A -o json`",
            ));
        }
        Ok(list)
    }
}

struct Items<'l>(&'l mut Vec<Box<RawValue>>);

impl<'de> DeserializeSeed<'de> for Items<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Items<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of items")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(item) = seq.next_element()? {
            self.0.push(item);
        }
        Ok(())
    }
}

/// An Event of the List.
struct Event<'a> {
    parsed: ParsedEvent<'a>,
    namespace: String,
    created: Option<Timestamp>,
    bytes: u64,
}

/// Further fields of an Event.
#[derive(Default, Deserialize)]
#[serde(default)]
struct MoreFields {
    metadata: MoreFieldsMetadata,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct MoreFieldsMetadata {
    creation_timestamp: Option<Timestamp>,
    labels: Option<std::collections::BTreeMap<String, String>>,
}

fn event(item: &RawValue, default_api: Api) -> Result<Result<Event<'_>, LeftOut>, EntryError> {
    let parsed = ParsedEvent::parse(item.get(), Some(default_api)).map_err(|error| {
        EntryError::new(format!("the item is not an Event of v1 or events.k8s.io/v1: {error}"))
    })?;
    let more: MoreFields = serde_json::from_str(item.get()).unwrap_or_default();
    let labels = more.metadata.labels.unwrap_or_default();
    if labels.get("squelch.dev/summary").is_some_and(|is| is == "true") {
        return Ok(Err(LeftOut::OwnSummary));
    }
    let namespace = parsed.event.namespace().into_owned();
    let created = more.metadata.creation_timestamp;
    let event = Event { parsed, namespace, created, bytes: compact_length(item.get()) };
    if event.observed("").is_some_and(|write| write.event.reporting_component == REPORTING_CONTROLLER) {
        return Ok(Err(LeftOut::OwnEvent));
    }
    Ok(if event.times().is_some() { Ok(event) } else { Err(LeftOut::NoTime) })
}

impl Event<'_> {
    /// Returns the write of an Event with all its occurrences.
    fn observed(&self, own_user: &str) -> Option<Observation<'_>> {
        let write = Write {
            operation: Operation::Create,
            api: self.parsed.api,
            // A List does not record users.
            user: "",
            dry_run: false,
            namespace: &self.namespace,
            name: "",
            object: &self.parsed.event,
            old_object: None,
            stale: false,
        };
        write.observe(own_user, Timestamp::MAX).ok()
    }

    /// Returns the times of the first and the last occurrence.
    fn times(&self) -> Option<(Moment, Moment)> {
        let observed = self.observed("")?;
        let moment =
            |timestamp: Timestamp| Some(timestamp).filter(|it| *it != Timestamp::MAX).and_then(time::of);
        let last = moment(observed.occurred_at);
        let first =
            observed.first_seen.and_then(moment).or_else(|| self.created.and_then(moment)).or(last)?;
        Some((first, last.unwrap_or(first)))
    }

    fn item(&self, own_user: &str) -> Option<Item<'_>> {
        let (first, last) = self.times()?;
        let write = self.observed(own_user)?;
        Some(Item { occurrences: EventOccurrences::new(first, last, write.value), write, bytes: self.bytes })
    }
}

/// An Event during the replay, with the write of its next occurrence.
struct Item<'a> {
    write: Observation<'a>,
    occurrences: EventOccurrences,
    bytes: u64,
}

impl Item<'_> {
    /// Moves on to the next occurrence: a client raises the count of the Event that it has written. (If that is not
    /// stored, the write becomes a CREATE.)
    fn next_occurrence(&mut self, now: Moment) {
        let value = self.occurrences.emit();
        let write = &mut self.write;
        write.occurred_at =
            Timestamp::UNIX_EPOCH.saturating_add(now.since(Moment::default())).unwrap_or(Timestamp::MAX);
        write.last_observed = Some(write.occurred_at);
        write.operation = if value == 1 { Operation::Create } else { Operation::Update };
        write.has_series = write.api == Api::Events && value > 1;
        (write.value, write.old_value) = (value, 0);
    }
}

/// Returns the length of the JSON without the blanks between its tokens: kubectl indents.
fn compact_length(json: &str) -> u64 {
    let (mut length, mut in_string, mut escaped) = (0, false, false);
    for byte in json.bytes() {
        if in_string {
            (in_string, escaped) = (escaped || byte != b'"', !escaped && byte == b'\\');
        } else {
            in_string = byte == b'"';
            if byte.is_ascii_whitespace() {
                continue;
            }
        }
        length += 1;
    }
    length
}

#[cfg(test)]
mod tests;
