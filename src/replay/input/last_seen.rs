//! The last version of each Event of an audit log, with bounded memory.

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
pub(super) struct LastSeen {
    events: HashMap<EventKey, SeenVersion>,
    /// Keys in the order of their insertions. A key has one entry per insertion.
    by_age: VecDeque<(EventKey, u64)>,
    bytes: usize,
    number: u64,
    most_bytes: usize,
}

impl Default for LastSeen {
    fn default() -> Self {
        Self { events: HashMap::new(), by_age: VecDeque::new(), bytes: 0, number: 0, most_bytes: MOST_BYTES }
    }
}

impl LastSeen {
    /// Returns the last version of the Event.
    pub(super) fn event(&self, namespace: &str, name: &str) -> Option<&str> {
        self.events.get(&key(namespace, name)).map(|version| &*version.json)
    }

    /// Stores a new version of the Event.
    pub(super) fn insert(&mut self, namespace: &str, name: &str, json: &str) {
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
            }
        }
        if self.by_age.len() > 1024 + 2 * self.events.len() {
            let events = &self.events;
            self.by_age
                .retain(|(key, number)| events.get(key).is_some_and(|version| version.number == *number));
        }
    }

    /// Removes a deleted Event.
    pub(super) fn remove(&mut self, namespace: &str, name: &str) {
        if let Some(version) = self.events.remove(&key(namespace, name)) {
            self.bytes -= version.json.len();
        }
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
        let mut events = LastSeen { most_bytes: 10, ..LastSeen::default() };
        for name in ["a", "b", "a", "c"] {
            events.insert("shop", name, "12345");
        }
        let known = ["a", "b", "c"].map(|name| events.event("shop", name).is_some());
        assert_eq!((known, events.bytes), ([true, false, true], 10));
        events.remove("shop", "a");
        assert_eq!((events.event("shop", "a"), events.bytes), (None, 5));
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
