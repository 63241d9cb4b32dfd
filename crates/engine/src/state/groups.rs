//! Aggregation groups: the distinct messages about one object or one kind of objects.

use std::time::Duration;

use crate::decide::keys::Key;
use crate::decide::pipeline::AtCapacity;
use crate::store::table::{At, DeferredDrop, Table};
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

/// Maximum length of an object name. An Event with a longer name is never stored.
const MAX_NAME: usize = 253;

/// Distinct fingerprints. Most groups have one, which needs no allocation.
#[derive(Default)]
enum Fingerprints {
    #[default]
    None,
    One(u64),
    // The heap holds the length as well, which saves 8 bytes in every group.
    #[expect(clippy::box_collection, reason = "half as large as a Vec in a group, and few groups have one")]
    Many(Box<Vec<u64>>),
    /// The first ones. Others were left out for lack of capacity.
    #[expect(clippy::box_collection, reason = "as above")]
    Partial(Box<Vec<u64>>),
}

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
    /// Event of the group was admitted. A group without a write for strictly more than the interval is reset.
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
        if needs_one && !has_one && name.len() <= MAX_NAME {
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
        if now.since(std::mem::replace(&mut group.seen, now)) > rules.interval {
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

    /// Removes at most `at_most` of the oldest groups if their interval has passed. Returns how many it removed
    /// or freed.
    pub(crate) fn forget(&mut self, rules: Option<&AggregationRules>, at_most: usize, now: Moment) -> usize {
        let interval = rules.map(|rules| rules.interval).unwrap_or_default();
        let mut forgotten = 0;
        while forgotten < at_most
            && let Some(oldest) = self.table.oldest()
            && self.table.get(oldest).is_some_and(|group| now.since(group.seen) > interval)
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

impl Fingerprints {
    fn len(&self) -> usize {
        self.as_slice().len()
    }

    fn contains(&self, fingerprint: u64) -> bool {
        self.as_slice().contains(&fingerprint)
    }

    /// Adds a fingerprint unless it is present.
    fn insert(&mut self, fingerprint: u64) {
        if self.contains(fingerprint) {
            return;
        }
        match self {
            Self::None => *self = Self::One(fingerprint),
            Self::One(first) => *self = Self::Many(Box::new(vec![*first, fingerprint])),
            Self::Many(all) | Self::Partial(all) => all.push(fingerprint),
        }
    }

    /// Records that a fingerprint was left out for lack of capacity.
    fn mark_partial(&mut self) {
        *self = Self::Partial(match std::mem::take(self) {
            Self::Many(all) | Self::Partial(all) => all,
            few => Box::new(few.as_slice().to_vec()),
        });
    }

    /// Returns the number of objects with these fingerprints.
    fn count(&self) -> ObjectCount {
        ObjectCount { number: self.len(), is_lower_bound: matches!(self, Self::Partial(_)) }
    }

    fn as_slice(&self) -> &[u64] {
        match self {
            Self::None => &[],
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(all) | Self::Partial(all) => all,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::testing::at;
    use proptest::prelude::*;

    fn rules(max_events: u32) -> AggregationRules {
        AggregationRules { max_events, interval: Duration::from_secs(600), group_by: GroupBy::Object }
    }

    /// Returns whether a write is too many for its group. Admits it if not.
    fn report(
        groups: &mut Groups,
        key: Key,
        message: u64,
        object: u64,
        rules: &AggregationRules,
        at_capacity: AtCapacity,
        now: Moment,
    ) -> Option<ObjectCount> {
        let reported = groups.too_many(key, message, object, rules, at_capacity, now);
        if reported.is_none() {
            groups.admitted(key, "", || 0, rules, false, now);
        }
        reported
    }

    #[test]
    fn the_tenth_distinct_message_is_too_many_and_not_remembered() {
        let mut groups = Groups::default();
        let reported: Vec<bool> = (0..12)
            .map(|message| {
                report(&mut groups, 1, message, 7, &rules(10), AtCapacity::default(), at(1)).is_some()
            })
            .collect();
        assert_eq!(reported.iter().filter(|one| **one).count(), 3);
        assert!(reported[9] && !reported[8]);
        assert!(
            report(&mut groups, 1, 3, 7, &rules(10), AtCapacity::default(), at(2)).is_none(),
            "a remembered one goes on"
        );
        assert!(report(&mut groups, 1, 11, 7, &rules(10), AtCapacity::default(), at(3)).is_some());
    }

    #[test]
    fn with_max_events_one_every_write_after_an_admitted_one_is_too_many() {
        let mut groups = Groups::default();
        let first = groups.too_many(1, 1, 7, &rules(1), AtCapacity::default(), at(0));
        assert_eq!(first, None, "no Event of the group is stored");
        let second = groups.too_many(1, 2, 7, &rules(1), AtCapacity::default(), at(1));
        assert_eq!(second, None, "the first may have been filtered");
        groups.admitted(1, "e.2", || 0, &rules(1), false, at(1));
        assert!(report(&mut groups, 1, 1, 7, &rules(1), AtCapacity::default(), at(2)).is_some());
    }

    #[test]
    fn only_a_silence_longer_than_the_interval_resets_a_group() {
        let mut groups = Groups::default();
        assert!(report(&mut groups, 1, 1, 7, &rules(2), AtCapacity::default(), at(0)).is_none());
        assert!(
            report(&mut groups, 1, 2, 7, &rules(2), AtCapacity::default(), at(600_000)).is_some(),
            "exactly the interval"
        );
        assert!(report(&mut groups, 1, 2, 7, &rules(2), AtCapacity::default(), at(1_200_001)).is_none());
    }

    #[test]
    fn the_oldest_group_is_evicted_and_expired_groups_are_removed() {
        let mut groups = Groups::default();
        for key in 0..3 {
            report(&mut groups, key, 1, 7, &rules(2), AtCapacity::default(), at(key as u64));
        }
        let at_capacity = AtCapacity { groups: true, ..AtCapacity::default() };
        report(&mut groups, 9, 1, 7, &rules(2), at_capacity, at(5));
        assert_eq!((groups.len(), groups.evicted()), (3, 1));
        assert!(report(&mut groups, 0, 2, 7, &rules(2), at_capacity, at(6)).is_none(), "it was reset");
        assert_eq!(groups.forget(Some(&rules(2)), 10, at(600_005)), 1);
        assert_eq!(groups.len(), 2);
    }

    #[test]
    fn fingerprints_are_bounded() {
        let mut groups = Groups::default();
        for key in 0..3 {
            for message in 0..100 {
                report(&mut groups, key, message, 7, &rules(10_000), AtCapacity::default(), at(key as u64));
            }
        }
        let witness = size_of::<Witness>() / 8;
        assert_eq!(groups.fingerprints(), 3 * (100 + witness));
        let at_capacity = AtCapacity { fingerprints: true, ..AtCapacity::default() };
        report(&mut groups, 2, 100, 7, &rules(10_000), at_capacity, at(5));
        let left = 201 + 2 * witness;
        assert_eq!((groups.len(), groups.fingerprints(), groups.evicted()), (2, left, 1));
        groups.clear();
        assert_eq!((groups.len(), groups.fingerprints(), groups.is_empty_and_freed()), (0, 0, false));
        assert!(groups.forget(None, 10, at(6)) > 0 && groups.is_empty_and_freed());
    }

    #[test]
    fn the_number_of_objects_is_a_lower_bound_once_one_is_left_out() {
        let rules = AggregationRules { group_by: GroupBy::Kind, ..rules(2) };
        let mut groups = Groups::default();
        let mut seen = |object, at_capacity| {
            report(&mut groups, 1, object, object, &rules, at_capacity, at(object))
                .map(|it| (it.number, it.is_lower_bound))
        };
        let capacity = AtCapacity::default();
        assert_eq!(seen(1, capacity), None);
        for object in 2..=256 {
            assert_eq!(seen(object, capacity), Some((object as usize, false)));
        }
        assert_eq!(seen(256, capacity), Some((256, false)), "known before");
        assert_eq!(seen(257, capacity), Some((256, true)));
        assert_eq!(seen(2, capacity), Some((256, true)));

        let mut groups = Groups::default();
        let mut seen = |object, at_capacity| {
            report(&mut groups, 1, object, object, &rules, at_capacity, at(object))
                .map(|it| (it.number, it.is_lower_bound))
        };
        assert_eq!(seen(1, capacity), None);
        let at_capacity = AtCapacity { fingerprints: true, ..capacity };
        assert_eq!(seen(2, at_capacity), Some((1, true)));
        assert_eq!(seen(3, capacity), Some((2, true)), "an unknown one was left out");
    }

    proptest! {
        #[test]
        fn groups_decide_like_a_map_of_sets(
            writes in prop::collection::vec((0u128..5, 0u64..6, 0u64..4, 0u64..300_000), 0..200),
            max_events in 1u32..6, across in any::<bool>()
        ) {
            let group_by = if across { GroupBy::Kind } else { GroupBy::Object };
            let rules = AggregationRules { group_by, ..rules(max_events) };
            let mut groups = Groups::default();
            let mut model: BTreeMap<Key, (u64, BTreeSet<u64>, BTreeSet<u64>, bool)> = BTreeMap::new();
            let mut now = 0;
            for (key, message, object, pause) in writes {
                now += pause;
                let anew = || (now, [].into(), [].into(), false);
                let (seen, messages, objects, witnessed) = model.entry(key).or_insert_with(anew);
                if now - *seen > 600_000 {
                    (*messages, *objects, *witnessed) = Default::default();
                }
                *seen = now;
                objects.insert(object);
                let remembers_all = messages.len() + 1 >= max_events as usize;
                let too_many = !messages.contains(&message) && remembers_all && *witnessed;
                if !remembers_all {
                    messages.insert(message);
                }
                *witnessed |= !too_many && (messages.len() > 1 || messages.len() + 1 >= max_events as usize);
                let number = if across { objects.len() } else { 1 };
                let expected = too_many.then_some(ObjectCount { number, is_lower_bound: false });
                let reported = report(&mut groups, key, message, object, &rules, AtCapacity::default(), at(now));
                prop_assert_eq!(reported, expected);
                let weight = |objects: &BTreeSet<u64>| if across { objects.len() } else { 0 };
                let witness = size_of::<Witness>() / 8;
                let fingerprints = model.values().map(|(_, messages, objects, witnessed)| {
                    messages.len() + weight(objects) + usize::from(*witnessed) * witness
                });
                prop_assert_eq!(groups.fingerprints(), fingerprints.sum::<usize>());
            }
        }
    }
}
