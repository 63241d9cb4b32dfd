//! What every Event name has counted so far: the one table that belongs to the namespace and not to a scope.

use std::time::Duration;

use super::key::Hasher;
use super::scope::ScopeId;
use super::table::{Handle, Table};
use super::{Moment, Observation, Operation};

/// A name that is still remembered this long after it was seen last, if room allows.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);

/// What is known of one Event name.
pub(super) struct Name {
    /// The highest absolute value seen, refused or not.
    highest: i64,
    /// A hash of the user whose value that is.
    user: u64,
    /// When a write of this name was seen last.
    seen: Moment,
    /// The series that its UPDATEs belong to, while it lives.
    pub(super) series: Option<(ScopeId, Handle)>,
}

/// What a write of a name tells, held against what is remembered of it.
pub(super) struct Carried {
    /// The name's entry; `None` for a CREATE by `generateName`.
    pub(super) name: Option<Handle>,
    /// How many occurrences the write carries.
    pub(super) occurrences: i64,
    /// When the name was seen before; `None`: never, as far as is remembered.
    pub(super) seen_before: Option<Moment>,
}

/// The name table of one namespace.
#[derive(Default)]
pub(super) struct Names {
    table: Table<Name>,
}

impl Names {
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// The series that this name's UPDATEs belong to, whether it still lives or not.
    pub(super) fn series_of(&self, name: Handle) -> Option<(ScopeId, Handle)> {
        self.table.get(name)?.series
    }

    /// Makes `series` the one that this name's UPDATEs belong to.
    pub(super) fn join(&mut self, name: Option<Handle>, scope: ScopeId, series: Handle) {
        if let Some(entry) = name.and_then(|name| self.table.get_mut(name)) {
            entry.series = Some((scope, series));
        }
    }

    /// Whether an UPDATE with nothing new in it tells of an occurrence all the same: it comes from the client
    /// whose value is remembered, and is above it. (Another client's occurrences had raised the stored Event.)
    pub(super) fn tells_more(&self, hasher: &Hasher, write: &Observation<'_>) -> bool {
        let Some(name) = write.name.as_deref() else { return false };
        let entry = self.table.find(hasher.name(name)).and_then(|handle| self.table.get(handle));
        entry.is_some_and(|entry| write.value > entry.highest && entry.user == hasher.user(write.user))
    }

    /// Counts what a write carries and remembers its value. `began_before` says that the Event
    /// happened first before this engine began to decide.
    pub(super) fn carry(
        &mut self,
        hasher: &Hasher,
        write: &Observation<'_>,
        began_before: bool,
        now: Moment,
    ) -> Carried {
        let Some(name) = write.name.as_deref() else {
            return Carried { name: None, occurrences: write.value, seen_before: None };
        };
        let key = hasher.name(name);
        let user = hasher.user(write.user);
        let Some(handle) = self.table.find(key) else {
            let occurrences = match write.operation {
                Operation::Create if began_before => 1,
                Operation::Create => write.value,
                Operation::Update if write.value > write.old_value => write.value - write.old_value,
                Operation::Update => 1,
            };
            let entry = Name { highest: write.value, user, seen: now, series: None };
            let name = self.table.insert(key, entry);
            return Carried { name: Some(name), occurrences, seen_before: None };
        };
        self.table.touch(handle);
        let entry = self.table.get_mut(handle).expect("just found");
        let occurrences = (write.value - entry.highest).max(0);
        if occurrences > 0 {
            (entry.highest, entry.user) = (write.value, user);
        }
        let seen_before = Some(std::mem::replace(&mut entry.seen, now));
        Carried { name: Some(handle), occurrences, seen_before }
    }

    /// Forgets the oldest names: those beyond `room`, and those not seen for a day. Returns how many went for
    /// want of room. A name whose series `lives` goes for want of room only. At most `budget` are looked at.
    pub(super) fn forget(
        &mut self,
        room: usize,
        budget: usize,
        now: Moment,
        lives: impl Fn(ScopeId, Handle) -> bool,
    ) -> u64 {
        let mut evicted = 0;
        for _ in 0..budget {
            let Some(oldest) = self.table.oldest() else { break };
            let aged = self.table.get(oldest).is_none_or(|name| now.since(name.seen) > REMEMBERED);
            let room_left = self.table.len() <= room;
            if !aged && room_left {
                break;
            }
            if room_left && self.series_of(oldest).is_some_and(|(scope, series)| lives(scope, series)) {
                self.table.touch(oldest);
                continue;
            }
            self.table.remove(oldest);
            evicted += u64::from(!aged);
        }
        evicted
    }
}
