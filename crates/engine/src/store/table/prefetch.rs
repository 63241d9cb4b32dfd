//! Prefetching of a table; [`crate::decide::prefetch`] has the measured gain.

use std::hint::black_box;

use super::{Table, hash};
use crate::decide::keys::Key;

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
