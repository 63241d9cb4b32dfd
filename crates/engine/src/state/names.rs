//! The counted value of each Event name. This table belongs to the namespace, not to a scope.

mod record;

use std::collections::VecDeque;
use std::time::Duration;

use crate::decide::keys::{Hasher, Key};
use crate::state::capacity::Sizes;
use crate::state::live_series::Handle;
use crate::store::stamp::Stamp;
use crate::store::table::{At, Table};
use crate::{Moment, Observation, Operation};

use record::{NameRecord, OWNER_CONFIRMED, SHARED, user};

/// Time for which a name is remembered after its last write, capacity permitting.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);

/// Granularity of the order by use: an evicted name was seen at most this much later than a kept one.
const ORDERED_BY: Duration = Duration::from_secs(16);

/// Maximum number of names with occurrences counted early: 8 KiB. Those of an evicted name are counted as recovered.
const MAX_COUNTED_EARLY: usize = 256;

/// The result of comparing a write with its name's record.
pub(crate) struct Carried {
    /// Position of the name's record; `None` for a CREATE with `generateName`. Valid until the decision ends.
    pub(crate) name: Option<At>,
    /// Number of occurrences that the write carries.
    pub(crate) occurrences: i64,
    /// Whether its client reads the stored count, adds one and writes it back.
    pub(crate) reads: bool,
    /// Whether an UPDATE is a late retry: its client has reported more before, and as much is stored.
    pub(crate) late_retry: bool,
    /// Time of the previous write of this name; `None` if none is remembered.
    pub(crate) seen_before: Option<Moment>,
    /// How many occurrences of an admitted CREATE the stored count of this UPDATE lacks: the API server has refused the
    /// CREATE.
    pub(crate) missing: i64,
    /// Whether it is a CREATE of a name that belongs to another user. The API server refuses it if that Event
    /// is stored, so it must not change the record.
    pub(crate) foreign: bool,
    /// The series of a user who claimed the name by a CREATE, if this UPDATE shows that the Event belongs to
    /// another user.
    pub(crate) displaced: Option<Handle>,
}

/// The name table of one namespace.
#[derive(Default)]
pub(crate) struct Names {
    table: Table<NameRecord, 26>,
    evicted: usize,
    /// Occurrences counted with a later write than the one that stored them, by name, oldest first. See
    /// [`Self::reported_again`].
    counted_early: VecDeque<(Key, i64)>,
}

impl Names {
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns the numbers of names and of evictions.
    pub(crate) fn sizes(&self) -> Sizes {
        Sizes { names: self.len(), names_evicted: self.evicted, ..Sizes::default() }
    }

    /// Removes all names. Returns the tables, because freeing them takes long.
    pub(crate) fn discard_all(&mut self) -> impl Sized + use<> {
        (std::mem::take(&mut self.table), std::mem::take(&mut self.counted_early))
    }

    /// Records that squelch has read the Event of this series, so that its owner is known.
    pub(crate) fn confirm_owner(&mut self, key: Key, series: Handle) {
        let entry = self.table.find(key).and_then(|at| self.table.get_mut(at));
        if let Some(entry) = entry.filter(|entry| entry.series == series && entry.is_stored()) {
            entry.occurred |= OWNER_CONFIRMED;
        }
    }

    /// Prefetches the table's metadata.
    pub(crate) fn prefetch_outline(&self) {
        self.table.prefetch_outline();
    }

    /// Prefetches what [`Self::carry`] reads.
    pub(crate) fn prefetch(&self, key: Key, at_capacity: bool) {
        self.table.prefetch(key, at_capacity);
    }

    /// Returns the series of this name's UPDATEs, live or not, in any scope.
    pub(crate) fn series_of(&self, name: At) -> Option<Handle> {
        self.table.get(name).map(|name| name.series).filter(|series| series.is_some())
    }

    /// Whether the series' stored Event has this name. `None` if the name belongs to another series.
    pub(crate) fn is_stored_name_of(&self, name: At, series: Handle) -> Option<bool> {
        self.table.get(name).filter(|name| name.series == series).map(NameRecord::is_stored)
    }

    /// Assigns this name's UPDATEs to `series`. `stored`: the series' stored Event has this name.
    pub(crate) fn join(&mut self, name: Option<At>, series: Handle, stored: bool) {
        if let Some(entry) = name.and_then(|name| self.table.get_mut(name)) {
            if stored && entry.series != series {
                entry.occurred &= !SHARED;
            }
            entry.series = series;
            entry.set_user(entry.user(), stored);
        }
    }

    /// Records that a CREATE of this name is admitted that carries occurrences.
    pub(crate) fn record_created(&mut self, name: Option<At>) {
        if let Some(entry) = name.and_then(|name| self.table.get_mut(name)) {
            entry.record_created();
        }
    }

    /// Records that several clients reported to this series, which is stored under this name.
    pub(crate) fn mark_shared(&mut self, key: Key, series: Handle) {
        let entry = self.table.find(key).and_then(|at| self.table.get_mut(at));
        if let Some(entry) = entry.filter(|entry| entry.series == series) {
            entry.occurred |= SHARED;
        }
    }

    /// Returns the highest value seen under this name.
    pub(crate) fn highest(&self, name: At) -> i64 {
        self.table.get(name).map_or(0, NameRecord::highest)
    }

    /// Whether several clients reported to the last series that was stored under this name.
    pub(crate) fn was_shared(&self, name: At) -> bool {
        self.table.get(name).is_some_and(|name| name.occurred & SHARED != 0)
    }

    /// Whether an UPDATE that changes nothing still carries an occurrence. Its value then exceeds the highest
    /// one of the same user, because another client's occurrences had raised the stored count.
    pub(crate) fn exceeds_reported(
        &self,
        hasher: &Hasher,
        key: Option<Key>,
        write: &Observation<'_>,
    ) -> bool {
        let entry = key.and_then(|key| self.table.find(key)).and_then(|at| self.table.get(at));
        entry.is_some_and(|entry| write.value > entry.highest() && entry.user() == user(hasher, write.user))
    }

    /// Counts the occurrences of a write and records its value. `began_before`: the Event first happened before
    /// this engine became active. `at_capacity`: a new name replaces the oldest one.
    pub(crate) fn carry(
        &mut self,
        hasher: &Hasher,
        key: Option<Key>,
        write: &Observation<'_>,
        began_before: bool,
        at_capacity: bool,
        now: Moment,
    ) -> Carried {
        let Some(key) = key else {
            return Carried::by(None, write.value, None);
        };
        let user = user(hasher, write.user);
        let Some(at) = self.table.find(key) else {
            let at = self.remember(key, NameRecord::first_seen(user, write, now), at_capacity);
            return Carried::by(Some(at), carried_by_unknown(write, began_before), None);
        };
        let entry = self.table.get_mut(at).expect("just found");
        if entry.user() != user {
            match write.operation {
                Operation::Create => return Carried { foreign: true, ..Carried::by(Some(at), 1, None) },
                Operation::Update if !entry.is_owner_confirmed() => {
                    let displaced = entry.is_stored().then_some(entry.series);
                    *entry = NameRecord::first_seen(user, write, now);
                    let occurrences = carried_by_unknown(write, began_before);
                    return Carried { displaced, ..Carried::by(Some(at), occurrences, None) };
                }
                Operation::Update => {}
            }
        }
        if now.since(entry.seen.moment()) > REMEMBERED {
            entry.forget_time();
        }
        let missing = entry.missing(write);
        let occurrences = entry.carried(user, write);
        if write.value > entry.highest() {
            *entry = entry.raised(user, write);
        }
        // A client that creates before it replaces reports the occurrence with the UPDATE, at the same time.
        if occurrences > 0 || write.operation == Operation::Update {
            entry.record_occurrence(write);
        }
        let is_its_user = entry.user() == user;
        let reads = is_its_user && entry.reads();
        let late_retry = is_its_user && write.value < entry.highest() && write.value <= write.old_value;
        let seen_before = std::mem::replace(&mut entry.seen, Stamp::at(now));
        // Moving an entry reads its neighbours, which are in no cache.
        if !seen_before.same(ORDERED_BY, entry.seen) {
            self.table.touch(at);
        }
        Carried {
            reads,
            late_retry,
            missing,
            ..Carried::by(Some(at), occurrences, Some(seen_before.moment()))
        }
    }

    /// Returns the occurrences that an UPDATE outside any series reports again: those that it stores and does not
    /// carry.
    ///
    /// After a stall, the reviews of one client may be counted out of order. The later write then carries the
    /// occurrences of both, and stores only its own. The earlier one carries none, and stores the others.
    pub(crate) fn reported_again(&mut self, key: Option<Key>, stores: i64, carries: i64) -> i64 {
        let again = stores - carries;
        let is_later = again < 0 && stores >= 0;
        let is_earlier = again > 0 && carries == 0;
        let Some(key) = key.filter(|_| is_later || is_earlier) else { return again.max(0) };
        let found = self.counted_early.iter().position(|(name, _)| *name == key);
        let (_, early) = found.and_then(|at| self.counted_early.remove(at)).unwrap_or((key, 0));
        if early > again {
            self.counted_early.push_back((key, early - again));
        }
        if self.counted_early.len() > MAX_COUNTED_EARLY {
            self.counted_early.pop_front();
        }
        (again - early).max(0)
    }

    fn remember(&mut self, key: Key, name: NameRecord, at_capacity: bool) -> At {
        if !at_capacity {
            return self.table.insert(key, name);
        }
        let (at, forgotten) = self.table.replace_oldest(key, name);
        self.evicted += usize::from(forgotten.is_some());
        at
    }

    /// Removes the oldest names: those beyond `capacity` and those unused for a day. A name whose series `lives` is
    /// removed only beyond `capacity`. Processes at most `budget` names.
    pub(crate) fn forget(
        &mut self,
        capacity: usize,
        budget: usize,
        now: Moment,
        lives: impl Fn(Handle) -> bool,
    ) {
        for _ in 0..budget {
            let Some(oldest) = self.table.oldest() else { break };
            let aged = self.table.get(oldest).is_none_or(|name| now.since(name.seen.moment()) > REMEMBERED);
            let has_capacity = self.table.len() <= capacity;
            if !aged && has_capacity {
                break;
            }
            if has_capacity && self.series_of(oldest).is_some_and(&lives) {
                self.table.touch(oldest);
                continue;
            }
            self.table.remove(oldest);
            self.evicted += usize::from(!aged);
        }
    }
}

impl Carried {
    fn by(name: Option<At>, occurrences: i64, seen_before: Option<Moment>) -> Self {
        Self {
            name,
            occurrences,
            reads: false,
            late_retry: false,
            seen_before,
            missing: 0,
            foreign: false,
            displaced: None,
        }
    }
}

/// Returns the occurrences of a write whose name is unknown.
fn carried_by_unknown(write: &Observation<'_>, began_before: bool) -> i64 {
    match write.operation {
        Operation::Create if began_before => 1,
        Operation::Create => write.value,
        Operation::Update => (write.value - write.old_value).max(1),
    }
}

#[cfg(test)]
mod tests;
