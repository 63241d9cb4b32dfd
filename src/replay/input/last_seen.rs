//! The Events of an audit log as they were last seen, within a bound.

use std::collections::{HashMap, VecDeque};

/// So much JSON is kept at most; the Event seen longest ago is forgotten first. (A cluster of 100,000 Events of
/// 2.5 KB, which expire after an hour.)
const MOST_BYTES: usize = 256 << 20;

/// Namespace and name.
type Key = (Box<str>, Box<str>);

#[derive(Debug)]
struct Seen {
    json: Box<str>,
    number: u64,
}

/// Events by namespace and name.
#[derive(Debug)]
pub(super) struct LastSeen {
    events: HashMap<Key, Seen>,
    /// In the order in which they were seen; what was seen again stands here again.
    by_age: VecDeque<(Key, u64)>,
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
    /// The Event as it was last seen.
    pub(super) fn event(&self, namespace: &str, name: &str) -> Option<&str> {
        self.events.get(&key(namespace, name)).map(|seen| &*seen.json)
    }

    /// The Event was seen.
    pub(super) fn saw(&mut self, namespace: &str, name: &str, json: &str) {
        self.forget(namespace, name);
        self.number += 1;
        self.bytes += json.len();
        let key = key(namespace, name);
        self.events.insert(key.clone(), Seen { json: json.into(), number: self.number });
        self.by_age.push_back((key, self.number));
        while self.bytes > self.most_bytes {
            let Some((key, number)) = self.by_age.pop_front() else { break };
            if self.is_current(&key, number) {
                self.forget(&key.0, &key.1);
            }
        }
        if self.by_age.len() > 1024 + 2 * self.events.len() {
            let events = &self.events;
            self.by_age.retain(|(key, number)| events.get(key).is_some_and(|seen| seen.number == *number));
        }
    }

    /// The Event is gone.
    pub(super) fn forget(&mut self, namespace: &str, name: &str) {
        if let Some(seen) = self.events.remove(&key(namespace, name)) {
            self.bytes -= seen.json.len();
        }
    }

    fn is_current(&self, key: &Key, number: u64) -> bool {
        self.events.get(key).is_some_and(|seen| seen.number == number)
    }
}

fn key(namespace: &str, name: &str) -> Key {
    (namespace.into(), name.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_event_seen_longest_ago_is_forgotten() {
        let mut seen = LastSeen { most_bytes: 10, ..LastSeen::default() };
        for name in ["a", "b", "a", "c"] {
            seen.saw("shop", name, "12345");
        }
        let known = ["a", "b", "c"].map(|name| seen.event("shop", name).is_some());
        assert_eq!((known, seen.bytes), ([true, false, true], 10));
        seen.forget("shop", "a");
        assert_eq!((seen.event("shop", "a"), seen.bytes), (None, 5));
    }

    #[test]
    fn an_event_seen_often_takes_the_room_of_one() {
        let mut seen = LastSeen::default();
        for _ in 0..10_000 {
            seen.saw("shop", "a", "12345");
        }
        assert!(seen.by_age.len() <= 1026 && seen.bytes == 5);
    }
}
