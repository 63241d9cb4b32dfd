//! Changes of policies.

use crate::{Applicability, Engine, KnownPolicy, Moment, PolicyId};

/// Number of series of a scope that are revised together with its policy.
pub(crate) const REVISED_AT_ONCE: usize = 8;

impl Engine {
    /// Sets the current policies. Each keeps governing where it did; see [`Self::revise_within`].
    pub fn revise(&self, policies: &[KnownPolicy], now: Moment) {
        self.revise_within(policies, |_, _| Applicability::Governs, now);
    }

    /// Sets the current policies and their applicability to each namespace. A scope flushes its pending
    /// occurrences if its policy was deleted, is invalid, changed its mode, disabled series, or no longer
    /// applies. After that the scope of a deleted policy is removed, and so is the scope of a namespace that
    /// stays unknown. A namespaced policy that is in force gets its scope here, so that its counters exist before the first
    /// write. (A namespace can have thousands of policies, and a decision goes through its scopes.)
    pub fn revise_within(
        &self,
        policies: &[KnownPolicy],
        applicability: impl Fn(&str, &PolicyId) -> Applicability,
        now: Moment,
    ) {
        let by_uid = policies.iter().map(|known_policy| (&known_policy.policy.uid, known_policy)).collect();
        for name in self.namespace_list.all() {
            let Some(mut namespace) = self.locked(&name) else { continue };
            for scope in &mut namespace.scopes {
                let before = scope.sizes();
                let applicability = applicability(&name, scope.policy());
                scope.revise(&by_uid, applicability, now);
                // Only a few at once. [`Self::tick`] revises the others in slices, because writes wait
                // meanwhile.
                scope.revise_series(REVISED_AT_ONCE, now);
                self.usage.change(&before, &scope.sizes());
            }
        }
        self.gone_namespaces.retain(&by_uid);
        self.shared_rules.retain(&by_uid);
        for known_policy in policies {
            if let (Some(namespace), Some(rules)) = (&known_policy.namespace, &known_policy.rules)
                && applicability(namespace, &known_policy.policy) != Applicability::NotApplicable
            {
                self.namespace(namespace).scope_of(rules, &self.shared_rules);
            }
        }
    }
}
