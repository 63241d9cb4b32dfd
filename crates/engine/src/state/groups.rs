//! Aggregation groups: the distinct messages about one object or one kind of objects.

use std::time::Duration;

use crate::decide::keys::Key;
use crate::state::capacity::AtCapacity;
use crate::state::fingerprints::Fingerprints;
use crate::store::deferred_drop::DeferredDrop;
use crate::store::strings::MAX_TEXT;
use crate::store::table::{At, Table};
use crate::{AggregationRules, GroupBy, Moment};

/// One group.
#[derive(Default)]
struct Group {
    /// Time of the last write that reached aggregation.
    seen: Moment,
    /// Fingerprints of the distinct messages, at most `max_events - 1`.
    remembered: Fingerprints,
    /// With [`GroupBy::Kind`]: fingerprints of the distinct objects, at most [`MAX_OBJECTS`].
    objects: Fingerprints,
    /// An admitted Event of the group. Boxed, because few groups keep one.
    witness: Option<Box<Witness>>,
}

/// An admitted Event of a group. A summary is created only if the API server has stored its witness. squelch
/// must not write for a client what the API server refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Witness {
    /// Name of the Event.
    pub(crate) name: Box<str>,
    /// When its CREATE was admitted.
    pub(crate) admitted_at: Moment,
    /// Hash of the identifying fields, because another Event may have the same name.
    pub(crate) says: u64,
}

/// Time before a newer witness replaces an older one. A refused Event must not replace a stored one at once,
/// and an expired Event must not remain.
const KEPT: Duration = Duration::from_secs(5 * 60);

/// Maximum number of distinct objects that a group across objects distinguishes.
const MAX_OBJECTS: usize = 256;

/// Number of distinct objects in the writes of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObjectCount {
    pub(crate) number: usize,
    /// Whether there may be more: a group distinguishes [`MAX_OBJECTS`], or fewer at capacity.
    pub(crate) is_lower_bound: bool,
}

/// The groups of a scope.
#[derive(Default)]
pub(crate) struct Groups {
    table: Table<Group, 7>,
    fingerprints: usize,
    evicted: usize,
    deferred_drop: DeferredDrop<Group, 7>,
}

impl Groups {
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Prefetches what [`Self::too_many`] reads.
    pub(crate) fn prefetch(&self, key: Key, at_capacity: &AtCapacity) {
        self.table.prefetch_outline();
        self.table.prefetch(key, at_capacity.groups);
    }

    /// Returns the number of fingerprints in all groups, including the size of their witnesses.
    pub(crate) fn fingerprints(&self) -> usize {
        self.fingerprints
    }

    /// Returns the number of evicted groups. They are reset.
    pub(crate) fn evicted(&self) -> usize {
        self.evicted
    }

    /// Returns the number of distinct objects if the write is one message too many for its group (client-go,
    /// tools/record, `EventAggregate`). It is if the group remembers `max_events - 1` distinct messages and
    /// this is another one. Otherwise remembers the message and returns `None`. No write is too many before an
    /// Event of the group was admitted. A group without a write for strictly more than the idle timeout is reset.
    /// `at_capacity`: evicts the oldest group to add another group or fingerprints.
    pub(crate) fn too_many(
        &mut self,
        key: Key,
        message: u64,
        object: u64,
        rules: &AggregationRules,
        at_capacity: AtCapacity,
        now: Moment,
    ) -> Option<ObjectCount> {
        let at = self.touched(key, rules, at_capacity, now)?;
        let before = self.table.get(at)?.weight();
        let group = self.table.get_mut(at)?;
        let objects = match rules.group_by {
            GroupBy::Object => ObjectCount { number: 1, is_lower_bound: false },
            GroupBy::Kind => {
                if !at_capacity.fingerprints && group.objects.len() < MAX_OBJECTS {
                    group.objects.insert(object);
                } else if !group.objects.contains(object) {
                    group.objects.mark_partial();
                }
                group.objects.count()
            }
        };
        let known = group.remembered.contains(message);
        let remembers_all = group.remembered.len() + 1 >= rules.max_events as usize;
        let too_many = !known && remembers_all && group.witness.is_some();
        if !known && !remembers_all {
            group.remembered.insert(message);
        }
        self.fingerprints += group.weight() - before;
        too_many.then_some(objects)
    }

    /// Records an admitted Event as the group's witness, from the second distinct message on: most groups have
    /// one message and need no witness. With `at_once` it records the first one, because the limits may refuse
    /// the others.
    pub(crate) fn admitted(
        &mut self,
        key: Key,
        name: &str,
        says: impl FnOnce() -> u64,
        rules: &AggregationRules,
        at_once: bool,
        now: Moment,
    ) {
        let Some(group) = self.table.find(key).and_then(|at| self.table.get_mut(at)) else { return };
        let needs_one =
            at_once || group.remembered.len() > 1 || group.remembered.len() + 1 >= rules.max_events as usize;
        let has_one = group.witness.as_deref().is_some_and(|known| now.since(known.admitted_at) < KEPT);
        if needs_one && !has_one && name.len() <= MAX_TEXT {
            self.fingerprints -= group.weight();
            group.witness = Some(Box::new(Witness { name: name.into(), admitted_at: now, says: says() }));
            self.fingerprints += group.weight();
        }
    }

    /// Returns the witness of the group, if it has one.
    pub(crate) fn witness(&self, key: Key) -> Option<&Witness> {
        self.table.find(key).and_then(|at| self.table.get(at))?.witness.as_deref()
    }

    /// Removes a witness that the API server has not stored. The next write of the group is not aggregated.
    pub(crate) fn refute_witness(&mut self, key: Key, refuted: &Witness) {
        let group = self.table.find(key).and_then(|at| self.table.get_mut(at));
        if let Some(group) = group
            && group.witness.as_deref() == Some(refuted)
        {
            self.fingerprints -= group.weight();
            group.witness = None;
            self.fingerprints += group.weight();
        }
    }

    /// Returns the group of this key, reset if it was silent for too long.
    fn touched(
        &mut self,
        key: Key,
        rules: &AggregationRules,
        at_capacity: AtCapacity,
        now: Moment,
    ) -> Option<At> {
        let at = match self.table.find(key) {
            Some(at) => {
                self.table.touch(at);
                at
            }
            None if at_capacity.groups => {
                let oldest = self.table.oldest()?;
                let evicted_value = self.table.replace(oldest, key, Group::default());
                self.count_evicted(&evicted_value);
                oldest
            }
            None => self.table.insert(key, Group::default()),
        };
        let group = self.table.get_mut(at)?;
        if now.since(std::mem::replace(&mut group.seen, now)) > rules.idle_timeout {
            self.fingerprints -= group.weight();
            *group = Group { seen: now, ..Group::default() };
        }
        if at_capacity.fingerprints && self.table.len() > 1 {
            self.evict_oldest()?;
            // The eviction may have moved the last entry.
            return self.table.find(key);
        }
        Some(at)
    }

    /// Evicts the group without a write for longest.
    pub(crate) fn evict_oldest(&mut self) -> Option<()> {
        let evicted_value = self.table.remove(self.table.oldest()?)?;
        self.count_evicted(&evicted_value);
        Some(())
    }

    fn count_evicted(&mut self, group: &Group) {
        self.fingerprints -= group.weight();
        self.evicted += 1;
    }

    /// Removes at most `at_most` of the oldest groups if their idle timeout has passed. Returns how many it removed
    /// or freed.
    pub(crate) fn forget(&mut self, rules: Option<&AggregationRules>, at_most: usize, now: Moment) -> usize {
        let idle_timeout = rules.map(|rules| rules.idle_timeout).unwrap_or_default();
        let mut forgotten = 0;
        while forgotten < at_most
            && let Some(oldest) = self.table.oldest()
            && self.table.get(oldest).is_some_and(|group| now.since(group.seen) > idle_timeout)
            && let Some(group) = self.table.remove(oldest)
        {
            self.fingerprints -= group.weight();
            forgotten += 1;
        }
        forgotten + self.deferred_drop.free_some(at_most)
    }

    /// Removes all groups, because aggregation was disabled.
    pub(crate) fn clear(&mut self) {
        self.deferred_drop.take(&mut self.table);
        self.fingerprints = 0;
    }

    /// Whether there are no groups and nothing is left to be freed.
    pub(crate) fn is_empty_and_freed(&self) -> bool {
        self.table.is_empty() && self.deferred_drop.is_empty()
    }
}

impl Group {
    /// Returns the number of fingerprints, including the size of the witness.
    fn weight(&self) -> usize {
        let witness = self.witness.as_deref().map_or(0, Witness::weight);
        self.remembered.len() + self.objects.len() + witness
    }
}

impl Witness {
    /// Returns the size in units of a fingerprint.
    fn weight(&self) -> usize {
        (size_of::<Self>() + self.name.len()) / size_of::<u64>()
    }
}

#[cfg(test)]
mod tests;
