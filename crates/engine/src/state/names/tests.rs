use std::collections::BTreeMap;

use super::record::STORED;
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
        writes in prop::collection::vec((0u8..20, 0u64..30_000), 1..100), capacity in 0usize..20
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
        names.forget(capacity, 1000, at(now), |_| true);
        prop_assert_eq!(names.evicted, before.saturating_sub(capacity));
        prop_assert_eq!(names.len(), before.min(capacity));
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
fn occurrences_counted_early_are_kept_for_the_newest_names() {
    let mut names = Names::default();
    let key = |name: usize| Some(hasher().name(&format!("cart.{name}")));
    for name in 0..=MAX_COUNTED_EARLY {
        assert_eq!(names.reported_again(key(name), 1, 3), 0);
    }
    assert_eq!(names.counted_early.len(), MAX_COUNTED_EARLY);
    assert_eq!(names.reported_again(key(0), 9, 0), 9, "evicted");
    assert_eq!(names.reported_again(key(1), 9, 1), 8, "in order");
    assert_eq!(names.reported_again(key(1), -5, 0), 0, "lowers the count");
    assert_eq!(names.reported_again(key(1), 1, 0), 0);
    assert_eq!(names.reported_again(key(1), 9, 0), 8);
    assert_eq!(names.reported_again(key(1), 9, 0), 9);
    assert_eq!(names.counted_early.len(), MAX_COUNTED_EARLY - 1);
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
