//! All policies of a namespace with their places, to explain which one governs. Not on the path of a write. Pure.

use std::sync::Arc;

use super::compile::{Labels, Tier};
use super::order::{Limit, Ordered, Overriding, evaluable, precedence};
use super::set::{Policy, Set};

/// A policy, and its place among those that can govern writes of a namespace.
#[derive(Clone, Debug, PartialEq)]
pub struct RankedPolicy {
    /// The policy.
    pub policy: Arc<Policy>,
    /// Its place.
    pub place: PolicyPlace,
}

/// The place of a policy among those that can govern writes of a namespace.
#[derive(Clone, Debug, PartialEq)]
pub enum PolicyPlace {
    /// It governs the writes that it matches and that no policy in force before it governs.
    InForce,
    /// It has a selector, and the labels of the namespace are not known: it is in force or not selected.
    LabelsUnknown,
    /// Its selector does not select the namespace.
    NotSelected,
    /// A limit keeps it from being in force.
    OverLimit(Limit),
    /// Policies in force before it govern every write that it matches.
    Overridden {
        /// The last of them.
        by: Arc<Policy>,
        /// Whether it governs every write by itself.
        governs_all: bool,
    },
    /// It is invalid.
    Invalid,
}

impl Set {
    /// Returns the policies of this namespace and all cluster-scoped ones: the valid ones in order of precedence, then the
    /// invalid ones. `labels` are those of the namespace, `None` if they are not known.
    pub fn ranked(&self, namespace: &str, labels: Option<&Labels>) -> Vec<RankedPolicy> {
        let ordered = Ordered::new(self.policies());
        let partition = ordered.in_force(namespace, labels.and_then(evaluable));
        let place = |policy: &Policy| {
            let is_it = |other: &Arc<Policy>| other.id.uid == policy.id.uid;
            if policy.compiled().is_none() {
                PolicyPlace::Invalid
            } else if let Some((_, limit)) = partition.over_limit.iter().find(|(other, _)| is_it(other)) {
                PolicyPlace::OverLimit(*limit)
            } else if let Some((_, Overriding { by, governs_all })) =
                partition.overridden.iter().find(|(other, _)| is_it(other))
            {
                PolicyPlace::Overridden { by: (*by).clone(), governs_all: *governs_all }
            } else if partition.in_force.iter().any(|other| is_it(other)) {
                PolicyPlace::InForce
            } else {
                match labels {
                    None => PolicyPlace::LabelsUnknown,
                    Some(labels) if evaluable(labels).is_none() => PolicyPlace::OverLimit(Limit::Labels),
                    Some(_) => PolicyPlace::NotSelected,
                }
            }
        };
        let here = { self.policies().iter() }
            .filter(|policy| policy.namespace.as_deref().is_none_or(|its| its == namespace));
        let mut ranked: Vec<_> =
            here.map(|policy| RankedPolicy { place: place(policy), policy: policy.clone() }).collect();
        ranked.sort_by_cached_key(|RankedPolicy { policy, .. }| {
            (policy.compiled().is_none(), tier(policy), precedence(policy))
        });
        ranked
    }
}

fn tier(policy: &Policy) -> Tier {
    match policy.compiled() {
        Some(compiled) => compiled.tier,
        None if policy.namespace.is_some() => Tier::Namespace,
        None => Tier::Default,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::policy::MAX_LABELS;
    use crate::policy::fixtures::{cluster_policy, labels, policy};

    fn places(set: &Set, labels: Option<&Labels>) -> Vec<(String, PolicyPlace)> {
        let ranked = set.ranked("ci", labels).into_iter();
        ranked.map(|RankedPolicy { policy, place }| (policy.name.to_string(), place)).collect()
    }

    #[test]
    fn every_policy_of_the_namespace_has_a_place_in_order_of_precedence() {
        let selector = json!({"matchLabels": {"team": "x"}});
        let all = policy("ci", "all", &json!({}), 1);
        let set = Set::new([
            cluster_policy("default", &json!({}), 1),
            policy("ci", "broken", &json!({"priority": 1_000_000}), 1),
            policy("ci", "later", &json!({"match": [{"types": ["Warning"]}]}), 2),
            all.clone(),
            policy("other", "elsewhere", &json!({}), 1),
            cluster_policy("guard", &json!({"precedence": "Override", "namespaceSelector": selector}), 1),
        ]);
        let overridden = || PolicyPlace::Overridden { by: all.clone(), governs_all: true };
        let expected = |guard: PolicyPlace| {
            [
                ("guard", guard),
                ("all", PolicyPlace::InForce),
                ("later", overridden()),
                ("default", overridden()),
                ("broken", PolicyPlace::Invalid),
            ]
            .map(|(name, place)| (name.to_owned(), place))
        };
        assert_eq!(places(&set, Some(&labels(&[("team", "y")]))), expected(PolicyPlace::NotSelected));
        assert_eq!(places(&set, None), expected(PolicyPlace::LabelsUnknown));
        let many: Labels = (0..=MAX_LABELS).map(|at| (format!("k{at}"), String::new())).collect();
        assert_eq!(places(&set, Some(&many)), expected(PolicyPlace::OverLimit(Limit::Labels)));
        let selected = places(&set, Some(&labels(&[("team", "x")])));
        assert_eq!(selected[0].1, PolicyPlace::InForce);
        let PolicyPlace::Overridden { by, .. } = &selected[1].1 else { panic!("{selected:?}") };
        assert_eq!(&*by.name, "guard");
    }

    #[test]
    fn a_policy_over_a_limit_says_which() {
        let narrow = json!({"match": [{"reasons": ["Back*"]}]});
        let policies = (0..=64).map(|at| policy("ci", &format!("p{at:02}"), &narrow, at));
        let places = places(&Set::new(policies), Some(&Labels::new()));
        assert_eq!(places[0].1, PolicyPlace::InForce);
        assert_eq!(places[64], ("p64".to_owned(), PolicyPlace::OverLimit(Limit::Policies)));
    }
}
