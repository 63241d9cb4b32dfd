//! The current [`Set`], replaced as a whole.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use tokio::sync::watch;

use super::set::Set;

/// A revision of the set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Revision {
    /// Whether all first lists are complete, so that the set can be used.
    pub listed: bool,
    /// Number that increases with every change of policies, except of their statuses.
    pub number: u64,
}

/// The current set of policies.
#[derive(Default)]
pub struct Store {
    set: ArcSwap<Set>,
    revision: watch::Sender<Revision>,
}

impl Store {
    /// Returns the current set without locking.
    pub fn load(&self) -> Guard<Arc<Set>> {
        self.set.load()
    }

    /// Replaces the set and notifies the subscribers.
    pub fn swap(&self, set: Set) {
        self.set.store(Arc::new(set));
        self.revision.send_modify(|revision| {
            revision.listed = true;
            revision.number += 1;
        });
    }

    /// Replaces the set by one that differs only in statuses, without notification.
    pub fn refresh(&self, set: Set) {
        self.set.store(Arc::new(set));
    }

    /// Subscribes to revisions of the set. The receiver has the current revision.
    pub fn subscribe(&self) -> watch::Receiver<Revision> {
        self.revision.subscribe()
    }

    /// Whether all first lists are complete.
    pub fn listed(&self) -> bool {
        self.revision.borrow().listed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swap_notifies_subscribers_and_a_refresh_does_not() {
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
