//! The last version of each Event of an audit log or of a watch, with bounded memory.

use std::collections::{HashMap, VecDeque};

/// Maximum JSON bytes; the oldest Event is removed first. (A cluster with 100,000 Events of 2.5 KB, which expire
/// after an hour.)
const MOST_BYTES: usize = 256 << 20;

/// Namespace and name.
type EventKey = (Box<str>, Box<str>);

#[derive(Debug)]
struct SeenVersion {
    json: Box<str>,
    number: u64,
}

/// Events by namespace and name.
#[derive(Debug)]
pub(crate) struct LastSeen {
    events: HashMap<EventKey, SeenVersion>,
    /// Keys in the order of their insertions. A key has one entry per insertion.
    by_age: VecDeque<(EventKey, u64)>,
    bytes: usize,
    number: u64,
    evicted: u64,
    most_bytes: usize,
}

impl Default for LastSeen {
    fn default() -> Self {
        Self::with_limit(MOST_BYTES)
    }
}

impl LastSeen {
    /// With at most this many bytes of JSON.
    pub(crate) fn with_limit(most_bytes: usize) -> Self {
        let (events, by_age) = (HashMap::new(), VecDeque::new());
        Self { events, by_age, bytes: 0, number: 0, evicted: 0, most_bytes }
    }

    /// Returns the last version of the Event.
    pub(crate) fn event(&self, namespace: &str, name: &str) -> Option<&str> {
        self.events.get(&key(namespace, name)).map(|version| &*version.json)
    }

    /// Stores a new version of the Event.
    pub(crate) fn insert(&mut self, namespace: &str, name: &str, json: &str) {
        self.remove(namespace, name);
        self.number += 1;
        self.bytes += json.len();
        let key = key(namespace, name);
        self.events.insert(key.clone(), SeenVersion { json: json.into(), number: self.number });
        self.by_age.push_back((key, self.number));
        while self.bytes > self.most_bytes {
            let Some((key, number)) = self.by_age.pop_front() else { break };
            if self.is_current(&key, number) {
                self.remove(&key.0, &key.1);
                self.evicted += 1;
            }
        }
        if self.by_age.len() > 1024 + 2 * self.events.len() {
            let events = &self.events;
            self.by_age
                .retain(|(key, number)| events.get(key).is_some_and(|version| version.number == *number));
        }
    }

    /// Removes an Event, and returns its last version.
    pub(crate) fn remove(&mut self, namespace: &str, name: &str) -> Option<Box<str>> {
        let version = self.events.remove(&key(namespace, name))?;
        self.bytes -= version.json.len();
        Some(version.json)
    }

    /// The number of Events that were removed because of the limit.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// The number of the last insertion.
    pub(crate) fn last_insertion(&self) -> u64 {
        self.number
    }

    /// Removes the Events that were not inserted after the insertion of this number.
    pub(crate) fn retain_after(&mut self, insertion: u64) {
        let bytes = &mut self.bytes;
        self.events.retain(|_, version| {
            let is_later = version.number > insertion;
            if !is_later {
                *bytes -= version.json.len();
            }
            is_later
        });
    }

    fn is_current(&self, key: &EventKey, number: u64) -> bool {
        self.events.get(key).is_some_and(|version| version.number == number)
    }
}

fn key(namespace: &str, name: &str) -> EventKey {
    (namespace.into(), name.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_event_is_removed_first() {
        let mut events = LastSeen::with_limit(10);
        for name in ["a", "b", "a", "c"] {
            events.insert("shop", name, "12345");
        }
        let known = ["a", "b", "c"].map(|name| events.event("shop", name).is_some());
        assert_eq!((known, events.bytes), ([true, false, true], 10));
        events.remove("shop", "a");
        assert_eq!((events.event("shop", "a"), events.bytes), (None, 5));
        assert_eq!(events.evicted(), 1, "a removed Event is not evicted");
    }

    #[test]
    fn events_that_are_not_inserted_again_can_be_removed() {
        let mut events = LastSeen::default();
        for name in ["a", "b"] {
            events.insert("shop", name, "12345");
        }
        let before = events.last_insertion();
        events.insert("shop", "a", "12345");
        events.retain_after(before);
        assert_eq!((events.event("shop", "a"), events.event("shop", "b")), (Some("12345"), None));
        assert_eq!((events.bytes, events.evicted()), (5, 0));
    }

    #[test]
    fn repeated_versions_of_one_event_take_constant_memory() {
        let mut events = LastSeen::default();
        for _ in 0..10_000 {
            events.insert("shop", "a", "12345");
        }
        assert!(events.by_age.len() <= 1026 && events.bytes == 5);
    }
}
