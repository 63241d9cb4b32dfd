//! The namespaces whose Event writes are sent to squelch. Pure.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::compile::ALWAYS;
use super::matched::MatchedWrites;

/// Maximum number of namespaces that the selector of the webhook names. With more, the API server calls the webhook for
/// all namespaces. A selector of 1,000 names has 66 KB in every watcher of the configuration.
pub const MAX_NAMED_NAMESPACES: usize = 1000;

/// The namespaces for which the API server calls the webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamespaceSelection {
    /// No namespace: the entry has no rules.
    None,
    /// These namespaces.
    Named(BTreeSet<String>),
    /// All namespaces.
    All,
}

/// The Event writes for which the API server calls the webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookScope {
    /// Their namespaces.
    pub namespaces: NamespaceSelection,
    /// Among these, the writes that a policy can match.
    pub writes: MatchedWrites,
}

/// The Event writes that the API server sends to squelch, as it has acknowledged them, or why there are none, in a
/// sentence.
pub type Armed = Result<WebhookScope, Arc<str>>;

impl WebhookScope {
    /// The condition that every write fulfils.
    pub const EVERY_WRITE: &'static str = ALWAYS;

    /// No writes.
    pub fn none() -> Self {
        Self { namespaces: NamespaceSelection::None, writes: MatchedWrites::default() }
    }

    /// All writes of these namespaces.
    #[cfg(test)]
    pub(crate) fn all_in(namespaces: NamespaceSelection) -> Self {
        match namespaces {
            NamespaceSelection::None => Self::none(),
            _ => Self { namespaces, writes: MatchedWrites::all() },
        }
    }

    /// Whether there are none.
    pub fn is_none(&self) -> bool {
        self.namespaces == NamespaceSelection::None
    }

    /// Returns the writes that `other` contains too.
    pub fn common(&self, other: &Self) -> Self {
        let namespaces = self.namespaces.common(&other.namespaces);
        Self { namespaces, writes: self.writes.common(&other.writes) }
    }

    /// Whether `other` contains every write of this scope.
    pub fn is_subset_of(&self, other: &Self) -> bool {
        self.namespaces.is_subset_of(&other.namespaces) && self.writes.without(&other.writes).is_empty()
    }
}

impl NamespaceSelection {
    /// Returns the smallest selection that contains `namespaces`.
    pub fn of(namespaces: BTreeSet<String>) -> Self {
        match namespaces.len() {
            0 => Self::None,
            1..=MAX_NAMED_NAMESPACES => Self::Named(namespaces),
            _ => Self::All,
        }
    }

    /// Whether `other` contains every namespace of this selection.
    pub fn is_subset_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::None, _) | (_, Self::All) => true,
            (Self::Named(these), Self::Named(those)) => these.is_subset(those),
            _ => false,
        }
    }

    /// Adds the namespaces of `other`.
    pub(super) fn extend(&mut self, other: &Self) {
        *self = match (std::mem::replace(self, Self::None), other) {
            (Self::All, _) | (_, Self::All) => Self::All,
            (Self::None, other) => other.clone(),
            (these, Self::None) => these,
            (Self::Named(mut these), Self::Named(those)) => {
                these.extend(those.iter().cloned());
                Self::of(these)
            }
        };
    }

    /// Returns the namespaces that `other` contains too.
    pub(super) fn common(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::None, _) | (_, Self::None) => Self::None,
            (Self::All, common) | (common, Self::All) => common.clone(),
            (Self::Named(these), Self::Named(those)) => Self::of(these & those),
        }
    }

    /// Returns the namespaces that `other` does not contain; all of them, if that cannot be said by names.
    pub(super) fn without(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::None, _) | (_, Self::All) => Self::None,
            (Self::Named(these), Self::Named(those)) => Self::of(these.difference(those).cloned().collect()),
            _ => self.clone(),
        }
    }

    /// Whether it contains this namespace.
    pub(super) fn contains(&self, namespace: &str) -> bool {
        match self {
            Self::None => false,
            Self::Named(names) => names.contains(namespace),
            Self::All => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::policy::Index;
    use crate::policy::fixtures::{cluster_object, labels, object};

    fn named(names: &[&str]) -> NamespaceSelection {
        NamespaceSelection::of(names.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn too_many_namespaces_select_all() {
        let many = |number: usize| (0..number).map(|n| format!("n{n}")).collect();
        assert!(matches!(NamespaceSelection::of(many(MAX_NAMED_NAMESPACES)), NamespaceSelection::Named(_)));
        assert_eq!(NamespaceSelection::of(many(MAX_NAMED_NAMESPACES + 1)), NamespaceSelection::All);
    }

    #[test]
    fn common_writes_are_those_of_both_scopes() {
        let (all, ab, bc) = (NamespaceSelection::All, named(&["a", "b"]), named(&["b", "c"]));
        for (one, other, common) in [
            (&all, &all, all.clone()),
            (&all, &ab, ab.clone()),
            (&ab, &bc, named(&["b"])),
            (&ab, &named(&["c"]), NamespaceSelection::None),
            (&ab, &NamespaceSelection::None, NamespaceSelection::None),
        ] {
            assert_eq!((one.common(other), other.common(one)), (common.clone(), common));
        }
        let scope = |condition, of: &NamespaceSelection| WebhookScope {
            namespaces: all.clone(),
            writes: MatchedWrites::of(condition, of.clone()),
        };
        let (x, y, every) = (scope("x", &ab), scope("y", &ab), scope("true", &bc));
        assert_eq!(x.common(&x), x);
        assert!(x.common(&y).writes.is_empty());
        assert_eq!(
            (x.common(&every), every.common(&x)),
            (scope("x", &named(&["b"])), scope("x", &named(&["b"])))
        );
    }

    #[test]
    fn a_policy_awaits_the_selection_of_its_namespaces() {
        let mut index = Index::default();
        index.apply(&object("a", "own", json!({"spec": {}})));
        index.apply(&object("b", "own", json!({"spec": {}})));
        index.apply(&cluster_object(
            "team",
            json!({"spec": {"namespaceSelector": {"matchLabels": {"team": "x"}}}}),
        ));
        for namespace in ["c", "d"] {
            index.apply_namespace(namespace, "1", labels(&[("team", "x")]));
        }
        let awaiting = |index: &Index, selection: &NamespaceSelection| {
            let set = index.set();
            let awaiting = set.awaiting(&WebhookScope::all_in(selection.clone()));
            let mut titles: Vec<_> = set
                .policies()
                .iter()
                .filter(|policy| awaiting.wholly(&policy.id.uid))
                .map(|policy| format!("{:?}", policy.id.display))
                .collect();
            titles.sort_unstable();
            titles
        };
        assert_eq!(awaiting(&index, &named(&["a", "b", "c", "d"])), Vec::<String>::new());
        assert_eq!(awaiting(&index, &NamespaceSelection::All), Vec::<String>::new());
        assert_eq!(
            awaiting(&index, &named(&["a", "c"])),
            ["\"b/own\""],
            "one of its namespaces is enough for `team`"
        );
        assert_eq!(awaiting(&index, &named(&["a"])), ["\"b/own\"", "\"team\""]);
        // A policy of all namespaces needs all, also those that come.
        index.apply(&cluster_object("all", json!({"spec": {"match": [{"types": ["Warning"]}]}})));
        assert_eq!(awaiting(&index, &named(&["a", "b", "c", "d"])), ["\"all\""]);
        assert_eq!(awaiting(&index, &NamespaceSelection::All), Vec::<String>::new());
    }

    #[test]
    fn a_policy_awaits_the_condition_for_its_writes_in_one_of_its_namespaces() {
        let spec = |reason: &str| json!({"spec": {"match": [{"reasons": [reason]}]}});
        let mut index = Index::default();
        index.apply(&object("a", "own", spec("A")));
        let mut team = spec("B");
        team["spec"]["namespaceSelector"] = json!({"matchLabels": {"team": "x"}});
        index.apply(&cluster_object("team", team));
        index.apply_namespace("c", "1", labels(&[("team", "x")]));
        let acknowledged = index.set().scope();
        let names = |index: &Index, in_part: bool| {
            let set = index.set();
            let awaiting = set.awaiting(&acknowledged);
            let is_awaiting = |uid: &str| if in_part { awaiting.in_part(uid) } else { awaiting.wholly(uid) };
            let policies = set.policies().iter().filter(|policy| is_awaiting(&policy.id.uid));
            let mut names: Vec<_> = policies.map(|policy| policy.id.display.to_string()).collect();
            names.sort_unstable();
            names
        };
        let (awaiting, in_part) = (|index: &Index| names(index, false), |index: &Index| names(index, true));
        assert_eq!(awaiting(&index), Vec::<String>::new());
        index.apply_namespace("d", "1", labels(&[("team", "x")]));
        assert_eq!(awaiting(&index), Vec::<String>::new());
        assert_eq!(in_part(&index), ["team"], "one of its namespaces is sent");
        // Both namespaces stay selected.
        index.apply(&object("a", "other", spec("C")));
        assert_eq!(awaiting(&index), ["a/other"]);
        index.delete(&object("a", "other", spec("C")));
        assert_eq!(awaiting(&index), Vec::<String>::new());
        index.apply(&object("c", "other", spec("A")));
        assert_eq!(awaiting(&index).len(), 1, "in another namespace than the acknowledged one");
    }

    #[test]
    fn a_policy_of_all_namespaces_does_not_make_others_wait() {
        let mut index = Index::default();
        index.apply(&object("a", "own", json!({"spec": {}})));
        let acknowledged = index.set().scope();
        // It has the same entry of `match`: every write.
        index.apply(&cluster_object("all", json!({"spec": {}})));
        let set = index.set();
        let awaiting = set.awaiting(&acknowledged);
        assert!(awaiting.wholly("uid-of-all"));
        assert!(!awaiting.wholly("uid-of-a-own"), "its writes are sent all the time");
    }
}
