//! Eviction across namespaces.

use crate::state::namespace::Namespace;
use crate::{Engine, Moment};

/// Number of namespaces that one decision asks to evict entries.
pub(crate) const MAX_EVICTION_ATTEMPTS: usize = 4;

/// Number of entries that a namespace evicts for one that another namespace added.
const EVICTED_PER_INSERT: usize = 2;

impl Engine {
    /// Makes a namespace above its fair share evict entries for the `newcomer`. Locks one namespace at a time
    /// and at most [`MAX_EVICTION_ATTEMPTS`], which bounds the cost of one decision. N namespaces take N/4
    /// decisions to find one with a surplus.
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

    /// Evicts one entry of each table in which the namespace has a surplus. Returns whether it evicted any.
    fn evict_one(&self, namespace: &mut Namespace, now: Moment) -> bool {
        let before = namespace.sizes();
        let surplus = self.usage.surplus(&before, self.settings.max_series);
        let given = namespace.scopes.iter_mut().any(|scope| scope.evict_surplus(&surplus, now));
        self.usage.change(&before, &namespace.sizes());
        given
    }

    /// Removes names of this namespace if too many are remembered in all. Processes at most `at_most` names;
    /// returns how many it removed.
    pub(crate) fn forget_names(&self, namespace: &mut Namespace, at_most: usize, now: Moment) -> usize {
        let Namespace { names, scopes, .. } = namespace;
        let before = names.sizes();
        let capacity = self.usage.names_allowed(before.names, self.settings.max_series);
        let lives = |series| scopes.iter().any(|scope| scope.series.get(series).is_some());
        names.forget(capacity, at_most, now, lives);
        self.usage.change(&before, &names.sizes());
        before.names - names.len()
    }
}
