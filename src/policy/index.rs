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

use crate::api::{
    ClusterEventPolicySpec, EventPolicySpec, EventPolicyStatus, SchemaViolation, schema_violation,
    without_nulls,
};

use super::compile::{Compiled, Invalid, Labels, compile, compile_cluster};
use super::order::{MAX_LABELS, Namespaces, evaluable};
use super::restrictions::Restrictions;
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
    restrictions: Restrictions,
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

    /// Replaces what other writers have added to the webhook's entry.
    pub fn restrict(&mut self, restrictions: Restrictions) -> SetChange {
        if self.restrictions == restrictions {
            return SetChange::Nothing;
        }
        self.restrictions = restrictions;
        SetChange::Policies
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
        Set::in_cluster(self.policies(), &self.namespaces)
            .with_namespace_uids(self.uids.clone())
            .restricted(&self.restrictions, &self.namespaces)
    }

    /// Stores the uid of a namespace. A changed uid means a new namespace with the same name.
    fn set_uid(&mut self, name: &Arc<str>, uid: &str) -> SetChange {
        let known = self.uids.get(name).map(|known| **known == *uid);
        if known == Some(true) {
            return SetChange::Nothing;
        }
        Arc::make_mut(&mut self.uids).insert(name.clone(), uid.into());
        let from = (Some(name.clone()), Arc::from(""));
        let has_policies =
            || self.policies.range(from..).next().is_some_and(|((of, _), _)| of.as_ref() == Some(name));
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
    let spec = without_nulls(spec);
    match schema_violation(!namespaced, &spec) {
        None => {}
        Some(SchemaViolation::UnknownField(path)) => return Err(Invalid::unknown_field(path)),
        Some(SchemaViolation::EmptyList(path)) => {
            return Err(Invalid::new(path, "must have at least one entry; remove the list for the default"));
        }
    }
    if namespaced {
        compile(id, &parsed::<EventPolicySpec>(&spec)?)
    } else {
        compile_cluster(id, &parsed::<ClusterEventPolicySpec>(&spec)?)
    }
}

fn parsed<Spec: DeserializeOwned>(spec: &Value) -> Result<Spec, Invalid> {
    Spec::deserialize(spec).map_err(|error| parse_error::<Spec>(spec, &error))
}

/// Finds the field with the parse error. All fields have defaults, so each can be parsed alone.
fn parse_error<Spec: DeserializeOwned>(spec: &Value, error: &serde_json::Error) -> Invalid {
    let alone = |(name, value): (&String, &Value)| {
        let error = Spec::deserialize(&json!({name: value})).err()?;
        Some(Invalid::unparsed(format!("spec.{name}"), &error.to_string()))
    };
    let fields = spec.as_object().into_iter().flatten();
    { fields }.find_map(alone).unwrap_or_else(|| Invalid::unparsed("spec", &error.to_string()))
}

#[cfg(test)]
mod tests;
