mod world;

use proptest::prelude::*;
use squelch_engine::testing::{at, by, cases, engine, rules, write};
use squelch_engine::{
    Applicability, Disposition, Engine, KnownPolicy, NamespaceUids, Observation, PolicyId, Rules,
};

use super::testing::scope;
use super::*;

fn minutes(minutes: u64) -> Moment {
    at(minutes * 60_000)
}

/// The compacted occurrences of each series in mode Enforce.
fn compacted(scopes: &Scopes) -> BTreeMap<(&str, &str), u64> {
    let series = scopes.all().filter_map(|((namespace, policy), by_mode)| {
        let counters = by_mode[0].1.as_ref()?;
        Some(((&**namespace, &**policy), counters.of(Disposition::Compacted)))
    });
    series.collect()
}

fn scopes(total: usize, per_namespace: usize) -> Scopes {
    Scopes::new(SeriesLimits { total, per_namespace })
}

fn in_force(namespaces: &[&str], policy: &str, complete: bool) -> InForce {
    let pairs = namespaces.iter().map(|namespace| ((*namespace).into(), policy.into(), Mode::Enforce));
    InForce { policies: vec![(policy.into(), Mode::Enforce)], pairs: pairs.collect(), complete }
}

#[test]
fn a_recreated_policy_continues_its_series() {
    let mut scopes = Scopes::default();
    scopes.add(&[scope("shop", "shop/p", "1", 3), scope("shop", "shop/p", "2", 4)], minutes(0));
    assert_eq!(compacted(&scopes)[&("shop", "shop/p")], 7);
    // It is created again between two scrapes, and all its counts are added.
    scopes.add(&[scope("shop", "shop/p", "3", 9)], minutes(1));
    assert_eq!(compacted(&scopes)[&("shop", "shop/p")], 16);
}

/// The engine keeps the counters of a former policy with the same name.
#[test]
fn each_policy_of_a_name_ends_alone() {
    let of = |uid, compacted| scope("ci", "all", uid, compacted);
    let deleted = scope("", "all", "2", 5);
    for (after, sum) in [
        // The namespace is deleted.
        (vec![of("1", 10), deleted.clone()], 15),
        // It is created again.
        (vec![of("1", 10), of("2", 3), deleted], 18),
        // The counters of the former policy are evicted.
        (vec![of("2", 6)], 16),
    ] {
        let mut scopes = Scopes::default();
        scopes.add(&[of("1", 10), of("2", 5)], minutes(0));
        scopes.add(&after, minutes(1));
        assert_eq!(compacted(&scopes).values().sum::<u64>(), sum, "{after:?}");
    }
}

#[test]
fn the_series_other_never_decreases() {
    let mut scopes = scopes(1, 5);
    let counters =
        ["a", "b", "c"].map(|namespace| scope(namespace, &format!("{namespace}/p"), namespace, 10));
    scopes.add(&counters, minutes(0));
    assert_eq!(compacted(&scopes), BTreeMap::from([(("a", "a/p"), 10), (("_other", "_other"), 20)]));
    scopes.add(&counters[..2], minutes(1));
    assert_eq!(compacted(&scopes)[&("_other", "_other")], 20, "a namespace is deleted");
    scopes.add(&counters, minutes(2));
    assert_eq!(compacted(&scopes)[&("_other", "_other")], 30, "a new namespace with its name counts from 0");
}

#[test]
fn a_series_is_removed_an_hour_after_its_last_scope() {
    let mut scopes = scopes(1, 5);
    let (a, b) = (scope("a", "a/p", "1", 10), scope("b", "b/p", "2", 5));
    scopes.add(&[a, b.clone()], minutes(0));
    scopes.add(std::slice::from_ref(&b), minutes(59));
    assert_eq!(compacted(&scopes)[&("a", "a/p")], 10);
    scopes.add(std::slice::from_ref(&b), minutes(60));
    assert_eq!(compacted(&scopes), BTreeMap::from([(("_other", "_other"), 5)]));
    // A scope that shared a series gets its own. The counts of the shared series stay.
    scopes.add(&[scope("b", "b/p", "2", 6)], minutes(61));
    scopes.add(&[scope("b", "b/p", "2", 9)], minutes(62));
    assert_eq!(compacted(&scopes), BTreeMap::from([(("b", "b/p"), 3), (("_other", "_other"), 6)]));
}

#[test]
fn the_series_of_one_namespace_are_limited() {
    let mut scopes = Scopes::default();
    let mut counters: Vec<_> = (0..2 * MAX_SCOPES)
        .map(|number| scope("greedy", &format!("greedy/p{number:04}"), &number.to_string(), 1))
        .collect();
    scopes.add(&counters, minutes(0));
    counters.push(scope("shop", "shop/p", "shop", 7));
    scopes.add(&counters, minutes(1));
    let counts = compacted(&scopes);
    assert_eq!(counts[&("shop", "shop/p")], 7);
    assert_eq!(counts.keys().filter(|(namespace, _)| *namespace == "greedy").count(), MAX_OF_NAMESPACE);
    assert_eq!(counts[&("greedy", "_other")], 2 * MAX_SCOPES as u64 - (MAX_OF_NAMESPACE as u64 - 1));
    assert_eq!(counts[&("_other", "_other")], 0);
}

#[test]
fn namespaces_above_the_limit_share_other() {
    let mut scopes = Scopes::default();
    let counters: Vec<_> = (0..MAX_SCOPES + 2)
        .map(|number| scope(&format!("n{number:04}"), &format!("n{number:04}/p"), "u", 1))
        .collect();
    scopes.add(&counters[2..], minutes(0));
    assert_eq!(compacted(&scopes).len(), MAX_SCOPES + 1);
    // Two namespaces that sort first are created later.
    scopes.add(&counters, minutes(1));
    let counts = compacted(&scopes);
    assert_eq!((counts.len(), counts[&("_other", "_other")]), (MAX_SCOPES + 1, 2));
}

#[test]
fn the_series_of_a_cluster_policy_start_at_0() {
    let mut scopes = Scopes::default();
    scopes.set_in_force(in_force(&["ci", "shop"], "all", true));
    scopes.add(&[], minutes(0));
    let begun = BTreeMap::from(
        [("ci", "all"), ("_other", "all"), ("_other", "_other"), ("shop", "all")].map(|labels| (labels, 0)),
    );
    assert_eq!(compacted(&scopes), begun);
    scopes.add(&[scope("ci", "all", "1", 3)], minutes(1));
    assert_eq!(compacted(&scopes)[&("ci", "all")], 3);
}

/// `increase()` would not include the first counts of a series that does not start at 0.
#[test]
fn the_first_counts_are_added_to_a_series_that_started_at_0_also_at_the_limit() {
    let mut scopes = scopes(3, 5);
    scopes.set_in_force(in_force(&["a", "b"], "all", false));
    scopes.add(&[], minutes(0));
    scopes.add(&[scope("z", "all", "1", 100)], minutes(1));
    let counts = compacted(&scopes);
    assert_eq!((counts[&("_other", "all")], counts[&("z", "all")]), (100, 0), "{counts:?}");
    assert!(!counts.contains_key(&("b", "all")), "an unused series is replaced");
    scopes.add(&[scope("z", "all", "1", 110)], minutes(2));
    assert_eq!(compacted(&scopes)[&("z", "all")], 10);
}

#[test]
fn counts_of_a_namespace_deleted_before_the_next_scrape_are_added() {
    let mut scopes = Scopes::default();
    scopes.set_in_force(in_force(&["ci"], "all", true));
    scopes.add(&[scope("ci", "all", "1", 3)], minutes(0));
    // It counted 4 more and was deleted. Another one was created and counted 5.
    let counters = [scope("", "all", "1", 7), scope("ci", "all", "1", 5)];
    scopes.add(&counters, minutes(1));
    let sum: u64 = compacted(&scopes).values().sum();
    assert_eq!(sum, 12);
    scopes.add(&counters[..1], minutes(2));
    assert_eq!(compacted(&scopes).values().sum::<u64>(), 12);
}
