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
        scope: WebhookScope::all_in(namespaces),
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
        labels: [entries("team"), entries("app.kubernetes.io/managed-by")].into_iter().flatten().collect(),
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
        (|v| v["webhooks"][1]["namespaceSelector"] = json!({}), "probe.squelch.dev: namespaceSelector"),
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
fn additions_that_only_restrict_are_no_differences() {
    let wanted = whole(NamespaceSelection::of(BTreeSet::from(["a".to_owned()])), None);
    let aks = json!({"key": "control-plane", "operator": "DoesNotExist"});
    let differing = |change: &dyn Fn(&mut Value)| {
        let mut live = wanted.clone();
        change(&mut live);
        differences(&wanted, &live)
    };
    let none: Vec<String> = Vec::new();
    let expressions = |v: &mut Value| v["webhooks"][0]["namespaceSelector"]["matchExpressions"].take();
    assert_eq!(
        differing(&|v| v["webhooks"][0]["namespaceSelector"]["matchExpressions"]
            .as_array_mut()
            .unwrap()
            .push(aks.clone())),
        none
    );
    assert_eq!(
        differing(&|v| v["webhooks"][1]["namespaceSelector"]["matchLabels"] = json!({"a": "b"})),
        none
    );
    let selector = ["events.squelch.dev: namespaceSelector"];
    assert_eq!(differing(&|v| drop(expressions(v))), selector);
    assert_eq!(
        differing(&|v| v["webhooks"][0]["namespaceSelector"]["matchExpressions"] = json!([aks])),
        selector
    );
    // A requirement on a namespace more admits more.
    assert_eq!(
        differing(
            &|v| v["webhooks"][0]["namespaceSelector"]["matchExpressions"][0]["values"] = json!(["a", "b"])
        ),
        selector
    );
}

#[test]
fn changes_of_other_webhooks_at_each_write_are_no_differences_later() {
    let own = everything();
    let mut stored = own.clone();
    stored["webhooks"][0]["objectSelector"] = json!({"matchLabels": {"theirs": "x"}});
    stored["webhooks"][0]["namespaceSelector"] = json!({"matchLabels": {"theirs": "x"}});
    let condition = json!({"name": "theirs", "expression": "true"});
    stored["webhooks"][0]["matchConditions"].as_array_mut().unwrap().push(condition);
    stored["metadata"]["labels"]["theirs"] = json!("x");
    let known = as_stored(&own, &stored);
    assert_eq!(differences(&known, &stored), Vec::<String>::new());
    // They remove their additions.
    let mut live = own.clone();
    live["webhooks"][0]["objectSelector"] = stored["webhooks"][0]["objectSelector"].clone();
    assert_eq!(differences(&known, &live), Vec::<String>::new());
    assert_eq!(differences(&known, &own), ["events.squelch.dev: objectSelector"]);
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
fn all_namespaces_need_no_selector() {
    assert_eq!(desired(NamespaceSelection::All)["namespaceSelector"], json!({}));
}
