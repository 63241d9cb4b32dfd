//! The desired MutatingWebhookConfiguration, and its differences to the live one. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::arming::client_config::ClientConfig;
use crate::arming::conditions;
use crate::{FIELD_MANAGER, PROBE_PATH};

/// The name of the MutatingWebhookConfiguration.
pub const CONFIGURATION: &str = "squelch";

/// The entry for Event writes.
pub const EVENTS_ENTRY: &str = "events.squelch.dev";

/// The entry for probes.
pub const PROBE_ENTRY: &str = "probe.squelch.dev";

/// Maximum number of namespaces that the selector names. With more, the API server calls the webhook for all
/// namespaces. A selector of 1,000 names has 66 KB in every watcher of the configuration.
pub const MAX_NAMED_NAMESPACES: usize = 1000;

/// The namespaces for which the API server calls the webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamespaceSelection {
    /// No namespace: the entry has no rules.
    None,
    /// These namespaces.
    Named(BTreeSet<String>),
    /// All namespaces.
    All,
}

impl NamespaceSelection {
    /// Returns the smallest selection that contains `namespaces`.
    pub fn of(namespaces: BTreeSet<String>) -> Self {
        match namespaces.len() {
            0 => Self::None,
            1..=MAX_NAMED_NAMESPACES => Self::Named(namespaces),
            _ => Self::All,
        }
    }

    /// Whether `other` contains every namespace of this selection.
    pub(super) fn is_subset_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::None, _) | (_, Self::All) => true,
            (Self::Named(these), Self::Named(those)) => these.is_subset(those),
            _ => false,
        }
    }
}

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
    /// The namespaces for which the API server calls the webhook.
    pub namespaces: NamespaceSelection,
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

    /// Returns the object without rules, with the `clientConfig` of `live`: the replica that wrote it may have newer
    /// keys or another address.
    pub(super) fn disarmed(&self, owner: Option<&OwnerRole>, live: &Value) -> Value {
        let mut object = Self { namespaces: NamespaceSelection::None, ..self.clone() }.object(owner);
        for entry in object["webhooks"].as_array_mut().into_iter().flatten() {
            if let Some(live) = find_by_name(&live["webhooks"], &entry["name"]) {
                entry["clientConfig"] = live["clientConfig"].clone();
            }
        }
        object
    }

    /// Returns the entry for Event writes.
    fn events_entry(&self) -> Value {
        let mut entry = entry(EVENTS_ENTRY, &self.client.object(""), &["CREATE", "UPDATE"]);
        entry["matchConditions"] = conditions::not_squelch_itself(&self.own_user);
        if let NamespaceSelection::Named(namespaces) = &self.namespaces {
            entry["namespaceSelector"] = selector(namespaces);
        }
        if self.namespaces == NamespaceSelection::None {
            entry["rules"] = json!([]);
        }
        entry
    }

    /// Returns the entry for probes. It always has its rule, because probes go on while the webhook is disarmed.
    fn probe_entry(&self) -> Value {
        let mut entry = entry(PROBE_ENTRY, &self.client.object(PROBE_PATH), &["CREATE"]);
        entry["matchConditions"] = conditions::only_squelch_itself(&self.own_user);
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
        { "key": "kubernetes.io/metadata.name", "operator": "In", "values": namespaces },
    ]})
}

/// Returns the fields in which `live` differs from `wanted`, such as `events.squelch.dev: rules`. Entries and
/// conditions that another writer has added are no differences, because applying the object would not remove them.
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

fn find_by_name<'v>(list: &'v Value, name: &Value) -> Option<&'v Value> {
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
mod tests {
    use super::*;
    use crate::arming::client_config::Address;

    const OWN_USER: &str = "system:serviceaccount:squelch:squelch";

    type Change = fn(&mut Value);

    fn selecting(namespaces: NamespaceSelection) -> Desired {
        Desired {
            client: ClientConfig {
                address: Address::Url("https://h".into()),
                path: "/p".into(),
                ca_bundle: "PEM".into(),
            },
            own_user: OWN_USER.into(),
            namespace: "squelch".into(),
            namespaces,
            metadata: ConfigurationMetadata::default(),
        }
    }

    fn owner() -> OwnerRole {
        OwnerRole { name: "squelch".into(), uid: "u1".into() }
    }

    fn whole(namespaces: NamespaceSelection, owner: Option<&OwnerRole>) -> Value {
        selecting(namespaces).object(owner)
    }

    fn desired(namespaces: NamespaceSelection) -> Value {
        whole(namespaces, None)["webhooks"][0].clone()
    }

    fn everything() -> Value {
        whole(NamespaceSelection::All, Some(&owner()))
    }

    #[test]
    fn the_probe_entry_has_its_rule_whether_armed_or_disarmed() {
        for namespaces in [NamespaceSelection::None, NamespaceSelection::All] {
            let object = whole(namespaces, None);
            let [events, probe] = [&object["webhooks"][0], &object["webhooks"][1]];
            assert_eq!(
                (&events["name"], &probe["name"]),
                (&json!("events.squelch.dev"), &json!("probe.squelch.dev"))
            );
            assert_eq!(probe["rules"][0]["operations"], json!(["CREATE"]));
            assert_eq!(probe["namespaceSelector"]["matchExpressions"][0]["values"], json!(["squelch"]));
            let condition = format!("request.dryRun && request.userInfo.username == '{OWN_USER}'");
            assert_eq!(probe["matchConditions"][0]["expression"], json!(condition));
            let [events, probe] = [&events["clientConfig"], &probe["clientConfig"]];
            assert_eq!((&events["url"], &probe["url"]), (&json!("https://h/p"), &json!("https://h/p/probe")));
            assert_ne!(events["caBundle"], probe["caBundle"], "the API server would share their connections");
        }
    }

    #[test]
    fn disarming_keeps_the_client_config_of_another_replica() {
        let mut live = everything();
        for entry in live["webhooks"].as_array_mut().unwrap() {
            entry["clientConfig"]["url"] = json!("https://other");
        }
        let disarmed = selecting(NamespaceSelection::All).disarmed(Some(&owner()), &live);
        assert_eq!(differences(&live, &disarmed), ["events.squelch.dev: rules"]);
        assert_eq!(disarmed["webhooks"][0]["rules"], json!([]));
    }

    #[test]
    fn the_configuration_is_owned_by_the_cluster_role() {
        let owner = &everything()["metadata"]["ownerReferences"][0];
        let expected = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": "squelch", "uid": "u1",
            "blockOwnerDeletion": false,
        });
        assert_eq!(*owner, expected);
        assert!(whole(NamespaceSelection::All, None)["metadata"].get("ownerReferences").is_none());
    }

    #[test]
    fn labels_and_annotations_are_additions() {
        let entries = |key: &str| BTreeMap::from([(key.to_owned(), "x".to_owned())]);
        let metadata = ConfigurationMetadata {
            labels: [entries("team"), entries("app.kubernetes.io/managed-by")]
                .into_iter()
                .flatten()
                .collect(),
            annotations: entries("admissions.enforcer/disabled"),
        };
        let object = Desired { metadata, ..selecting(NamespaceSelection::All) }.object(None);
        let expected = json!({
            "name": "squelch",
            "labels": { "app.kubernetes.io/managed-by": "squelch", "team": "x" },
            "annotations": { "admissions.enforcer/disabled": "x" },
        });
        assert_eq!(object["metadata"], expected);
        let before = whole(NamespaceSelection::All, None);
        assert_eq!(differences(&object, &before), ["metadata.labels", "metadata.annotations"]);
        // Foreign ones stay.
        assert_eq!(differences(&before, &object), Vec::<String>::new());
    }

    #[test]
    fn fields_that_the_api_server_adds_or_omits_are_no_differences() {
        let mut live = everything();
        live["metadata"]["uid"] = json!("u");
        live["metadata"]["annotations"] = json!({"squelch.dev/disarm": "x"});
        live["webhooks"][0]["somethingNew"] = json!("Default");
        live["webhooks"][0]["clientConfig"]["somethingNew"] = json!(443);
        assert_eq!(differences(&everything(), &live), Vec::<String>::new());
        let mut live = whole(NamespaceSelection::None, None);
        live["webhooks"][0].as_object_mut().unwrap().remove("rules");
        assert_eq!(differences(&whole(NamespaceSelection::None, None), &live), Vec::<String>::new());
    }

    #[test]
    fn changed_fields_are_named() {
        let differing = |change: Change| {
            let mut live = everything();
            change(&mut live);
            differences(&everything(), &live).join(", ")
        };
        let cases: [(Change, &str); 9] = [
            (|v| v["webhooks"][0]["rules"] = json!([]), "events.squelch.dev: rules"),
            (|v| v["webhooks"][0]["failurePolicy"] = json!("Fail"), "events.squelch.dev: failurePolicy"),
            (|v| v["webhooks"][0]["timeoutSeconds"] = json!(30), "events.squelch.dev: timeoutSeconds"),
            (
                |v| v["webhooks"][1]["namespaceSelector"] = json!({"matchLabels": {"a": "b"}}),
                "probe.squelch.dev: namespaceSelector",
            ),
            (
                |v| v["webhooks"][0]["objectSelector"] = json!({"matchLabels": {"a": "b"}}),
                "events.squelch.dev: objectSelector",
            ),
            (
                |v| v["webhooks"][0]["clientConfig"]["url"] = json!("https://other"),
                "events.squelch.dev: clientConfig",
            ),
            (|v| v["webhooks"][1]["matchConditions"] = json!([]), "probe.squelch.dev: matchConditions"),
            (|v| v["metadata"]["ownerReferences"] = Value::Null, "metadata.ownerReferences"),
            (
                |v| {
                    v["webhooks"].as_array_mut().unwrap().remove(0);
                },
                "events.squelch.dev",
            ),
        ];
        for (change, expected) in cases {
            assert_eq!(differing(change), expected);
        }
        let added = |v: &mut Value| v["webhooks"].as_array_mut().unwrap().push(json!({"name": "theirs"}));
        assert_eq!(differing(added), "");
        let mut live = everything();
        assert_eq!(foreign_entries(&live), Vec::<String>::new());
        added(&mut live);
        assert_eq!(foreign_entries(&live), ["theirs"]);
    }

    #[test]
    fn a_selection_is_a_subset_of_a_wider_one() {
        let named = |names: &[&str]| NamespaceSelection::of(names.iter().map(ToString::to_string).collect());
        let (a, b, both) = (named(&["a"]), named(&["b"]), named(&["a", "b"]));
        for (narrow, wide, within) in [
            (&NamespaceSelection::None, &a, true),
            (&a, &NamespaceSelection::None, false),
            (&a, &both, true),
            (&both, &a, false),
            (&a, &b, false),
            (&both, &NamespaceSelection::All, true),
            (&NamespaceSelection::All, &both, false),
        ] {
            assert_eq!(narrow.is_subset_of(wide), within, "{narrow:?} {wide:?}");
        }
    }

    #[test]
    fn without_namespaces_there_are_no_rules() {
        assert_eq!(desired(NamespaceSelection::of(BTreeSet::new()))["rules"], json!([]));
    }

    #[test]
    fn only_the_selected_namespaces_are_in_the_selector() {
        let entry = desired(NamespaceSelection::of(BTreeSet::from(["a".to_owned(), "b".to_owned()])));
        assert_eq!(entry["namespaceSelector"]["matchExpressions"][0]["values"], json!(["a", "b"]));
        assert_eq!(entry["rules"][0]["operations"], json!(["CREATE", "UPDATE"]));
        assert_eq!((&entry["failurePolicy"], &entry["timeoutSeconds"]), (&json!("Ignore"), &json!(1)));
    }

    #[test]
    fn too_many_namespaces_select_all() {
        let many = (0..=MAX_NAMED_NAMESPACES).map(|n| format!("n{n}")).collect();
        assert_eq!(NamespaceSelection::of(many), NamespaceSelection::All);
        assert_eq!(desired(NamespaceSelection::All)["namespaceSelector"], json!({}));
    }
}
