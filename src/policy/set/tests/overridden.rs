//! Policies that others override.

use super::*;

fn overridden(by: &Arc<Policy>, namespace: Option<&str>) -> Effect {
    Effect::Overridden { by: by.clone(), governs_all: true, namespace: namespace.map(Into::into) }
}

#[test]
fn several_policies_together_can_override_one() {
    let first = |spec: Value| policy("ci", "first", &spec, 1);
    let second = |spec: Value| policy("ci", "second", &spec, 2);
    let of = |clauses: Value| match clauses.as_object().is_some_and(serde_json::Map::is_empty) {
        true => json!({}),
        false => json!({"match": [clauses]}),
    };
    let pods = json!({"kind": "Pod"});
    for (one, other, last, is_overridden) in [
        // Other types count as Warning.
        (json!({"types": ["Warning"]}), json!({"types": ["Normal"]}), json!({}), true),
        (
            json!({"types": ["Warning"]}),
            json!({"types": ["Normal"]}),
            json!({"types": ["Normal", "Warning"]}),
            true,
        ),
        (
            json!({"types": ["Warning"]}),
            json!({"types": ["Normal"]}),
            json!({"types": ["Warning"], "reasons": ["A"]}),
            true,
        ),
        (json!({"reasons": ["A*"]}), json!({"reasons": ["B"]}), json!({"reasons": ["A?", "B", "Ab*"]}), true),
        (json!({"messages": ["A*"]}), json!({"messages": ["B"]}), json!({"messages": ["A?", "B"]}), true),
        (json!({"messages": ["A*"]}), json!({"messages": ["B"]}), json!({"reasons": ["A"]}), false),
        (json!({"reasons": ["A*"]}), json!({"reasons": ["B"]}), json!({"reasons": ["A", "B*"]}), false),
        (
            json!({"reasons": ["A"], "users": ["u"]}),
            json!({"reasons": ["B"]}),
            json!({"reasons": ["A", "B"]}),
            false,
        ),
        (
            json!({"regarding": [pods]}),
            json!({"users": ["u"]}),
            json!({"regarding": [{"kind": "Pod", "name": "a"}]}),
            true,
        ),
        (json!({"regarding": [pods]}), json!({"users": ["u"]}), json!({"regarding": [{"name": "a"}]}), false),
        (
            json!({"users": ["*"], "reasons": ["x"]}),
            json!({"users": ["u"]}),
            json!({"reasons": ["x"]}),
            false,
        ),
    ] {
        let last = policy("ci", "last", &of(last), 3);
        let (first, second) = (first(of(one)), second(of(other)));
        let set = Set::new([first, second.clone(), last.clone()]);
        let effect = set.effect(&last).unwrap();
        let overridden = matches!(effect, Effect::Overridden { by, governs_all: false, .. } if *by == second);
        assert_eq!(overridden, is_overridden, "{:?}: {effect:?}", last.outcome);
        assert!(overridden || *effect == Effect::Governs);
    }
}

#[test]
fn comparisons_between_policies_are_limited() {
    let reasons = |at: usize| (0..32).map(|entry| format!("{at}-{entry}")).collect::<Vec<_>>();
    let all = (0..64)
        .map(|at| policy("ci", &format!("p{at:02}"), &json!({"match": [{"reasons": reasons(at)}]}), 0));
    let twin = policy("ci", "twin", &json!({"match": [{"reasons": reasons(0)}]}), 1);
    let few = Set::new(all.clone().take(3).chain([twin.clone()]));
    assert!(matches!(few.effect(&twin), Some(Effect::Overridden { .. })));
    // Above the limit an overridden policy is reported as effective.
    let many = Set::new(all.take(63).chain([twin.clone()]));
    assert_eq!(many.effect(&twin), Some(&Effect::Governs));
}

#[test]
fn a_policy_after_one_that_governs_all_is_overridden() {
    let first = policy("ci", "first", &json!({"priority": 1, "match": [{"reasons": ["*"]}]}), 2);
    let partial = policy("ci", "partial", &json!({"priority": 2, "match": [{"reasons": ["B*"]}]}), 2);
    let behind = policy("ci", "behind", &json!({}), 1);
    let elsewhere = policy("other", "elsewhere", &json!({}), 3);
    let set = Set::new([first.clone(), partial.clone(), behind.clone(), elsewhere.clone()]);
    assert_eq!(set.effect(&behind), Some(&overridden(&first, Some("ci"))));
    for policy in [first, partial, elsewhere] {
        assert_eq!(set.effect(&policy), Some(&Effect::Governs), "{}", policy.name);
    }
}

#[test]
fn a_cluster_policy_is_overridden_if_others_govern_all_in_each_selected_namespace() {
    let own = policy("ci", "own", &json!({}), 1);
    let shops_policy = cluster_policy("shops", &shops(&json!({})), 1);
    let all = cluster_policy("all", &json!({}), 2);
    let policies = [own.clone(), shops_policy.clone(), all.clone()];
    let set = Set::in_cluster(policies.clone(), &cluster(&[("ci", "shop"), ("bank", "bank")]));
    assert_eq!(set.effect(&shops_policy), Some(&overridden(&own, Some("ci"))));
    assert_eq!(set.effect(&all), Some(&Effect::Governs));
    let set = Set::in_cluster(policies.clone(), &cluster(&[("ci", "shop"), ("new", "shop")]));
    assert_eq!(set.effect(&shops_policy), Some(&Effect::Governs));

    let strong = cluster_policy("strong", &json!({"precedence": "Override"}), 9);
    let all_of_them = policies.into_iter().chain([strong.clone()]);
    let set = Set::in_cluster(all_of_them, &cluster(&[("ci", "shop")]));
    assert_eq!(set.effect(&all), Some(&overridden(&strong, None)));
    assert_eq!(set.effect(&own), Some(&overridden(&strong, Some("ci"))));
}

#[test]
fn a_cluster_policy_that_selects_no_namespace_has_no_effect() {
    let shops = cluster_policy("shops", &shops(&json!({})), 1);
    let set = Set::in_cluster([shops.clone()], &cluster(&[("bank", "bank")]));
    assert_eq!(set.effect(&shops), Some(&Effect::NoNamespaces { unevaluated: None }));
}
