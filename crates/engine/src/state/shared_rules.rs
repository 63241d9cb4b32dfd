//! One copy of each policy's rules for all of its scopes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{KnownPolicy, Rules};

/// Rules by policy uid. Ten thousand scopes of one policy share them and find them in the cache.
#[derive(Debug, Default)]
pub(crate) struct SharedRules(Mutex<HashMap<Arc<str>, Arc<Rules>>>);

impl SharedRules {
    /// Returns these rules, shared with other scopes of the same policy.
    pub(crate) fn shared(&self, rules: &Rules) -> Arc<Rules> {
        let known = &mut *self.known();
        if let Some(shared) = known.get(&rules.policy.uid)
            && **shared == *rules
        {
            return shared.clone();
        }
        let shared = Arc::new(rules.clone());
        known.insert(rules.policy.uid.clone(), shared.clone());
        shared
    }

    /// Removes deleted policies.
    pub(crate) fn retain(&self, policies: &HashMap<&Arc<str>, &KnownPolicy>) {
        self.known().retain(|uid, _| policies.contains_key(uid));
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Rules>>> {
        // No change takes two steps, so a panic elsewhere leaves the map consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
