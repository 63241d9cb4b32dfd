//! Counters of deleted namespaces, and policies that no longer apply.

use super::super::*;
use crate::testing::{at, by, engine, flush, named, rules, write};
use crate::{Applicability, Disposition, Engine, Moment, Observation, Rules};

fn minutes(minutes: u64) -> Moment {
    at(minutes * 60_000)
}

/// Sets one cluster-scoped policy with this applicability to every namespace.
fn revise(engine: &Engine, rules: &Rules, applicability: Applicability, now: u64) {
    let known_policy =
        KnownPolicy { policy: rules.policy.clone(), namespace: None, rules: Some(Arc::new(rules.clone())) };
    engine.revise_within(&[known_policy], |_, _| applicability, minutes(now));
}

/// Two occurrences in a namespace, one of them merged.
fn merge_one(engine: &Engine, rules: &Rules, namespace: &str) {
    engine.decide(by(rules), &Observation { namespace, ..write() }, at(0));
    let second = Observation { namespace, ..named("cart.2", write()) };
    let second = engine.decide(by(rules), &second, at(1));
    assert_eq!(second.disposition, Some(Disposition::Compacted));
}

/// Discards the pending occurrences and ticks once more.
fn discard_pending(engine: &Engine, now: Moment) {
    let task = engine.tick(now, 10).remove(0);
    assert_eq!(engine.discard(&task), 1);
    engine.tick(now, 10);
}

/// Returns received and lost occurrences of deleted namespaces, over all policies.
fn gone_counts(engine: &Engine) -> (u64, u64) {
    let lines = engine.all_counters().into_iter().filter(|line| line.namespace.is_empty());
    lines.fold((0, 0), |sum, line| (sum.0 + line.counters.received(), sum.1 + line.counters.lost))
}

#[test]
fn a_policy_that_no_longer_applies_flushes_its_pending_occurrences() {
    let (engine, rules) = (engine(), rules());
    merge_one(&engine, &rules, "shop");
    let task = engine.tick(at(2001), 10).remove(0);
    assert_eq!(flush(&engine, &task, Some(1), at(2002)), Some(2));
    engine.decide(by(&rules), &named("cart.3", write()), at(2003));
    revise(&engine, &rules, Applicability::Governs, 1);
    assert!(engine.tick(minutes(1), 10).is_empty(), "one pending occurrence is not due");
    revise(&engine, &rules, Applicability::NotApplicable, 1);
    let task = engine.tick(minutes(1), 10).remove(0);
    assert_eq!(flush(&engine, &task, Some(2), minutes(1)), Some(3));
    engine.tick(minutes(1), 10);
    assert_eq!((engine.gauges().series, engine.gauges().pending_occurrences), (0, 0));
    assert_eq!(engine.counters()[0].counters.received(), 3, "what it counted stays");
}

#[test]
fn a_policy_that_governs_again_keeps_its_series() {
    let (engine, rules) = (engine(), rules());
    merge_one(&engine, &rules, "shop");
    revise(&engine, &rules, Applicability::NotApplicable, 1);
    revise(&engine, &rules, Applicability::Governs, 1);
    let third = engine.decide(by(&rules), &named("cart.3", write()), minutes(1));
    assert_eq!(third.disposition, Some(Disposition::Compacted));
    assert_eq!(engine.counters().len(), 1);
}

#[test]
fn the_counters_of_a_deleted_namespace_are_retained() {
    let (engine, rules) = (engine(), rules());
    merge_one(&engine, &rules, "shop");
    revise(&engine, &rules, Applicability::Unknown, 1);
    discard_pending(&engine, minutes(11));
    assert_eq!((engine.counters().len(), gone_counts(&engine)), (1, (0, 0)), "it may be a new one");
    engine.tick(minutes(12), 10);
    assert_eq!((engine.counters().len(), gone_counts(&engine)), (0, (2, 1)));

    // Another namespace is deleted the same way, then the policy.
    merge_one(&engine, &rules, "bank");
    revise(&engine, &rules, Applicability::Unknown, 13);
    discard_pending(&engine, minutes(24));
    assert_eq!((engine.counters().len(), gone_counts(&engine)), (0, (4, 2)));
    assert_eq!(engine.all_counters().len(), 1);
    engine.revise(&[], minutes(26));
    assert!(engine.all_counters().is_empty());
}

#[test]
fn a_namespace_that_becomes_known_again_keeps_its_scope() {
    let (engine, rules) = (engine(), rules());
    merge_one(&engine, &rules, "shop");
    revise(&engine, &rules, Applicability::Unknown, 1);
    revise(&engine, &rules, Applicability::Governs, 2);
    revise(&engine, &rules, Applicability::Unknown, 9);
    discard_pending(&engine, minutes(18));
    assert_eq!((engine.counters().len(), gone_counts(&engine)), (1, (0, 0)));
}

#[test]
fn a_namespaced_policy_keeps_its_scope_in_an_unknown_namespace() {
    let (engine, rules) = (engine(), rules());
    let known_policy = KnownPolicy {
        policy: rules.policy.clone(),
        namespace: Some("shop".into()),
        rules: Some(Arc::new(rules.clone())),
    };
    for minute in [0, 20] {
        engine.revise_within(
            std::slice::from_ref(&known_policy),
            |_, _| Applicability::Unknown,
            minutes(minute),
        );
        engine.tick(minutes(minute), 10);
        assert_eq!((engine.counters().len(), gone_counts(&engine)), (1, (0, 0)));
    }
}
