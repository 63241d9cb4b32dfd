use super::*;
use proptest::prelude::*;

/// A list searched from the front, and a second one for entries outside the order.
#[derive(Default)]
struct Naive {
    ordered: Vec<(Key, u128)>,
    aside: Vec<(Key, u128)>,
}

impl Naive {
    fn take(&mut self, key: Key) -> Option<(Key, u128)> {
        for list in [&mut self.ordered, &mut self.aside] {
            if let Some(at) = list.iter().position(|(its, _)| *its == key) {
                return Some(list.remove(at));
            }
        }
        None
    }
}

/// Keys with colliding hashes: 16 hashes for 64 keys.
fn key(number: u64) -> Key {
    u128::from(number % 16).wrapping_mul(0x9e37_79b9) | (u128::from(number) << 64)
}

fn check(table: &Table<u128, 2>, model: &Naive) -> Result<(), TestCaseError> {
    let mut order = Vec::new();
    let mut cursor = table.oldest();
    while let Some(at) = cursor {
        order.push(*table.get(at).unwrap());
        cursor = table.next_newer(at);
    }
    prop_assert_eq!(order, model.ordered.iter().map(|(_, value)| *value).collect::<Vec<_>>());
    prop_assert_eq!(table.len(), model.ordered.len() + model.aside.len());
    for (key, value) in model.ordered.iter().chain(&model.aside) {
        prop_assert_eq!(table.find(*key).and_then(|at| table.get(at)), Some(value));
    }
    prop_assert!(table.heads.len() as usize <= 64 + 2 * table.len().max(1));
    Ok(())
}

proptest! {
    #[test]
    fn a_table_behaves_like_a_list_searched_from_the_front(steps in prop::collection::vec((0u8..6, 0u64..64), 0..300)) {
        let mut table = Table::<_, 2>::default();
        let mut model = Naive::default();
        for (step, number) in steps {
            let (key, value) = (key(number), u128::from(number) * 2);
            let at = table.find(key);
            let before = model.take(key);
            prop_assert_eq!(at.is_some(), before.is_some());
            match (at, step) {
                (None, 0..=2) => { table.insert(key, value); model.ordered.push((key, value)); }
                (None, 3) => {
                    let oldest = (!model.ordered.is_empty()).then(|| model.ordered.remove(0).1);
                    let (at, replaced) = table.replace_oldest(key, value);
                    prop_assert_eq!((table.get(at), replaced), (Some(&value), oldest));
                    model.ordered.push((key, value));
                }
                (None, _) => {}
                (Some(at), 0 | 1) => { table.touch(at); model.ordered.push((key, value)); }
                (Some(at), 2) => { table.leave_order(at); model.aside.push((key, value)); }
                (Some(at), _) => prop_assert_eq!(table.remove(at), Some(value)),
            }
            check(&table, &model)?;
        }
    }
}

#[test]
fn grows_and_shrinks_without_losing_an_entry() {
    let mut table = Table::<_, 2>::default();
    let keys: Vec<Key> = (0..5000u128).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    for (number, key) in keys.iter().enumerate() {
        table.insert(*key, number);
    }
    for (number, key) in keys.iter().enumerate().rev().filter(|(number, _)| number % 50 != 0) {
        let at = table.find(*key).unwrap();
        assert_eq!(table.remove(at), Some(number));
    }
    assert_eq!(table.len(), 100);
    for (number, key) in keys.iter().enumerate() {
        let found = table.find(*key).and_then(|at| table.get(at).copied());
        assert_eq!(found, (number % 50 == 0).then_some(number));
    }
    assert!(table.heads.len() <= 64 + 200, "{} buckets for 100 entries", table.heads.len());
}

#[test]
fn chains_stay_short_while_it_grows() {
    let mut table = Table::<_, 2>::default();
    let (mut longest, mut sum) = (0, 0);
    for number in 0..20_000u128 {
        let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835) >> 40;
        table.insert(key, ());
        let visited = std::cell::Cell::new(0);
        table.walk(hash(key.wrapping_add(1)), |_| {
            visited.set(visited.get() + 1);
            false
        });
        longest = longest.max(visited.get());
        sum += visited.get();
    }
    assert!(longest <= 12 && sum < 40_000, "longest {longest}, {sum} in all");
}

#[test]
fn an_unused_table_is_freed_in_steps() {
    let mut table = Table::<_, 2>::default();
    for number in 0..1000 {
        table.insert(number, Box::new(number));
    }
    let steps = (1..).find(|_| table.free_some(10)).unwrap();
    assert_eq!(steps, 100);
}
