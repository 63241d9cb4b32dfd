//! The rules of each policy, once for all of its scopes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{KnownPolicy, Rules};

/// The rules that are decided by, by the uid of their policy: ten thousand scopes of one policy share them, and find
/// them where the last decision has just looked.
#[derive(Debug, Default)]
pub(crate) struct SharedRules(Mutex<HashMap<Arc<str>, Arc<Rules>>>);

impl SharedRules {
    /// These rules, as others of the same policy have them.
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

    /// Forgets policies that stand no more.
    pub(crate) fn retain(&self, policies: &HashMap<&Arc<str>, &KnownPolicy>) {
        self.known().retain(|uid, _| policies.contains_key(uid));
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Rules>>> {
        // A panic elsewhere leaves the map as it was: nothing is changed in two steps.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
