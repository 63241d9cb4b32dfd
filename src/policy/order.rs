//! Which policies are in force in a namespace, and in which order. Pure: what is enforced goes by this, and what
//! statuses say does too.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::compile::{Labels, Tier};
use super::set::Policy;

/// The namespaces of the cluster, with their labels.
pub type Namespaces = BTreeMap<Arc<str>, Labels>;

/// Every policy that is understood, in order of precedence.
pub(super) struct Ordered {
    overriding: Vec<Arc<Policy>>,
    by_namespace: HashMap<Arc<str>, Vec<Arc<Policy>>>,
    defaults: Vec<Arc<Policy>>,
}

impl Ordered {
    pub(super) fn new(policies: &[Arc<Policy>]) -> Self {
        let mut ordered: Vec<_> = { policies.iter() }.filter(|policy| policy.compiled().is_some()).collect();
        ordered.sort_by(|a, b| precedence(a).cmp(&precedence(b)));
        let (mut overriding, mut by_namespace, mut defaults) = (Vec::new(), HashMap::new(), Vec::new());
        for policy in ordered {
            let tier = match (&policy.namespace, policy.compiled().map(|compiled| compiled.tier)) {
                (Some(namespace), _) => by_namespace.entry(namespace.clone()).or_default(),
                (None, Some(Tier::Override)) => &mut overriding,
                (None, _) => &mut defaults,
            };
            tier.push(policy.clone());
        }
        Self { overriding, by_namespace, defaults }
    }

    /// The policies that can govern a write in this namespace: the first whose `match` holds does. Override cluster
    /// policies, the namespace's own, Default cluster policies; within a tier higher priority, then older creation,
    /// then name; and none behind one that governs every write.
    ///
    /// Without labels it is a namespace that was made a moment ago and is not known yet. There only those cluster
    /// policies are in force that are for every namespace: what labels it has nobody can say, and a policy that was
    /// never meant for it must not drop its Events.
    pub(super) fn in_force(&self, namespace: &str, labels: Option<&Labels>) -> Vec<&Arc<Policy>> {
        let selected = |policy: &&Arc<Policy>| policy.selects(labels);
        let own = self.by_namespace.get(namespace).into_iter().flatten();
        let overriding = self.overriding.iter().filter(selected);
        let defaults = self.defaults.iter().filter(selected);
        let mut in_force = Vec::new();
        for policy in overriding.chain(own).chain(defaults) {
            in_force.push(policy);
            if policy.compiled().is_some_and(|compiled| compiled.governs_all()) {
                break;
            }
        }
        in_force
    }

    /// The namespaces that have policies of their own.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_namespace.keys()
    }
}

/// What sorts first within its tier governs first. An object without a creationTimestamp (none such is stored) comes
/// last.
fn precedence(policy: &Policy) -> impl Ord {
    let priority = policy.compiled().map_or(i32::MIN, |compiled| compiled.priority);
    (Reverse(priority), policy.created.is_none(), policy.created, policy.name.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::policy::fixtures::{cluster_policy, labels, policy};

    fn in_force(policies: &[Arc<Policy>], labels: Option<&Labels>) -> Vec<String> {
        let ordered = Ordered::new(policies);
        ordered.in_force("ci", labels).into_iter().map(|policy| policy.id.display.to_string()).collect()
    }

    /// A policy that leaves something to others.
    fn some(rest: &Value) -> Value {
        let mut spec = json!({"match": {"types": ["Warning"]}});
        spec.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        spec
    }

    /// Whatever the order in which they come, the order in which they are in force is the one of the columns: tier,
    /// priority, creation, name.
    #[test]
    fn the_truth_table_of_precedence() {
        let table = [
            ("Override", 0, 1, "o-a"),
            ("Override", 0, 1, "o-b"),
            ("Override", 0, 2, "o-0"),
            ("Override", -5, 0, "o-1"),
            ("namespace", 7, 9, "ci/n-c"),
            ("namespace", 0, 1, "ci/n-a"),
            ("namespace", 0, 1, "ci/n-b"),
            ("namespace", 0, 2, "ci/n-0"),
            ("Default", 100, 9, "d-c"),
            ("Default", 0, 1, "d-a"),
            ("Default", 0, 1, "d-b"),
            ("Default", 0, 2, "d-0"),
        ];
        let mut policies: Vec<_> = table
            .iter()
            .map(|&(tier, priority, created, name)| match name.strip_prefix("ci/") {
                Some(name) => policy("ci", name, &some(&json!({"priority": priority})), created),
                None => {
                    let spec = some(&json!({"priority": priority, "precedence": tier}));
                    cluster_policy(name, &spec, created)
                }
            })
            .collect();
        let expected = table.map(|(_, _, _, name)| name);
        for _ in 0..policies.len() {
            policies.rotate_left(1);
            assert_eq!(in_force(&policies, Some(&labels(&[]))), expected);
            policies.reverse();
            assert_eq!(in_force(&policies, Some(&labels(&[]))), expected);
        }
    }

    #[test]
    fn only_cluster_policies_that_select_the_namespace_are_in_force() {
        let select = |team: &str| some(&json!({"namespaceSelector": {"matchLabels": {"team": team}}}));
        let policies = [
            cluster_policy("shops", &select("shop"), 0),
            cluster_policy("banks", &select("bank"), 0),
            cluster_policy("all", &some(&json!({})), 1),
            policy("other", "elsewhere", &some(&json!({})), 0),
            policy("ci", "own", &some(&json!({})), 0),
        ];
        assert_eq!(in_force(&policies, Some(&labels(&[("team", "shop")]))), ["ci/own", "shops", "all"]);
        assert_eq!(in_force(&policies, Some(&labels(&[]))), ["ci/own", "all"]);
    }

    #[test]
    fn in_a_namespace_not_known_yet_only_those_for_every_namespace_are_in_force() {
        let requirement = json!({"key": "stage", "operator": "NotIn", "values": ["production"]});
        let spared = some(&json!({"namespaceSelector": {"matchExpressions": [requirement]}}));
        let policies = [cluster_policy("spares", &spared, 0), cluster_policy("all", &some(&json!({})), 1)];
        assert_eq!(in_force(&policies, None), ["all"]);
        assert_eq!(in_force(&policies, Some(&labels(&[]))), ["spares", "all"]);
    }

    #[test]
    fn none_is_in_force_behind_one_that_governs_every_write() {
        let whole = |precedence: &str| json!({"precedence": precedence});
        let own = policy("ci", "own", &json!({"match": {"reasons": ["*"]}}), 0);
        let first = policy("ci", "first", &some(&json!({"priority": 1})), 0);
        let default = cluster_policy("default", &whole("Default"), 0);
        let policies = [default.clone(), own.clone(), first.clone()];
        assert_eq!(in_force(&policies, None), ["ci/first", "ci/own"]);
        let policies = [own, first, default, cluster_policy("override", &whole("Override"), 5)];
        assert_eq!(in_force(&policies, None), ["override"]);
    }

    #[test]
    fn what_is_not_understood_is_not_in_force() {
        let broken = json!({"series": {"idleTimeout": "soon"}});
        let selector = json!({"namespaceSelector": {"matchLabels": {"my team": "x"}}});
        let policies = [
            policy("ci", "own", &broken, 0),
            cluster_policy("broken", &broken, 0),
            cluster_policy("selector", &selector, 0),
        ];
        assert!(in_force(&policies, Some(&labels(&[]))).is_empty());
    }
}
