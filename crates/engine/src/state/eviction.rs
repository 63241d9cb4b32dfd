//! Which namespace gives up what, when tables are full.

use crate::state::namespace::Namespace;
use crate::{Engine, Moment};

/// So many namespaces are asked for room after a decision that took more than there is.
pub(crate) const MAX_EVICTION_ATTEMPTS: usize = 4;

/// So many entries of a table are given up for one that another namespace has added.
const EVICTED_PER_INSERT: usize = 2;

impl Engine {
    /// The tables are full, and a namespace below its fair share has added to them: one above its own gives up twice
    /// as much. Locks one at a time, and few, so that no single decision pays for it all: who has something to give
    /// is found after a quarter as many as there are namespaces at the latest.
    pub(crate) fn evict_for_others(&self, newcomer: &str, now: Moment) {
        for asked in 0..MAX_EVICTION_ATTEMPTS {
            let Some(name) = self.namespace_list.next_to_evict(asked > 0) else { return };
            if &*name == newcomer {
                continue;
            }
            let Some(mut namespace) = self.locked(&name) else { continue };
            let given = (0..EVICTED_PER_INSERT).filter(|_| self.evict_one(&mut namespace, now)).count();
            if given + self.forget_names(&mut namespace, EVICTED_PER_INSERT, now) > 0 {
                return;
            }
        }
    }

    /// A namespace gives up one entry of what there is too much of, if it has more than its fair share.
    fn evict_one(&self, namespace: &mut Namespace, now: Moment) -> bool {
        let before = namespace.sizes();
        let surplus = self.usage.surplus(&before, self.settings.max_series);
        let given = namespace.scopes.iter_mut().any(|scope| scope.evict_surplus(&surplus, now));
        self.usage.change(&before, &namespace.sizes());
        given
    }

    /// A namespace pays for the room it takes: when too many names are remembered in all, it forgets its own.
    /// Returns how many it has forgotten, of at most so many.
    pub(crate) fn forget_names(&self, namespace: &mut Namespace, at_most: usize, now: Moment) -> usize {
        let Namespace { names, scopes, .. } = namespace;
        let before = names.sizes();
        let room = self.usage.names_allowed(before.names, self.settings.max_series);
        let lives = |series| scopes.iter().any(|scope| scope.series.get(series).is_some());
        names.forget(room, at_most, now, lives);
        self.usage.change(&before, &names.sizes());
        before.names - names.len()
    }
}
