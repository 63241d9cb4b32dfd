//! Entries by key and in the order of their use: the bounded table of the engine.
//!
//! Entries lie close together, and the last one takes the place of a removed one. So a table only takes the
//! memory of its current entries. The index uses linear hashing: it splits one bucket with each added entry and
//! joins two when it shrinks. So no call touches more than a few entries.

mod order;
mod prefetch;

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

impl<T> Slot<T> {
    fn key(&self) -> Key {
        Key::from_ne_bytes(self.key)
    }
}

#[cfg(test)]
mod tests;
