use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::testing::at;
use proptest::prelude::*;

fn rules(max_events: u32) -> AggregationRules {
    AggregationRules { max_events, idle_timeout: Duration::from_secs(600), group_by: GroupBy::Object }
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
        .map(|message| report(&mut groups, 1, message, 7, &rules(10), AtCapacity::default(), at(1)).is_some())
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
