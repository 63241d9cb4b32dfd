//! What is known of the policies and the namespaces in the cluster, kept up to date object by object.
//!
//! Policies come as they are stored, untyped: one that does not even parse must still replace what it was
//! before. A watch that skips what it cannot read would leave the old policy live.

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
use super::order::{MOST_LABELS, Namespaces, evaluable};
use super::set::{Policy, Set};

/// What an object changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// Nothing that anyone reads.
    Nothing,
    /// The reported status alone.
    Status,
    /// What the policies say, or where.
    Policies,
}

/// What is listed and watched by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The `EventPolicies` of all namespaces.
    EventPolicies,
    /// The `ClusterEventPolicies`.
    ClusterEventPolicies,
    /// The namespaces.
    Namespaces,
}

impl Source {
    /// Every source.
    pub const ALL: [Self; 3] = [Self::EventPolicies, Self::ClusterEventPolicies, Self::Namespaces];
}

/// Namespace and name of a policy. One without a namespace is a `ClusterEventPolicy`.
type Key = (Option<Arc<str>>, Arc<str>);

/// The policies by namespace and name, and the labels of the namespaces. Changed by plain calls; knows nothing of
/// watches.
#[derive(Debug, Default)]
pub struct Index {
    policies: BTreeMap<Key, Arc<Policy>>,
    namespaces: Namespaces,
    uids: Arc<NamespaceUids>,
    /// The sources whose first list is complete.
    listed: BTreeSet<Source>,
    /// While a list is running: what it has shown so far.
    seen: BTreeMap<Source, BTreeSet<Key>>,
}

impl Index {
    /// A policy was added, changed or listed.
    pub fn apply(&mut self, object: &DynamicObject) -> Change {
        let key = key(object);
        let policy = read(&key, object, self.policies.get(&key).map(AsRef::as_ref));
        self.show(source(&key), &key);
        let change = match self.policies.get(&key) {
            Some(known) if **known == policy => return Change::Nothing,
            Some(known) if said(known) == said(&policy) => Change::Status,
            _ => Change::Policies,
        };
        self.policies.insert(key, Arc::new(policy));
        change
    }

    /// A policy was deleted.
    pub fn delete(&mut self, object: &DynamicObject) -> Change {
        self.policies.remove(&key(object)).map_or(Change::Nothing, |_| Change::Policies)
    }

    /// A namespace was added, changed or listed. Of more than [`MOST_LABELS`] labels any [`MOST_LABELS`] + 1 are enough.
    pub fn apply_namespace(&mut self, name: &str, uid: &str, labels: Labels) -> Change {
        let name: Arc<str> = name.into();
        self.show(Source::Namespaces, &(None, name.clone()));
        let identity = self.identify(&name, uid);
        if self.namespaces.get(&name) == Some(&labels) {
            return identity;
        }
        let was_evaluable = self.namespaces.get(&name).is_none_or(|known| evaluable(known).is_some());
        if was_evaluable && evaluable(&labels).is_none() {
            warn!(
                namespace = &*name,
                "namespace has more than {MOST_LABELS} labels: ClusterEventPolicies with a namespaceSelector are not in \
                 force there"
            );
        }
        self.namespaces.insert(name, labels);
        identity.max(self.change_of_namespaces())
    }

    /// A namespace was deleted: whatever is kept under its name is to be discarded.
    pub fn delete_namespace(&mut self, name: &str) -> Change {
        Arc::make_mut(&mut self.uids).remove(name);
        self.namespaces.remove(name).map_or(Change::Nothing, |_| Change::Policies)
    }

    /// A list begins. One that was running broke off: what it showed is not proof of what is gone.
    pub fn begin_list(&mut self, source: Source) {
        self.seen.insert(source, BTreeSet::new());
    }

    /// The list is complete: what it did not show is gone.
    pub fn end_list(&mut self, of: Source) -> Change {
        let Some(seen) = self.seen.remove(&of) else { return Change::Nothing };
        self.listed.insert(of);
        let before = (self.policies.len(), self.namespaces.len());
        if of == Source::Namespaces {
            self.namespaces.retain(|name, _| seen.contains(&(None, name.clone())));
            Arc::make_mut(&mut self.uids).retain(|name, _| self.namespaces.contains_key(name));
        } else {
            self.policies.retain(|key, _| source(key) != of || seen.contains(key));
        }
        let after = (self.policies.len(), self.namespaces.len());
        if after == before { Change::Nothing } else { Change::Policies }
    }

    /// Every first list is complete. Before, precedence is not known.
    pub fn listed(&self) -> bool {
        self.listed.len() == Source::ALL.len()
    }

    /// Every policy, also those that do not compile.
    pub fn policies(&self) -> impl Iterator<Item = Arc<Policy>> {
        self.policies.values().cloned()
    }

    /// The set as it is now.
    pub fn set(&self) -> Set {
        Set::in_cluster(self.policies(), &self.namespaces).identified(self.uids.clone())
    }

    /// Keeps the uid of a namespace. A name that has another uid than before is another namespace.
    fn identify(&mut self, name: &Arc<str>, uid: &str) -> Change {
        let known = self.uids.get(name).map(|known| **known == *uid);
        if known == Some(true) {
            return Change::Nothing;
        }
        Arc::make_mut(&mut self.uids).insert(name.clone(), uid.into());
        let has_policies = || self.policies.keys().any(|(namespace, _)| namespace.as_ref() == Some(name));
        if known == Some(false) || has_policies() { Change::Policies } else { Change::Nothing }
    }

    fn show(&mut self, source: Source, key: &Key) {
        if let Some(seen) = self.seen.get_mut(&source) {
            seen.insert(key.clone());
        }
    }

    /// Only cluster-scoped policies ask for namespaces and their labels.
    fn change_of_namespaces(&self) -> Change {
        let asked = self.policies.keys().any(|key| source(key) == Source::ClusterEventPolicies);
        if asked { Change::Policies } else { Change::Nothing }
    }
}

fn source((namespace, _): &Key) -> Source {
    if namespace.is_some() { Source::EventPolicies } else { Source::ClusterEventPolicies }
}

/// What a policy says, apart from its status.
fn said(policy: &Policy) -> impl PartialEq {
    let Policy { id, namespace: _, name: _, generation, created, outcome, reported: _ } = policy.clone();
    (id, generation, created, outcome)
}

fn key(object: &DynamicObject) -> Key {
    let metadata = &object.metadata;
    (metadata.namespace.as_deref().map(Arc::from), metadata.name.as_deref().unwrap_or_default().into())
}

/// Reads an object. The spec is compiled again only where it is another one than before.
fn read((namespace, name): &Key, object: &DynamicObject, known: Option<&Policy>) -> Policy {
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
            || Arc::new(understood(id.clone(), namespace.is_some(), object.data.get("spec"))),
            |known| known.outcome.clone(),
        ),
        reported: object.data.get("status").and_then(|status| EventPolicyStatus::deserialize(status).ok()),
        id,
    }
}

fn understood(id: PolicyId, namespaced: bool, spec: Option<&Value>) -> Result<Compiled, Invalid> {
    let spec = spec.ok_or_else(|| Invalid::new("spec", "is missing; write `spec: {}` for every default"))?;
    if namespaced {
        compile(id, &parsed::<EventPolicySpec>(spec)?)
    } else {
        compile_cluster(id, &parsed::<ClusterEventPolicySpec>(spec)?)
    }
}

fn parsed<Spec: DeserializeOwned>(spec: &Value) -> Result<Spec, Invalid> {
    Spec::deserialize(spec).map_err(|error| illegible::<Spec>(spec, &error))
}

/// Which field cannot be read: all have defaults, so that each can be tried alone.
fn illegible<Spec: DeserializeOwned>(spec: &Value, error: &serde_json::Error) -> Invalid {
    let alone = |(name, value): (&String, &Value)| {
        let error = Spec::deserialize(&json!({name: value})).err()?;
        Some(Invalid::new(format!("spec.{name}"), &format!("cannot be read: {error}")))
    };
    let fields = spec.as_object().into_iter().flatten();
    { fields }.find_map(alone).unwrap_or_else(|| Invalid::new("spec", &format!("cannot be read: {error}")))
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
        assert_eq!(index.apply(&policy), Change::Policies);
        assert_eq!(index.apply(&policy), Change::Nothing);
        assert!(index.set().governing(&event()).is_some());
        assert_eq!(index.delete(&policy), Change::Policies);
        assert_eq!(index.delete(&policy), Change::Nothing);
        assert!(index.set().governing(&event()).is_none());
    }

    #[test]
    fn an_object_that_does_not_parse_replaces_what_it_was() {
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
            assert_eq!(index.apply(&policy), Change::Policies);
            assert!(index.set().governing(&event()).is_none(), "{spec}");
            let set = index.set();
            let invalid = set.policies()[0].outcome.as_ref().as_ref().unwrap_err();
            assert!(invalid.to_string().starts_with(&format!("{field}: cannot be read: ")), "{invalid}");
        }
        let mut bare = object("ci", "p", json!({}));
        bare.metadata.generation = Some(9);
        index.apply(&bare);
        assert!(
            index.set().policies()[0].outcome.as_ref().as_ref().unwrap_err().sentence.contains("is missing")
        );
    }

    #[test]
    fn a_status_changes_no_policy() {
        let mut index = Index::default();
        index.apply(&object("ci", "p", json!({"spec": {}})));
        let reported = object("ci", "p", json!({"spec": {}, "status": {"counters": {"received": 3}}}));
        assert_eq!(index.apply(&reported), Change::Status);
        assert_eq!(index.set().policies()[0].reported.as_ref().unwrap().counters.unwrap().received, 3);
        let illegible = object("ci", "p", json!({"spec": {}, "status": {"counters": "three"}}));
        assert_eq!(index.apply(&illegible), Change::Status);
        assert!(index.set().governing(&event()).is_some());
    }

    #[test]
    fn a_recreated_policy_is_another_one() {
        let mut index = Index::default();
        let mut policy = object("ci", "p", json!({"spec": {"mode": "Enforce"}}));
        index.apply(&policy);
        policy.metadata.uid = Some("another".into());
        policy.data = json!({"spec": {"mode": "Observe"}});
        assert_eq!(index.apply(&policy), Change::Policies);
        let set = index.set();
        let rules = set.governing(&event()).unwrap().rules;
        assert_eq!((&*rules.policy.uid, rules.mode), ("another", squelch_engine::Mode::Observe));
    }

    #[test]
    fn a_list_that_breaks_off_forgets_nothing_and_a_complete_one_forgets_what_is_gone() {
        let policy = |name| object("ci", name, json!({"spec": {}}));
        let mut index = Index::default();
        index.begin_list(Source::EventPolicies);
        for name in ["a", "b", "c"] {
            index.apply(&policy(name));
        }
        assert_eq!(index.end_list(Source::EventPolicies), Change::Nothing);

        index.begin_list(Source::EventPolicies);
        index.apply(&policy("a"));
        // It breaks off; meanwhile b was deleted, and d made.
        index.begin_list(Source::EventPolicies);
        index.apply(&policy("c"));
        assert_eq!(names(&index), ["ci/a", "ci/b", "ci/c"]);
        index.apply(&policy("d"));
        assert_eq!(index.end_list(Source::EventPolicies), Change::Policies);
        assert_eq!(names(&index), ["ci/c", "ci/d"]);
        assert_eq!(index.end_list(Source::EventPolicies), Change::Nothing);
    }

    #[test]
    fn an_invalid_object_says_the_same_by_watch_and_by_list() {
        let broken = object("ci", "p", json!({"spec": {"series": {"idleTimeout": "soon"}}}));
        let (mut watched, mut listed) = (Index::default(), Index::default());
        watched.apply(&broken);
        listed.begin_list(Source::EventPolicies);
        listed.apply(&broken);
        listed.end_list(Source::EventPolicies);
        assert_eq!(watched.set().policies(), listed.set().policies());
    }

    #[test]
    fn each_list_speaks_for_its_own_kind() {
        let mut index = Index::default();
        let own = object("ci", "p", json!({"spec": {}}));
        // The same name, and one that is not understood.
        let cluster = cluster_object("p", json!({"spec": {"mode": "Enforced"}}));
        for source in Source::ALL {
            assert!(!index.listed());
            index.begin_list(source);
            match source {
                Source::EventPolicies => index.apply(&own),
                Source::ClusterEventPolicies => index.apply(&cluster),
                Source::Namespaces => index.apply_namespace("ci", "1", labels(&[])),
            };
            index.end_list(source);
        }
        assert!(index.listed());
        assert_eq!(names(&index), ["p", "ci/p"]);
        for source in Source::ALL {
            index.begin_list(source);
            assert_eq!(index.end_list(source), Change::Policies, "{source:?}");
            let left: &[&str] = if source == Source::EventPolicies { &["p"] } else { &[] };
            assert_eq!(names(&index), left);
        }
        assert!(index.namespaces.is_empty());
    }

    #[test]
    fn lists_of_several_kinds_that_break_off_forget_nothing() {
        let mut index = Index::default();
        let shops = json!({"spec": {"namespaceSelector": {"matchLabels": {"team": "shop"}}}});
        index.apply(&cluster_object("shops", shops.clone()));
        index.apply_namespace("ci", "1", labels(&[("team", "shop")]));
        index.apply_namespace("gone", "2", labels(&[("team", "shop")]));
        for source in Source::ALL {
            index.begin_list(source);
            index.begin_list(source);
        }
        assert!(index.set().governing(&event()).is_some() && index.set().knows("gone"));
        index.apply_namespace("ci", "1", labels(&[("team", "shop")]));
        assert_eq!(index.end_list(Source::Namespaces), Change::Policies);
        assert!(index.set().governing(&event()).is_some() && !index.set().knows("gone"));
        index.apply(&cluster_object("shops", shops));
        assert_eq!(index.end_list(Source::ClusterEventPolicies), Change::Nothing);
    }

    #[test]
    fn a_label_changes_what_cluster_policies_govern_and_nothing_else() {
        let mut index = Index::default();
        index.apply(&object("ci", "own", json!({"spec": {"match": {"types": ["Normal"]}}})));
        index.apply_namespace("ci", "1", labels(&[("team", "bank")]));
        assert_eq!(index.apply_namespace("ci", "1", labels(&[])), Change::Nothing, "nobody asks for labels");
        let shops = json!({"spec": {"namespaceSelector": {"matchLabels": {"team": "shop"}}}});
        assert_eq!(index.apply(&cluster_object("shops", shops)), Change::Policies);
        assert!(index.set().governing(&event()).is_none());
        let shop = labels(&[("team", "shop")]);
        assert_eq!(index.apply_namespace("ci", "1", shop.clone()), Change::Policies);
        assert_eq!(&*index.set().governing(&event()).unwrap().rules.policy.display, "shops");
        assert_eq!(index.apply_namespace("ci", "1", shop), Change::Nothing);
        assert_eq!(index.delete_namespace("ci"), Change::Policies);
        assert_eq!(index.delete_namespace("ci"), Change::Nothing);
        assert!(index.set().governing(&event()).is_none());
    }

    #[test]
    fn a_name_with_another_uid_is_another_namespace() {
        let mut index = Index::default();
        let uid = |index: &Index| index.set().namespace_uids().get("ci").map(ToString::to_string);
        assert_eq!(index.apply_namespace("ci", "1", labels(&[])), Change::Nothing, "no policy is for it");
        assert_eq!(uid(&index).as_deref(), Some("1"));
        assert_eq!(index.apply_namespace("ci", "2", labels(&[])), Change::Policies);
        assert_eq!(uid(&index).as_deref(), Some("2"));
        assert_eq!(index.delete_namespace("ci"), Change::Policies);
        assert_eq!(uid(&index), None);
        index.apply(&object("ci", "own", json!({"spec": {}})));
        assert_eq!(
            index.apply_namespace("ci", "3", labels(&[])),
            Change::Policies,
            "its policy counts already"
        );
        index.begin_list(Source::Namespaces);
        assert_eq!((index.end_list(Source::Namespaces), uid(&index)), (Change::Policies, None));
    }

    #[test]
    fn a_cluster_policy_that_does_not_parse_replaces_what_it_was() {
        for (spec, field) in [
            (json!({"precedence": "First"}), "spec.precedence: cannot be read"),
            (json!({"namespaceSelector": {"matchLabels": "team"}}), "spec.namespaceSelector: cannot be read"),
            (json!({"priority": 1, "mode": "Enforced"}), "spec.mode: cannot be read"),
            (json!({"namespaceSelector": {"matchLabels": {"my team": "x"}}}), "spec.namespaceSelector.match"),
            (json!({"priority": 100_001}), "spec.priority: priority must"),
        ] {
            let mut index = Index::default();
            let mut policy = cluster_object("p", json!({"spec": {}}));
            index.apply(&policy);
            assert!(index.set().governing(&event()).is_some());
            policy.data = json!({"spec": spec});
            policy.metadata.generation = Some(2);
            assert_eq!(index.apply(&policy), Change::Policies);
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
    fn what_the_api_server_refuses_is_refused_here_too() {
        let examples = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
        assert!(outcome(&example(&examples.join("quickstart.yaml")).1).is_ok());
        let mut sentences = BTreeSet::new();
        for file in std::fs::read_dir(examples.join("invalid")).unwrap() {
            let path = file.unwrap().path();
            let (first_line, object) = example(&path);
            let expected = first_line.strip_prefix("# expect: ").unwrap();
            let invalid = outcome(&object).unwrap_err();
            sentences.insert(invalid.sentence.clone());
            // Where the API server answers in its own words (of limits and types), ours differ.
            let ours = expected.starts_with("an entry") || expected.contains("such as");
            assert!(!ours || invalid.sentence == expected, "{}: {invalid}", path.display());
        }
        for (_, crd) in crate::api::crds() {
            for rule in rules(&serde_json::to_value(crd.spec.versions).unwrap()) {
                assert!(sentences.contains(&rule), "no example in examples/invalid is refused with: {rule}");
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
