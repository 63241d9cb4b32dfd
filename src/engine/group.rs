//! Groups of look-alikes: who said how many different things about one object, or one kind of objects.

use std::time::Duration;

use super::decide::Full;
use super::key::Key;
use super::table::{At, Remains, Table};
use super::{AggregationRules, GroupBy, Moment};

/// One group.
#[derive(Default)]
struct Group {
    /// When a write of it reached aggregation last.
    seen: Moment,
    /// Fingerprints of the distinct messages it remembers, at most `max_events - 1`.
    remembered: Fingerprints,
    /// Across objects: fingerprints of the distinct ones that it saw, at most [`MAX_OBJECTS`].
    objects: Fingerprints,
    /// The last admitted Event of the group. In a box: 8 bytes for every group, and few groups keep one.
    witness: Option<Box<Witness>>,
}

/// An admitted Event of a group. A summary is created only if the API server has stored it: what the API server
/// refuses a client, squelch must not write for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Witness {
    /// The name of the Event.
    pub(super) name: Box<str>,
    /// When its CREATE was admitted.
    pub(super) admitted_at: Moment,
    /// A hash of what it says: another Event may have the name.
    pub(super) says: u64,
}

/// A witness is kept this long before a newer one takes its place: one that the API server refuses must not take the
/// place of one that is stored at once, and one that expires must not stay.
const KEPT: Duration = Duration::from_secs(5 * 60);

/// The longest name of an object: an Event with a longer one is never stored.
const MAX_NAME: usize = 253;

/// Distinct fingerprints. Most groups have one: it costs no allocation.
#[derive(Default)]
enum Fingerprints {
    #[default]
    None,
    One(u64),
    // The length is there, and not here: 8 bytes less for every group.
    #[expect(clippy::box_collection, reason = "half as large as a Vec in a group, and few groups have one")]
    Many(Box<Vec<u64>>),
    /// The first ones: there were more, for which there was no room.
    #[expect(clippy::box_collection, reason = "as above")]
    Part(Box<Vec<u64>>),
}

/// A group across objects tells at most this many apart.
const MAX_OBJECTS: usize = 256;

/// On how many objects a group saw its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Objects {
    pub(super) number: usize,
    /// There may be more: [`MAX_OBJECTS`] are told apart, or fewer where there was no room.
    pub(super) or_more: bool,
}

/// The groups of a scope.
#[derive(Default)]
pub(super) struct Groups {
    table: Table<Group, 7>,
    fingerprints: usize,
    evicted: usize,
    remains: Remains<Group, 7>,
}

impl Groups {
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Asks the memory for what [`Self::too_many`] will read.
    pub(super) fn fetch(&self, key: Key, full: &Full) {
        self.table.fetch_outline();
        self.table.fetch(key, full.groups);
    }

    /// How many fingerprints all groups together remember, their witnesses included.
    pub(super) fn fingerprints(&self) -> usize {
        self.fingerprints
    }

    /// Groups given up for want of room; they start anew.
    pub(super) fn evicted(&self) -> usize {
        self.evicted
    }

    /// Whether a write with this message is one too many for its group (client-go, tools/record,
    /// `EventAggregate`): the group remembers `max_events - 1` distinct messages, and this is another one. Then
    /// the answer is on how many objects the group saw them. If it is not, it is remembered. A write is never too
    /// many while no Event of its group was admitted. A group that was silent for strictly more than the interval
    /// starts anew. `full`: where there is no room for one more group, or for what tells its messages apart, the
    /// oldest of these goes.
    pub(super) fn too_many(
        &mut self,
        key: Key,
        message: u64,
        object: u64,
        rules: &AggregationRules,
        full: Full,
        now: Moment,
    ) -> Option<Objects> {
        let at = self.touched(key, rules, full, now)?;
        let before = self.table.get(at)?.weight();
        let group = self.table.get_mut(at)?;
        let objects = match rules.group_by {
            GroupBy::Object => Objects { number: 1, or_more: false },
            GroupBy::Kind => {
                if !full.fingerprints && group.objects.len() < MAX_OBJECTS {
                    group.objects.insert(object);
                } else if !group.objects.contains(object) {
                    group.objects.leave_out();
                }
                group.objects.count()
            }
        };
        let known = group.remembered.contains(message);
        let at_capacity = group.remembered.len() + 1 >= rules.max_events as usize;
        let too_many = !known && at_capacity && group.witness.is_some();
        if !known && !at_capacity {
            group.remembered.insert(message);
        }
        self.fingerprints += group.weight() - before;
        too_many.then_some(objects)
    }

    /// An Event of the group was admitted under this name. It is kept as the witness from the second distinct message
    /// on, since most groups have one message and need no witness; or `at_once`, where the limits may refuse the others.
    pub(super) fn admitted(
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

    /// The last admitted Event of the group, if it has one.
    pub(super) fn witness(&self, key: Key) -> Option<&Witness> {
        self.table.find(key).and_then(|at| self.table.get(at))?.witness.as_deref()
    }

    /// The API server has not stored the witness: the next write of the group is not aggregated.
    pub(super) fn refute_witness(&mut self, key: Key, refuted: &Witness) {
        let group = self.table.find(key).and_then(|at| self.table.get_mut(at));
        if let Some(group) = group
            && group.witness.as_deref() == Some(refuted)
        {
            self.fingerprints -= group.weight();
            group.witness = None;
            self.fingerprints += group.weight();
        }
    }

    /// The group of this key as a write finds it: anew, if it was silent for too long.
    fn touched(&mut self, key: Key, rules: &AggregationRules, full: Full, now: Moment) -> Option<At> {
        let at = match self.table.find(key) {
            Some(at) => {
                self.table.touch(at);
                at
            }
            None if full.groups => {
                let oldest = self.table.oldest()?;
                let given_up = self.table.replace(oldest, key, Group::default());
                self.gave_up(&given_up);
                oldest
            }
            None => self.table.insert(key, Group::default()),
        };
        let group = self.table.get_mut(at)?;
        if now.since(std::mem::replace(&mut group.seen, now)) > rules.interval {
            self.fingerprints -= group.weight();
            *group = Group { seen: now, ..Group::default() };
        }
        if full.fingerprints && self.table.len() > 1 {
            self.give_up_oldest()?;
            // The last one may stand in another place now.
            return self.table.find(key);
        }
        Some(at)
    }

    /// The group that was silent for longest starts anew.
    pub(super) fn give_up_oldest(&mut self) -> Option<()> {
        let given_up = self.table.remove(self.table.oldest()?)?;
        self.gave_up(&given_up);
        Some(())
    }

    fn gave_up(&mut self, group: &Group) {
        self.fingerprints -= group.weight();
        self.evicted += 1;
    }

    /// Forgets groups that would start anew anyhow, at most so many of the oldest; returns how many.
    pub(super) fn forget(&mut self, rules: Option<&AggregationRules>, at_most: usize, now: Moment) -> usize {
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
        forgotten + self.remains.crumble(at_most)
    }

    /// Forgets all of them: aggregation was switched off.
    pub(super) fn clear(&mut self) {
        self.remains.take(&mut self.table);
        self.fingerprints = 0;
    }

    /// Nothing is known, and nothing is left to be freed.
    pub(super) fn is_nothing(&self) -> bool {
        self.table.is_empty() && self.remains.is_empty()
    }
}

impl Group {
    /// How many fingerprints it remembers; its witness takes as much room as some.
    fn weight(&self) -> usize {
        let witness = self.witness.as_deref().map_or(0, Witness::weight);
        self.remembered.len() + self.objects.len() + witness
    }
}

impl Witness {
    /// Its bytes, in fingerprints.
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

    /// Adds one, if it is not there.
    fn insert(&mut self, fingerprint: u64) {
        if self.contains(fingerprint) {
            return;
        }
        match self {
            Self::None => *self = Self::One(fingerprint),
            Self::One(first) => *self = Self::Many(Box::new(vec![*first, fingerprint])),
            Self::Many(all) | Self::Part(all) => all.push(fingerprint),
        }
    }

    /// There is no room for another one.
    fn leave_out(&mut self) {
        *self = Self::Part(match std::mem::take(self) {
            Self::Many(all) | Self::Part(all) => all,
            few => Box::new(few.as_slice().to_vec()),
        });
    }

    /// How many objects these are.
    fn count(&self) -> Objects {
        Objects { number: self.len(), or_more: matches!(self, Self::Part(_)) }
    }

    fn as_slice(&self) -> &[u64] {
        match self {
            Self::None => &[],
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(all) | Self::Part(all) => all,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::super::testing::at;
    use super::*;
    use proptest::prelude::*;

    fn rules(max_events: u32) -> AggregationRules {
        AggregationRules { max_events, interval: Duration::from_secs(600), group_by: GroupBy::Object }
    }

    /// Whether a write is too many for its group; one that is not is admitted.
    fn tell(
        groups: &mut Groups,
        key: Key,
        message: u64,
        object: u64,
        rules: &AggregationRules,
        full: Full,
        now: Moment,
    ) -> Option<Objects> {
        let told = groups.too_many(key, message, object, rules, full, now);
        if told.is_none() {
            groups.admitted(key, "", || 0, rules, false, now);
        }
        told
    }

    #[test]
    fn the_tenth_distinct_message_is_the_first_too_many_and_is_not_remembered() {
        let mut groups = Groups::default();
        let told: Vec<bool> = (0..12)
            .map(|message| tell(&mut groups, 1, message, 7, &rules(10), Full::default(), at(1)).is_some())
            .collect();
        assert_eq!(told.iter().filter(|one| **one).count(), 3);
        assert!(told[9] && !told[8]);
        assert!(
            tell(&mut groups, 1, 3, 7, &rules(10), Full::default(), at(2)).is_none(),
            "a remembered one goes on"
        );
        assert!(tell(&mut groups, 1, 11, 7, &rules(10), Full::default(), at(3)).is_some());
    }

    #[test]
    fn with_one_event_at_most_every_write_but_the_first_is_too_many() {
        let mut groups = Groups::default();
        let first = groups.too_many(1, 1, 7, &rules(1), Full::default(), at(0));
        assert_eq!(first, None, "no Event of the group is stored");
        let second = groups.too_many(1, 2, 7, &rules(1), Full::default(), at(1));
        assert_eq!(second, None, "the first may have been filtered");
        groups.admitted(1, "e.2", || 0, &rules(1), false, at(1));
        assert!(tell(&mut groups, 1, 1, 7, &rules(1), Full::default(), at(2)).is_some());
    }

    #[test]
    fn only_strictly_more_than_the_interval_starts_anew() {
        let mut groups = Groups::default();
        assert!(tell(&mut groups, 1, 1, 7, &rules(2), Full::default(), at(0)).is_none());
        assert!(
            tell(&mut groups, 1, 2, 7, &rules(2), Full::default(), at(600_000)).is_some(),
            "exactly the interval"
        );
        assert!(tell(&mut groups, 1, 2, 7, &rules(2), Full::default(), at(1_200_001)).is_none());
    }

    #[test]
    fn the_oldest_makes_room_and_old_ones_are_forgotten() {
        let mut groups = Groups::default();
        for key in 0..3 {
            tell(&mut groups, key, 1, 7, &rules(2), Full::default(), at(key as u64));
        }
        let full = Full { groups: true, ..Full::default() };
        tell(&mut groups, 9, 1, 7, &rules(2), full, at(5));
        assert_eq!((groups.len(), groups.evicted()), (3, 1));
        assert!(tell(&mut groups, 0, 2, 7, &rules(2), full, at(6)).is_none(), "it started anew");
        assert_eq!(groups.forget(Some(&rules(2)), 10, at(600_005)), 1);
        assert_eq!(groups.len(), 2);
    }

    #[test]
    fn what_tells_messages_apart_has_a_bound_too() {
        let mut groups = Groups::default();
        for key in 0..3 {
            for message in 0..100 {
                tell(&mut groups, key, message, 7, &rules(10_000), Full::default(), at(key as u64));
            }
        }
        let witness = size_of::<Witness>() / 8;
        assert_eq!(groups.fingerprints(), 3 * (100 + witness));
        let full = Full { fingerprints: true, ..Full::default() };
        tell(&mut groups, 2, 100, 7, &rules(10_000), full, at(5));
        let left = 201 + 2 * witness;
        assert_eq!((groups.len(), groups.fingerprints(), groups.evicted()), (2, left, 1));
        groups.clear();
        assert_eq!((groups.len(), groups.fingerprints(), groups.is_nothing()), (0, 0, false));
        assert!(groups.forget(None, 10, at(6)) > 0 && groups.is_nothing());
    }

    #[test]
    fn a_number_of_objects_that_is_no_more_counted_is_a_lower_bound() {
        let rules = AggregationRules { group_by: GroupBy::Kind, ..rules(2) };
        let mut groups = Groups::default();
        let mut seen = |object, full| {
            tell(&mut groups, 1, object, object, &rules, full, at(object)).map(|it| (it.number, it.or_more))
        };
        let full = Full::default();
        assert_eq!(seen(1, full), None);
        for object in 2..=256 {
            assert_eq!(seen(object, full), Some((object as usize, false)));
        }
        assert_eq!(seen(256, full), Some((256, false)), "seen before");
        assert_eq!(seen(257, full), Some((256, true)));
        assert_eq!(seen(2, full), Some((256, true)));

        let mut groups = Groups::default();
        let mut seen = |object, full| {
            tell(&mut groups, 1, object, object, &rules, full, at(object)).map(|it| (it.number, it.or_more))
        };
        assert_eq!(seen(1, full), None);
        let crowded = Full { fingerprints: true, ..full };
        assert_eq!(seen(2, crowded), Some((1, true)));
        assert_eq!(seen(3, full), Some((2, true)), "one was left out, and nobody knows which");
    }

    proptest! {
        #[test]
        fn decides_like_a_map_of_sets(
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
                let at_capacity = messages.len() + 1 >= max_events as usize;
                let too_many = !messages.contains(&message) && at_capacity && *witnessed;
                if !at_capacity {
                    messages.insert(message);
                }
                *witnessed |= !too_many && (messages.len() > 1 || messages.len() + 1 >= max_events as usize);
                let number = if across { objects.len() } else { 1 };
                let expected = too_many.then_some(Objects { number, or_more: false });
                let told = tell(&mut groups, key, message, object, &rules, Full::default(), at(now));
                prop_assert_eq!(told, expected);
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
