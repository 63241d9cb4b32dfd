//! The policies in force in a namespace, in order of precedence. Pure. The webhook and the statuses use the same result.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::compile::{Compiled, Labels, Tier};
use super::set::Policy;
use crate::api;

/// Maximum number of policies of one kind that are in force in a namespace.
pub const MAX_POLICIES: usize = 64;

/// Maximum number of text comparisons in [`Ordered::in_force`] to detect overridden policies. A few policies need a few
/// dozen. They are not on the path of a write, but tenants control their number and texts.
const MAX_COMPARISONS: usize = 4096;

/// Maximum number of labels of a namespace for which selectors are evaluated.
///
/// Kubernetes has no such limit: the labels of a namespace can take 1.5 MiB. 128 labels take at most 48 KiB (379 bytes
/// for each key and value), and are several times the usual number.
pub const MAX_LABELS: usize = 128;

/// The namespaces of the cluster with their labels. Of more than [`MAX_LABELS`] labels, any [`MAX_LABELS`] + 1 are
/// sufficient.
pub type Namespaces = BTreeMap<Arc<str>, Labels>;

/// Returns the labels of a namespace if selectors are evaluated for it.
pub(super) fn evaluable(labels: &Labels) -> Option<&Labels> {
    Some(labels).filter(|labels| labels.len() <= MAX_LABELS)
}

/// A limit on the policies of one kind that are in force in a namespace. The limits bound the time to select the policy for
/// a write. The `EventPolicies` of a namespace and the `ClusterEventPolicies` that select it are counted separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// [`MAX_POLICIES`] precede the policy.
    Policies,
    /// The `match` clauses of the policy and of those in force that precede it weigh more than [`api::MAX_WEIGHT`].
    Weight {
        /// Weight of the policy's `match` clauses.
        own: usize,
    },
    /// The namespace has more than [`MAX_LABELS`] labels, and the policy has a `namespaceSelector`.
    Labels,
}

/// The use of the limits by the policies of one kind in a namespace.
#[derive(Clone, Copy, Debug, Default)]
struct LimitUsage {
    policies: usize,
    weight: usize,
}

impl LimitUsage {
    /// Adds a policy if it is within the limits. Call it in order of precedence.
    fn add(&mut self, policy: &Policy) -> Result<(), Limit> {
        let own = policy.compiled().map_or(0, |compiled| compiled.weight);
        if self.policies >= MAX_POLICIES {
            return Err(Limit::Policies);
        }
        if self.weight + own > api::MAX_WEIGHT {
            return Err(Limit::Weight { own });
        }
        *self = Self { policies: self.policies + 1, weight: self.weight + own };
        Ok(())
    }
}

/// The policies of a namespace, partitioned.
#[derive(Debug)]
pub(super) struct Partition<T> {
    /// Policies in force, in order of precedence.
    pub(super) in_force: Vec<T>,
    /// Policies over a limit.
    pub(super) over_limit: Vec<(T, Limit)>,
    /// Policies whose writes are all governed by others.
    pub(super) overridden: Vec<(T, Overriding<T>)>,
}

/// The policies that override another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overriding<T> {
    /// The last of them.
    pub(super) by: T,
    /// Whether it governs all writes of the namespace by itself.
    pub(super) governs_all: bool,
}

impl<T> Default for Partition<T> {
    fn default() -> Self {
        Self { in_force: Vec::new(), over_limit: Vec::new(), overridden: Vec::new() }
    }
}

/// All valid policies, in order of precedence.
pub(super) struct Ordered {
    overriding: Vec<Arc<Policy>>,
    by_namespace: HashMap<Arc<str>, Partition<Arc<Policy>>>,
    defaults: Vec<Arc<Policy>>,
}

impl Ordered {
    pub(super) fn new(policies: &[Arc<Policy>]) -> Self {
        let mut ordered: Vec<_> = { policies.iter() }.filter(|policy| policy.compiled().is_some()).collect();
        ordered.sort_by_key(|policy| precedence(policy));
        let (mut overriding, mut defaults) = (Vec::new(), Vec::new());
        let mut by_namespace: HashMap<_, (LimitUsage, Partition<_>)> = HashMap::new();
        for policy in ordered {
            match (&policy.namespace, policy.compiled().map(|compiled| compiled.tier)) {
                (Some(namespace), _) => {
                    let (usage, partition) = by_namespace.entry(namespace.clone()).or_default();
                    match usage.add(policy) {
                        Ok(()) => partition.in_force.push(policy.clone()),
                        Err(limit) => partition.over_limit.push((policy.clone(), limit)),
                    }
                }
                (None, Some(Tier::Override)) => overriding.push(policy.clone()),
                (None, _) => defaults.push(policy.clone()),
            }
        }
        let by_namespace = by_namespace.into_iter().map(|(namespace, (_, partition))| (namespace, partition));
        Self { overriding, by_namespace: by_namespace.collect(), defaults }
    }

    /// Returns the policies of a namespace. The first policy in force whose `match` holds governs a write. Cluster policies
    /// with precedence Override come first, then the policies of the namespace, then cluster policies with precedence
    /// Default. Within a tier the order is higher priority, older creation, name.
    ///
    /// Overridden policies use the limits too, so that whether a policy is within the limits does not depend on the `match`
    /// of others.
    ///
    /// `labels` is `None` for a new namespace that is not known yet, and for one with more than [`MAX_LABELS`] labels.
    /// There only the cluster policies without a selector are in force. A policy that does not select the namespace must
    /// not drop its Events.
    pub(super) fn in_force<'a>(
        &'a self,
        namespace: &str,
        labels: Option<&Labels>,
    ) -> Partition<&'a Arc<Policy>> {
        let (mut usage, mut over_limit) = (LimitUsage::default(), Vec::new());
        let mut is_within_limits = |policy: &&'a Arc<Policy>| {
            let added = policy.selects(labels).then(|| usage.add(policy));
            over_limit.extend(added.and_then(Result::err).map(|limit| (*policy, limit)));
            added == Some(Ok(()))
        };
        let mut in_force: Vec<_> = self.overriding.iter().filter(&mut is_within_limits).collect();
        let defaults: Vec<_> = self.defaults.iter().filter(&mut is_within_limits).collect();
        if let Some(own) = self.by_namespace.get(namespace) {
            in_force.extend(&own.in_force);
            over_limit.extend(own.over_limit.iter().map(|(policy, limit)| (policy, *limit)));
        }
        in_force.extend(defaults);
        separate_overridden(Partition { in_force, over_limit, overridden: Vec::new() })
    }

    /// Whether a policy with precedence Override depends on the labels of namespaces.
    pub(super) fn has_overriding_selector(&self) -> bool {
        self.overriding.iter().any(|policy| policy.has_selector())
    }

    /// The namespaces with policies of their own.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_namespace.keys()
    }
}

/// Moves the policies whose writes are all governed by earlier ones from `in_force` to `overridden`.
fn separate_overridden(partition: Partition<&Arc<Policy>>) -> Partition<&Arc<Policy>> {
    let Partition { in_force: policies, over_limit, mut overridden } = partition;
    let mut in_force = Vec::<&Arc<Policy>>::new();
    let mut compiled: Vec<&Compiled> = Vec::new();
    let mut comparisons = MAX_COMPARISONS;
    for policy in policies {
        let Some(own) = policy.compiled() else { continue };
        let governs_all = compiled.last().is_some_and(|last| last.governs_all());
        match in_force.last() {
            Some(&by) if governs_all || own.is_covered_by(&compiled, &mut comparisons) => {
                overridden.push((policy, Overriding { by, governs_all }));
            }
            _ => {
                in_force.push(policy);
                compiled.push(own);
            }
        }
    }
    Partition { in_force, over_limit, overridden }
}

/// The sort key within a tier. An object without a creationTimestamp comes last; the API server stores no such object.
pub(super) fn precedence(policy: &Policy) -> impl Ord + use<> {
    let priority = policy.compiled().map_or(i32::MIN, |compiled| compiled.priority);
    (Reverse(priority), policy.created.is_none(), policy.created, policy.name.clone())
}

#[cfg(test)]
mod tests;
