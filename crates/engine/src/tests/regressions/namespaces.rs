//! Deleted and recreated namespaces.

use super::*;

/// Sets the names and uids of the namespaces.
fn namespaces(engine: &Engine, known: &[(&str, &str)]) {
    let known = known.iter().map(|(name, uid)| (Arc::from(*name), Arc::from(*uid)));
    engine.identify_namespaces(&Arc::new(known.collect()));
}

#[test]
fn a_recreated_namespace_starts_without_state() {
    let (engine, rules) = (engine(), rules());
    namespaces(&engine, &[("shop", "first")]);
    engine.decide(by(&rules), &write(), at(0));
    engine.decide(by(&rules), &named("cart.2", write()), at(1));
    namespaces(&engine, &[("shop", "first")]);
    assert_eq!(engine.gauges().pending_occurrences, 1, "the same namespace");
    let task = engine.tick(at(2001), 10).remove(0);
    namespaces(&engine, &[("shop", "second")]);
    assert_eq!(engine.plan(&task, Some(StoredEvent::with_count(1)), at(2002)), FlushPlan::Nothing);
    let Gauges { series, names, pending_occurrences: pending, pending_series, .. } = engine.gauges();
    assert_eq!((series, names, pending, pending_series, counters(&engine).lost), (0, 0, 0, 0, 1));
    let first = engine.decide(by(&rules), &write(), at(2003));
    assert_eq!((first.disposition, first.occurrences), (Some(Disposition::Admitted), 1));
    assert_eq!(counters(&engine).received(), 3, "what was counted stays");
    assert!(engine.is_counted_right());
}

#[test]
fn a_deleted_namespace_is_removed_at_once_and_its_counters_are_retained() {
    let (engine, mut rules) = (engine(), rules());
    rules.policy.display = "quiet".into();
    let known_policy =
        KnownPolicy { policy: rules.policy.clone(), namespace: None, rules: Some(Arc::new(rules.clone())) };
    let names: Vec<String> = (0..500).map(|number| format!("pr-{number}")).collect();
    for name in &names {
        namespaces(&engine, &[(name, "uid")]);
        for event in ["cart.1", "cart.2"] {
            engine.decide(by(&rules), &Observation { namespace: name, ..named(event, write()) }, at(0));
        }
        namespaces(&engine, &[]);
        engine.revise_within(std::slice::from_ref(&known_policy), |_, _| Applicability::Unknown, at(1));
        engine.tick(at(2), 10);
    }
    assert_eq!(engine.gauges(), Gauges::default());
    assert!(engine.counters().is_empty() && engine.is_counted_right());
    let [line] = &engine.all_counters()[..] else { panic!("one line for the policy") };
    assert_eq!((line.counters.received(), line.counters.lost), (1000, 500));
}

#[test]
fn counters_of_a_namespace_deleted_with_its_policy_are_retained_for_the_last_scrape() {
    let (engine, rules) = (engine(), rules());
    namespaces(&engine, &[("shop", "uid")]);
    let known_policy = KnownPolicy {
        policy: rules.policy.clone(),
        namespace: Some("shop".into()),
        rules: Some(Arc::new(rules.clone())),
    };
    engine.revise(std::slice::from_ref(&known_policy), at(0));
    for event in ["cart.1", "cart.2"] {
        engine.decide(by(&rules), &named(event, write()), at(0));
    }
    namespaces(&engine, &[]);
    engine.revise(&[], at(1));
    engine.tick(at(2), 10);
    let [line] = &engine.all_counters()[..] else { panic!("one line for the policy") };
    assert_eq!((&*line.namespace, line.counters.received(), line.counters.lost), ("shop", 2, 1));
    engine.tick(at(600_002), 10);
    assert!(engine.all_counters().is_empty());
    assert_eq!(engine.gauges(), Gauges::default());
}

#[test]
fn counters_of_deleted_namespaces_are_separate_for_each_mode() {
    let (engine, mut rules) = (engine(), rules());
    rules.policy.display = "quiet".into();
    for (mode, name) in [(Mode::Observe, "pr-1"), (Mode::Enforce, "pr-2")] {
        let rules = Rules { mode, ..rules.clone() };
        namespaces(&engine, &[(name, "uid")]);
        engine.decide(by(&rules), &Observation { namespace: name, ..write() }, at(0));
        namespaces(&engine, &[]);
    }
    let mut kept: Vec<_> =
        engine.all_counters().iter().map(|line| (line.mode, line.counters.received())).collect();
    kept.sort_unstable();
    let mut expected = [(Mode::Enforce, 1), (Mode::Observe, 1)];
    expected.sort_unstable();
    assert_eq!(kept, expected);
}
