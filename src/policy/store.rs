//! The current [`Set`], swapped as a whole.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use tokio::sync::watch;

use super::set::Set;

/// What happened to the set, for those who wait for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Revision {
    /// The first list is complete: the set can be decided by.
    pub listed: bool,
    /// Grows with every change of what the policies say (not with their status).
    pub number: u64,
}

/// The current set of policies: read without lock or wait, replaced as a whole.
#[derive(Default)]
pub struct Store {
    set: ArcSwap<Set>,
    revision: watch::Sender<Revision>,
}

impl Store {
    /// The current set; no lock, no wait.
    pub fn load(&self) -> Guard<Arc<Set>> {
        self.set.load()
    }

    /// Replaces the set and tells those who wait.
    pub fn swap(&self, set: Set) {
        self.set.store(Arc::new(set));
        self.revision.send_modify(|revision| {
            revision.listed = true;
            revision.number += 1;
        });
    }

    /// Replaces the set by one that says the same and differs only in the reported status: nobody is told.
    pub fn refresh(&self, set: Set) {
        self.set.store(Arc::new(set));
    }

    /// Changes of the set, from now on; its first value tells whether the first list is complete.
    pub fn subscribe(&self) -> watch::Receiver<Revision> {
        self.revision.subscribe()
    }

    /// The first list is complete.
    pub fn listed(&self) -> bool {
        self.revision.borrow().listed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swap_is_told_and_a_refresh_is_not() {
        let store = Store::default();
        let mut changes = store.subscribe();
        assert!(!store.listed());
        store.refresh(Set::default());
        assert!(!changes.has_changed().unwrap());
        store.swap(Set::default());
        assert!(changes.has_changed().unwrap() && store.listed());
        assert_eq!(*changes.borrow_and_update(), Revision { listed: true, number: 1 });
    }
}
