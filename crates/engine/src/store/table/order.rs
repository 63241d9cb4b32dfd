//! The order of the entries by use: a doubly linked list.

use super::{At, Links, NONE, Table};

impl<T: Default, const NEAR: usize> Table<T, NEAR> {
    pub(super) fn link_newest(&mut self, at: At) {
        let before = std::mem::replace(&mut self.newest, at);
        self.links[at] = Links { newer: NONE, older: before };
        if before == NONE {
            self.oldest = at;
        } else {
            self.links[before].newer = at;
        }
    }

    /// Removes an entry from the order, if it is in it.
    pub(super) fn unlink(&mut self, at: At) {
        if self.newest != at && self.links[at].newer == NONE {
            return;
        }
        let Links { newer, older } = std::mem::take(&mut self.links[at]);
        *self.newer_of(older) = newer;
        *self.older_of(newer) = older;
    }

    /// Updates the neighbours of an entry that moves.
    pub(super) fn relink(&mut self, from: At, to: At) {
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
