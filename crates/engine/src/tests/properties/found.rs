//! Cases that random tests found, each as a test of its own.

use super::*;
use crate::testing::{engine, flush, named, summing, update, witness};

#[test]
fn an_idle_summary_is_removed_with_or_without_a_tick() {
    let (rules, user) = (summing(), write().user);
    let plans = [false, true].map(|ticks_on_time| {
        let engine = engine();
        witness(&engine, &rules, user, at(0));
        engine.decide(by(&rules), &write(), at(0));
        let task = engine.tick(at(100), 10).remove(0);
        assert_eq!(flush(&engine, &task, None, at(100)), Some(1));
        if ticks_on_time {
            engine.tick(at(600_001), 10);
        }
        // The stored summary has expired as well. A new one counts what comes after it.
        witness(&engine, &rules, user, at(700_000));
        engine.decide(by(&rules), &named("cart.2", write()), at(700_000));
        let task = engine.tick(at(700_100), 10).remove(0);
        flush(&engine, &task, None, at(700_100))
    });
    assert_eq!(plans, [Some(1), Some(1)]);
}

#[test]
fn an_idle_series_is_not_updated_while_draining() {
    let counted = [false, true].map(|ticks_on_time| {
        let (engine, rules) = (engine(), rules());
        engine.decide(by(&rules), &write(), at(0));
        if ticks_on_time {
            engine.tick(at(400_000), 10);
        }
        engine.drain();
        // Its CREATE was never stored, and its client starts again.
        engine.decide(by(&rules), &write(), at(400_001));
        (counters(&engine), engine.gauges().series)
    });
    assert_eq!(counted[0], counted[1]);
    assert_eq!(counted[0].0.recovered, 1);
}

#[test]
fn without_capacity_a_lowering_update_is_refused_and_counted_as_lost() {
    let engine = Engine::new(Settings {
        seed: [3, 4],
        max_series: 1,
        max_pending_series: 100_000,
        began: Timestamp::UNIX_EPOCH,
    });
    let rules = rules();
    engine.decide(by(&rules), &write(), at(0));
    engine.decide(by(&rules), &named("cart.2", write()), at(1));
    let names: Vec<String> = (0..5).map(|number| format!("x.{number}")).collect();
    for name in &names {
        let mut lowering = named(name, update(2, 9));
        lowering.event.message = name.as_str().into();
        let verdict = engine.decide(by(&rules), &lowering, at(2));
        assert_eq!(verdict.answer, Answer::Deny(Denial::AlreadyExists));
        assert_eq!((verdict.disposition, verdict.occurrences), (Some(Disposition::Compacted), 1));
    }
    assert_eq!(engine.gauges().series, 1);
    assert_eq!(counters(&engine).lost, 5, "counted where it cannot be flushed");
}

#[test]
fn namespaces_are_visited_in_the_same_order_in_every_engine() {
    let tasks = || {
        let (engine, rules) = (engine(), rules());
        for (number, namespace) in ["shop", "till", "yard", "pier", "dock", "mill"].into_iter().enumerate() {
            for name in ["a", "b"] {
                let reported = Observation { namespace, ..named(name, write()) };
                engine.decide(by(&rules), &reported, at(number as u64));
            }
        }
        let tasks = engine.tick(at(3000), 100);
        tasks.iter().map(|task| task.namespace.to_string()).collect::<Vec<_>>()
    };
    let first = tasks();
    assert_eq!(first.len(), 6);
    for _ in 0..10 {
        assert_eq!(tasks(), first);
    }
}

#[test]
fn a_summary_is_closed_on_time_despite_newer_ones() {
    let rules = summing();
    let engine = engine();
    let mut stored = None;
    witness(&engine, &rules, write().user, at(0));
    for (number, name) in ["a.1", "a.2", "a.3"].into_iter().enumerate() {
        engine.decide(by(&rules), &named(name, write()), at(number as u64));
        for task in engine.tick(at(number as u64), 10) {
            stored = flush(&engine, &task, stored, at(number as u64)).or(stored);
        }
    }
    assert_eq!((stored, engine.gauges().pending_occurrences), (Some(2), 1));
    // It waits for its group and is checked. Then another summary is opened.
    engine.tick(at(400_000), 10);
    witness(&engine, &rules, "another", at(500_000));
    engine.decide(by(&rules), &Observation { user: "another", ..named("b.1", write()) }, at(500_000));
    let task = engine.tick(at(500_000), 10).remove(0);
    assert_eq!(flush(&engine, &task, None, at(500_000)), Some(1));
    let task = engine.tick(at(600_003), 10).remove(0);
    assert_eq!(flush(&engine, &task, stored, at(600_003)), Some(3));
}

#[test]
fn a_failed_flush_keeps_no_series_beyond_its_idle_timeout() {
    let mut rules = rules();
    rules.series.as_mut().unwrap().idle_timeout = Duration::from_secs(10);
    let decided = [false, true].map(|fails| {
        let engine = engine();
        engine.decide(by(&rules), &update(3, 2), at(0));
        engine.decide(by(&rules), &named("cart.2", write()), at(1));
        if fails {
            let task = engine.tick(at(1000), 10).remove(0);
            engine.requeue_after(&task, Duration::from_secs(60), at(1000));
        }
        // It shows that everything is stored, so that the series has nothing to flush.
        engine.decide(by(&rules), &update(3, 4), at(2000));
        engine.decide(by(&rules), &named("cart.3", write()), at(13_000)).disposition
    });
    assert_eq!(decided, [Some(Disposition::Admitted); 2]);
}
