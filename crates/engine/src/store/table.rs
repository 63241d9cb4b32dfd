//! Entries by key and in the order of their use: the bounded table of the engine.
//!
//! Entries lie close together, and the last one takes the place of a removed one. So a table only takes the
//! memory of its current entries. The index uses linear hashing: it splits one bucket with each added entry and
//! joins two when it shrinks. So no call touches more than a few entries.

use std::hint::black_box;

use crate::decide::keys::Key;
use crate::store::segments::Segments;

/// Position of an entry, valid until an entry is removed.
pub(crate) type At = u32;

/// No position: the end of a chain, or no neighbour in the order.
pub(crate) const NONE: u32 = u32::MAX;

/// Number of entries per piece of memory. Smaller pieces waste less in ten thousand small tables; larger ones
/// need fewer pointers. With 8, 4 entries are unused on average, and pointers take 2 bytes per entry.
const PIECE: usize = 8;
/// Number of links per piece; links are smaller.
const LINKS: usize = 32;

/// Entries by key, from the least to the most recently touched. The table itself holds the pointers to the
/// first `NEAR` pieces.
// The field order matters: what every access reads comes first.
#[repr(C)]
pub(crate) struct Table<T, const NEAR: usize> {
    oldest: u32,
    newest: u32,
    /// Separate from the entries: moving an entry in the order changes its neighbours, and at 8 bytes each
    /// those often share a cache line.
    links: Segments<Links, LINKS, 7>,
    /// First entry of each bucket's chain. There are as many buckets as entries.
    heads: Segments<u32, 64, 4>,
    slots: Segments<Slot<T>, PIECE, NEAR>,
}

/// An entry. The key is stored as bytes, because `u128` is aligned to 16.
struct Slot<T> {
    key: [u8; 16],
    next: u32,
    value: T,
}

/// Neighbours in the order by use.
#[derive(Clone, Copy)]
struct Links {
    newer: u32,
    older: u32,
}

impl<T: Default> Default for Slot<T> {
    fn default() -> Self {
        Self { key: [0; 16], next: NONE, value: T::default() }
    }
}

impl Default for Links {
    fn default() -> Self {
        Self { newer: NONE, older: NONE }
    }
}

impl<T, const NEAR: usize> Default for Table<T, NEAR> {
    fn default() -> Self {
        Self {
            oldest: NONE,
            newest: NONE,
            links: Segments::default(),
            heads: Segments::default(),
            slots: Segments::default(),
        }
    }
}

/// Returns the bits of a key that the index uses. Keys are hashes, so any bits will do.
pub(crate) fn hash(key: Key) -> u32 {
    key as u32
}

impl<T: Default, const NEAR: usize> Table<T, NEAR> {
    pub(crate) fn len(&self) -> usize {
        self.slots.len() as usize
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(crate) fn find(&self, key: Key) -> Option<At> {
        let key = key.to_ne_bytes();
        self.walk(hash(Key::from_ne_bytes(key)), |slot| slot.key == key)
    }

    /// Returns an entry whose key has this hash and whose value matches.
    pub(crate) fn find_where(&self, hash: u32, is_it: impl Fn(&T) -> bool) -> Option<At> {
        self.walk(hash, |slot| is_it(&slot.value))
    }

    pub(crate) fn get(&self, at: At) -> Option<&T> {
        Some(&self.slots.get(at)?.value)
    }

    pub(crate) fn get_mut(&mut self, at: At) -> Option<&mut T> {
        (at < self.slots.len()).then(|| &mut self.slots[at].value)
    }

    /// Returns the hash of the key at this position.
    pub(crate) fn hash_at(&self, at: At) -> Option<u32> {
        Some(hash(self.slots.get(at)?.key()))
    }

    /// Adds an entry under an unused key as the most recently used.
    pub(crate) fn insert(&mut self, key: Key, value: T) -> At {
        debug_assert!(self.find(key).is_none(), "a key stands once");
        if self.heads.len() <= self.slots.len() {
            self.split();
        }
        let bucket = self.bucket(hash(key));
        let slot = Slot { key: key.to_ne_bytes(), next: self.heads[bucket], value };
        let at = self.slots.push(slot);
        self.heads[bucket] = at;
        self.links.push(Links::default());
        self.link_newest(at);
        at
    }

    /// Replaces the least recently used entry by one under an unused key, which becomes the most recently used.
    /// Returns the replaced value, or `None` if the table was empty. Moves no other entry.
    pub(crate) fn replace_oldest(&mut self, key: Key, value: T) -> (At, Option<T>) {
        match self.oldest() {
            Some(at) => (at, Some(self.replace(at, key, value))),
            None => (self.insert(key, value), None),
        }
    }

    /// Replaces this entry in the same way.
    pub(crate) fn replace(&mut self, at: At, key: Key, value: T) -> T {
        debug_assert!(self.find(key).is_none(), "a key stands once");
        let slot = &self.slots[at];
        self.repoint(self.bucket(hash(slot.key())), at, slot.next);
        self.unlink(at);
        let slot = &mut self.slots[at];
        slot.key = key.to_ne_bytes();
        let replaced = std::mem::replace(&mut slot.value, value);
        self.chain(at);
        self.link_newest(at);
        replaced
    }

    /// Makes the entry the most recently used.
    pub(crate) fn touch(&mut self, at: At) {
        if self.newest != at && at < self.slots.len() {
            self.unlink(at);
            self.link_newest(at);
        }
    }

    /// Removes the entry from the order until it is touched, so that it is never the oldest.
    pub(crate) fn leave_order(&mut self, at: At) {
        if at < self.slots.len() {
            self.unlink(at);
        }
    }

    /// Removes the entry; the last one takes its position.
    pub(crate) fn remove(&mut self, at: At) -> Option<T> {
        let removed = self.slots.get(at)?;
        self.repoint(self.bucket(hash(removed.key())), at, removed.next);
        self.unlink(at);
        let last = self.slots.len() - 1;
        if at != last {
            self.repoint(self.bucket(hash(self.slots[last].key())), last, at);
            self.relink(last, at);
        }
        self.links.swap_remove(at);
        let removed = self.slots.swap_remove(at);
        // Two at most, so that the index shrinks as fast as the table.
        for _ in 0..2 {
            if self.heads.len() > 64 + 2 * self.slots.len() {
                self.join();
            }
        }
        Some(removed.value)
    }

    /// Returns the least recently used entry.
    pub(crate) fn oldest(&self) -> Option<At> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// Returns the entry that was used next after this one.
    pub(crate) fn next_newer(&self, at: At) -> Option<At> {
        let newer = self.links.get(at)?.newer;
        (newer != NONE).then_some(newer)
    }

    /// Frees at most `at_most` entries of an unused table. Returns true once nothing is left.
    pub(crate) fn free_some(&mut self, at_most: usize) -> bool {
        for _ in 0..at_most {
            self.heads.pop();
            self.links.pop();
            self.slots.pop();
        }
        self.heads.is_empty() && self.links.is_empty() && self.slots.is_empty()
    }
}

/// Unused tables that are freed in slices, because freeing a million entries at once would block writes.
pub(crate) struct DeferredDrop<T, const NEAR: usize>(Vec<Table<T, NEAR>>);

impl<T, const NEAR: usize> Default for DeferredDrop<T, NEAR> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Default, const NEAR: usize> DeferredDrop<T, NEAR> {
    /// Takes all entries of a table, which is empty afterwards.
    pub(crate) fn take(&mut self, table: &mut Table<T, NEAR>) {
        if !table.is_empty() {
            self.0.push(std::mem::take(table));
        }
    }

    /// Frees at most `at_most` entries. Returns how many.
    pub(crate) fn free_some(&mut self, at_most: usize) -> usize {
        let Some(table) = self.0.last_mut() else { return 0 };
        if table.free_some(at_most) {
            self.0.pop();
        }
        at_most
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Prefetching; see [`crate::decide::prefetch`].
impl<T: Default, const NEAR: usize> Table<T, NEAR> {
    /// Prefetches the metadata.
    pub(crate) fn prefetch_outline(&self) {
        black_box(self.newest);
        self.links.prefetch();
        self.heads.prefetch();
        self.slots.prefetch();
    }

    /// Prefetches what [`Self::find`] reads, and with `at_capacity` what [`Self::replace_oldest`] reads.
    pub(crate) fn prefetch(&self, key: Key, at_capacity: bool) {
        if self.heads.is_empty() {
            return;
        }
        let at = self.heads[self.bucket(hash(key))];
        black_box(self.slots.get(at).map(|slot| slot.next));
        if at_capacity {
            self.prefetch_oldest();
        }
    }

    fn prefetch_oldest(&self) {
        let (Some(slot), Some(links)) = (self.slots.get(self.oldest), self.links.get(self.oldest)) else {
            return;
        };
        let first = self.heads[self.bucket(hash(slot.key()))];
        black_box(self.slots.get(first).map(|slot| slot.next));
        black_box(self.links.get(links.newer).map(|links| links.older));
        black_box(self.links.get(self.newest).map(|links| links.older));
    }
}

/// The index.
impl<T: Default, const NEAR: usize> Table<T, NEAR> {
    fn walk(&self, hash: u32, is_it: impl Fn(&Slot<T>) -> bool) -> Option<At> {
        if self.heads.is_empty() {
            return None;
        }
        let mut at = self.heads[self.bucket(hash)];
        while at != NONE {
            let slot = &self.slots[at];
            if is_it(slot) {
                return Some(at);
            }
            at = slot.next;
        }
        None
    }

    /// Linear hashing: of 2^n buckets, those below the current number exist. Entries of the others are still in
    /// their lower halves.
    fn bucket(&self, hash: u32) -> u32 {
        let buckets = self.heads.len();
        let all = buckets.next_power_of_two();
        let bucket = hash & (all - 1);
        if bucket < buckets { bucket } else { bucket - all / 2 }
    }

    /// Adds a bucket and moves its entries there from the lower half.
    fn split(&mut self) {
        let added = self.heads.push(NONE);
        if added == 0 {
            return;
        }
        let half = added - (added + 1).next_power_of_two() / 2;
        self.spread(half);
    }

    /// Removes the last bucket and moves its entries to the lower half.
    fn join(&mut self) {
        let last = self.heads.len() - 1;
        let mut at = self.heads[last];
        self.heads.pop();
        while at != NONE {
            at = self.chain(at);
        }
    }

    fn spread(&mut self, bucket: u32) {
        let mut at = std::mem::replace(&mut self.heads[bucket], NONE);
        while at != NONE {
            at = self.chain(at);
        }
    }

    /// Puts an entry at the head of its bucket. Returns its previous successor.
    fn chain(&mut self, at: At) -> u32 {
        let bucket = self.bucket(hash(self.slots[at].key()));
        let head = std::mem::replace(&mut self.heads[bucket], at);
        std::mem::replace(&mut self.slots[at].next, head)
    }

    /// Replaces `from` by `to` in the chain of a bucket.
    fn repoint(&mut self, bucket: u32, from: At, to: u32) {
        if self.heads[bucket] == from {
            self.heads[bucket] = to;
            return;
        }
        let mut at = self.heads[bucket];
        while self.slots[at].next != from {
            at = self.slots[at].next;
        }
        self.slots[at].next = to;
    }
}

/// The order by use.
impl<T: Default, const NEAR: usize> Table<T, NEAR> {
    fn link_newest(&mut self, at: At) {
        let before = std::mem::replace(&mut self.newest, at);
        self.links[at] = Links { newer: NONE, older: before };
        if before == NONE {
            self.oldest = at;
        } else {
            self.links[before].newer = at;
        }
    }

    /// Removes an entry from the order, if it is in it.
    fn unlink(&mut self, at: At) {
        if self.newest != at && self.links[at].newer == NONE {
            return;
        }
        let Links { newer, older } = std::mem::take(&mut self.links[at]);
        *self.newer_of(older) = newer;
        *self.older_of(newer) = older;
    }

    /// Updates the neighbours of an entry that moves.
    fn relink(&mut self, from: At, to: At) {
        if self.newest != from && self.links[from].newer == NONE {
            return;
        }
        let Links { newer, older } = self.links[from];
        *self.newer_of(older) = to;
        *self.older_of(newer) = to;
    }

    /// Returns the link to the entry after `older`.
    fn newer_of(&mut self, older: u32) -> &mut u32 {
        if older == NONE { &mut self.oldest } else { &mut self.links[older].newer }
    }

    /// Returns the link to the entry before `newer`.
    fn older_of(&mut self, newer: u32) -> &mut u32 {
        if newer == NONE { &mut self.newest } else { &mut self.links[newer].older }
    }
}

impl<T> Slot<T> {
    fn key(&self) -> Key {
        Key::from_ne_bytes(self.key)
    }
}

#[cfg(test)]
mod tests {
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
}
