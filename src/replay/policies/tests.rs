use super::*;
use crate::policy::Labels;
use crate::policy::fixtures::event;
use squelch_engine::Observation;

fn file(text: &str) -> PolicyFile {
    PolicyFile { name: "p.yaml".to_owned(), text: text.to_owned() }
}

fn load(text: &str, namespace: Option<&str>) -> Result<Policies, String> {
    load_where(text, namespace, None)
}

fn load_where(
    text: &str,
    namespace: Option<&str>,
    namespaces: Option<Namespaces>,
) -> Result<Policies, String> {
    let trial = Trial { namespace: namespace.map(ToOwned::to_owned), as_enforced: false, namespaces };
    Policies::load(&[file(text)], &trial).map_err(|bad| bad.to_string())
}

fn policy(name: &str, rest: &str) -> String {
    format!("apiVersion: squelch.dev/v1alpha1\nkind: EventPolicy\nmetadata: {{name: {name}}}\n{rest}\n")
}

#[test]
fn a_policy_without_a_namespace_gets_that_of_the_command_line() {
    let text = policy("a", "spec: {}") + "---\n" + &policy("b, namespace: ci", "spec: {}");
    let policies = load(&text, Some("shop")).unwrap();
    let names: Vec<_> =
        policies.known_policies().iter().map(|known| known.policy.display.to_string()).collect();
    assert_eq!(names, ["ci/b", "shop/a"]);
}

#[test]
fn with_all_namespaces_each_policy_applies_in_each() {
    let mut policies = load(&policy("a, namespace: ci", "spec: {}"), None).unwrap();
    for namespace in ["x", "ci"] {
        let set = policies.of(namespace);
        assert_eq!(&*set.policies()[0].id.display, format!("{namespace}/a"));
        assert_eq!(set.namespaces(), [namespace.into()]);
    }
}

#[test]
fn with_all_namespaces_no_policy_is_lost() {
    let both = policy("a, namespace: one", "spec: {}") + "---\n" + &policy("a, namespace: two", "spec: {}");
    let error = load(&both, None).unwrap_err();
    assert!(
        error.contains("document 2 (EventPolicy two/a)") && error.contains("--all-namespaces"),
        "{error}"
    );
    assert!(load(&both, Some("z")).unwrap().over_limit().is_empty());
    let many: Vec<_> = (0..70).map(|at| policy(&format!("p{at:02}"), "spec: {}")).collect();
    let mut policies = load(&many.join("---\n"), None).unwrap();
    policies.of("x");
    assert_eq!(
        policies.over_limit().into_iter().collect::<Vec<_>>(),
        ["p64", "p65", "p66", "p67", "p68", "p69"]
    );
}

#[test]
fn lists_are_read_and_other_objects_are_skipped() {
    let items = format!(
        "kind: List\napiVersion: v1\nitems:\n- {}",
        policy("a", "spec: {}").trim_end().replace('\n', "\n  ")
    );
    let text = format!("kind: Namespace\napiVersion: v1\nmetadata: {{name: x}}\n---\n{items}");
    assert_eq!(load(&text, Some("ci")).unwrap().known_policies().len(), 1);
    assert_eq!(
        load("kind: Namespace\napiVersion: v1", Some("ci")).unwrap_err(),
        "p.yaml: the file contains no EventPolicy and no ClusterEventPolicy"
    );
}

#[test]
fn a_file_of_a_large_cluster_is_read() {
    let many = "---\nkind: Namespace\n".repeat(2_000);
    assert_eq!(documents(&file(&many)).unwrap().len(), 2_000);
    let items = format!("items: [{}]", "{a: 0},".repeat(150_000));
    assert_eq!(documents(&file(&items)).unwrap().len(), 150_000);
    let nested = format!("a: {}1{}", "[".repeat(100), "]".repeat(100));
    assert!(documents(&file(&nested)).is_err(), "the stack has a limit");
}

#[test]
fn an_error_names_file_document_and_field() {
    let good = policy("a", "spec: {}") + "---\n";
    for (second, expected) in [
        (
            policy("b", "spec: {series: {idleTimeout: soon}}"),
            "p.yaml, document 2 (EventPolicy b), spec.series.idleTimeout: idleTimeout must be whole numbers",
        ),
        (
            policy("b", "spec: {mode: Enforced}"),
            "p.yaml, document 2 (EventPolicy b), spec.mode: cannot be parsed:",
        ),
        (policy("b", ""), "p.yaml, document 2 (EventPolicy b), spec: is missing; use `spec: {}`"),
        (
            policy("b, namespace: ci", "spec: {match: [{reason: [x]}]}"),
            "p.yaml, document 2 (EventPolicy ci/b), spec.match[0].reason: unknown field",
        ),
        (
            policy("b", "spec: {match: {reasons: [x]}}"),
            "p.yaml, document 2 (EventPolicy b), spec.match: cannot be parsed: invalid type: map, expected a sequence",
        ),
        (
            policy("b", "spec: {mute: [{reasons: []}]}"),
            "p.yaml, document 2 (EventPolicy b), spec.mute[0].reasons: must have at least one entry",
        ),
        (
            policy("b", "spec: {exempt: [{types: [Normal]}, {regarding: [{kinds: Pod}]}]}"),
            "p.yaml, document 2 (EventPolicy b), spec.exempt[1].regarding[0].kinds: unknown field",
        ),
        (policy("a", "spec: {}"), "p.yaml, document 2 (EventPolicy a): another document has a policy"),
        (policy("''", "spec: {}"), "p.yaml, document 2, metadata.name: is missing"),
        (
            policy("b", "spec: {}").replace("v1alpha1", "v9"),
            "p.yaml, document 2 (EventPolicy b), apiVersion, kind: only",
        ),
        ("a: [".to_owned(), "p.yaml, line "),
    ] {
        let error = load(&(good.clone() + &second), Some("ci")).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
}

fn cluster_policy(name: &str, rest: &str) -> String {
    policy(name, rest).replace("kind: EventPolicy", "kind: ClusterEventPolicy")
}

/// Returns the policy that governs a write in this namespace.
fn governing(policies: &mut Policies, namespace: &str) -> Option<String> {
    let write = Observation { namespace, ..event() };
    let governing = policies.of(namespace).governing(&write);
    governing.map(|governing| governing.rules.policy.display.to_string())
}

#[test]
fn cluster_policies_apply_in_every_namespace_or_by_its_labels() {
    let shops = cluster_policy("shops", "spec: {namespaceSelector: {matchLabels: {team: shop}}}");
    let all = cluster_policy("all", "spec: {}") + "---\n" + &policy("own, namespace: own", "spec: {}");
    let labels = |team: &str| Labels::from([("team".to_owned(), team.to_owned())]);
    let known = Namespaces::from([("a".into(), labels("shop")), ("b".into(), labels("bank"))]);
    for each_in_all in [false, true] {
        let namespace = (!each_in_all).then_some("default");
        let mut policies = load_where(&shops, namespace, Some(known.clone())).unwrap();
        assert_eq!(governing(&mut policies, "a").as_deref(), Some("shops"));
        assert_eq!(governing(&mut policies, "b"), None);
        let mut policies = load_where(&all, namespace, None).unwrap();
        let own = if each_in_all { "x/own" } else { "all" };
        assert_eq!(governing(&mut policies, "x").as_deref(), Some(own));
        assert_eq!(governing(&mut policies, "own").as_deref(), Some("own/own"));
    }
    assert_eq!(
        load(&shops, Some("default")).unwrap_err(),
        "p.yaml, document 1 (ClusterEventPolicy shops), spec.namespaceSelector: requires the labels of \
             namespaces; provide the output of `kubectl get namespaces -o json` with --namespaces FILE"
    );
    let odd = cluster_policy("odd", "spec: {namespaceSelector: {matchNames: [x]}}");
    let error = load(&odd, Some("default")).unwrap_err();
    assert!(error.contains("spec.namespaceSelector.matchNames: unknown field"), "{error}");
}

#[test]
fn policies_with_users_clauses_are_found() {
    let text = policy("a", "spec: {exempt: [{users: [x]}]}") + "---\n" + &policy("b", "spec: {}");
    assert_eq!(load(&text, Some("ci")).unwrap().naming_users(), ["ci/a"]);
}

#[test]
fn null_means_the_default() {
    let spec = "spec: {match: null, spamFilter: null, budget: null, series: {idleTimeout: null}}";
    assert_eq!(
        rules_of(spec).map(|rules| (rules.series, rules.spam_filter, rules.budget)),
        rules_of("spec: {}").map(|rules| (rules.series, rules.spam_filter, rules.budget))
    );
}

fn rules_of(spec: &str) -> Option<std::sync::Arc<squelch_engine::Rules>> {
    load(&policy("a", spec), Some("ci")).unwrap().known_policies().remove(0).rules
}
