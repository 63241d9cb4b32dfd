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
    assert!(index.set().policies()[0].outcome.as_ref().as_ref().unwrap_err().message.contains("is missing"));
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
    index.apply(&object("ci", "own", json!({"spec": {"match": [{"types": ["Normal"]}]}})));
    index.apply_namespace("ci", "1", labels(&[("team", "bank")]));
    assert_eq!(index.apply_namespace("ci", "1", labels(&[])), SetChange::Nothing, "no policy has a selector");
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
        (json!({"namespaceSelector": {"matchLabels": "team"}}), "spec.namespaceSelector: cannot be parsed"),
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
