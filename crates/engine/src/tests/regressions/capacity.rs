//! Tables at capacity.

use super::*;

#[test]
fn invented_names_evict_names_of_their_own_namespace_only() {
    let engine = Engine::new(Settings {
        seed: [3, 4],
        max_series: 50,
        max_pending_series: 100_000,
        began: Timestamp::UNIX_EPOCH,
    });
    let rules = rules();
    for n in 0..200 {
        let name = format!("h.{n}");
        engine.decide(by(&rules), &Observation { namespace: "hostile", ..named(&name, write()) }, at(n));
    }
    let (mut truth, mut received) = (0, 0);
    engine.decide(by(&rules), &write(), at(1000));
    for b in 1..=10 {
        // A legacy recorder whose CREATEs are refused under its own name.
        truth += 1;
        received += engine
            .decide(by(&rules), &named("victim", Observation { value: b, ..write() }), at(1000 + b as u64))
            .occurrences;
    }
    assert_eq!(received, truth, "{:?}", engine.gauges());
}

#[test]
fn a_new_namespace_can_open_series_at_capacity() {
    let engine = Engine::new(Settings {
        seed: [3, 4],
        max_series: 50,
        max_pending_series: 100_000,
        began: Timestamp::UNIX_EPOCH,
    });
    let rules = rules();
    for n in 0..60 {
        let name = format!("h.{n}");
        let mut w = named(&name, write());
        w.event.message = name.clone().into();
        engine.decide(by(&rules), &Observation { namespace: "hostile", ..w }, at(n));
    }
    engine.decide(by(&rules), &write(), at(1000));
    let second = engine.decide(by(&rules), &named("v.2", write()), at(1001));
    assert_eq!(second.disposition, Some(Disposition::Compacted));
}

/// Returns an engine for one series, which is that of `cart.1`: two occurrences, both stored.
fn at_capacity() -> (Engine, Rules) {
    let settings =
        Settings { seed: [3, 4], max_series: 1, max_pending_series: 100_000, began: Timestamp::UNIX_EPOCH };
    let (engine, rules) = (Engine::new(settings), rules());
    engine.decide(by(&rules), &write(), at(0));
    engine.decide(by(&rules), &named("cart.2", write()), at(1));
    for task in engine.tick(at(3000), 1) {
        assert_eq!(flush(&engine, &task, Some(1), at(3000)), Some(2));
    }
    (engine, rules)
}

#[test]
fn an_idle_series_makes_capacity_for_its_successor() {
    let (engine, rules) = at_capacity();
    // The series is idle, but no tick has removed it. The client counts to 2, as squelch did.
    let next = engine.decide(by(&rules), &update(2, 2), at(363_000));
    assert_eq!(next.disposition, Some(Disposition::Compacted));
    let [task] = &engine.tick(at(800_000), 10)[..] else { panic!("nothing is pending") };
    assert_eq!(flush(&engine, task, Some(2), at(800_000)), Some(3));
}

#[test]
fn occurrences_omitted_by_an_update_without_capacity_are_lost() {
    let (engine, rules) = at_capacity();
    // Another series takes the capacity and has pending occurrences.
    let other = |name| {
        let mut write = named(name, write());
        write.event.message = "Error: ErrImagePull".into();
        write
    };
    engine.decide(by(&rules), &other("other.1"), at(363_000));
    engine.decide(by(&rules), &other("other.2"), at(363_001));
    let next = engine.decide(by(&rules), &update(2, 2), at(363_002));
    assert_eq!((next.disposition, next.answer), (Some(Disposition::Admitted), Answer::Allow));
    assert_eq!(counters(&engine).lost, 1);
}

#[test]
fn evicting_the_record_of_an_ended_series_loses_nothing() {
    let (engine, rules) = (engine(), rules());
    let report = |name: &str, message: Option<String>, now| {
        let mut write = named(name, write());
        if let Some(message) = message {
            write.event.message = message.into();
        }
        engine.decide(by(&rules), &write, at(now));
    };
    report("cart.1", None, 0);
    for n in 0..99 {
        report(&format!("b.{n}"), None, 1);
    }
    for task in engine.tick(at(3000), 10) {
        flush(&engine, &task, Some(1), at(3000));
    }
    for n in 0..300 {
        for t in 0..2 {
            report(&format!("o.{n}.{t}"), Some(n.to_string()), 4000);
        }
    }
    for round in 0..100u64 {
        let now = at(400_000 + round * 100);
        for task in engine.tick(now, 1000) {
            flush(&engine, &task, Some(1), now);
        }
    }
    assert!(engine.gauges().ended_evicted > 0);
    let refresh = Observation { api: Api::Events, has_series: true, ..update(201, 100) };
    assert_ne!(engine.decide(by(&rules), &refresh, at(500_000)).answer, Answer::Allow);
}

#[test]
fn records_of_series_that_ticks_end_are_limited() {
    let settings =
        Settings { seed: [3, 4], max_series: 320, max_pending_series: 100_000, began: Timestamp::UNIX_EPOCH };
    let (engine, rules) = (Engine::new(settings), rules());
    for number in 0..300 {
        let namespace = format!("ns{number}");
        for name in ["a.1", "a.2"] {
            engine.decide(by(&rules), &Observation { namespace: &namespace, ..named(name, write()) }, at(0));
        }
    }
    for round in (0..40u64).map(|round| 3000 + round * 100).chain((0..100).map(|round| 400_000 + round * 100))
    {
        for task in engine.tick(at(round), 1000) {
            flush(&engine, &task, Some(1), at(round));
        }
    }
    let gauges = engine.gauges();
    assert_eq!(gauges.series, 0);
    assert!(gauges.ended <= 20 + 2 && gauges.ended_evicted > 150, "{gauges:?}");
}

#[test]
fn records_of_ended_series_are_uncounted_with_their_scope() {
    let (engine, rules) = (engine(), rules());
    engine.decide(by(&rules), &write(), at(0));
    engine.decide(by(&rules), &named("cart.2", write()), at(1));
    let task = engine.tick(at(2500), 10).remove(0);
    assert_eq!(flush(&engine, &task, Some(1), at(2500)), Some(2));
    engine.revise(&[], at(3000));
    (0..3).for_each(|more| drop(engine.tick(at(3001 + more), 10)));
    assert_eq!(engine.gauges().ended, 0);
    assert!(engine.is_counted_right());
}
