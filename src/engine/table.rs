//! An arena of entries with an index by key and an order by use: the one bounded container of the engine.

use hashbrown::HashTable;

use super::key::Key;

/// Where an entry stands. It outlives the entry safely: a slot used again has another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Handle {
    slot: u32,
    generation: u32,
}

/// "No neighbour" in the order by use.
const NONE: u32 = u32::MAX;

struct Slot<T> {
    key: Key,
    generation: u32,
    newer: u32,
    older: u32,
    value: Option<T>,
}

/// Entries by key, from the least recently to the most recently touched.
pub(super) struct Table<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    index: HashTable<u32>,
    oldest: u32,
    newest: u32,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), index: HashTable::new(), oldest: NONE, newest: NONE }
    }
}

impl<T> Table<T> {
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    pub(super) fn find(&self, key: Key) -> Option<Handle> {
        let slots = &self.slots;
        let slot = *self.index.find(bucket(key), |slot| slots[*slot as usize].key == key)?;
        Some(Handle { slot, generation: slots[slot as usize].generation })
    }

    pub(super) fn get(&self, handle: Handle) -> Option<&T> {
        let slot = self.slots.get(handle.slot as usize)?;
        if slot.generation == handle.generation { slot.value.as_ref() } else { None }
    }

    pub(super) fn get_mut(&mut self, handle: Handle) -> Option<&mut T> {
        let slot = self.slots.get_mut(handle.slot as usize)?;
        if slot.generation == handle.generation { slot.value.as_mut() } else { None }
    }

    /// Adds an entry under a key that is not there, as the most recently used.
    pub(super) fn insert(&mut self, key: Key, value: T) -> Handle {
        debug_assert!(self.find(key).is_none(), "a key stands once");
        let slot = self.free.pop().unwrap_or_else(|| {
            let slot = u32::try_from(self.slots.len()).expect("a table is bounded far below 2^32 entries");
            self.slots.push(Slot { key, generation: 0, newer: NONE, older: NONE, value: None });
            slot
        });
        let entry = &mut self.slots[slot as usize];
        (entry.key, entry.value) = (key, Some(value));
        let generation = entry.generation;
        let slots = &self.slots;
        self.index.insert_unique(bucket(key), slot, |slot| bucket(slots[*slot as usize].key));
        self.link_newest(slot);
        Handle { slot, generation }
    }

    /// Makes the entry the most recently used.
    pub(super) fn touch(&mut self, handle: Handle) {
        if self.newest != handle.slot && self.get(handle).is_some() {
            self.unlink(handle.slot);
            self.link_newest(handle.slot);
        }
    }

    pub(super) fn remove(&mut self, handle: Handle) -> Option<T> {
        self.get(handle)?;
        let slots = &self.slots;
        if let Ok(entry) =
            self.index.find_entry(bucket(slots[handle.slot as usize].key), |s| *s == handle.slot)
        {
            entry.remove();
        }
        self.unlink(handle.slot);
        self.free.push(handle.slot);
        let slot = &mut self.slots[handle.slot as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.value.take()
    }

    /// Where every entry stands, in no order.
    pub(super) fn handles(&self) -> impl Iterator<Item = Handle> {
        let there = self.slots.iter().enumerate().filter(|(_, slot)| slot.value.is_some());
        there.map(|(at, slot)| Handle { slot: at as u32, generation: slot.generation })
    }

    /// Every entry, in no order.
    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.value.as_ref())
    }

    /// The same, to be changed.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|slot| slot.value.as_mut())
    }

    /// The least recently used entry.
    pub(super) fn oldest(&self) -> Option<Handle> {
        self.at(self.oldest)
    }

    /// The entry that was used next after this one.
    pub(super) fn next_newer(&self, handle: Handle) -> Option<Handle> {
        self.get(handle)?;
        self.at(self.slots[handle.slot as usize].newer)
    }

    fn at(&self, slot: u32) -> Option<Handle> {
        (slot != NONE).then(|| Handle { slot, generation: self.slots[slot as usize].generation })
    }

    fn link_newest(&mut self, slot: u32) {
        let before = self.newest;
        let entry = &mut self.slots[slot as usize];
        (entry.older, entry.newer) = (before, NONE);
        if before == NONE {
            self.oldest = slot;
        } else {
            self.slots[before as usize].newer = slot;
        }
        self.newest = slot;
    }

    fn unlink(&mut self, slot: u32) {
        let (older, newer) = (self.slots[slot as usize].older, self.slots[slot as usize].newer);
        if older == NONE {
            self.oldest = newer;
        } else {
            self.slots[older as usize].newer = newer;
        }
        if newer == NONE {
            self.newest = older;
        } else {
            self.slots[newer as usize].older = older;
        }
    }
}

/// Keys are keyed hashes already: any 64 of their bits will do.
fn bucket(key: Key) -> u64 {
    key as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_handle_does_not_reach_the_next_tenant_of_its_slot() {
        let mut table = Table::default();
        let first = table.insert(1, "first");
        assert_eq!(table.remove(first), Some("first"));
        let second = table.insert(2, "second");
        assert_eq!(table.get(first), None);
        assert_eq!(table.remove(first), None);
        assert_eq!(table.get(second), Some(&"second"));
    }

    proptest! {
        #[test]
        fn behaves_like_a_list_searched_from_the_front(steps in prop::collection::vec((0u8..4, 0u128..12), 0..200)) {
            let mut table = Table::default();
            let mut model: Vec<(Key, u128)> = Vec::new();
            for (step, key) in steps {
                let at = model.iter().position(|(k, _)| *k == key);
                match (step, at) {
                    (0 | 1, None) => { table.insert(key, key * 2); model.push((key, key * 2)); }
                    (2, Some(at)) => { let entry = model.remove(at); model.push(entry); table.touch(table.find(key).unwrap()); }
                    (3, Some(at)) => { model.remove(at); prop_assert_eq!(table.remove(table.find(key).unwrap()), Some(key * 2)); }
                    _ => prop_assert_eq!(table.find(key).is_some(), at.is_some()),
                }
                prop_assert_eq!(table.len(), model.len());
                let mut order = Vec::new();
                let mut cursor = table.oldest();
                while let Some(handle) = cursor {
                    order.push(*table.get(handle).unwrap());
                    cursor = table.next_newer(handle);
                }
                prop_assert_eq!(order, model.iter().map(|(_, v)| *v).collect::<Vec<_>>());
            }
        }
    }
}
