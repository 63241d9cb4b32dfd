//! All policies at one moment, and which of them governs a write.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;

use crate::api::EventPolicyStatus;
use crate::engine::{Governing, Observation, PolicyId};

use super::compile::{Compiled, Invalid};

/// One policy as it stands in the cluster, understood or not.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Its identity.
    pub id: PolicyId,
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.generation`: which spec this is.
    pub generation: i64,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// What became of its spec.
    pub outcome: Arc<Result<Compiled, Invalid>>,
    /// `status` as it stood in the cluster when the policy was read.
    pub reported: Option<EventPolicyStatus>,
}

impl Policy {
    fn compiled(&self) -> Option<&Compiled> {
        self.outcome.as_ref().as_ref().ok()
    }
}

/// All policies, those of each namespace in order of precedence.
#[derive(Clone, Debug, Default)]
pub struct Set {
    policies: Vec<Arc<Policy>>,
    by_namespace: HashMap<Arc<str>, Box<[Arc<Policy>]>>,
}

impl Set {
    /// Orders the policies: higher priority, then older creation, then name. Those that do not compile govern
    /// nothing.
    pub fn new(policies: impl IntoIterator<Item = Arc<Policy>>) -> Self {
        let policies: Vec<_> = policies.into_iter().collect();
        let mut grouped: BTreeMap<Arc<str>, Vec<Arc<Policy>>> = BTreeMap::new();
        for policy in policies.iter().filter(|policy| policy.compiled().is_some()) {
            grouped.entry(policy.namespace.clone()).or_default().push(policy.clone());
        }
        let by_namespace = grouped.into_iter().map(|(namespace, mut members)| {
            members.sort_by(|a, b| precedence(a).cmp(&precedence(b)));
            (namespace, members.into_boxed_slice())
        });
        Self { by_namespace: by_namespace.collect(), policies }
    }

    /// The one policy that governs `write`, if any. On the path of every write: allocates nothing.
    pub fn governing(&self, write: &Observation<'_>) -> Option<Governing<'_>> {
        let compiled = self.members(write.namespace).filter_map(|policy| policy.compiled());
        let governing = { compiled }.find(|compiled| compiled.governs(write))?;
        Some(Governing { rules: &governing.rules, exempt: governing.exempts(write) })
    }

    /// The namespaces with a policy that governs something (in Enforce or Observe), in order.
    pub fn namespaces(&self) -> Vec<Arc<str>> {
        let mut namespaces: Vec<_> = self.by_namespace.keys().cloned().collect();
        namespaces.sort_unstable();
        namespaces
    }

    /// Every policy, also those that do not compile.
    pub fn policies(&self) -> &[Arc<Policy>] {
        &self.policies
    }

    /// The policy of higher precedence that governs every Event of the namespace, so that none is left for
    /// `policy`. (Several that only together cover everything are not noticed.)
    pub fn overriding(&self, policy: &Policy) -> Option<&Policy> {
        self.members(&policy.namespace)
            .take_while(|member| member.id != policy.id)
            .find(|member| member.compiled().is_some_and(Compiled::governs_all))
            .filter(|_| policy.compiled().is_some())
    }

    fn members(&self, namespace: &str) -> impl Iterator<Item = &Policy> {
        self.by_namespace.get(namespace).into_iter().flatten().map(AsRef::as_ref)
    }
}

/// What sorts first governs first. An object without a creationTimestamp (none such is stored) comes last.
fn precedence(policy: &Policy) -> impl Ord {
    let priority = policy.compiled().map_or(i32::MIN, |compiled| compiled.priority);
    (Reverse(priority), policy.created.is_none(), policy.created, policy.name.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::policy::fixtures::{event, policy};

    fn governing(set: &Set) -> Option<String> {
        set.governing(&event()).map(|governing| governing.rules.policy.display.to_string())
    }

    #[test]
    fn higher_priority_then_older_then_name_governs() {
        let mut policies = vec![
            policy("ci", "young", &json!({}), 200),
            policy("ci", "b-old", &json!({}), 100),
            policy("ci", "a-old", &json!({}), 100),
            policy("ci", "preferred", &json!({"priority": 1}), 300),
            policy("ci", "last", &json!({"priority": -1}), 1),
        ];
        for expected in ["ci/preferred", "ci/a-old", "ci/b-old", "ci/young", "ci/last"] {
            for _ in 0..policies.len() {
                policies.rotate_left(1);
                assert_eq!(governing(&Set::new(policies.clone())).as_deref(), Some(expected));
            }
            policies.retain(|policy| *policy.id.display != *expected);
        }
        assert_eq!(governing(&Set::new(policies)), None);
    }

    #[test]
    fn the_first_whose_match_holds_governs() {
        let set = Set::new([
            policy(
                "ci",
                "warnings",
                &json!({"match": {"types": ["Warning"]}, "exempt": [{"types": ["*"]}]}),
                2,
            ),
            policy("ci", "normal", &json!({"match": {"types": ["Normal"]}, "priority": 5}), 1),
        ]);
        let governing = set.governing(&event()).unwrap();
        assert_eq!(&*governing.rules.policy.display, "ci/warnings");
        assert!(governing.exempt);
    }

    #[test]
    fn other_namespaces_and_invalid_policies_govern_nothing() {
        let set = Set::new([
            policy("other", "p", &json!({}), 1),
            policy("ci", "broken", &json!({"series": {"idleTimeout": "soon"}}), 1),
        ]);
        assert!(set.governing(&event()).is_none());
        assert_eq!(set.namespaces(), ["other".into()]);
        assert_eq!(set.policies().len(), 2);
    }

    #[test]
    fn a_policy_behind_one_that_governs_all_is_overridden() {
        let first = policy("ci", "first", &json!({"priority": 1, "match": {"reasons": ["*"]}}), 2);
        let partial = policy("ci", "partial", &json!({"priority": 2, "match": {"reasons": ["B*"]}}), 2);
        let behind = policy("ci", "behind", &json!({}), 1);
        let elsewhere = policy("other", "elsewhere", &json!({}), 3);
        let set = Set::new([first.clone(), partial.clone(), behind.clone(), elsewhere.clone()]);
        assert_eq!(set.overriding(&behind).map(|policy| &*policy.name), Some("first"));
        for policy in [first, partial, elsewhere] {
            assert_eq!(set.overriding(&policy), None, "{}", policy.name);
        }
    }
}
