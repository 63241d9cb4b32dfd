//! The Events that would be stored: count and size of each, in memory.

use std::collections::VecDeque;
use std::hash::Hasher;

use hashbrown::HashMap;
use siphasher::sip128::{Hasher128, SipHasher13};

/// Maximum number of Events. The Event with the oldest write is removed first. There are as many as series; an Event
/// whose series is closed is not needed again.
const MOST: usize = 1_000_000;

/// One Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EtcdEvent {
    /// Its count. 0: the Event was written, but is not stored.
    pub(super) count: i64,
    /// The length of its JSON.
    pub(super) bytes: u64,
    /// Hash of the user who created it; `None` for an Event of squelch.
    pub(super) creator: Option<u64>,
    written: u64,
}

/// The store.
pub(super) struct Etcd {
    events: HashMap<u128, EtcdEvent>,
    /// Keys in the order of their writes. A key has one entry per write.
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
    /// Returns an Event, if it is known.
    pub(super) fn event(&self, namespace: &str, name: &str) -> Option<EtcdEvent> {
        self.events.get(&key(namespace, name)).copied()
    }

    /// Stores an Event. The count 0 marks it as not stored. `creator` is the user who creates it; `None` for an
    /// update.
    pub(super) fn store(
        &mut self,
        namespace: &str,
        name: &str,
        count: i64,
        bytes: u64,
        creator: Option<&str>,
    ) {
        let key = key(namespace, name);
        self.writes += 1;
        let creator = match creator {
            Some(user) => Some(hash(user)),
            None => self.events.get(&key).and_then(|event| event.creator),
        };
        self.events.insert(key, EtcdEvent { count, bytes, creator, written: self.writes });
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

    /// Whether this name belongs to a stored Event of another user: the API server answers a CREATE with 409.
    pub(super) fn is_of_another(&self, namespace: &str, name: &str, user: &str) -> bool {
        let stored = self.event(namespace, name).filter(|event| event.count > 0);
        stored.and_then(|event| event.creator).is_some_and(|creator| creator != hash(user))
    }

    fn is_current(&self, key: u128, written: u64) -> bool {
        self.events.get(&key).is_some_and(|event| event.written == written)
    }
}

fn hash(user: &str) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(user.as_bytes());
    hasher.finish()
}

/// The hash key is not secret: a user who crafts a collision miscounts only their own replay.
fn key(namespace: &str, name: &str) -> u128 {
    let mut hasher = SipHasher13::new();
    hasher.write(namespace.as_bytes());
    // No namespace contains this byte.
    hasher.write(b"/");
    hasher.write(name.as_bytes());
    hasher.finish128().as_u128()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_event_with_the_oldest_write_is_removed() {
        let mut etcd = Etcd { most: 2, ..Etcd::default() };
        for name in ["a", "b", "a", "c"] {
            etcd.store("shop", name, 1, 10, None);
        }
        let known = ["a", "b", "c"].map(|name| etcd.event("shop", name).is_some());
        assert_eq!(known, [true, false, true]);
        assert_eq!(etcd.event("other", "a"), None);
    }

    #[test]
    fn a_stored_event_belongs_to_the_user_who_created_it() {
        let mut etcd = Etcd::default();
        etcd.store("shop", "a", 1, 10, Some("kubelet"));
        etcd.store("shop", "a", 2, 10, None);
        assert!(etcd.is_of_another("shop", "a", "tenant"));
        assert!(!etcd.is_of_another("shop", "a", "kubelet") && !etcd.is_of_another("shop", "b", "tenant"));
        etcd.store("shop", "a", 0, 10, None);
        assert!(!etcd.is_of_another("shop", "a", "tenant"));
    }

    #[test]
    fn repeated_writes_of_one_event_take_constant_memory() {
        let mut etcd = Etcd::default();
        for count in 1..=10_000 {
            etcd.store("shop", "a", count, 10, None);
        }
        assert!(etcd.by_age.len() <= 1026);
        assert_eq!(etcd.event("shop", "a").map(|event| event.count), Some(10_000));
    }
}
