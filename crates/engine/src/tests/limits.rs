//! Limits on memory and on the time under a namespace's lock. The tests count entries instead of measuring.

mod slices;

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::PendingLimitAdmissions;
use crate::flush::tick::SLICE;
use crate::state::eviction::MAX_EVICTION_ATTEMPTS;
use crate::state::policy_changes::REVISED_AT_ONCE;
use crate::testing::{at, by, counters, flush, named, rules, write};

const HOUR: u64 = 3_600_000;

fn engine_for(max_series: usize) -> Engine {
    Engine::new(Settings {
        seed: [3, 4],
        max_series,
        max_pending_series: 100_000,
        began: Timestamp::UNIX_EPOCH,
    })
}

/// Returns a write with a message and name of its own.
fn distinct<'a>(namespace: &'a str, text: &'a str) -> Observation<'a> {
    let mut write = Observation { namespace, ..named(text, write()) };
    write.event.message = text.into();
    write
}

fn fill(engine: &Engine, rules: &Rules, namespace: &str, number: usize) {
    for number in 0..number {
        engine.decide(by(rules), &distinct(namespace, &format!("e.{number}")), at(0));
    }
}

fn known_policy(rules: &Rules) -> KnownPolicy {
    KnownPolicy {
        policy: rules.policy.clone(),
        namespace: Some("shop".into()),
        rules: Some(Arc::new(rules.clone())),
    }
}

/// Ticks until no series is left. Returns the number of series before each tick.
fn ticked_until_empty(engine: &Engine, now: Moment) -> Vec<usize> {
    let mut before = Vec::new();
    while engine.gauges().series > 0 {
        before.push(engine.gauges().series);
        assert!(engine.tick(now, 100).is_empty(), "nothing is pending");
        assert!(before.len() < 100, "{before:?}");
    }
    before
}

#[test]
fn long_names_evict_series_of_their_own_namespace_only() {
    let (engine, rules) = (engine_for(200), rules());
    fill(&engine, &rules, "shop", 50);
    let long = "x".repeat(240);
    for number in 0..2000 {
        engine.decide(by(&rules), &distinct("hostile", &format!("{long}.{number}")), at(number));
    }
    let gauges = engine.gauges();
    assert!(gauges.text <= 96 * 200 + 2 * 253, "{gauges:?}");
    assert!(gauges.series_evicted >= 1900, "{gauges:?}");
    for number in 0..50 {
        let reported = engine.decide(by(&rules), &distinct("shop", &format!("e.{number}")), at(3000));
        assert_eq!(reported.stage, Stage::Series, "e.{number} is live");
    }
}

#[test]
fn without_text_capacity_writes_are_admitted_and_nothing_is_lost() {
    let (engine, rules) = (engine_for(100), rules());
    let long = "x".repeat(1000);
    let write_of = |number: u64, name: &str| {
        let mut write = named("", write());
        write.name = Some(format!("{name}.{number}").into());
        write.event.message = format!("{number} {long}").into();
        write
    };
    let (mut truth, mut compacted) = (0, 0);
    for name in ["a", "b", "c"] {
        for number in 0..40 {
            truth += 1;
            let verdict = engine.decide(by(&rules), &write_of(number, name), at(number));
            compacted += u64::from(verdict.disposition == Some(Disposition::Compacted));
        }
    }
    let gauges = engine.gauges();
    let PendingLimitAdmissions { series, text } = gauges.pending_limit_admissions;
    assert!(series == 0 && text > 40 && compacted > 10, "{gauges:?}, {compacted} compacted");
    assert!(gauges.text <= 96 * 100 + 2000, "{gauges:?}");
    let counters = counters(&engine);
    assert_eq!((counters.received(), counters.of(Disposition::Compacted)), (truth, compacted));
    assert_eq!(gauges.pending_occurrences, compacted, "exactly the merged occurrences are pending");
}

#[test]
fn content_of_a_flushed_series_is_evicted_for_another() {
    let (engine, rules) = (engine_for(100), rules());
    let long = "x".repeat(1000);
    for number in 0..30 {
        for name in ["a", "b"] {
            let mut write = named("", write());
            write.name = Some(format!("{name}.{number}").into());
            write.event.message = format!("{number} {long}").into();
            engine.decide(by(&rules), &write, at(number * 10_000));
        }
        for task in engine.tick(at(number * 10_000 + 5000), 100) {
            flush(&engine, &task, Some(1), at(number * 10_000 + 5000));
        }
    }
    let gauges = engine.gauges();
    let admissions = (gauges.pending_occurrences, gauges.pending_limit_admissions);
    assert_eq!(admissions, (0, PendingLimitAdmissions::default()), "{gauges:?}");
    assert!(gauges.contents_evicted > 10 && gauges.text < 96 * 100 + 2000, "{gauges:?}");
}

/// Rules under which each write of [`of_its_own`] adds an entry to every table.
fn all_steps() -> Rules {
    Rules {
        aggregation: Some(AggregationRules {
            max_events: 1000,
            idle_timeout: Duration::from_secs(600),
            group_by: GroupBy::Object,
        }),
        spam_filter: Some(SpamFilterRules {
            // Full again at once, so that the filter passes everything.
            bucket: BucketRules { burst: 25.try_into().unwrap(), refill_interval: Duration::from_micros(1) },
            per: Per { emitter: true, object: true, event_type: true, reason: false },
        }),
        ..rules()
    }
}

/// Returns a write with a message of its own about an object of its own.
fn of_its_own<'a>(namespace: &'a str, text: &'a str) -> Observation<'a> {
    let mut write = distinct(namespace, text);
    write.event.regarding.name = text.into();
    write
}

/// Returns the numbers of series and names in each namespace.
fn by_namespace(engine: &Engine) -> Vec<(Arc<str>, usize, usize)> {
    let all = engine.namespace_list.all().into_iter();
    let of = |name: Arc<str>| {
        let sizes = engine.locked(&name).unwrap().sizes();
        (name, sizes.series, sizes.names)
    };
    all.map(of).collect()
}

#[test]
fn a_thousand_namespaces_filling_up_in_turn_stay_within_the_limits() {
    let (engine, rules, bound) = (engine_for(10_000), all_steps(), 10_000);
    let within = |gauges: &Gauges| {
        let beyond = |bound: usize| bound + bound.div_ceil(16);
        gauges.series <= beyond(bound)
            && gauges.names <= beyond(2 * bound)
            && gauges.groups <= beyond(bound / 2)
            && gauges.fingerprints <= beyond(bound)
            && gauges.buckets <= beyond(bound / 2)
            && gauges.text <= beyond(96 * bound) + 1000
    };
    let names: Vec<String> = (0..1000).map(|number| format!("team-{number}")).collect();
    let mut now = 0;
    for (number, namespace) in names.iter().enumerate() {
        // The first few fill the tables. Each of the others writes more than the final fair share.
        for write in 0..if number < 3 { 25_000 } else { 50 } {
            now += 1;
            engine.decide(by(&rules), &of_its_own(namespace, &format!("e.{write}")), at(now));
            let again = format!("e.{write}.again");
            engine.decide(by(&rules), &named(&again, of_its_own(namespace, "e.0")), at(now));
        }
        assert!(within(&engine.gauges()), "after {number}: {:?}", engine.gauges());
    }
    let gauges = engine.gauges();
    let slack = 1000 / MAX_EVICTION_ATTEMPTS;
    assert!(gauges.series <= bound + slack && gauges.names <= 2 * bound + slack, "{gauges:?}");
    for (name, series, _) in by_namespace(&engine) {
        assert!(series >= 8, "{name} has {series} of 10");
    }
}

#[test]
fn invented_keys_evict_entries_of_their_own_namespace_only() {
    let (engine, rules) = (engine_for(1000), all_steps());
    let names: Vec<String> = (0..100).map(|number| format!("team-{number}")).collect();
    for namespace in &names {
        for write in 0..10 {
            engine.decide(by(&rules), &of_its_own(namespace, &format!("e.{write}")), at(0));
        }
    }
    for number in 0..20_000 {
        engine.decide(by(&rules), &of_its_own("team-0", &format!("more.{number}")), at(number));
        engine.decide(by(&rules), &of_its_own("hostile", &format!("more.{number}")), at(number));
    }
    let churned = ["team-0", "hostile"];
    for (name, series, names) in by_namespace(&engine) {
        if !churned.contains(&&*name) {
            assert!(series >= 9 && names >= 10, "{name} has {series} series, {names} names left");
        }
    }
    assert!(engine.gauges().series <= 1000 + 100 / MAX_EVICTION_ATTEMPTS, "{:?}", engine.gauges());
}

/// A decision goes through all scopes of its namespace, under a lock that other namespaces share.
#[test]
fn a_policy_that_is_not_in_force_takes_no_scope() {
    let (engine, rules) = (engine_for(1000), rules());
    let policy = |number: usize| PolicyId {
        display: format!("shop/p{number}").into(),
        uid: format!("u{number}").into(),
    };
    let policies: Vec<_> =
        (0..1_000).map(|number| known_policy(&Rules { policy: policy(number), ..rules.clone() })).collect();
    let revise = |in_force: std::ops::Range<usize>, now| {
        let in_force: Vec<_> = in_force.map(policy).collect();
        let applicability = |_: &str, policy: &PolicyId| {
            if in_force.contains(policy) { Applicability::Governs } else { Applicability::NotApplicable }
        };
        engine.revise_within(&policies, applicability, now);
    };
    revise(0..64, at(0));
    assert_eq!(engine.counters().len(), 64);
    // Others take their places, as when priorities are edited.
    revise(64..128, at(1000));
    engine.tick(at(1000), 10);
    engine.tick(at(2000), 10);
    assert_eq!(engine.counters().len(), 64);
}
