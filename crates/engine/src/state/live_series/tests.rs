use jiff::Timestamp;

use super::*;
use crate::testing::{at, write};
use proptest::prelude::*;

fn series(total: i64) -> Series {
    Series { unreported: total % 3, ..Series::opened_by_update(total, Timestamp::UNIX_EPOCH, at(0)) }
}

#[test]
fn a_handle_never_reaches_a_later_series_of_its_key_or_position() {
    let mut live = LiveSeries::default();
    let first = live.insert(1, "first", &series(1), u32::MAX);
    assert!(live.remove(first).is_some());
    // Birth numbers wrap.
    let second = live.insert(1, "second", &series(2), u32::MAX.wrapping_add(1));
    assert_eq!((live.get(first), live.name(first)), (None, None));
    assert_eq!(live.remove(first), None);
    assert_eq!(live.name(second), Some("second"));
    assert_eq!(live.get(Handle::NONE), None);
}

#[test]
fn the_oldest_record_of_an_ended_series_is_evicted_when_birth_numbers_wrap() {
    let mut live = LiveSeries::default();
    let shared = Series { shared: true, ..series(3) };
    let ended = [u32::MAX - 1, u32::MAX, 0, 1].map(|birth| {
        let handle = live.insert(u128::from(birth), "", &shared, birth);
        live.remove(handle);
        handle
    });
    assert!(live.evict_ended() && live.evict_ended());
    assert_eq!(ended.map(|handle| live.ended(handle).is_some()), [false, false, true, true]);
    assert_eq!((live.ended_len(), live.ended_evicted()), (2, 2));
}

#[test]
fn the_order_by_use_follows_at_the_given_granularity() {
    let mut live = LiveSeries::default();
    let [a, b] = [1, 2].map(|key| live.insert(key, "", &series(1), key as u32));
    live.mark_seen(a, at(999), Duration::from_secs(1));
    assert_eq!(live.oldest(), Some(a), "still the second in which it came");
    live.mark_seen(a, at(1000), Duration::from_secs(1));
    assert_eq!(live.oldest(), Some(b));
}

proptest! {
    #[test]
    fn series_keep_names_contents_and_timers_when_they_move(
        steps in prop::collection::vec((0u8..6, 0u32..16, 0u64..100), 0..200)
    ) {
        let mut live = LiveSeries::default();
        let mut model: BTreeMap<u32, (Handle, i64, bool, Option<u64>)> = BTreeMap::new();
        for (birth, (step, key, number)) in steps.into_iter().enumerate() {
            let total = number as i64;
            match (step, model.get_mut(&key)) {
                (0 | 1, None) => {
                    // Only four hashes, so that they collide.
                    let name = format!("name {key}");
                    let key_of_it = u128::from(key % 4) | u128::from(key) << 64;
                    let handle = live.insert(key_of_it, &name, &series(total), birth as u32);
                    model.insert(key, (handle, total, false, None));
                }
                (1, Some((handle, ..))) => {
                    prop_assert!(live.remove(*handle).is_some());
                    prop_assert_eq!(live.get(*handle), None);
                    model.remove(&key);
                }
                (2, Some((handle, its_total, ..))) => {
                    *its_total = total;
                    live.put(*handle, &series(total));
                }
                (3, Some((handle, _, content, _))) => {
                    *content = !*content;
                    live.set_content(*handle, content.then(|| Box::new(Content::of(&write().event))));
                }
                (4, Some((handle, .., due))) => {
                    *due = Some(due.map_or(number, |before: u64| before.min(number)));
                    live.set_timer(*handle, at(number));
                }
                (5, Some((handle, .., due))) => {
                    *due = None;
                    live.cancel_timer(*handle);
                }
                _ => {}
            }
            let first = model.values().filter_map(|(.., due)| *due).min();
            prop_assert_eq!(live.first_timer().map(|(due, _)| due), first.map(at));
            let mut bytes = 0;
            for (key, (handle, total, content, due)) in &model {
                let name = format!("name {key}");
                prop_assert_eq!(live.get(*handle), Some(series(*total)));
                prop_assert_eq!(live.name(*handle), Some(&*name));
                prop_assert_eq!(live.has_name(*handle, &name), true);
                prop_assert_eq!(live.has_name(*handle, "name"), false);
                prop_assert_eq!(live.content(*handle).is_some(), *content);
                let at_position = live.place(*handle).and_then(|at| live.table.get(at)).unwrap().timer;
                prop_assert_eq!(live.timers.due(at_position), due.map(at));
                bytes += name.len() + live.content(*handle).map_or(0, Content::len);
            }
            prop_assert_eq!((live.len(), live.bytes()), (model.len(), bytes));
            let unreported = model.values().filter(|(_, total, ..)| total % 3 > 0).count();
            prop_assert_eq!(live.unreported.len(), unreported);
            let found: Vec<_> = (0..live.len()).filter_map(|at| live.nth(at as u32)).collect();
            prop_assert_eq!(found.len(), model.len());
        }
    }
}

#[test]
fn a_series_that_squelch_never_wrote_leaves_no_written_count() {
    let mut live = LiveSeries::default();
    let opened = Series::opened_by_update(3, Timestamp::UNIX_EPOCH, at(1000));
    let handle = live.insert(1, "cart.1", &opened, 1);
    live.remove(handle);
    live.remember_written(handle, &opened, at(1001));
    assert_eq!(live.just_written(handle, at(1002)), None);
    let flushed = Series { read: true, ..opened };
    live.remember_written(handle, &flushed, at(1003));
    assert_eq!(live.just_written(handle, at(1004)), Some(3));
}
