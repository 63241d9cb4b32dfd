//! What another writer has added to the webhook's entry for Event writes, and the namespaces that it excludes. Pure.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use squelch_engine::sanitise;

use crate::api::LabelRequirement;

use super::compile::{Labels, Requirement};
use super::order::{Namespaces, evaluable};
use super::set::{Policy, PolicyList};

/// Maximum characters of foreign text in a message.
const MAX_TEXT: usize = 200;

/// The additions of other writers to the webhook's entry. The API server does not call squelch for the writes that they
/// exclude.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restrictions {
    requirements: Vec<(Requirement, Arc<str>)>,
    unevaluated: Option<Arc<str>>,
}

/// The namespaces of a policy that [`Restrictions`] exclude.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exclusion {
    /// Whether these are all namespaces in which the policy is in force.
    pub all: bool,
    /// The first of them by name.
    pub namespace: Arc<str>,
    /// The requirement that this namespace does not meet.
    pub requirement: Arc<str>,
}

/// What [`Restrictions`] exclude.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exclusions {
    by_policy: HashMap<Arc<str>, Exclusion>,
    unevaluated: Option<Arc<str>>,
}

impl Exclusions {
    /// Returns the excluded namespaces of a policy. `None` if no namespace in which it is in force is excluded.
    pub fn of(&self, policy: &Policy) -> Option<&Exclusion> {
        self.by_policy.get(&policy.id.uid)
    }

    /// Returns the additions that squelch cannot evaluate, in words.
    pub fn unevaluated(&self) -> Option<&str> {
        self.unevaluated.as_deref()
    }
}

impl Restrictions {
    /// Restrictions to the namespaces that meet all `requirements`. `unevaluated` are the names of additions that squelch
    /// cannot evaluate.
    pub fn new(requirements: impl IntoIterator<Item = LabelRequirement>, unevaluated: &[String]) -> Self {
        let requirements =
            requirements.into_iter().map(|added| (Requirement::from(&added), described(&added)));
        let names = Some(unevaluated.join(", ")).filter(|names| !names.is_empty());
        Self { requirements: requirements.collect(), unevaluated: names.map(|names| printable(&names)) }
    }

    /// Returns the requirement that excludes a namespace with these labels. Labels beyond the limit are unknown, so no
    /// requirement excludes a namespace with too many.
    fn excluding(&self, labels: &Labels) -> Option<&Arc<str>> {
        let labels = evaluable(labels)?;
        let mut requirements = self.requirements.iter();
        requirements.find(|(requirement, _)| !requirement.holds(labels)).map(|(_, text)| text)
    }

    /// Returns the exclusions for the policies in force in each namespace.
    pub(super) fn exclusions(
        &self,
        in_force: &HashMap<Arc<str>, PolicyList>,
        namespaces: &Namespaces,
    ) -> Exclusions {
        let mut exclusions = Exclusions { unevaluated: self.unevaluated.clone(), ..Exclusions::default() };
        if self.requirements.is_empty() {
            return exclusions;
        }
        // Namespaces share their lists. Only the first namespace with a list matters.
        let (mut governed, mut excluded) = (HashMap::new(), HashSet::new());
        for (namespace, labels) in namespaces {
            let Some(policies) = in_force.get(namespace) else { continue };
            let Some(requirement) = self.excluding(labels) else {
                governed.insert(policies.as_ptr(), policies);
                continue;
            };
            if excluded.insert(policies.as_ptr()) {
                for policy in policies.iter() {
                    exclusions.by_policy.entry(policy.id.uid.clone()).or_insert_with(|| Exclusion {
                        all: true,
                        namespace: namespace.clone(),
                        requirement: requirement.clone(),
                    });
                }
            }
        }
        for policy in governed.values().flat_map(|policies| policies.iter()) {
            if let Some(exclusion) = exclusions.by_policy.get_mut(&policy.id.uid) {
                exclusion.all = false;
            }
        }
        exclusions
    }
}

/// Returns a requirement as text, such as `control-plane DoesNotExist`.
fn described(requirement: &LabelRequirement) -> Arc<str> {
    let LabelRequirement { key, operator, values } = requirement;
    let values = if values.is_empty() { String::new() } else { format!(" [{}]", values.join(", ")) };
    printable(&format!("{key} {operator:?}{values}"))
}

/// Sanitises and truncates foreign text for a message.
fn printable(text: &str) -> Arc<str> {
    let short: String = text.chars().take(MAX_TEXT).map(sanitise).collect();
    if text.chars().count() > MAX_TEXT { format!("{short}…").into() } else { short.into() }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::policy::Set;
    use crate::policy::fixtures::{cluster_policy, labels, policy};

    /// Labels as the API server stores them.
    fn namespaces(names: &[&str]) -> Namespaces {
        let with = |name: &str| labels(&[("kubernetes.io/metadata.name", name), ("team", name)]);
        names.iter().map(|name| ((*name).into(), with(name))).collect()
    }

    fn restrictions(requirements: Value) -> Restrictions {
        let requirements: Vec<LabelRequirement> = serde_json::from_value(requirements).unwrap();
        Restrictions::new(requirements, &[])
    }

    /// `all` or the first namespace that is excluded, for a policy of namespace ci and for one of all namespaces.
    fn excluded(requirements: Value, names: &[&str]) -> [String; 2] {
        let policies = [
            policy("ci", "own", &json!({"match": [{"reasons": ["A"]}]}), 0),
            cluster_policy("all", &json!({}), 0),
        ];
        let namespaces = namespaces(names);
        let set = Set::in_cluster(policies.clone(), &namespaces);
        let set = set.restricted(&restrictions(requirements), &namespaces);
        policies.map(|policy| {
            let exclusion = set.exclusions().of(&policy);
            assert_eq!(set.is_effective(&policy), exclusion.is_none_or(|exclusion| !exclusion.all));
            exclusion.map_or_else(String::new, |exclusion| {
                format!("{} {}", if exclusion.all { "all" } else { "some" }, exclusion.namespace)
            })
        })
    }

    #[test]
    fn a_policy_is_excluded_with_all_its_namespaces_or_with_some() {
        let name = |operator: &str, values: &[&str]| json!([{"key": "kubernetes.io/metadata.name", "operator": operator, "values": values}]);
        let exists = |operator: &str, key: &str| json!([{"key": key, "operator": operator}]);
        let names = &["bank", "ci", "shop"];
        for (requirements, expected) in [
            (json!([]), ["", ""]),
            (name("NotIn", &["kube-system"]), ["", ""]),
            (name("NotIn", &["ci"]), ["all ci", "some ci"]),
            (name("NotIn", &["bank", "shop"]), ["", "some bank"]),
            (name("In", &["ci"]), ["", "some bank"]),
            (name("In", &["other"]), ["all ci", "all bank"]),
            (exists("Exists", "team"), ["", ""]),
            (exists("DoesNotExist", "team"), ["all ci", "all bank"]),
            (exists("DoesNotExist", "control-plane"), ["", ""]),
        ] {
            assert_eq!(excluded(requirements.clone(), names), expected, "{requirements}");
        }
    }

    #[test]
    fn an_exclusion_names_the_requirement_that_is_not_met() {
        let foreign = json!([
            {"key": "team", "operator": "Exists"},
            {"key": "team", "operator": "NotIn", "values": ["ci", "x\u{202e}"]},
        ]);
        let policies = [policy("ci", "own", &json!({}), 0)];
        let namespaces = namespaces(&["ci"]);
        let set =
            Set::in_cluster(policies.clone(), &namespaces).restricted(&restrictions(foreign), &namespaces);
        assert_eq!(&*set.exclusions().of(&policies[0]).unwrap().requirement, "team NotIn [ci, x ]");
        let long = vec!["x".repeat(63); 1000];
        let text = restrictions(json!([{"key": "team", "operator": "In", "values": long}])).requirements[0]
            .1
            .clone();
        assert_eq!(text.chars().count(), MAX_TEXT + 1);
    }

    #[test]
    fn a_namespace_with_too_many_labels_counts_as_not_excluded() {
        let too_many: Labels =
            (0..=crate::policy::MAX_LABELS).map(|n| (format!("k{n}"), String::new())).collect();
        let foreign = restrictions(json!([{"key": "team", "operator": "Exists"}]));
        assert_eq!(foreign.excluding(&too_many), None);
        assert!(foreign.excluding(&Labels::new()).is_some());
    }

    #[test]
    fn additions_that_squelch_cannot_evaluate_are_named() {
        let names = ["a".to_owned(), "b\n".to_owned()];
        let of = |restrictions: Restrictions| {
            let set = Set::default().restricted(&restrictions, &Namespaces::new());
            set.exclusions().unevaluated().map(str::to_owned)
        };
        assert_eq!(of(Restrictions::new([], &names)).unwrap(), "a, b ");
        assert_eq!(of(Restrictions::default()), None);
    }
}
