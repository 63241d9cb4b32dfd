//! The counted value of each Event name. This table belongs to the namespace, not to a scope.

use std::time::Duration;

use crate::decide::keys::{Hasher, Key};
use crate::state::capacity::Sizes;
use crate::state::live_series::Handle;
use crate::store::packed_series::count;
use crate::store::stamp::Stamp;
use crate::store::table::{At, Table};
use crate::{Moment, Observation, Operation};

/// Time for which a name is remembered after its last write, capacity permitting.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);

/// Granularity of the order by use: an evicted name was seen at most this much later than a kept one.
const ORDERED_BY: Duration = Duration::from_secs(16);

/// What is remembered of one Event name: 28 bytes, and 48 with key and chain. There are two for each series.
#[derive(Clone, Copy, Default)]
struct NameRecord {
    /// Highest absolute value seen, refused or not; at most `i32::MAX`. The top bit is [`READS`].
    highest: u32,
    /// The series of this name's UPDATEs, while it is live.
    series: Handle,
    /// Latest occurrence time under this name, see [`occurrence_time`], or 0; with [`OWNER_CONFIRMED`] and [`SHARED`].
    occurred: u32,
    /// Time of the last write of this name.
    seen: Stamp,
    /// Hash of the user of the highest value, and [`STORED`].
    user: [u8; 3],
}

/// Bit of [`NameRecord::user`]: this is the name of the series' stored Event.
const STORED: u32 = 1 << 23;

/// Bit of [`NameRecord::highest`]: the user reads the stored count, adds one and writes it back.
const READS: u32 = 1 << 31;

/// Bit of [`NameRecord::occurred`]: the stored Event belongs to this user, because they updated it or squelch
/// read it. A CREATE does not confirm this, because the API server may reject it after admission.
const OWNER_CONFIRMED: u32 = 1 << 31;

/// Bit of [`NameRecord::occurred`]: several clients reported to the last series stored under this name.
const SHARED: u32 = 1 << 30;

/// Bits of [`NameRecord::occurred`] for the time.
const TIME: u32 = SHARED - 1;

/// The result of comparing a write with its name's record.
pub(crate) struct Carried {
    /// Position of the name's record; `None` for a CREATE with `generateName`. Valid until the decision ends.
    pub(crate) name: Option<At>,
    /// Number of occurrences that the write carries.
    pub(crate) occurrences: i64,
    /// Time of the previous write of this name; `None` if none is remembered.
    pub(crate) seen_before: Option<Moment>,
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
}

impl Names {
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns the numbers of names and of evictions.
    pub(crate) fn sizes(&self) -> Sizes {
        Sizes { names: self.len(), names_evicted: self.evicted, ..Sizes::default() }
    }

    /// Removes all names. Returns the table, because freeing it takes long.
    pub(crate) fn discard_all(&mut self) -> impl Sized + use<> {
        std::mem::take(&mut self.table)
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
            if entry.series != series {
                entry.occurred &= !SHARED;
            }
            entry.series = series;
            entry.set_user(entry.user(), stored);
        }
    }

    /// Records that several clients reported to this series, which is stored under this name.
    pub(crate) fn mark_shared(&mut self, key: Key, series: Handle) {
        let entry = self.table.find(key).and_then(|at| self.table.get_mut(at));
        if let Some(entry) = entry.filter(|entry| entry.series == series) {
            entry.occurred |= SHARED;
        }
    }

    /// Whether several clients reported to the last series stored under this name.
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
        let occurrences = entry.carried(user, write);
        if write.value > entry.highest() {
            *entry = entry.raised(user, write);
        }
        entry.record_occurrence(write);
        let seen_before = std::mem::replace(&mut entry.seen, Stamp::at(now));
        // Moving an entry reads its neighbours, which are in no cache.
        if !seen_before.same(ORDERED_BY, entry.seen) {
            self.table.touch(at);
        }
        Carried::by(Some(at), occurrences, Some(seen_before.moment()))
    }

    fn remember(&mut self, key: Key, name: NameRecord, at_capacity: bool) -> At {
        if !at_capacity {
            return self.table.insert(key, name);
        }
        let (at, forgotten) = self.table.replace_oldest(key, name);
        self.evicted += usize::from(forgotten.is_some());
        at
    }

    /// Removes the oldest names: those beyond `room` and those unused for a day. A name whose series `lives` is
    /// removed only beyond `room`. Processes at most `budget` names.
    pub(crate) fn forget(&mut self, room: usize, budget: usize, now: Moment, lives: impl Fn(Handle) -> bool) {
        for _ in 0..budget {
            let Some(oldest) = self.table.oldest() else { break };
            let aged = self.table.get(oldest).is_none_or(|name| now.since(name.seen.moment()) > REMEMBERED);
            let has_capacity = self.table.len() <= room;
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
        Self { name, occurrences, seen_before, foreign: false, displaced: None }
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

impl NameRecord {
    /// Returns the record of a new name.
    fn first_seen(user: u32, write: &Observation<'_>, now: Moment) -> Self {
        let mut name = Self {
            highest: count(write.value),
            occurred: occurrence_time(write).unwrap_or(0),
            seen: Stamp::at(now),
            ..Self::default()
        };
        name.set_user(user, false);
        name.confirm_owner(write);
        name
    }

    /// Returns the record after this user reported more than anyone before.
    fn raised(mut self, user: u32, write: &Observation<'_>) -> Self {
        let reads = if user == self.user() { self.highest & READS } else { 0 };
        self.highest = count(write.value) | reads;
        self.set_user(user, self.is_stored());
        self
    }

    /// Returns the occurrences of a write: its value beyond the highest one. A client that reads the stored
    /// count, adds one and writes it back never exceeds the highest value while its writes are merged. Such a
    /// write carries one occurrence if its time is later than all earlier ones; a retry repeats the time.
    fn carried(&mut self, user: u32, write: &Observation<'_>) -> i64 {
        let beyond = (write.value - self.highest()).max(0);
        let adds_one = write.operation == Operation::Update && write.value == write.old_value + 1;
        let is_later = self.is_before(write);
        let is_its_user = self.user() == user;
        if adds_one && is_later && beyond == 0 && is_its_user {
            self.highest |= READS;
        }
        // The highest value of another user does not count this user's occurrences. A write that adds one to
        // the stored count has read it.
        let reads = self.highest & READS != 0 || !is_its_user;
        if adds_one && reads { i64::from(is_later || beyond > 0) } else { beyond }
    }

    /// Records the occurrence time of a write.
    fn record_occurrence(&mut self, write: &Observation<'_>) {
        if self.is_before(write)
            && let Some(time) = occurrence_time(write)
        {
            self.occurred = self.occurred & !TIME | time;
        }
        self.confirm_owner(write);
    }

    /// Confirms the owner by an UPDATE: its Event is stored, and its user may change it.
    fn confirm_owner(&mut self, write: &Observation<'_>) {
        if write.operation == Operation::Update {
            self.occurred |= OWNER_CONFIRMED;
        }
    }

    /// Whether the write's occurrence time is later than all seen. The 30-bit clock compares times up to 6 days
    /// apart; names are remembered for one day.
    fn is_before(&self, write: &Observation<'_>) -> bool {
        let seen = self.occurred & TIME;
        occurrence_time(write).is_some_and(|time| {
            let later_by = time.wrapping_sub(seen) & TIME;
            seen == 0 || (1..=TIME / 2).contains(&later_by)
        })
    }

    fn highest(&self) -> i64 {
        i64::from(self.highest & !READS)
    }

    fn is_owner_confirmed(&self) -> bool {
        self.occurred & OWNER_CONFIRMED != 0
    }

    fn is_stored(&self) -> bool {
        self.bits() & STORED != 0
    }

    fn user(&self) -> u32 {
        self.bits() & !STORED
    }

    fn set_user(&mut self, user: u32, stored: bool) {
        let [a, b, c, _] = (user | if stored { STORED } else { 0 }).to_le_bytes();
        self.user = [a, b, c];
    }

    fn bits(&self) -> u32 {
        let [a, b, c] = self.user;
        u32::from_le_bytes([a, b, c, 0])
    }
}

/// Returns the last occurrence time: milliseconds in 30 bits, which wrap after 12 days. Never 0, which means no
/// time.
fn occurrence_time(write: &Observation<'_>) -> Option<u32> {
    write.last_observed.map(|time| (time.as_millisecond() as u32 & TIME).max(1))
}

/// Returns 23 bits of the user's hash. A collision needs one of 8 million users, cannot be searched for, and
/// counts some occurrences too many.
fn user(hasher: &Hasher, user: &str) -> u32 {
    hasher.user(user) as u32 % STORED
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::testing::{at, named, write};
    use proptest::prelude::*;

    fn hasher() -> Hasher {
        Hasher::new([1, 2])
    }

    fn carry(names: &mut Names, write: &Observation<'_>, now: u64) -> Carried {
        let key = write.name.as_deref().map(|name| hasher().name(name));
        names.carry(&hasher(), key, write, false, false, at(now))
    }

    proptest! {
        #[test]
        fn a_write_carries_its_value_beyond_the_highest_one(
            writes in prop::collection::vec((0u8..20, 1i64..6, 0u64..3000), 0..200)
        ) {
            let mut names = Names::default();
            let mut model: BTreeMap<u8, (i64, u64)> = BTreeMap::new();
            let mut now = 0;
            for (name, value, pause) in writes {
                now += pause;
                let text = format!("cart.{name}");
                let carried = carry(&mut names, &Observation { value, ..named(&text, write()) }, now);
                let before = model.get(&name).copied();
                prop_assert_eq!(carried.occurrences, (value - before.map_or(0, |(highest, _)| highest)).max(0));
                prop_assert_eq!(carried.seen_before, before.map(|(_, seen)| at(seen)));
                model.insert(name, (before.map_or(value, |(highest, _)| highest.max(value)), now));
            }
            prop_assert_eq!(names.len(), model.len());
        }

        #[test]
        fn the_oldest_names_are_evicted_at_capacity(
            writes in prop::collection::vec((0u8..20, 0u64..30_000), 1..100), room in 0usize..20
        ) {
            let mut names = Names::default();
            let mut seen: BTreeMap<u8, u64> = BTreeMap::new();
            let mut now = 0;
            for (name, pause) in writes {
                now += pause;
                carry(&mut names, &named(&format!("cart.{name}"), write()), now);
                seen.insert(name, now);
            }
            let before = names.len();
            names.forget(room, 1000, at(now), |_| true);
            prop_assert_eq!(names.evicted, before.saturating_sub(room));
            prop_assert_eq!(names.len(), before.min(room));
            let kept = |name: &u8| names.table.find(hasher().name(&format!("cart.{name}"))).is_some();
            let turn = |seen: &u64| seen / ORDERED_BY.as_millis() as u64;
            let oldest_kept = seen.iter().filter(|(name, _)| kept(name)).map(|(_, seen)| turn(seen)).min();
            let newest_gone = seen.iter().filter(|(name, _)| !kept(name)).map(|(_, seen)| turn(seen)).max();
            if let (Some(kept), Some(gone)) = (oldest_kept, newest_gone) {
                prop_assert!(gone <= kept);
            }
        }
    }

    #[test]
    fn a_name_takes_28_bytes() {
        assert_eq!(size_of::<NameRecord>(), 28);
    }

    #[test]
    fn user_hash_and_stored_bit_are_independent() {
        let mut name = NameRecord::default();
        for (user, stored) in [(STORED - 1, false), (STORED - 1, true), (0, true), (0x12_3456, false)] {
            name.set_user(user, stored);
            assert_eq!((name.user(), name.is_stored()), (user, stored));
        }
    }
}
