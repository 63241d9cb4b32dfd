//! What the MutatingWebhookConfiguration should be. Pure.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::arming::client::ClientConfig;
use crate::{FIELD_MANAGER, PROOF_PATH};

/// The name of the MutatingWebhookConfiguration that squelch owns.
pub const NAME: &str = "squelch";

/// The entry for what policies are about.
pub const EVENTS: &str = "events.squelch.dev";

/// The entry for squelch's own proof.
pub const PROBE: &str = "probe.squelch.dev";

/// Beyond this many namespaces the selector names none and the webhook is asked about all: a selector of 1,000
/// names costs 66 KB in every watcher of the configuration.
pub const MAX_NAMED_NAMESPACES: usize = 1000;

/// Of which namespaces the webhook is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// None: there is no policy, or the rules are taken away. The webhook has no rules then.
    Nothing,
    /// These.
    Named(BTreeSet<String>),
    /// All.
    Everything,
}

impl Reach {
    /// The reach that covers `namespaces`, and not much more.
    pub fn of(namespaces: BTreeSet<String>) -> Self {
        match namespaces.len() {
            0 => Self::Nothing,
            1..=MAX_NAMED_NAMESPACES => Self::Named(namespaces),
            _ => Self::Everything,
        }
    }

    /// Whether `wider` covers all of it.
    pub(super) fn is_within(&self, wider: &Self) -> bool {
        match (self, wider) {
            (Self::Nothing, _) | (_, Self::Everything) => true,
            (Self::Named(these), Self::Named(those)) => these.is_subset(those),
            _ => false,
        }
    }
}

/// A ClusterRole that the configuration belongs to: the API server removes it with its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    /// Its name.
    pub(super) name: String,
    /// Of this one, not of another that had its name: with an old uid the configuration is removed at once.
    pub(super) uid: String,
}

/// Everything that the configuration depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    /// How the API server calls the webhook.
    pub client: ClientConfig,
    /// squelch's own user name: its writes are never asked about.
    pub own_user: String,
    /// squelch's own namespace: where it proves that it is reached.
    pub namespace: String,
    /// Of which namespaces it is asked.
    pub reach: Reach,
}

impl Desired {
    /// The whole object, for server-side apply: an entry or a field left out would be deleted.
    pub(super) fn object(&self, owner: Option<&Owner>) -> Value {
        let mut metadata =
            json!({ "name": NAME, "labels": { "app.kubernetes.io/managed-by": FIELD_MANAGER } });
        if let Some(Owner { name, uid }) = owner {
            metadata["ownerReferences"] = json!([{
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": name, "uid": uid,
                // Who removes the role need not wait for this.
                "blockOwnerDeletion": false,
            }]);
        }
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": metadata,
            "webhooks": [self.events(), self.probe()],
        })
    }

    /// As it belongs to a ClusterRole.
    #[cfg(test)]
    pub(crate) fn owned_by(&self, name: &str, uid: &str) -> Value {
        self.object(Some(&Owner { name: name.to_owned(), uid: uid.to_owned() }))
    }

    /// The rules taken away from what stands there, which is asked as it is: whoever wrote it may know newer keys, or
    /// stand elsewhere.
    pub(super) fn disarmed(&self, owner: Option<&Owner>, live: &Value) -> Value {
        let mut object = Self { reach: Reach::Nothing, ..self.clone() }.object(owner);
        for entry in object["webhooks"].as_array_mut().into_iter().flatten() {
            if let Some(live) = named_so(&live["webhooks"], &entry["name"]) {
                entry["clientConfig"] = live["clientConfig"].clone();
            }
        }
        object
    }

    /// The entry for what policies are about.
    fn events(&self) -> Value {
        let mut entry = entry(EVENTS, &self.client.object(""), &["CREATE", "UPDATE"]);
        entry["matchConditions"] = json!([{
            "name": "not-squelch-itself",
            "expression": format!("request.userInfo.username != '{}'", escaped(&self.own_user)),
        }]);
        if let Reach::Named(namespaces) = &self.reach {
            entry["namespaceSelector"] = named(namespaces);
        }
        if self.reach == Reach::Nothing {
            entry["rules"] = json!([]);
        }
        entry
    }

    /// The entry for squelch's own proof, which always has its rule: also what is disarmed is proved.
    fn probe(&self) -> Value {
        let mut entry = entry(PROBE, &self.client.object(PROOF_PATH), &["CREATE"]);
        entry["matchConditions"] = json!([{
            "name": "only-squelch-itself",
            "expression":
                format!("request.dryRun && request.userInfo.username == '{}'", escaped(&self.own_user)),
        }]);
        entry["namespaceSelector"] = named(&BTreeSet::from([self.namespace.clone()]));
        entry
    }
}

/// What both entries have in common.
fn entry(name: &str, client: &Value, operations: &[&str]) -> Value {
    json!({
        "name": name,
        "admissionReviewVersions": ["v1"],
        "clientConfig": client,
        // Whatever becomes of squelch, Events are written.
        "failurePolicy": "Ignore",
        // The shortest there is: what an Event write waits for at most.
        "timeoutSeconds": 1,
        // A dry run changes nothing; other writes change what is counted and owed.
        "sideEffects": "NoneOnDryRun",
        // Writes through events.k8s.io are asked about as well, in the shape of core/v1.
        "matchPolicy": "Equivalent",
        // A second look at the same write would say nothing new.
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

fn named(namespaces: &BTreeSet<String>) -> Value {
    json!({ "matchExpressions": [
        { "key": "kubernetes.io/metadata.name", "operator": "In", "values": namespaces },
    ]})
}

/// The fields in which `live` is not as `wanted` has it, such as `events.squelch.dev: rules`. Entries and conditions
/// that somebody has added are theirs: to apply ours again would not remove them.
pub(super) fn differences(wanted: &Value, live: &Value) -> Vec<String> {
    let mut differing = Vec::new();
    for member in ["labels", "ownerReferences"] {
        if !holds(&live["metadata"][member], &wanted["metadata"][member]) {
            differing.push(format!("metadata.{member}"));
        }
    }
    for wanted in wanted["webhooks"].as_array().into_iter().flatten() {
        let name = wanted["name"].as_str().unwrap_or_default();
        let Some(live) = named_so(&live["webhooks"], &wanted["name"]) else {
            differing.push(name.to_owned());
            continue;
        };
        for (field, wanted) in wanted.as_object().into_iter().flatten() {
            let same = match field.as_str() {
                "clientConfig" | "matchConditions" => holds(&live[field], wanted),
                _ => is_blank(&live[field]) && is_blank(wanted) || live[field] == *wanted,
            };
            if !same {
                differing.push(format!("{name}: {field}"));
            }
        }
    }
    differing
}

/// All that stands in `wanted` stands in `live`, where more may stand. Items of lists are known by their name or uid.
fn holds(live: &Value, wanted: &Value) -> bool {
    match wanted {
        Value::Null => true,
        Value::Object(members) => members.iter().all(|(key, wanted)| holds(&live[key], wanted)),
        Value::Array(items) => items.iter().all(|item| {
            let live = named_so(live, &item["name"]);
            live.is_some_and(|live| holds(live, item))
        }),
        _ => live == wanted,
    }
}

/// Whether this entry stands in `live` with rules.
pub(super) fn has_rules(live: Option<&Value>, entry: &str) -> bool {
    let entry = live.and_then(|live| named_so(&live["webhooks"], &entry.into()));
    entry.and_then(|entry| entry["rules"].as_array()).is_some_and(|rules| !rules.is_empty())
}

/// The names of the entries that squelch has not written.
pub(super) fn foreign_entries(live: &Value) -> Vec<String> {
    let names = live["webhooks"].as_array().into_iter().flatten().filter_map(|entry| entry["name"].as_str());
    names.filter(|name| ![EVENTS, PROBE].contains(name)).map(str::to_owned).collect()
}

fn named_so<'v>(list: &'v Value, name: &Value) -> Option<&'v Value> {
    list.as_array().into_iter().flatten().find(|item| item["name"] == *name)
}

/// Absent, or what the API server leaves out.
fn is_blank(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}

/// A user name inside a CEL string.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\'', "\\'")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arming::client::Address;

    const OWN_USER: &str = "system:serviceaccount:squelch:squelch";

    type Change = fn(&mut Value);

    fn reaching(reach: Reach) -> Desired {
        Desired {
            client: ClientConfig {
                address: Address::Url("https://h".into()),
                path: "/p".into(),
                ca_bundle: "PEM".into(),
            },
            own_user: OWN_USER.into(),
            namespace: "squelch".into(),
            reach,
        }
    }

    fn owner() -> Owner {
        Owner { name: "squelch".into(), uid: "u1".into() }
    }

    fn whole(reach: Reach, owner: Option<&Owner>) -> Value {
        reaching(reach).object(owner)
    }

    fn desired(reach: Reach) -> Value {
        whole(reach, None)["webhooks"][0].clone()
    }

    fn everything() -> Value {
        whole(Reach::Everything, Some(&owner()))
    }

    #[test]
    fn the_proof_is_asked_for_whatever_is_armed() {
        for reach in [Reach::Nothing, Reach::Everything] {
            let object = whole(reach, None);
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
            assert_eq!((&events["url"], &probe["url"]), (&json!("https://h/p"), &json!("https://h/p/proof")));
            assert_ne!(events["caBundle"], probe["caBundle"], "the API server would share their connections");
        }
    }

    #[test]
    fn what_another_wrote_is_disarmed_and_asked_as_it_was() {
        let mut live = everything();
        for entry in live["webhooks"].as_array_mut().unwrap() {
            entry["clientConfig"]["url"] = json!("https://other");
        }
        let disarmed = reaching(Reach::Everything).disarmed(Some(&owner()), &live);
        assert_eq!(differences(&live, &disarmed), ["events.squelch.dev: rules"]);
        assert_eq!(disarmed["webhooks"][0]["rules"], json!([]));
    }

    #[test]
    fn its_end_is_that_of_its_owner() {
        let owner = &everything()["metadata"]["ownerReferences"][0];
        let expected = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": "squelch", "uid": "u1",
            "blockOwnerDeletion": false,
        });
        assert_eq!(*owner, expected);
        assert!(whole(Reach::Everything, None)["metadata"].get("ownerReferences").is_none());
    }

    #[test]
    fn what_the_api_server_adds_or_leaves_out_is_no_difference() {
        let mut live = everything();
        live["metadata"]["uid"] = json!("u");
        live["metadata"]["annotations"] = json!({"squelch.dev/disarm": "x"});
        live["webhooks"][0]["somethingNew"] = json!("Default");
        live["webhooks"][0]["clientConfig"]["somethingNew"] = json!(443);
        assert_eq!(differences(&everything(), &live), Vec::<String>::new());
        let mut live = whole(Reach::Nothing, None);
        live["webhooks"][0].as_object_mut().unwrap().remove("rules");
        assert_eq!(differences(&whole(Reach::Nothing, None), &live), Vec::<String>::new());
    }

    #[test]
    fn what_somebody_changed_is_named() {
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
    fn one_reach_is_within_another() {
        let named = |names: &[&str]| Reach::of(names.iter().map(ToString::to_string).collect());
        let (a, b, both) = (named(&["a"]), named(&["b"]), named(&["a", "b"]));
        for (narrow, wide, within) in [
            (&Reach::Nothing, &a, true),
            (&a, &Reach::Nothing, false),
            (&a, &both, true),
            (&both, &a, false),
            (&a, &b, false),
            (&both, &Reach::Everything, true),
            (&Reach::Everything, &both, false),
        ] {
            assert_eq!(narrow.is_within(wide), within, "{narrow:?} {wide:?}");
        }
    }

    #[test]
    fn without_a_policy_there_are_no_rules() {
        assert_eq!(desired(Reach::of(BTreeSet::new()))["rules"], json!([]));
    }

    #[test]
    fn only_namespaces_with_a_policy_are_asked_about() {
        let entry = desired(Reach::of(BTreeSet::from(["a".to_owned(), "b".to_owned()])));
        assert_eq!(entry["namespaceSelector"]["matchExpressions"][0]["values"], json!(["a", "b"]));
        assert_eq!(entry["rules"][0]["operations"], json!(["CREATE", "UPDATE"]));
        assert_eq!((&entry["failurePolicy"], &entry["timeoutSeconds"]), (&json!("Ignore"), &json!(1)));
    }

    #[test]
    fn too_many_namespaces_are_all_namespaces() {
        let many = (0..=MAX_NAMED_NAMESPACES).map(|n| format!("n{n}")).collect();
        assert_eq!(Reach::of(many), Reach::Everything);
        assert_eq!(desired(Reach::Everything)["namespaceSelector"], json!({}));
    }

    #[test]
    fn a_quote_in_a_user_name_stays_inside_the_expression() {
        assert_eq!(escaped(r"o'neill\"), r"o\'neill\\");
    }
}
