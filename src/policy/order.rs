//! Which policies are in force in a namespace, and in which order. Pure: what is enforced goes by this, and what
//! statuses say does too.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::compile::{Compiled, Labels, Tier};
use super::set::Policy;
use crate::api;

/// The most policies of one kind that are in force in a namespace.
pub const MOST_POLICIES: usize = 64;

/// The most comparisons of texts by which [`Ordered::in_force`] finds out that others leave a policy nothing. A few
/// policies need a few dozen. It is not on the path of a write, but tenants choose how often and with what it is done.
const MOST_COMPARISONS: usize = 4096;

/// Maximum number of labels with which selectors are evaluated for a namespace.
///
/// Kubernetes has no such limit: the labels of a namespace can take 1.5 MiB. 128 labels take at most 48 KiB (379 bytes
/// for each key and value) and are several times what tools and people set.
pub const MOST_LABELS: usize = 128;

/// The namespaces of the cluster, with their labels. Of a namespace with more than [`MOST_LABELS`] labels any
/// [`MOST_LABELS`] + 1 of them are enough.
pub type Namespaces = BTreeMap<Arc<str>, Labels>;

/// The labels of a namespace if selectors can be evaluated with them.
pub(super) fn evaluable(labels: &Labels) -> Option<&Labels> {
    Some(labels).filter(|labels| labels.len() <= MOST_LABELS)
}

/// What bounds the policies of one kind that are in force in a namespace, and with them the time in which a write's
/// policy is selected. The `EventPolicies` of a namespace and the `ClusterEventPolicies` that select it are counted
/// apart: neither take the place of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// [`MOST_POLICIES`] precede the policy.
    Policies,
    /// With those in force that precede the policy, its `match` clauses weigh more than [`api::MOST_WEIGHT`].
    Weight {
        /// The weight of the policy's own.
        own: usize,
    },
    /// The namespace has more than [`MOST_LABELS`] labels, and the policy has a `namespaceSelector`.
    Labels,
}

/// What the policies of one kind have used up in a namespace.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    policies: usize,
    weight: usize,
}

impl Usage {
    /// Adds a policy if the limits allow it. Those of higher precedence come first.
    fn add(&mut self, policy: &Policy) -> Result<(), Limit> {
        let own = policy.compiled().map_or(0, |compiled| compiled.weight);
        if self.policies >= MOST_POLICIES {
            return Err(Limit::Policies);
        }
        if self.weight + own > api::MOST_WEIGHT {
            return Err(Limit::Weight { own });
        }
        *self = Self { policies: self.policies + 1, weight: self.weight + own };
        Ok(())
    }
}

/// Policies within and beyond the limits.
#[derive(Debug)]
pub(super) struct Limited<T> {
    /// In order of precedence.
    pub(super) within: Vec<T>,
    pub(super) beyond: Vec<(T, Limit)>,
    /// Those to which the ones within leave nothing.
    pub(super) overridden: Vec<(T, Overriding<T>)>,
}

/// What leaves a policy nothing to govern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overriding<T> {
    /// The last of the policies that do.
    pub(super) by: T,
    /// It governs every write of the namespace by itself.
    pub(super) governs_all: bool,
}

impl<T> Default for Limited<T> {
    fn default() -> Self {
        Self { within: Vec::new(), beyond: Vec::new(), overridden: Vec::new() }
    }
}

/// Every policy that is understood, in order of precedence.
pub(super) struct Ordered {
    overriding: Vec<Arc<Policy>>,
    by_namespace: HashMap<Arc<str>, Limited<Arc<Policy>>>,
    defaults: Vec<Arc<Policy>>,
}

impl Ordered {
    pub(super) fn new(policies: &[Arc<Policy>]) -> Self {
        let mut ordered: Vec<_> = { policies.iter() }.filter(|policy| policy.compiled().is_some()).collect();
        ordered.sort_by(|a, b| precedence(a).cmp(&precedence(b)));
        let (mut overriding, mut defaults) = (Vec::new(), Vec::new());
        let mut by_namespace: HashMap<_, (Usage, Limited<_>)> = HashMap::new();
        for policy in ordered {
            match (&policy.namespace, policy.compiled().map(|compiled| compiled.tier)) {
                (Some(namespace), _) => {
                    let (usage, limited) = by_namespace.entry(namespace.clone()).or_default();
                    match usage.add(policy) {
                        Ok(()) => limited.within.push(policy.clone()),
                        Err(limit) => limited.beyond.push((policy.clone(), limit)),
                    }
                }
                (None, Some(Tier::Override)) => overriding.push(policy.clone()),
                (None, _) => defaults.push(policy.clone()),
            }
        }
        let by_namespace = by_namespace.into_iter().map(|(namespace, (_, limited))| (namespace, limited));
        Self { overriding, by_namespace: by_namespace.collect(), defaults }
    }

    /// The policies that can govern a write in this namespace: the first whose `match` holds does. Override cluster
    /// policies, the namespace's own, Default cluster policies; within a tier higher priority, then older creation,
    /// then name; and none to which those before it leave nothing.
    ///
    /// Policies beyond a limit of their kind are not among them. Those to which others leave nothing are counted
    /// all the same: whether a policy is within the limits does not depend on what others match.
    ///
    /// Without labels it is a namespace that was made a moment ago and is not known yet, or one that has more labels
    /// than [`MOST_LABELS`]. There only those cluster
    /// policies are in force that are for every namespace: what labels it has nobody can say, and a policy that was
    /// never meant for it must not drop its Events.
    pub(super) fn in_force<'a>(
        &'a self,
        namespace: &str,
        labels: Option<&Labels>,
    ) -> Limited<&'a Arc<Policy>> {
        let (mut usage, mut beyond) = (Usage::default(), Vec::new());
        let mut limited = |policy: &&'a Arc<Policy>| {
            let added = policy.selects(labels).then(|| usage.add(policy));
            beyond.extend(added.and_then(Result::err).map(|limit| (*policy, limit)));
            added == Some(Ok(()))
        };
        let mut within: Vec<_> = self.overriding.iter().filter(&mut limited).collect();
        let defaults: Vec<_> = self.defaults.iter().filter(&mut limited).collect();
        if let Some(own) = self.by_namespace.get(namespace) {
            within.extend(&own.within);
            beyond.extend(own.beyond.iter().map(|(policy, limit)| (policy, *limit)));
        }
        within.extend(defaults);
        without_overridden(Limited { within, beyond, overridden: Vec::new() })
    }

    /// The namespaces that have policies of their own.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_namespace.keys()
    }
}

/// Moves the policies to which those before them leave nothing from `within` to `overridden`.
fn without_overridden(limited: Limited<&Arc<Policy>>) -> Limited<&Arc<Policy>> {
    let Limited { within: policies, beyond, mut overridden } = limited;
    let mut within = Vec::<&Arc<Policy>>::new();
    let mut compiled: Vec<&Compiled> = Vec::new();
    let mut comparisons = MOST_COMPARISONS;
    for policy in policies {
        let Some(own) = policy.compiled() else { continue };
        let governs_all = compiled.last().is_some_and(|last| last.governs_all());
        match within.last() {
            Some(&by) if governs_all || own.is_covered_by(&compiled, &mut comparisons) => {
                overridden.push((policy, Overriding { by, governs_all }));
            }
            _ => {
                within.push(policy);
                compiled.push(own);
            }
        }
    }
    Limited { within, beyond, overridden }
}

/// What sorts first within its tier governs first. An object without a creationTimestamp (none such is stored) comes
/// last.
fn precedence(policy: &Policy) -> impl Ord {
    let priority = policy.compiled().map_or(i32::MIN, |compiled| compiled.priority);
    (Reverse(priority), policy.created.is_none(), policy.created, policy.name.clone())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::{Value, json};

    use super::*;
    use crate::policy::fixtures::{cluster_policy, labels, policy};

    fn in_force(policies: &[Arc<Policy>], labels: Option<&Labels>) -> Vec<String> {
        let ordered = Ordered::new(policies);
        let limited = ordered.in_force("ci", labels);
        limited.within.into_iter().map(|policy| policy.id.display.to_string()).collect()
    }

    fn beyond(policies: &[Arc<Policy>]) -> Vec<(String, Limit)> {
        let ordered = Ordered::new(policies);
        let limited = ordered.in_force("ci", Some(&labels(&[])));
        let said = limited.beyond.into_iter().map(|(policy, limit)| (policy.id.display.to_string(), limit));
        said.collect()
    }

    /// A spec whose `match` weighs this many hundreds, one for each text. Another number has other texts.
    fn heavy(hundreds: usize) -> Value {
        json!({"match": {"reasons": vec![format!("*{hundreds:x>90}*"); hundreds]}})
    }

    /// A policy that leaves something to each other one.
    fn some(rest: &Value) -> Value {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let user = format!("user-{}", MADE.fetch_add(1, Ordering::Relaxed));
        let mut spec = json!({"match": {"users": [user]}});
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
    fn of_each_kind_64_policies_are_in_force_those_of_highest_precedence() {
        let own =
            (0..66).map(|at| policy("ci", &format!("own-{at:02}"), &some(&json!({"priority": -at})), 0));
        let cluster = (0..66).map(|at| {
            let precedence = if at % 2 == 0 { "Override" } else { "Default" };
            let spec = some(&json!({"priority": -at, "precedence": precedence}));
            cluster_policy(&format!("cluster-{at:02}"), &spec, 0)
        });
        let invalid =
            (0..9).map(|at| policy("ci", &format!("invalid-{at}"), &json!({"priority": 1_000_000}), 0));
        let elsewhere = (0..9).map(|at| policy("other", &format!("other-{at}"), &json!({"priority": 9}), 0));
        let mut policies: Vec<_> = own.chain(cluster).chain(invalid).chain(elsewhere).collect();
        for _ in 0..2 {
            policies.reverse();
            let names = in_force(&policies, Some(&labels(&[])));
            let of = |kind: &str| names.iter().filter(|name| name.starts_with(kind)).count();
            assert_eq!((names.len(), of("ci/own"), of("cluster")), (128, 64, 64));
            assert_eq!(names[..2], ["cluster-00", "cluster-02"]);
            assert_eq!((&*names[33], &*names[96], &*names[127]), ("ci/own-00", "ci/own-63", "cluster-61"));
            let beyond = beyond(&policies);
            // All 33 Override policies precede the Default ones.
            let expected = ["cluster-63", "cluster-65", "ci/own-64", "ci/own-65"];
            assert_eq!(beyond, expected.map(|name| (name.to_owned(), Limit::Policies)));
        }
    }

    #[test]
    fn what_a_policy_matches_makes_no_place_for_others() {
        let policies: Vec<_> = (0..65).map(|at| policy("ci", &format!("{at:02}"), &json!({}), 0)).collect();
        assert_eq!(in_force(&policies, None), ["ci/00"]);
        assert_eq!(beyond(&policies), [("ci/64".to_owned(), Limit::Policies)]);
    }

    #[test]
    fn match_clauses_that_weigh_too_much_together_are_not_in_force_together() {
        let policies = [
            policy("ci", "a-1200", &heavy(12), 0),
            policy("ci", "b-900", &heavy(9), 0),
            policy("ci", "c-800", &heavy(8), 0),
            policy("ci", "d-100", &heavy(1), 0),
            cluster_policy("a-2000", &heavy(20), 0),
            cluster_policy("b-100", &heavy(1), 0),
        ];
        assert_eq!(in_force(&policies, Some(&labels(&[]))), ["ci/a-1200", "ci/c-800", "a-2000"]);
        let said = beyond(&policies);
        let weight = |name: &str, own| (name.to_owned(), Limit::Weight { own });
        assert_eq!(said, [weight("b-100", 100), weight("ci/b-900", 900), weight("ci/d-100", 100)]);
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
