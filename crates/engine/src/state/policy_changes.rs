//! What the engine does when policies change.

use crate::{Engine, Footing, Moment, PolicyId, Standing};

/// So many series of a scope are seen to as soon as their policy changes.
pub(crate) const REVISED_AT_ONCE: usize = 8;

impl Engine {
    /// The policies as they are now, each of which governs wherever it did: see [`Self::revise_within`].
    pub fn revise(&self, policies: &[Standing], now: Moment) {
        self.revise_within(policies, |_, _| Footing::Governs, now);
    }

    /// The policies as they are now, and what each has to do with a namespace. A scope whose policy is gone, is
    /// invalid, has another mode or no series any more, or governs nothing in the namespace any more, pays what it
    /// owes. One whose policy is gone is forgotten after that; so is one whose namespace nobody has known for a while.
    /// A namespaced policy has its scope from here on, so that its counts are there before the first write.
    pub fn revise_within(
        &self,
        policies: &[Standing],
        footing: impl Fn(&str, &PolicyId) -> Footing,
        now: Moment,
    ) {
        let by_uid = policies.iter().map(|standing| (&standing.policy.uid, standing)).collect();
        for name in self.roster.all() {
            let Some(mut namespace) = self.locked(&name) else { continue };
            for scope in &mut namespace.scopes {
                let before = scope.sizes();
                let footing = footing(&name, scope.policy());
                scope.revise(&by_uid, footing, now);
                // A few at once; the others in [`Self::tick`], or a million would be seen to while writes wait.
                scope.revise_series(REVISED_AT_ONCE, now);
                self.held.change(&before, &scope.sizes());
            }
        }
        self.departed.retain(&by_uid);
        self.in_force.retain(&by_uid);
        for standing in policies {
            if let (Some(namespace), Some(rules)) = (&standing.namespace, &standing.rules) {
                self.namespace(namespace).scope_of(rules, &self.in_force);
            }
        }
    }
}
