//! The policies of a replay, read from files and validated as the operator does.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use kube::core::DynamicObject;
use serde_json::Value;
use squelch_engine::KnownPolicy;

use super::text::{NAME, clean};
use crate::api::{SchemaViolation, schema_violation};
use crate::policy::{Effect, Index, Namespaces, Policy, Set};

/// Maximum characters of an error.
const REASON: usize = 400;

/// A file of policies.
#[derive(Clone, Debug)]
pub(super) struct PolicyFile {
    /// Its name on the command line.
    pub(super) name: String,
    pub(super) text: String,
}

/// How the policies are applied.
#[derive(Clone, Debug)]
pub(super) struct Trial {
    /// The namespace of policies that name none. `None`: each policy applies in every namespace.
    pub(super) namespace: Option<String>,
    /// Whether all policies have mode Enforce.
    pub(super) as_enforced: bool,
    /// The namespaces whose labels are known.
    pub(super) namespaces: Option<Namespaces>,
}

/// An invalid policy file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}{place}: {reason}")]
pub struct BadPolicy {
    /// Its name on the command line.
    pub file: String,
    /// Document, policy and field, as far as known.
    pub place: String,
    /// What is wrong, and what to do.
    pub reason: String,
}

/// The policies of a replay, by namespace.
#[derive(Debug)]
pub(super) struct Policies {
    objects: Vec<DynamicObject>,
    /// The policies in their own namespaces.
    set: Set,
    /// The policies per namespace, if each applies in all.
    everywhere: Option<HashMap<Box<str>, Set>>,
    namespaces: Namespaces,
}

impl Policies {
    /// Reads every document. Other objects are skipped; an invalid policy is an error.
    pub(super) fn load(files: &[PolicyFile], trial: &Trial) -> Result<Self, BadPolicy> {
        let mut objects = Vec::new();
        let mut names = BTreeSet::new();
        for file in files {
            for (document, value) in documents(file)? {
                let place = PolicyLocation { file, document, value: &value };
                let Some(object) = place.policy(trial)? else { continue };
                // With --all-namespaces its own namespace has no meaning.
                let is_everywhere = trial.namespace.is_none() && object.metadata.namespace.is_some();
                let namespace = object.metadata.namespace.clone().filter(|_| !is_everywhere);
                if !names.insert((is_everywhere, namespace, object.metadata.name.clone())) {
                    let reason = if is_everywhere {
                        "another document has an EventPolicy of this name, and --all-namespaces applies each in every \
                         namespace; rename or remove one of them"
                    } else {
                        "another document has a policy of this name; remove one of them"
                    };
                    return Err(place.bad("", reason));
                }
                objects.push(object);
            }
        }
        if objects.is_empty() {
            let file = files.iter().map(|file| file.name.as_str()).collect::<Vec<_>>().join(", ");
            let reason = "the file contains no EventPolicy and no ClusterEventPolicy".to_owned();
            return Err(BadPolicy { file, place: String::new(), reason });
        }
        let everywhere = trial.namespace.is_none().then(HashMap::new);
        let namespaces = trial.namespaces.clone().unwrap_or_default();
        let set = match everywhere {
            Some(_) => Set::default(),
            None => Set::in_cluster(index(&objects, None).policies(), &namespaces),
        };
        Ok(Self { objects, set, everywhere, namespaces })
    }

    /// Returns the policies that may govern a write in this namespace.
    pub(super) fn of(&mut self, namespace: &str) -> &Set {
        let Some(everywhere) = &mut self.everywhere else { return &self.set };
        if !everywhere.contains_key(namespace) {
            let policies = index(&self.objects, Some(namespace));
            let known = self.namespaces.get_key_value(namespace).into_iter();
            let known = known.map(|(name, labels)| (name.clone(), labels.clone())).collect();
            everywhere.insert(namespace.into(), Set::in_cluster(policies.policies(), &known));
        }
        &everywhere[namespace]
    }

    /// Returns the policies that have counters from the start. If the policies apply in every namespace, there are
    /// none: the namespaces are not known yet.
    pub(super) fn known_policies(&self) -> Vec<KnownPolicy> {
        let known = |policy: &Arc<Policy>| KnownPolicy {
            policy: policy.id.clone(),
            namespace: policy.namespace.clone(),
            rules: policy.outcome.as_ref().as_ref().ok().map(|compiled| Arc::new(compiled.rules.clone())),
        };
        self.set.policies().iter().map(known).collect()
    }

    /// Returns the names of policies that a limit keeps out of a namespace of the input.
    pub(super) fn over_limit(&self) -> BTreeSet<String> {
        let sets = self.everywhere.iter().flat_map(HashMap::values).chain([&self.set]);
        let over = sets.flat_map(|set| {
            let part = |policy: &&Arc<Policy>| {
                matches!(set.effect(policy), Some(Effect::TooMany(_) | Effect::GovernsInPart(_)))
            };
            set.policies().iter().filter(part).map(|policy| clean(&policy.name, NAME))
        });
        over.collect()
    }

    /// Returns the display names of policies with `users` clauses. A List of Events does not record users.
    pub(super) fn naming_users(&self) -> Vec<String> {
        let names_users = |object: &&DynamicObject| {
            let lists = ["match", "exclude", "exempt", "mute"].map(|list| &object.data["spec"][list]);
            let mut entries = lists.into_iter().filter_map(Value::as_array).flatten();
            entries.any(|clauses| clauses["users"].is_array())
        };
        self.objects.iter().filter(names_users).map(|object| clean(&display(object), NAME)).collect()
    }
}

fn display(object: &DynamicObject) -> String {
    let name = object.metadata.name.clone().unwrap_or_default();
    match &object.metadata.namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name,
    }
}

/// Indexes the policies. With `namespace`, the namespaced ones apply there.
fn index(objects: &[DynamicObject], namespace: Option<&str>) -> Index {
    let mut index = Index::default();
    for object in objects {
        let mut object = object.clone();
        if let (Some(namespace), true) = (namespace, object.metadata.namespace.is_some()) {
            object.metadata.namespace = Some(namespace.to_owned());
        }
        object.metadata.uid = Some(format!("replay/{}", display(&object)));
        index.apply(&object);
    }
    index
}

/// Returns the documents of a file, numbered from 1. A List is split into its items.
pub(super) fn documents(file: &PolicyFile) -> Result<Vec<(usize, Value)>, BadPolicy> {
    // The parser limits the size of what others send. This file is the user's own: the limits on nesting and on aliases
    // remain.
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_documents: usize::MAX,
            max_events: usize::MAX,
            max_nodes: usize::MAX,
            max_total_scalar_bytes: usize::MAX,
            max_total_comment_bytes: usize::MAX,
        },
    };
    let read = serde_saphyr::from_multiple_with_options::<Value>(&file.text, options).map_err(|error| {
        let place = error.location().map_or_else(String::new, |location| {
            format!(", line {}, column {}", location.line(), location.column())
        });
        let message = error.to_string();
        let first = message.lines().next().unwrap_or_default();
        let reason = format!("not YAML: {}", clean(first, REASON));
        BadPolicy { file: file.name.clone(), place, reason }
    })?;
    let mut documents = Vec::new();
    for (at, value) in read.into_iter().enumerate() {
        match value.get("items").and_then(Value::as_array) {
            Some(items) => documents.extend(items.iter().map(|item| (at + 1, item.clone()))),
            None => documents.push((at + 1, value)),
        }
    }
    Ok(documents)
}

/// The place of a policy.
struct PolicyLocation<'a> {
    file: &'a PolicyFile,
    document: usize,
    value: &'a Value,
}

impl PolicyLocation<'_> {
    /// Returns the valid policy of this document, or `None` for another kind of object.
    fn policy(&self, trial: &Trial) -> Result<Option<DynamicObject>, BadPolicy> {
        let text = |key: &str| self.value[key].as_str().unwrap_or_default();
        let Some(version) = text("apiVersion").strip_prefix("squelch.dev/") else { return Ok(None) };
        let cluster_scoped = text("kind") == "ClusterEventPolicy";
        if version != "v1alpha1" || !(cluster_scoped || text("kind") == "EventPolicy") {
            let reason = "only EventPolicy and ClusterEventPolicy of squelch.dev/v1alpha1 can be replayed";
            return Err(self.bad("apiVersion, kind", reason));
        }
        let read = serde_json::from_value::<DynamicObject>(self.value.clone());
        let mut object = read.map_err(|error| self.bad("metadata", &format!("cannot be read: {error}")))?;
        if object.metadata.name.as_deref().unwrap_or_default().is_empty() {
            return Err(self.bad("metadata.name", "is missing"));
        }
        if cluster_scoped {
            object.metadata.namespace = None;
        } else if object.metadata.namespace.as_deref().unwrap_or_default().is_empty() {
            object.metadata.namespace = Some(trial.namespace.clone().unwrap_or_else(|| "default".to_owned()));
        }
        // A policy copied from a cluster may contain its status.
        object.metadata.generation = Some(1);
        if let Some(SchemaViolation::UnknownField(field)) =
            schema_violation(cluster_scoped, &object.data["spec"])
        {
            let kind = if cluster_scoped { "clustereventpolicy" } else { "eventpolicy" };
            let reason =
                format!("unknown field; `kubectl explain {kind}.spec` or docs/policies.md lists the fields");
            return Err(self.bad(&field, &reason));
        }
        if trial.as_enforced && object.data["spec"].is_object() {
            object.data["spec"]["mode"] = Value::from("Enforce");
        }
        // The same validation as in the operator.
        let index = index(std::slice::from_ref(&object), None);
        let invalid = index.set().policies().first().and_then(|policy| policy.outcome.as_ref().clone().err());
        if let Some(invalid) = invalid {
            return Err(self.bad(&invalid.field, &invalid.message));
        }
        let selector = &object.data["spec"]["namespaceSelector"];
        if trial.namespaces.is_none() && selector.as_object().is_some_and(|asked| !asked.is_empty()) {
            let reason = "requires the labels of namespaces; provide the output of `kubectl get namespaces -o json` with --namespaces FILE";
            return Err(self.bad("spec.namespaceSelector", reason));
        }
        Ok(Some(object))
    }

    fn bad(&self, field: &str, reason: &str) -> BadPolicy {
        let metadata = |key: &str| clean(self.value["metadata"][key].as_str().unwrap_or_default(), 253);
        let kind =
            if self.value["kind"] == "ClusterEventPolicy" { "ClusterEventPolicy" } else { "EventPolicy" };
        let name = match (metadata("namespace"), metadata("name")) {
            (_, name) if name.is_empty() => String::new(),
            (namespace, name) if namespace.is_empty() => format!(" ({kind} {name})"),
            (namespace, name) => format!(" ({kind} {namespace}/{name})"),
        };
        let field = if field.is_empty() { String::new() } else { format!(", {field}") };
        BadPolicy {
            file: self.file.name.clone(),
            place: format!(", document {}{name}{field}", self.document),
            reason: clean(reason, REASON),
        }
    }
}

#[cfg(test)]
mod tests;
