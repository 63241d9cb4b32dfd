mod overridden;

use serde_json::{Value, json};
use squelch_engine::Treatment;

use super::*;
use crate::policy::MAX_LABELS;
use crate::policy::fixtures::{cluster_policy, event, labels, policy};

fn governing(set: &Set) -> Option<String> {
    set.governing(&event()).map(|governing| governing.rules.policy.display.to_string())
}

fn shops(rest: &Value) -> Value {
    let mut spec = json!({"namespaceSelector": {"matchLabels": {"team": "shop"}}});
    spec.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    spec
}

fn cluster(teams: &[(&str, &str)]) -> Namespaces {
    teams.iter().map(|(name, team)| ((*name).into(), labels(&[("team", team)]))).collect()
}

#[test]
fn the_order_is_priority_then_creation_then_name() {
    let mut policies = vec![
        policy("ci", "young", &json!({}), 200),
        policy("ci", "b-old", &json!({}), 100),
        policy("ci", "a-old", &json!({}), 100),
        policy("ci", "preferred", &json!({"priority": 1}), 300),
        policy("ci", "last", &json!({"priority": -1}), 1),
    ];
    for expected in ["ci/preferred", "ci/a-old", "ci/b-old", "ci/young", "ci/last"] {
        for _ in 0..policies.len() {
            policies.rotate_left(1);
            assert_eq!(governing(&Set::new(policies.clone())).as_deref(), Some(expected));
        }
        policies.retain(|policy| *policy.id.display != *expected);
    }
    assert_eq!(governing(&Set::new(policies)), None);
}

#[test]
fn the_first_policy_that_matches_governs() {
    let set = Set::new([
        policy(
            "ci",
            "warnings",
            &json!({"match": [{"types": ["Warning"]}], "exempt": [{"types": ["Normal", "Warning"]}]}),
            2,
        ),
        policy("ci", "normal", &json!({"match": [{"types": ["Normal"]}], "priority": 5}), 1),
    ]);
    let governing = set.governing(&event()).unwrap();
    assert_eq!(&*governing.rules.policy.display, "ci/warnings");
    assert_eq!(governing.treatment, Treatment::Exempt);
}

#[test]
fn invalid_policies_and_those_of_other_namespaces_do_not_govern() {
    let set = Set::new([
        policy("other", "p", &json!({}), 1),
        policy("ci", "broken", &json!({"series": {"idleTimeout": "soon"}}), 1),
    ]);
    assert!(set.governing(&event()).is_none());
    assert_eq!(set.namespaces(), ["other".into()]);
    assert_eq!(set.policies().len(), 2);
    assert_eq!(set.effect(&set.policies()[1]), None);
}

#[test]
fn a_cluster_policy_governs_in_namespaces_with_its_labels() {
    let policies = || [cluster_policy("shops", &shops(&json!({})), 1)];
    let set = Set::in_cluster(policies(), &cluster(&[("ci", "shop"), ("bank", "bank")]));
    assert_eq!(governing(&set).as_deref(), Some("shops"));
    assert_eq!(set.namespaces(), ["ci".into()]);
    assert!(set.selection() != NamespaceSelection::All);
    let set = Set::in_cluster(policies(), &cluster(&[("ci", "bank"), ("bank", "bank")]));
    assert_eq!(governing(&set), None);
    assert!(set.namespaces().is_empty());
}

#[test]
fn a_cluster_policy_without_selector_governs_in_unknown_namespaces() {
    let set = Set::in_cluster([cluster_policy("all", &json!({}), 1)], &cluster(&[("bank", "bank")]));
    assert_eq!(governing(&set).as_deref(), Some("all"));
    assert!(set.selection() == NamespaceSelection::All && !set.has_namespace("ci"));
}

#[test]
fn override_precedes_the_namespace_and_default_follows_it() {
    let own = policy("ci", "own", &json!({"priority": -9}), 9);
    let default = cluster_policy("default", &shops(&json!({"priority": 9})), 1);
    let set = Set::in_cluster([own.clone(), default], &cluster(&[("ci", "shop")]));
    assert_eq!(governing(&set).as_deref(), Some("ci/own"));
    let strong = cluster_policy("strong", &shops(&json!({"precedence": "Override"})), 1);
    let set = Set::in_cluster([own, strong], &cluster(&[("ci", "shop")]));
    assert_eq!(governing(&set).as_deref(), Some("strong"));
}

/// A namespace of team shop with this number of labels.
fn shop_with(count: usize) -> Namespaces {
    let mut shop: Labels = (1..count).map(|at| (format!("k{at}"), String::new())).collect();
    shop.insert("team".to_owned(), "shop".to_owned());
    Namespaces::from([("ci".into(), shop)])
}

#[test]
fn selectors_are_not_evaluated_for_a_namespace_with_too_many_labels() {
    let selected = cluster_policy("selected", &shops(&json!({"precedence": "Override"})), 1);
    let requirement = json!({"key": "team", "operator": "NotIn", "values": ["shop"]});
    let others = json!({"namespaceSelector": {"matchExpressions": [requirement]}, "precedence": "Override"});
    let others = cluster_policy("others", &others, 1);
    let all = cluster_policy("all", &json!({}), 1);
    let set =
        |count: usize| Set::in_cluster([selected.clone(), others.clone(), all.clone()], &shop_with(count));
    assert_eq!(governing(&set(MAX_LABELS)).as_deref(), Some("selected"));
    assert_eq!(governing(&set(MAX_LABELS + 1)).as_deref(), Some("all"));
    let own = policy("ci", "own", &json!({}), 1);
    let set = Set::in_cluster([selected, own], &shop_with(MAX_LABELS + 1));
    assert_eq!(governing(&set).as_deref(), Some("ci/own"), "EventPolicies have no selector");
}

#[test]
fn the_effect_of_a_policy_with_selector_names_a_namespace_with_too_many_labels() {
    let selected = cluster_policy("selected", &shops(&json!({})), 1);
    let all = cluster_policy("all", &json!({"precedence": "Override", "match": [{"types": ["Normal"]}]}), 1);
    let own = policy("other", "own", &json!({}), 1);
    let effects = |namespaces: &Namespaces| {
        let set = Set::in_cluster([selected.clone(), all.clone(), own.clone()], namespaces);
        [&selected, &all, &own].map(|policy| set.effect(policy).unwrap().clone())
    };
    let (within, mut above) = (shop_with(MAX_LABELS), shop_with(MAX_LABELS + 1));
    assert_eq!(effects(&within), [Effect::Governs, Effect::Governs, Effect::Governs]);
    let nowhere = Effect::NoNamespaces { unevaluated: Some("ci".into()) };
    assert_eq!(effects(&above), [nowhere, Effect::Governs, Effect::Governs]);
    above.insert("bank".into(), labels(&[("team", "shop")]));
    let in_part = Effect::GovernsInPart(exceeded("ci", Limit::Labels));
    assert_eq!(effects(&above), [in_part, Effect::Governs, Effect::Governs]);
}

fn exceeded(namespace: &str, limit: Limit) -> ExceededLimit {
    ExceededLimit { namespace: Some(namespace.into()), limit }
}

#[test]
fn a_policy_that_64_precede_does_not_govern_and_is_not_accepted() {
    let warnings = json!({"match": [{"types": ["Normal"]}]});
    let before = (0..64).map(|at| policy("ci", &format!("{at:02}"), &warnings, 0));
    let last = policy("ci", "last", &json!({}), 1);
    let all: Vec<_> = before.chain([last.clone()]).collect();
    let set = Set::new(all.clone());
    assert_eq!(governing(&set), None);
    assert_eq!(set.effect(&last), Some(&Effect::TooMany(exceeded("ci", Limit::Policies))));
    assert!(!set.is_accepted(&last) && !set.is_effective(&last) && set.is_accepted(&all[63]));
    let set = Set::new(all[1..].to_vec());
    assert_eq!(governing(&set).as_deref(), Some("ci/last"));
    assert!(set.is_accepted(&last) && set.is_effective(&last));
}

#[test]
fn a_cluster_policy_can_be_over_a_limit_in_only_some_namespaces() {
    let normal = json!({"match": [{"types": ["Normal"]}]});
    let shop = (0..64).map(|at| cluster_policy(&format!("{at:02}"), &shops(&normal), 0));
    let last = cluster_policy("last", &json!({}), 1);
    let policies: Vec<_> = shop.chain([last.clone()]).collect();
    let set = Set::in_cluster(policies.clone(), &cluster(&[("ci", "shop"), ("bank", "bank")]));
    assert_eq!(governing(&set), None, "ci has 64");
    assert_eq!(set.effect(&last), Some(&Effect::GovernsInPart(exceeded("ci", Limit::Policies))));
    assert!(set.is_accepted(&last) && set.is_effective(&last));
    assert_eq!(set.applicability("bank", &last.id), Applicability::Governs);
    // EventPolicies do not use the limits of ClusterEventPolicies.
    let own = (0..65).map(|at| policy("bank", &format!("{at:02}"), &normal, 0));
    let set = Set::in_cluster(policies.into_iter().chain(own), &cluster(&[("ci", "shop"), ("bank", "bank")]));
    assert_eq!(set.applicability("bank", &last.id), Applicability::Governs);
}

/// The most expensive policies that a tenant can write. The benchmark `select-worst-globs` of hack/instructions limits
/// the cost of a unit of weight, so that 3 times 2048 units take less than 100 us.
#[test]
fn the_cost_of_selecting_a_policy_is_bounded() {
    let slow = format!("{}y", "*x".repeat(125));
    let mut list = vec![slow.clone(); 31];
    list.push("*".into());
    let entry =
        json!({"reasons": list, "reportingComponents": list, "regarding": vec![json!({"name": slow}); 16]});
    let one = policy("ci", "p", &json!({"exempt": vec![entry; 16]}), 0);
    assert!(one.compiled().is_none(), "matching it takes 3 ms");

    let slow = format!("*{}y*", "x".repeat(125));
    let worst =
        |at: usize| json!({"match": [{"reasons": vec![&slow; at % 15 + 1], "users": [format!("x{at}?*")]}]});
    let own = (0..1000).map(|at| policy("ci", &format!("{at:04}"), &worst(at), 0));
    let of_cluster = (0..1000).map(|at| cluster_policy(&format!("{at:04}"), &worst(at), 0));
    let set = Set::in_cluster(own.chain(of_cluster), &cluster(&[("ci", "shop")]));
    let in_force = set.in_force("ci");
    let weight: usize = in_force.iter().filter_map(|policy| policy.compiled()).map(|it| it.weight).sum();
    assert!((1900..=2 * 2048).contains(&weight), "{weight}");
    assert!((2..=128).contains(&in_force.len()), "{}", in_force.len());
    let x = "x".repeat(1024);
    let mut write = event();
    write.event.reason = x.into();
    assert!(set.governing(&write).is_none());
}

#[test]
fn applicability_is_unknown_in_an_unknown_namespace() {
    let shops = cluster_policy("shops", &shops(&json!({})), 1);
    let set = Set::in_cluster([shops.clone()], &cluster(&[("ci", "shop"), ("bank", "bank")]));
    let applicability = |namespace| set.applicability(namespace, &shops.id);
    assert_eq!(
        [applicability("ci"), applicability("bank"), applicability("deleted")],
        [Applicability::Governs, Applicability::NotApplicable, Applicability::Unknown]
    );
}

#[test]
fn ten_thousand_namespaces_share_lists_of_two_thousand_policies() {
    let names: Vec<String> = (0..10_000).map(|at| format!("team-{at}")).collect();
    let namespaces: Namespaces = { names.iter().enumerate() }
        .map(|(at, name)| (name.as_str().into(), labels(&[("shard", &(at % 100).to_string())])))
        .collect();
    let part = json!({"match": [{"types": ["Normal"], "users": ["own"]}]});
    let own = names.iter().step_by(10).map(|name| policy(name, "own", &part, 1));
    let sharded = (0..1000).map(|at| {
        let shard = (at % 100).to_string();
        let spec = json!({"match": [{"types": ["Normal"], "users": [format!("u{at}")]}],
            "namespaceSelector": {"matchLabels": {"shard": shard}}});
        cluster_policy(&format!("cluster-{at:04}"), &spec, 1)
    });
    let set = Set::in_cluster(own.chain(sharded), &namespaces);
    let in_force = |namespace: &str| {
        let list = set.in_force(namespace).iter();
        list.map(|policy| policy.id.display.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(in_force("team-10").len(), 11);
    assert_eq!(in_force("team-10")[..2], ["team-10/own", "cluster-0010"]);
    assert_eq!(in_force("team-7")[9], "cluster-0907");
    assert_eq!(set.namespaces().len(), 10_000);
    let lists: HashSet<_> = set.resolved.by_namespace.values().map(Arc::as_ptr).collect();
    assert_eq!(lists.len(), 1000 + 90, "one per namespace with policies of its own, and one per shard");
}

#[test]
fn no_policy_governs_before_the_labels_that_an_override_selects_are_known() {
    let strong = shops(&json!({"precedence": "Override", "match": [{"types": ["Warning"]}]}));
    let strong = cluster_policy("strong", &strong, 1);
    let own = policy("ci", "own", &json!({"warningPolicy": "Limit"}), 2);
    let governing = |namespaces: &Namespaces| {
        let set = Set::in_cluster([strong.clone(), own.clone()], namespaces);
        set.governing_in_known(&event()).map(|it| it.rules.policy.display.to_string())
    };
    assert_eq!(governing(&cluster(&[("ci", "shop")])).as_deref(), Some("strong"));
    assert_eq!(governing(&Namespaces::new()), None, "`strong` may override `own`");
}

#[test]
fn a_policy_overridden_where_no_limit_excludes_it_is_accepted() {
    let normal = json!({"match": [{"types": ["Normal"]}]});
    let shop = (0..64).map(|at| cluster_policy(&format!("{at:02}"), &shops(&normal), 0));
    let teams = json!({"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]}});
    let last = cluster_policy("last", &teams, 1);
    let policies: Vec<_> = shop.chain([last.clone()]).collect();
    let namespaces = cluster(&[("ci", "shop"), ("bank", "bank")]);
    let set = Set::in_cluster(policies.clone(), &namespaces);
    assert!(set.is_accepted(&last), "it governs in bank");
    let own = policy("bank", "own", &json!({}), 0);
    let set = Set::in_cluster(policies.into_iter().chain([own]), &namespaces);
    assert!(matches!(set.effect(&last), Some(Effect::Overridden { .. })), "{:?}", set.effect(&last));
}
