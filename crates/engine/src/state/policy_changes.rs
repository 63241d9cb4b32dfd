//! What the engine does when policies change.

use crate::{Applicability, Engine, KnownPolicy, Moment, PolicyId};

/// So many series of a scope are seen to as soon as their policy changes.
pub(crate) const REVISED_AT_ONCE: usize = 8;

impl Engine {
    /// The policies as they are now, each of which governs wherever it did: see [`Self::revise_within`].
    pub fn revise(&self, policies: &[KnownPolicy], now: Moment) {
        self.revise_within(policies, |_, _| Applicability::Governs, now);
    }

    /// The policies as they are now, and what each has to do with a namespace. A scope whose policy is gone, is
    /// invalid, has another mode or no series any more, or governs nothing in the namespace any more, pays what it
    /// owes. One whose policy is gone is forgotten after that; so is one whose namespace nobody has known for a while.
    /// A namespaced policy has its scope from here on, so that its counts are there before the first write.
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
                // A few at once; the others in [`Self::tick`], or a million would be seen to while writes wait.
                scope.revise_series(REVISED_AT_ONCE, now);
                self.usage.change(&before, &scope.sizes());
            }
        }
        self.gone_namespaces.retain(&by_uid);
        self.shared_rules.retain(&by_uid);
        for known_policy in policies {
            if let (Some(namespace), Some(rules)) = (&known_policy.namespace, &known_policy.rules) {
                self.namespace(namespace).scope_of(rules, &self.shared_rules);
            }
        }
    }
}
