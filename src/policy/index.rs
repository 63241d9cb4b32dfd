//! The policies and namespaces of the cluster, updated object by object.
//!
//! Policy objects are untyped, so that one that cannot be parsed still replaces its previous version. A watch that skips
//! unreadable objects would leave the old policy in force.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::core::DynamicObject;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use squelch_engine::{NamespaceUids, PolicyId};
use tracing::warn;

use crate::api::{ClusterEventPolicySpec, EventPolicySpec, EventPolicyStatus};

use super::compile::{Compiled, Invalid, Labels, compile, compile_cluster};
use super::order::{MAX_LABELS, Namespaces, evaluable};
use super::set::{Policy, Set};

/// The effect of an update on the set of policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SetChange {
    /// No effect.
    Nothing,
    /// Only statuses changed.
    Status,
    /// Specs of policies or the namespaces to which they apply changed.
    Policies,
}

/// A resource that is listed and watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WatchSource {
    /// `EventPolicies` of all namespaces.
    EventPolicies,
    /// `ClusterEventPolicies`.
    ClusterEventPolicies,
    /// Namespaces.
    Namespaces,
}

impl WatchSource {
    /// All sources.
    pub const ALL: [Self; 3] = [Self::EventPolicies, Self::ClusterEventPolicies, Self::Namespaces];
}

/// Namespace and name of a policy. The namespace is `None` for a `ClusterEventPolicy`.
type PolicyKey = (Option<Arc<str>>, Arc<str>);

/// The policies by namespace and name, and the labels of the namespaces.
#[derive(Debug, Default)]
pub struct Index {
    policies: BTreeMap<PolicyKey, Arc<Policy>>,
    namespaces: Namespaces,
    uids: Arc<NamespaceUids>,
    /// Sources whose first list is complete.
    listed: BTreeSet<WatchSource>,
    /// Keys received so far by each list in progress.
    seen: BTreeMap<WatchSource, BTreeSet<PolicyKey>>,
}

impl Index {
    /// Adds or updates a policy.
    pub fn apply(&mut self, object: &DynamicObject) -> SetChange {
        let key = key(object);
        let policy = read(&key, object, self.policies.get(&key).map(AsRef::as_ref));
        self.mark_seen(source(&key), &key);
        let change = match self.policies.get(&key) {
            Some(known) if **known == policy => return SetChange::Nothing,
            Some(known) if without_status(known) == without_status(&policy) => SetChange::Status,
            _ => SetChange::Policies,
        };
        self.policies.insert(key, Arc::new(policy));
        change
    }

    /// Removes a deleted policy.
    pub fn delete(&mut self, object: &DynamicObject) -> SetChange {
        self.policies.remove(&key(object)).map_or(SetChange::Nothing, |_| SetChange::Policies)
    }

    /// Adds or updates a namespace. Of more than [`MAX_LABELS`] labels, any [`MAX_LABELS`] + 1 are sufficient.
    pub fn apply_namespace(&mut self, name: &str, uid: &str, labels: Labels) -> SetChange {
        let name: Arc<str> = name.into();
        self.mark_seen(WatchSource::Namespaces, &(None, name.clone()));
        let identity = self.set_uid(&name, uid);
        if self.namespaces.get(&name) == Some(&labels) {
            return identity;
        }
        let was_evaluable = self.namespaces.get(&name).is_none_or(|known| evaluable(known).is_some());
        if was_evaluable && evaluable(&labels).is_none() {
            warn!(
                namespace = &*name,
                "namespace has more than {MAX_LABELS} labels, so ClusterEventPolicies with a namespaceSelector are not in \
                 force there"
            );
        }
        self.namespaces.insert(name, labels);
        identity.max(self.change_of_namespaces())
    }

    /// Removes a deleted namespace. The engine must discard its state.
    pub fn delete_namespace(&mut self, name: &str) -> SetChange {
        Arc::make_mut(&mut self.uids).remove(name);
        self.namespaces.remove(name).map_or(SetChange::Nothing, |_| SetChange::Policies)
    }

    /// Starts a list. An interrupted list in progress is discarded: its missing objects may exist.
    pub fn begin_list(&mut self, source: WatchSource) {
        self.seen.insert(source, BTreeSet::new());
    }

    /// Completes a list, and removes the objects that it did not contain.
    pub fn end_list(&mut self, of: WatchSource) -> SetChange {
        let Some(seen) = self.seen.remove(&of) else { return SetChange::Nothing };
        self.listed.insert(of);
        let before = (self.policies.len(), self.namespaces.len());
        if of == WatchSource::Namespaces {
            self.namespaces.retain(|name, _| seen.contains(&(None, name.clone())));
            Arc::make_mut(&mut self.uids).retain(|name, _| self.namespaces.contains_key(name));
        } else {
            self.policies.retain(|key, _| source(key) != of || seen.contains(key));
        }
        let after = (self.policies.len(), self.namespaces.len());
        if after == before { SetChange::Nothing } else { SetChange::Policies }
    }

    /// Whether the first list of each source is complete. Until then the precedence of policies is unknown.
    pub fn listed(&self) -> bool {
        self.listed.len() == WatchSource::ALL.len()
    }

    /// All policies, including invalid ones.
    pub fn policies(&self) -> impl Iterator<Item = Arc<Policy>> {
        self.policies.values().cloned()
    }

    /// Computes the current set.
    pub fn set(&self) -> Set {
        Set::in_cluster(self.policies(), &self.namespaces).with_namespace_uids(self.uids.clone())
    }

    /// Stores the uid of a namespace. A changed uid means a new namespace with the same name.
    fn set_uid(&mut self, name: &Arc<str>, uid: &str) -> SetChange {
        let known = self.uids.get(name).map(|known| **known == *uid);
        if known == Some(true) {
            return SetChange::Nothing;
        }
        Arc::make_mut(&mut self.uids).insert(name.clone(), uid.into());
        let has_policies = || self.policies.keys().any(|(namespace, _)| namespace.as_ref() == Some(name));
        if known == Some(false) || has_policies() { SetChange::Policies } else { SetChange::Nothing }
    }

    fn mark_seen(&mut self, source: WatchSource, key: &PolicyKey) {
        if let Some(seen) = self.seen.get_mut(&source) {
            seen.insert(key.clone());
        }
    }

    /// Namespaces and their labels affect only cluster-scoped policies.
    fn change_of_namespaces(&self) -> SetChange {
        let has_cluster_policies =
            self.policies.keys().any(|key| source(key) == WatchSource::ClusterEventPolicies);
        if has_cluster_policies { SetChange::Policies } else { SetChange::Nothing }
    }
}

fn source((namespace, _): &PolicyKey) -> WatchSource {
    if namespace.is_some() { WatchSource::EventPolicies } else { WatchSource::ClusterEventPolicies }
}

/// The fields of a policy without its key and status.
fn without_status(policy: &Policy) -> impl PartialEq {
    let Policy { id, namespace: _, name: _, generation, created, outcome, reported: _ } = policy.clone();
    (id, generation, created, outcome)
}

fn key(object: &DynamicObject) -> PolicyKey {
    let metadata = &object.metadata;
    (metadata.namespace.as_deref().map(Arc::from), metadata.name.as_deref().unwrap_or_default().into())
}

/// Reads an object. Compiles the spec only if uid or generation changed.
fn read((namespace, name): &PolicyKey, object: &DynamicObject, known: Option<&Policy>) -> Policy {
    let metadata = &object.metadata;
    let uid = metadata.uid.as_deref().unwrap_or_default();
    let generation = metadata.generation.unwrap_or_default();
    let same = known.filter(|known| *known.id.uid == *uid && known.generation == generation);
    let display = || namespace.as_ref().map_or_else(|| name.to_string(), |space| format!("{space}/{name}"));
    let id = same
        .map_or_else(|| PolicyId { display: display().into(), uid: uid.into() }, |known| known.id.clone());
    Policy {
        namespace: namespace.clone(),
        name: name.clone(),
        generation,
        created: metadata.creation_timestamp.as_ref().map(|time| time.0),
        outcome: same.map_or_else(
            || Arc::new(compile_spec(id.clone(), namespace.is_some(), object.data.get("spec"))),
            |known| known.outcome.clone(),
        ),
        reported: object.data.get("status").and_then(|status| EventPolicyStatus::deserialize(status).ok()),
        id,
    }
}

fn compile_spec(id: PolicyId, namespaced: bool, spec: Option<&Value>) -> Result<Compiled, Invalid> {
    let spec = spec.ok_or_else(|| Invalid::new("spec", "is missing; use `spec: {}` for the defaults"))?;
    if namespaced {
        compile(id, &parsed::<EventPolicySpec>(spec)?)
    } else {
        compile_cluster(id, &parsed::<ClusterEventPolicySpec>(spec)?)
    }
}

fn parsed<Spec: DeserializeOwned>(spec: &Value) -> Result<Spec, Invalid> {
    Spec::deserialize(spec).map_err(|error| parse_error::<Spec>(spec, &error))
}

/// Finds the field with the parse error. All fields have defaults, so each can be parsed alone.
fn parse_error<Spec: DeserializeOwned>(spec: &Value, error: &serde_json::Error) -> Invalid {
    let alone = |(name, value): (&String, &Value)| {
        let error = Spec::deserialize(&json!({name: value})).err()?;
        Some(Invalid::new(format!("spec.{name}"), &format!("cannot be parsed: {error}")))
    };
    let fields = spec.as_object().into_iter().flatten();
    { fields }.find_map(alone).unwrap_or_else(|| Invalid::new("spec", &format!("cannot be parsed: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::fixtures::{cluster_object, event, labels, object};

    fn names(index: &Index) -> Vec<String> {
        index.set().policies().iter().map(|policy| policy.id.display.to_string()).collect()
    }

    #[test]
    fn a_policy_governs_until_it_is_deleted() {
        let mut index = Index::default();
        let policy = object("ci", "p", json!({"spec": {}}));
        assert_eq!(index.apply(&policy), SetChange::Policies);
        assert_eq!(index.apply(&policy), SetChange::Nothing);
        assert!(index.set().governing(&event()).is_some());
        assert_eq!(index.delete(&policy), SetChange::Policies);
        assert_eq!(index.delete(&policy), SetChange::Nothing);
        assert!(index.set().governing(&event()).is_none());
    }

    #[test]
    fn an_unparsable_policy_replaces_its_previous_version() {
        let mut index = Index::default();
        for (spec, field) in [
            (json!({"priority": 1, "mode": "Enforced"}), "spec.mode"),
            (json!({"series": {"idleTimeout": 6}}), "spec.series"),
            (json!("text"), "spec"),
            (json!(null), "spec"),
        ] {
            let mut policy = object("ci", "p", json!({"spec": {}}));
            index.apply(&policy);
            assert!(index.set().governing(&event()).is_some());
            policy.data = json!({"spec": spec});
            policy.metadata.generation = policy.metadata.generation.map(|generation| generation + 1);
            assert_eq!(index.apply(&policy), SetChange::Policies);
            assert!(index.set().governing(&event()).is_none(), "{spec}");
            let set = index.set();
            let invalid = set.policies()[0].outcome.as_ref().as_ref().unwrap_err();
            assert!(invalid.to_string().starts_with(&format!("{field}: cannot be parsed: ")), "{invalid}");
        }
        let mut bare = object("ci", "p", json!({}));
        bare.metadata.generation = Some(9);
        index.apply(&bare);
        assert!(
            index.set().policies()[0].outcome.as_ref().as_ref().unwrap_err().message.contains("is missing")
        );
    }

    #[test]
    fn a_changed_status_does_not_change_the_policy() {
        let mut index = Index::default();
        index.apply(&object("ci", "p", json!({"spec": {}})));
        let reported = object("ci", "p", json!({"spec": {}, "status": {"counters": {"received": 3}}}));
        assert_eq!(index.apply(&reported), SetChange::Status);
        assert_eq!(index.set().policies()[0].reported.as_ref().unwrap().counters.unwrap().received, 3);
        let unparsable = object("ci", "p", json!({"spec": {}, "status": {"counters": "three"}}));
        assert_eq!(index.apply(&unparsable), SetChange::Status);
        assert!(index.set().governing(&event()).is_some());
    }

    #[test]
    fn a_recreated_policy_is_compiled_again() {
        let mut index = Index::default();
        let mut policy = object("ci", "p", json!({"spec": {"mode": "Enforce"}}));
        index.apply(&policy);
        policy.metadata.uid = Some("another".into());
        policy.data = json!({"spec": {"mode": "Observe"}});
        assert_eq!(index.apply(&policy), SetChange::Policies);
        let set = index.set();
        let rules = set.governing(&event()).unwrap().rules;
        assert_eq!((&*rules.policy.uid, rules.mode), ("another", squelch_engine::Mode::Observe));
    }

    #[test]
    fn only_a_complete_list_removes_deleted_policies() {
        let policy = |name| object("ci", name, json!({"spec": {}}));
        let mut index = Index::default();
        index.begin_list(WatchSource::EventPolicies);
        for name in ["a", "b", "c"] {
            index.apply(&policy(name));
        }
        assert_eq!(index.end_list(WatchSource::EventPolicies), SetChange::Nothing);

        index.begin_list(WatchSource::EventPolicies);
        index.apply(&policy("a"));
        // The list is interrupted. Meanwhile b was deleted and d created.
        index.begin_list(WatchSource::EventPolicies);
        index.apply(&policy("c"));
        assert_eq!(names(&index), ["ci/a", "ci/b", "ci/c"]);
        index.apply(&policy("d"));
        assert_eq!(index.end_list(WatchSource::EventPolicies), SetChange::Policies);
        assert_eq!(names(&index), ["ci/c", "ci/d"]);
        assert_eq!(index.end_list(WatchSource::EventPolicies), SetChange::Nothing);
    }

    #[test]
    fn an_invalid_policy_is_the_same_from_watch_and_list() {
        let broken = object("ci", "p", json!({"spec": {"series": {"idleTimeout": "soon"}}}));
        let (mut watched, mut listed) = (Index::default(), Index::default());
        watched.apply(&broken);
        listed.begin_list(WatchSource::EventPolicies);
        listed.apply(&broken);
        listed.end_list(WatchSource::EventPolicies);
        assert_eq!(watched.set().policies(), listed.set().policies());
    }

    #[test]
    fn a_list_removes_only_objects_of_its_source() {
        let mut index = Index::default();
        let own = object("ci", "p", json!({"spec": {}}));
        // An invalid policy with the same name.
        let cluster = cluster_object("p", json!({"spec": {"mode": "Enforced"}}));
        for source in WatchSource::ALL {
            assert!(!index.listed());
            index.begin_list(source);
            match source {
                WatchSource::EventPolicies => index.apply(&own),
                WatchSource::ClusterEventPolicies => index.apply(&cluster),
                WatchSource::Namespaces => index.apply_namespace("ci", "1", labels(&[])),
            };
            index.end_list(source);
        }
        assert!(index.listed());
        assert_eq!(names(&index), ["p", "ci/p"]);
        for source in WatchSource::ALL {
            index.begin_list(source);
            assert_eq!(index.end_list(source), SetChange::Policies, "{source:?}");
            let left: &[&str] = if source == WatchSource::EventPolicies { &["p"] } else { &[] };
            assert_eq!(names(&index), left);
        }
        assert!(index.namespaces.is_empty());
    }

    #[test]
    fn interrupted_lists_of_several_sources_remove_nothing() {
        let mut index = Index::default();
        let shops = json!({"spec": {"namespaceSelector": {"matchLabels": {"team": "shop"}}}});
        index.apply(&cluster_object("shops", shops.clone()));
        index.apply_namespace("ci", "1", labels(&[("team", "shop")]));
        index.apply_namespace("deleted", "2", labels(&[("team", "shop")]));
        for source in WatchSource::ALL {
            index.begin_list(source);
            index.begin_list(source);
        }
        assert!(index.set().governing(&event()).is_some() && index.set().has_namespace("deleted"));
        index.apply_namespace("ci", "1", labels(&[("team", "shop")]));
        assert_eq!(index.end_list(WatchSource::Namespaces), SetChange::Policies);
        assert!(index.set().governing(&event()).is_some() && !index.set().has_namespace("deleted"));
        index.apply(&cluster_object("shops", shops));
        assert_eq!(index.end_list(WatchSource::ClusterEventPolicies), SetChange::Nothing);
    }

    #[test]
    fn labels_affect_only_cluster_policies() {
        let mut index = Index::default();
        index.apply(&object("ci", "own", json!({"spec": {"match": {"types": ["Normal"]}}})));
        index.apply_namespace("ci", "1", labels(&[("team", "bank")]));
        assert_eq!(
            index.apply_namespace("ci", "1", labels(&[])),
            SetChange::Nothing,
            "no policy has a selector"
        );
        let shops = json!({"spec": {"namespaceSelector": {"matchLabels": {"team": "shop"}}}});
        assert_eq!(index.apply(&cluster_object("shops", shops)), SetChange::Policies);
        assert!(index.set().governing(&event()).is_none());
        let shop = labels(&[("team", "shop")]);
        assert_eq!(index.apply_namespace("ci", "1", shop.clone()), SetChange::Policies);
        assert_eq!(&*index.set().governing(&event()).unwrap().rules.policy.display, "shops");
        assert_eq!(index.apply_namespace("ci", "1", shop), SetChange::Nothing);
        assert_eq!(index.delete_namespace("ci"), SetChange::Policies);
        assert_eq!(index.delete_namespace("ci"), SetChange::Nothing);
        assert!(index.set().governing(&event()).is_none());
    }

    #[test]
    fn a_namespace_with_another_uid_is_a_new_one() {
        let mut index = Index::default();
        let uid = |index: &Index| index.set().namespace_uids().get("ci").map(ToString::to_string);
        assert_eq!(index.apply_namespace("ci", "1", labels(&[])), SetChange::Nothing, "no policy applies");
        assert_eq!(uid(&index).as_deref(), Some("1"));
        assert_eq!(index.apply_namespace("ci", "2", labels(&[])), SetChange::Policies);
        assert_eq!(uid(&index).as_deref(), Some("2"));
        assert_eq!(index.delete_namespace("ci"), SetChange::Policies);
        assert_eq!(uid(&index), None);
        index.apply(&object("ci", "own", json!({"spec": {}})));
        assert_eq!(
            index.apply_namespace("ci", "3", labels(&[])),
            SetChange::Policies,
            "its policy has counters already"
        );
        index.begin_list(WatchSource::Namespaces);
        assert_eq!((index.end_list(WatchSource::Namespaces), uid(&index)), (SetChange::Policies, None));
    }

    #[test]
    fn an_unparsable_cluster_policy_replaces_its_previous_version() {
        for (spec, field) in [
            (json!({"precedence": "First"}), "spec.precedence: cannot be parsed"),
            (
                json!({"namespaceSelector": {"matchLabels": "team"}}),
                "spec.namespaceSelector: cannot be parsed",
            ),
            (json!({"priority": 1, "mode": "Enforced"}), "spec.mode: cannot be parsed"),
            (json!({"namespaceSelector": {"matchLabels": {"my team": "x"}}}), "spec.namespaceSelector.match"),
            (json!({"priority": 100_001}), "spec.priority: priority must"),
        ] {
            let mut index = Index::default();
            let mut policy = cluster_object("p", json!({"spec": {}}));
            index.apply(&policy);
            assert!(index.set().governing(&event()).is_some());
            policy.data = json!({"spec": spec});
            policy.metadata.generation = Some(2);
            assert_eq!(index.apply(&policy), SetChange::Policies);
            let set = index.set();
            assert!(set.governing(&event()).is_none(), "{spec}");
            let invalid = set.policies()[0].outcome.as_ref().as_ref().unwrap_err();
            assert!(invalid.to_string().starts_with(field), "{invalid}");
        }
    }

    fn example(path: &std::path::Path) -> (String, DynamicObject) {
        let text = std::fs::read_to_string(path).unwrap();
        let mut object: DynamicObject = serde_saphyr::from_str(&text).unwrap();
        object.metadata.generation = Some(1);
        if object.types.as_ref().unwrap().kind == "EventPolicy" {
            object.metadata.namespace = Some("ci".to_owned());
        }
        (text.lines().next().unwrap().to_owned(), object)
    }

    fn outcome(object: &DynamicObject) -> Result<Compiled, Invalid> {
        let mut index = Index::default();
        index.apply(object);
        index.set().policies()[0].outcome.as_ref().clone()
    }

    #[test]
    fn the_invalid_examples_are_rejected_with_the_messages_of_the_crds() {
        let examples = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
        assert!(outcome(&example(&examples.join("quickstart.yaml")).1).is_ok());
        let mut messages = BTreeSet::new();
        for file in std::fs::read_dir(examples.join("invalid")).unwrap() {
            let path = file.unwrap().path();
            let (first_line, object) = example(&path);
            let expected = first_line.strip_prefix("# expect: ").unwrap();
            let invalid = outcome(&object).unwrap_err();
            messages.insert(invalid.message.clone());
            // For limits and types the API server has messages of its own.
            let is_rule = expected.starts_with("an entry") || expected.contains("such as");
            assert!(!is_rule || invalid.message == expected, "{}: {invalid}", path.display());
        }
        for (_, crd) in crate::api::crds() {
            for rule in rules(&serde_json::to_value(crd.spec.versions).unwrap()) {
                assert!(messages.contains(&rule), "no example in examples/invalid is rejected with: {rule}");
            }
        }
    }

    /// The messages of all CEL rules in a schema.
    fn rules(schema: &Value) -> Vec<String> {
        let rule = |rule: &Value| rule["message"].as_str().unwrap().to_owned();
        match schema {
            Value::Object(fields) => fields
                .iter()
                .flat_map(|(name, value)| match name.as_str() {
                    "x-kubernetes-validations" => value.as_array().unwrap().iter().map(rule).collect(),
                    _ => rules(value),
                })
                .collect(),
            Value::Array(items) => items.iter().flat_map(rules).collect(),
            _ => Vec::new(),
        }
    }
}
