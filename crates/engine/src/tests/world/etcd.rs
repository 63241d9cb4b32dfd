//! The stored Events: they have resource versions and expire.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Api, Moment};

/// A stored Event, reduced to what the tests read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stored {
    pub(super) count: i64,
    pub(super) version: u64,
    pub(super) api: Api,
    pub(super) series: bool,
    /// The second of its last occurrence.
    pub(super) second: u64,
    /// The user whose Event it is, and its message. `None`: a summary.
    pub(super) content: Option<(&'static str, &'static str)>,
    /// Creation time.
    created: Moment,
    expires: Option<Moment>,
}

impl Stored {
    /// Returns its age in whole seconds.
    pub(super) fn age(&self, now: Moment) -> Duration {
        let second = |moment: Moment| moment.since(Moment::default()).as_secs();
        Duration::from_secs(second(now) - second(self.created))
    }
}

/// What a write stores.
#[derive(Clone, Copy)]
pub(super) struct Written {
    pub(super) count: i64,
    pub(super) api: Api,
    pub(super) series: bool,
    pub(super) second: u64,
    pub(super) content: Option<(&'static str, &'static str)>,
}

#[derive(Default)]
pub(super) struct Etcd {
    events: BTreeMap<String, Stored>,
    /// Each Event before its last write, and the time of that write.
    replaced: BTreeMap<String, (Stored, Moment)>,
    version: u64,
    /// `--event-ttl`; `None`: nothing expires.
    pub(super) ttl: Option<Duration>,
    /// Sum of all increases of stored counts. Decreases are not subtracted.
    pub(super) gained: i64,
}

impl Etcd {
    pub(super) fn get(&self, name: &str) -> Option<Stored> {
        self.events.get(name).copied()
    }

    /// Returns the Event before its last write, if that was recent.
    pub(super) fn get_before(&self, name: &str, now: Moment) -> Option<Stored> {
        let (stored, until) = self.replaced.get(name)?;
        let is_recent = now.since(*until) < Duration::from_secs(9);
        (is_recent && self.events.contains_key(name)).then_some(*stored)
    }

    /// Returns the name of the n-th Event, sorted by name.
    pub(super) fn nth(&self, at: usize) -> Option<String> {
        self.events.keys().nth(at).cloned()
    }

    /// Stores a count. Returns the previous one.
    pub(super) fn put(&mut self, name: &str, written: Written, now: Moment) -> i64 {
        let before = self.events.get(name).copied();
        let count_before = before.map_or(0, |event| event.count);
        self.gained += (written.count - count_before).max(0);
        self.version += 1;
        let stored = Stored {
            count: written.count,
            version: self.version,
            api: written.api,
            series: written.series || before.is_some_and(|event| event.series),
            second: written.second,
            content: before.map_or(written.content, |event| event.content),
            created: before.map_or(now, |event| event.created),
            expires: self.ttl.map(|ttl| now.plus(ttl)),
        };
        if let Some(before) = self.events.insert(name.to_owned(), stored) {
            self.replaced.insert(name.to_owned(), (before, now));
        }
        count_before
    }

    /// A person changes an Event's metadata.
    pub(super) fn annotate(&mut self, name: &str) {
        self.version += 1;
        if let Some(event) = self.events.get_mut(name) {
            event.version = self.version;
        }
    }

    pub(super) fn clear(&mut self) {
        self.events.clear();
        self.replaced.clear();
    }

    pub(super) fn delete(&mut self, name: &str) {
        self.events.remove(name);
        self.replaced.remove(name);
    }

    /// Removes expired Events. Returns their names and counts.
    pub(super) fn expire(&mut self, now: Moment) -> Vec<(String, i64)> {
        let over = |event: &Stored| event.expires.is_some_and(|expires| expires <= now);
        let is_expired = self.events.iter().filter(|(_, event)| over(event));
        let expired: Vec<(String, i64)> =
            is_expired.map(|(name, event)| (name.clone(), event.count)).collect();
        self.events.retain(|_, event| !over(event));
        self.replaced.retain(|name, _| self.events.contains_key(name));
        expired
    }
}
