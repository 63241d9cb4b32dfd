//! What would be stored: of each Event its count, in memory.

use std::collections::VecDeque;
use std::hash::Hasher;

use hashbrown::HashMap;
use siphasher::sip128::{Hasher128, SipHasher13};

/// So many Events are known at most; the one not written for longest is forgotten first. As many as series may
/// live: of an Event whose series is over nobody asks any more.
const MOST: usize = 1_000_000;

/// What is known of one Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    /// Its count; 0: it was written, and not stored.
    pub(super) count: i64,
    /// How long its JSON is.
    pub(super) bytes: u64,
    written: u64,
}

/// The store.
pub(super) struct Etcd {
    events: HashMap<u128, Stored>,
    /// In the order of their writes; what was written again stands here again.
    by_age: VecDeque<(u128, u64)>,
    writes: u64,
    most: usize,
}

impl Default for Etcd {
    fn default() -> Self {
        Self { events: HashMap::new(), by_age: VecDeque::new(), writes: 0, most: MOST }
    }
}

impl Etcd {
    /// What is known of an Event.
    pub(super) fn event(&self, namespace: &str, name: &str) -> Option<Stored> {
        self.events.get(&key(namespace, name)).copied()
    }

    /// An Event is stored, or (with the count 0) known not to be.
    pub(super) fn store(&mut self, namespace: &str, name: &str, count: i64, bytes: u64) {
        let key = key(namespace, name);
        self.writes += 1;
        self.events.insert(key, Stored { count, bytes, written: self.writes });
        self.by_age.push_back((key, self.writes));
        while self.events.len() > self.most {
            let Some((key, written)) = self.by_age.pop_front() else { break };
            if self.is_current(key, written) {
                self.events.remove(&key);
            }
        }
        if self.by_age.len() > 1024 + 2 * self.events.len() {
            let events = &self.events;
            self.by_age
                .retain(|(key, written)| events.get(key).is_some_and(|event| event.written == *written));
        }
    }

    fn is_current(&self, key: u128, written: u64) -> bool {
        self.events.get(&key).is_some_and(|event| event.written == written)
    }
}

/// Keyed by nothing secret: who makes two of their own names collide miscounts their own replay.
fn key(namespace: &str, name: &str) -> u128 {
    let mut hasher = SipHasher13::new();
    hasher.write(namespace.as_bytes());
    // No namespace holds this byte.
    hasher.write(b"/");
    hasher.write(name.as_bytes());
    hasher.finish128().as_u128()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_event_not_written_for_longest_is_forgotten() {
        let mut etcd = Etcd { most: 2, ..Etcd::default() };
        for name in ["a", "b", "a", "c"] {
            etcd.store("shop", name, 1, 10);
        }
        let known = ["a", "b", "c"].map(|name| etcd.event("shop", name).is_some());
        assert_eq!(known, [true, false, true]);
        assert_eq!(etcd.event("other", "a"), None);
    }

    #[test]
    fn writes_of_one_event_take_the_room_of_one() {
        let mut etcd = Etcd::default();
        for count in 1..=10_000 {
            etcd.store("shop", "a", count, 10);
        }
        assert!(etcd.by_age.len() <= 1026);
        assert_eq!(etcd.event("shop", "a").map(|event| event.count), Some(10_000));
    }
}
