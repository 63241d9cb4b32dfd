//! The desired MutatingWebhookConfiguration, and its differences to the live one. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::arming::additions::{NAME_LABEL, restricts};
use crate::arming::client_config::ClientConfig;
use crate::arming::conditions;
use crate::policy::{NamespaceSelection, WebhookScope};
use crate::{FIELD_MANAGER, PROBE_PATH};

/// The name of the MutatingWebhookConfiguration.
pub const CONFIGURATION: &str = "squelch";

/// The entry for Event writes.
pub const EVENTS_ENTRY: &str = "events.squelch.dev";

/// The entry for probes.
pub const PROBE_ENTRY: &str = "probe.squelch.dev";

/// The ClusterRole that owns the configuration: garbage collection deletes both together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OwnerRole {
    /// Its name.
    pub(super) name: String,
    /// Its uid. With the uid of a deleted ClusterRole the configuration is deleted at once.
    pub(super) uid: String,
}

/// Labels and annotations of the configuration, besides squelch's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigurationMetadata {
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
}

/// What the configuration depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    /// How the API server calls the webhook.
    pub client: ClientConfig,
    /// squelch's own user name. Its Event writes are not sent to the webhook.
    pub own_user: String,
    /// squelch's own namespace, in which probes are sent.
    pub namespace: String,
    /// The Event writes for which the API server calls the webhook.
    pub scope: WebhookScope,
    /// Additional labels and annotations.
    pub metadata: ConfigurationMetadata,
}

impl Desired {
    /// Returns the whole object for server-side apply, which would remove omitted entries and fields.
    pub(super) fn object(&self, owner: Option<&OwnerRole>) -> Value {
        let ConfigurationMetadata { labels, annotations } = &self.metadata;
        let mut metadata = json!({ "name": CONFIGURATION, "labels": labels });
        metadata["labels"]["app.kubernetes.io/managed-by"] = FIELD_MANAGER.into();
        if !annotations.is_empty() {
            metadata["annotations"] = json!(annotations);
        }
        if let Some(OwnerRole { name, uid }) = owner {
            metadata["ownerReferences"] = json!([{
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": name, "uid": uid,
                // Deleting the ClusterRole must not wait for the configuration.
                "blockOwnerDeletion": false,
            }]);
        }
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": metadata,
            "webhooks": [self.events_entry(), self.probe_entry()],
        })
    }

    /// Returns the object with an owner.
    #[cfg(test)]
    pub(crate) fn owned_by(&self, name: &str, uid: &str) -> Value {
        self.object(Some(&OwnerRole { name: name.to_owned(), uid: uid.to_owned() }))
    }

    /// Returns the object without rules, with the `clientConfig` and `namespaceSelector` of `live`: the replica that
    /// wrote it may have newer keys or another address, and other writers may have restricted it.
    pub(super) fn disarmed(&self, owner: Option<&OwnerRole>, live: &Value) -> Value {
        let mut object = Self { scope: WebhookScope::none(), ..self.clone() }.object(owner);
        for entry in object["webhooks"].as_array_mut().into_iter().flatten() {
            if let Some(live) = find_by_name(&live["webhooks"], &entry["name"]) {
                for field in ["clientConfig", "namespaceSelector"] {
                    entry[field] = live[field].clone();
                }
            }
        }
        object
    }

    /// Returns the entry for Event writes.
    fn events_entry(&self) -> Value {
        let mut entry = entry(EVENTS_ENTRY, &self.client.object(""), &["CREATE", "UPDATE"]);
        entry["matchConditions"] = conditions::of_event_writes(&self.own_user, &self.scope);
        if let NamespaceSelection::Named(namespaces) = &self.scope.namespaces {
            entry["namespaceSelector"] = selector(namespaces);
        }
        if self.scope.is_none() {
            entry["rules"] = json!([]);
        }
        entry
    }

    /// Returns the entry for probes. It always has its rule, because probes go on while the webhook is disarmed.
    fn probe_entry(&self) -> Value {
        let mut entry = entry(PROBE_ENTRY, &self.client.object(PROBE_PATH), &["CREATE"]);
        entry["matchConditions"] = conditions::of_probes(&self.own_user);
        entry["namespaceSelector"] = selector(&BTreeSet::from([self.namespace.clone()]));
        entry
    }
}

/// Returns the fields that both entries have in common.
fn entry(name: &str, client: &Value, operations: &[&str]) -> Value {
    json!({
        "name": name,
        "admissionReviewVersions": ["v1"],
        "clientConfig": client,
        // If squelch fails, the API server stores Events as if there were no webhook.
        "failurePolicy": "Ignore",
        // The shortest timeout that Kubernetes allows. An Event write waits at most this long.
        "timeoutSeconds": 1,
        // Other reviews change counters and pending occurrences.
        "sideEffects": "NoneOnDryRun",
        // Includes writes through events.k8s.io, converted to core/v1.
        "matchPolicy": "Equivalent",
        // A second review of the same write would have the same result.
        "reinvocationPolicy": "Never",
        "namespaceSelector": {},
        "objectSelector": {},
        "rules": [{
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": operations,
            "resources": ["events"],
            "scope": "Namespaced",
        }],
    })
}

/// Returns a selector by namespace names.
fn selector(namespaces: &BTreeSet<String>) -> Value {
    json!({ "matchExpressions": [
        { "key": NAME_LABEL, "operator": "In", "values": namespaces },
    ]})
}

/// Returns `own`, which squelch has written, as the API server has stored it: other webhooks may change each write.
/// Without the additions of other writers, which these may remove again.
pub(super) fn as_stored(own: &Value, stored: &Value) -> Value {
    let mut object = own.clone();
    for member in ["labels", "annotations", "ownerReferences"] {
        object["metadata"][member] = common(&own["metadata"][member], &stored["metadata"][member]);
    }
    for entry in object["webhooks"].as_array_mut().into_iter().flatten() {
        let Some(stored) = find_by_name(&stored["webhooks"], &entry["name"]) else { continue };
        for (field, value) in entry.as_object_mut().into_iter().flatten() {
            match field.as_str() {
                "namespaceSelector" => {}
                "matchConditions" => *value = common(value, &stored[field]),
                _ => *value = stored[field].clone(),
            }
        }
    }
    object
}

/// Returns the members, or items by name, of `stored` that `own` has too.
fn common(own: &Value, stored: &Value) -> Value {
    match own {
        Value::Object(own) => {
            let members = stored.as_object().into_iter().flatten().filter(|(key, _)| own.contains_key(*key));
            members.map(|(key, value)| (key.clone(), value.clone())).collect()
        }
        Value::Array(own) => {
            own.iter().filter_map(|item| find_by_name(stored, &item["name"]).cloned()).collect()
        }
        _ => Value::Null,
    }
}

/// Returns the fields in which `live` differs from `wanted`, such as `events.squelch.dev: rules`. Entries, conditions
/// and requirements that another writer has added are no differences.
pub(super) fn differences(wanted: &Value, live: &Value) -> Vec<String> {
    let mut differing = Vec::new();
    for member in ["labels", "annotations", "ownerReferences"] {
        if !contains(&live["metadata"][member], &wanted["metadata"][member]) {
            differing.push(format!("metadata.{member}"));
        }
    }
    for wanted in wanted["webhooks"].as_array().into_iter().flatten() {
        let name = wanted["name"].as_str().unwrap_or_default();
        let Some(live) = find_by_name(&live["webhooks"], &wanted["name"]) else {
            differing.push(name.to_owned());
            continue;
        };
        for (field, wanted) in wanted.as_object().into_iter().flatten() {
            let same = match field.as_str() {
                "clientConfig" | "matchConditions" => contains(&live[field], wanted),
                "namespaceSelector" => restricts(&live[field], wanted),
                _ => is_blank(&live[field]) && is_blank(wanted) || live[field] == *wanted,
            };
            if !same {
                differing.push(format!("{name}: {field}"));
            }
        }
    }
    differing
}

/// Whether `live` contains everything in `wanted`. List items are matched by name.
fn contains(live: &Value, wanted: &Value) -> bool {
    match wanted {
        Value::Null => true,
        Value::Object(members) => members.iter().all(|(key, wanted)| contains(&live[key], wanted)),
        Value::Array(items) => items.iter().all(|item| {
            let live = find_by_name(live, &item["name"]);
            live.is_some_and(|live| contains(live, item))
        }),
        _ => live == wanted,
    }
}

/// Whether `live` has this entry with rules.
pub(super) fn has_rules(live: Option<&Value>, entry: &str) -> bool {
    let entry = live.and_then(|live| find_by_name(&live["webhooks"], &entry.into()));
    entry.and_then(|entry| entry["rules"].as_array()).is_some_and(|rules| !rules.is_empty())
}

/// Returns the names of the entries that squelch has not written.
pub(super) fn foreign_entries(live: &Value) -> Vec<String> {
    let names = live["webhooks"].as_array().into_iter().flatten().filter_map(|entry| entry["name"].as_str());
    names.filter(|name| ![EVENTS_ENTRY, PROBE_ENTRY].contains(name)).map(str::to_owned).collect()
}

pub(super) fn find_by_name<'v>(list: &'v Value, name: &Value) -> Option<&'v Value> {
    list.as_array().into_iter().flatten().find(|item| item["name"] == *name)
}

/// Whether the API server omits this value.
fn is_blank(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
