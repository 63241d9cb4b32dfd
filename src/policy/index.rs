//! What is known of the policies in the cluster, kept up to date object by object.
//!
//! Objects come as they are stored, untyped: one that does not even parse must still replace what it was
//! before. A watch that skips what it cannot read would leave the old policy live.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::core::DynamicObject;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::{EventPolicySpec, EventPolicyStatus};
use crate::engine::PolicyId;

use super::compile::{Compiled, Invalid, compile};
use super::set::{Policy, Set};

/// What an object changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// Nothing that anyone reads.
    Nothing,
    /// The reported status alone.
    Status,
    /// What the policies say.
    Policies,
}

/// Namespace and name.
type Key = (Arc<str>, Arc<str>);

/// The policies by namespace and name. Changed by plain calls; knows nothing of watches.
#[derive(Debug, Default)]
pub struct Index {
    policies: BTreeMap<Key, Arc<Policy>>,
    /// While a list is running: what it has shown so far.
    seen: Option<BTreeSet<Key>>,
}

impl Index {
    /// An object was added, changed or listed.
    pub fn apply(&mut self, object: &DynamicObject) -> Change {
        let key = key(object);
        let policy = read(&key, object, self.policies.get(&key).map(AsRef::as_ref));
        if let Some(seen) = &mut self.seen {
            seen.insert(key.clone());
        }
        let change = match self.policies.get(&key) {
            Some(known) if **known == policy => return Change::Nothing,
            Some(known) if said(known) == said(&policy) => Change::Status,
            _ => Change::Policies,
        };
        self.policies.insert(key, Arc::new(policy));
        change
    }

    /// An object was deleted.
    pub fn delete(&mut self, object: &DynamicObject) -> Change {
        match self.policies.remove(&key(object)) {
            Some(_) => Change::Policies,
            None => Change::Nothing,
        }
    }

    /// A list begins. One that was running broke off: what it showed is not proof of what is gone.
    pub fn begin_list(&mut self) {
        self.seen = Some(BTreeSet::new());
    }

    /// The list is complete: what it did not show is gone.
    pub fn end_list(&mut self) -> Change {
        let Some(seen) = self.seen.take() else { return Change::Nothing };
        let before = self.policies.len();
        self.policies.retain(|key, _| seen.contains(key));
        if self.policies.len() < before { Change::Policies } else { Change::Nothing }
    }

    /// The set as it is now.
    pub fn set(&self) -> Set {
        Set::new(self.policies.values().cloned())
    }
}

/// What a policy says, apart from its status.
fn said(policy: &Policy) -> impl PartialEq {
    let Policy { id, namespace: _, name: _, generation, created, outcome, reported: _ } = policy.clone();
    (id, generation, created, outcome)
}

fn key(object: &DynamicObject) -> Key {
    let text = |text: &Option<String>| Arc::from(text.as_deref().unwrap_or_default());
    (text(&object.metadata.namespace), text(&object.metadata.name))
}

/// Reads an object. The spec is compiled again only where it is another one than before.
fn read((namespace, name): &Key, object: &DynamicObject, known: Option<&Policy>) -> Policy {
    let metadata = &object.metadata;
    let uid = metadata.uid.as_deref().unwrap_or_default();
    let generation = metadata.generation.unwrap_or_default();
    let same = known.filter(|known| *known.id.uid == *uid && known.generation == generation);
    let id = same.map_or_else(
        || PolicyId { display: format!("{namespace}/{name}").into(), uid: uid.into() },
        |known| known.id.clone(),
    );
    Policy {
        namespace: namespace.clone(),
        name: name.clone(),
        generation,
        created: metadata.creation_timestamp.as_ref().map(|time| time.0),
        outcome: same.map_or_else(
            || Arc::new(understood(id.clone(), object.data.get("spec"))),
            |known| known.outcome.clone(),
        ),
        reported: object.data.get("status").and_then(|status| EventPolicyStatus::deserialize(status).ok()),
        id,
    }
}

fn understood(id: PolicyId, spec: Option<&Value>) -> Result<Compiled, Invalid> {
    let spec = spec.ok_or_else(|| Invalid::new("spec", "is missing; write `spec: {}` for every default"))?;
    let parsed = EventPolicySpec::deserialize(spec);
    compile(id, &parsed.map_err(|error| illegible(spec, &error))?)
}

/// Which field cannot be read: all have defaults, so that each can be tried alone.
fn illegible(spec: &Value, error: &serde_json::Error) -> Invalid {
    let alone = |(name, value): (&String, &Value)| {
        let error = EventPolicySpec::deserialize(&json!({name: value})).err()?;
        Some(Invalid::new(format!("spec.{name}"), &format!("cannot be read: {error}")))
    };
    let fields = spec.as_object().into_iter().flatten();
    { fields }.find_map(alone).unwrap_or_else(|| Invalid::new("spec", &format!("cannot be read: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::fixtures::{event, object};

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
        assert_eq!((&*rules.policy.uid, rules.mode), ("another", crate::engine::Mode::Observe));
    }

    #[test]
    fn a_list_that_breaks_off_forgets_nothing_and_a_complete_one_forgets_what_is_gone() {
        let policy = |name| object("ci", name, json!({"spec": {}}));
        let mut index = Index::default();
        index.begin_list();
        for name in ["a", "b", "c"] {
            index.apply(&policy(name));
        }
        assert_eq!(index.end_list(), Change::Nothing);

        index.begin_list();
        index.apply(&policy("a"));
        // It breaks off; meanwhile b was deleted, and d made.
        index.begin_list();
        index.apply(&policy("c"));
        assert_eq!(names(&index), ["ci/a", "ci/b", "ci/c"]);
        index.apply(&policy("d"));
        assert_eq!(index.end_list(), Change::Policies);
        assert_eq!(names(&index), ["ci/c", "ci/d"]);
        assert_eq!(index.end_list(), Change::Nothing);
    }

    #[test]
    fn an_invalid_object_says_the_same_by_watch_and_by_list() {
        let broken = object("ci", "p", json!({"spec": {"series": {"idleTimeout": "soon"}}}));
        let (mut watched, mut listed) = (Index::default(), Index::default());
        watched.apply(&broken);
        listed.begin_list();
        listed.apply(&broken);
        listed.end_list();
        assert_eq!(watched.set().policies(), listed.set().policies());
    }

    fn example(path: &std::path::Path) -> (String, DynamicObject) {
        let text = std::fs::read_to_string(path).unwrap();
        let mut object: DynamicObject = serde_saphyr::from_str(&text).unwrap();
        object.metadata.generation = Some(1);
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
