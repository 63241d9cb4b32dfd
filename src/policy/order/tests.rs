use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::*;
use crate::policy::fixtures::{cluster_policy, labels, policy};

fn in_force(policies: &[Arc<Policy>], labels: Option<&Labels>) -> Vec<String> {
    let ordered = Ordered::new(policies);
    let partition = ordered.in_force("ci", labels);
    partition.in_force.into_iter().map(|policy| policy.id.display.to_string()).collect()
}

fn over_limit(policies: &[Arc<Policy>]) -> Vec<(String, Limit)> {
    let ordered = Ordered::new(policies);
    let over_limit = ordered.in_force("ci", Some(&labels(&[]))).over_limit;
    over_limit.into_iter().map(|(policy, limit)| (policy.id.display.to_string(), limit)).collect()
}

/// A spec whose `match` has this many texts of weight 100, different for each number.
fn heavy(hundreds: usize) -> Value {
    json!({"match": [{"reasons": vec![format!("*{hundreds:x>90}*"); hundreds]}]})
}

/// A spec that overrides no other one.
fn some(rest: &Value) -> Value {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let user = format!("user-{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let mut spec = json!({"match": [{"users": [user]}]});
    spec.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    spec
}

/// The columns are tier, priority, creation and name.
#[test]
fn policies_are_in_force_in_order_of_precedence() {
    let table = [
        ("Override", 0, 1, "o-a"),
        ("Override", 0, 1, "o-b"),
        ("Override", 0, 2, "o-0"),
        ("Override", -5, 0, "o-1"),
        ("namespace", 7, 9, "ci/n-c"),
        ("namespace", 0, 1, "ci/n-a"),
        ("namespace", 0, 1, "ci/n-b"),
        ("namespace", 0, 2, "ci/n-0"),
        ("Default", 100, 9, "d-c"),
        ("Default", 0, 1, "d-a"),
        ("Default", 0, 1, "d-b"),
        ("Default", 0, 2, "d-0"),
    ];
    let mut policies: Vec<_> = table
        .iter()
        .map(|&(tier, priority, created, name)| match name.strip_prefix("ci/") {
            Some(name) => policy("ci", name, &some(&json!({"priority": priority})), created),
            None => {
                let spec = some(&json!({"priority": priority, "precedence": tier}));
                cluster_policy(name, &spec, created)
            }
        })
        .collect();
    let expected = table.map(|(_, _, _, name)| name);
    for _ in 0..policies.len() {
        policies.rotate_left(1);
        assert_eq!(in_force(&policies, Some(&labels(&[]))), expected);
        policies.reverse();
        assert_eq!(in_force(&policies, Some(&labels(&[]))), expected);
    }
}

#[test]
fn only_cluster_policies_that_select_the_namespace_are_in_force() {
    let select = |team: &str| some(&json!({"namespaceSelector": {"matchLabels": {"team": team}}}));
    let policies = [
        cluster_policy("shops", &select("shop"), 0),
        cluster_policy("banks", &select("bank"), 0),
        cluster_policy("all", &some(&json!({})), 1),
        policy("other", "elsewhere", &some(&json!({})), 0),
        policy("ci", "own", &some(&json!({})), 0),
    ];
    assert_eq!(in_force(&policies, Some(&labels(&[("team", "shop")]))), ["ci/own", "shops", "all"]);
    assert_eq!(in_force(&policies, Some(&labels(&[]))), ["ci/own", "all"]);
}

#[test]
fn in_an_unknown_namespace_only_cluster_policies_without_selector_are_in_force() {
    let requirement = json!({"key": "stage", "operator": "NotIn", "values": ["production"]});
    let spared = some(&json!({"namespaceSelector": {"matchExpressions": [requirement]}}));
    let policies = [cluster_policy("spares", &spared, 0), cluster_policy("all", &some(&json!({})), 1)];
    assert_eq!(in_force(&policies, None), ["all"]);
    assert_eq!(in_force(&policies, Some(&labels(&[]))), ["spares", "all"]);
}

#[test]
fn no_policy_is_in_force_after_one_that_governs_all_writes() {
    let whole = |precedence: &str| json!({"precedence": precedence});
    let own = policy("ci", "own", &json!({"match": [{"reasons": ["*"]}]}), 0);
    let first = policy("ci", "first", &some(&json!({"priority": 1})), 0);
    let default = cluster_policy("default", &whole("Default"), 0);
    let policies = [default.clone(), own.clone(), first.clone()];
    assert_eq!(in_force(&policies, None), ["ci/first", "ci/own"]);
    let policies = [own, first, default, cluster_policy("override", &whole("Override"), 5)];
    assert_eq!(in_force(&policies, None), ["override"]);
}

#[test]
fn the_64_policies_of_highest_precedence_of_each_kind_are_in_force() {
    let own = (0..66).map(|at| policy("ci", &format!("own-{at:02}"), &some(&json!({"priority": -at})), 0));
    let cluster = (0..66).map(|at| {
        let precedence = if at % 2 == 0 { "Override" } else { "Default" };
        let spec = some(&json!({"priority": -at, "precedence": precedence}));
        cluster_policy(&format!("cluster-{at:02}"), &spec, 0)
    });
    let invalid = (0..9).map(|at| policy("ci", &format!("invalid-{at}"), &json!({"priority": 1_000_000}), 0));
    let elsewhere = (0..9).map(|at| policy("other", &format!("other-{at}"), &json!({"priority": 9}), 0));
    let mut policies: Vec<_> = own.chain(cluster).chain(invalid).chain(elsewhere).collect();
    for _ in 0..2 {
        policies.reverse();
        let names = in_force(&policies, Some(&labels(&[])));
        let of = |kind: &str| names.iter().filter(|name| name.starts_with(kind)).count();
        assert_eq!((names.len(), of("ci/own"), of("cluster")), (128, 64, 64));
        assert_eq!(names[..2], ["cluster-00", "cluster-02"]);
        assert_eq!((&*names[33], &*names[96], &*names[127]), ("ci/own-00", "ci/own-63", "cluster-61"));
        // All 33 Override policies precede the Default ones.
        let expected = ["cluster-63", "cluster-65", "ci/own-64", "ci/own-65"];
        assert_eq!(over_limit(&policies), expected.map(|name| (name.to_owned(), Limit::Policies)));
    }
}

#[test]
fn overridden_policies_use_the_limits() {
    let policies: Vec<_> = (0..65).map(|at| policy("ci", &format!("{at:02}"), &json!({}), 0)).collect();
    assert_eq!(in_force(&policies, None), ["ci/00"]);
    assert_eq!(over_limit(&policies), [("ci/64".to_owned(), Limit::Policies)]);
}

#[test]
fn policies_over_the_total_weight_are_not_in_force() {
    let policies = [
        policy("ci", "a-1200", &heavy(12), 0),
        policy("ci", "b-900", &heavy(9), 0),
        policy("ci", "c-800", &heavy(8), 0),
        policy("ci", "d-100", &heavy(1), 0),
        cluster_policy("a-2000", &heavy(20), 0),
        cluster_policy("b-100", &heavy(1), 0),
    ];
    assert_eq!(in_force(&policies, Some(&labels(&[]))), ["ci/a-1200", "ci/c-800", "a-2000"]);
    let weight = |name: &str, own| (name.to_owned(), Limit::Weight { own });
    assert_eq!(
        over_limit(&policies),
        [weight("b-100", 100), weight("ci/b-900", 900), weight("ci/d-100", 100)]
    );
}

#[test]
fn invalid_policies_are_not_in_force() {
    let broken = json!({"series": {"idleTimeout": "soon"}});
    let selector = json!({"namespaceSelector": {"matchLabels": {"my team": "x"}}});
    let policies = [
        policy("ci", "own", &broken, 0),
        cluster_policy("broken", &broken, 0),
        cluster_policy("selector", &selector, 0),
    ];
    assert!(in_force(&policies, Some(&labels(&[]))).is_empty());
}
