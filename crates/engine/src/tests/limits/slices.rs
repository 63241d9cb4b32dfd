//! Work that ticks do in slices.

use super::*;

#[test]
fn a_turn_processes_one_slice_of_each_table() {
    let (engine, rules) = (engine_for(10_000), all_steps());
    for number in 0..5000 {
        engine.decide(by(&rules), &of_its_own("shop", &format!("e.{number}")), at(0));
    }
    let full = engine.gauges();
    assert_eq!((full.series, full.groups, full.buckets, full.names), (5000, 5000, 5000, 5000));
    let mut tasks = Vec::new();
    let processed = engine.tick_namespace(&"shop".into(), at(48 * HOUR), 100, &mut tasks);
    let left = engine.gauges();
    assert_eq!(processed, 4 * SLICE);
    assert_eq!(
        [left.series, left.groups, left.buckets, left.names],
        [5000 - SLICE; 4],
        "idle, silent, full again and forgotten"
    );
}

#[test]
fn a_tick_is_bounded_and_the_next_one_continues() {
    let (engine, rules) = (engine_for(10_000), rules());
    fill(&engine, &rules, "shop", 5000);
    fill(&engine, &rules, "other", 5000);
    let before = ticked_until_empty(&engine, at(HOUR));
    assert!(before.windows(2).all(|two| two[0] - two[1] <= 500), "{before:?}");
    assert!(before.len() >= 20 && before.len() <= 30, "{before:?}");
}

#[test]
fn a_changed_policy_revises_its_series_in_slices() {
    let (engine, rules) = (engine_for(10_000), rules());
    fill(&engine, &rules, "shop", 5000);
    let off = Rules { series: None, ..rules };
    engine.revise(&[known_policy(&off)], at(1));
    assert_eq!(engine.gauges().series, 5000 - REVISED_AT_ONCE);
    let before = ticked_until_empty(&engine, at(2));
    assert!(before.len() >= 10, "{before:?}");
}

#[test]
fn a_shorter_heartbeat_makes_all_flushes_due_earlier() {
    let (engine, rules) = (engine_for(10_000), rules());
    fill(&engine, &rules, "shop", 500);
    for number in 0..500 {
        // The stored count is 10 and one occurrence is pending: not due before the heartbeat.
        let name = format!("e.{number}");
        let write = distinct("shop", &name);
        let reported = |value, old_value| Observation {
            operation: Operation::Update,
            value,
            old_value,
            ..write.clone()
        };
        assert_eq!(engine.decide(by(&rules), &reported(10, 1), at(1)).answer, Answer::Allow);
        assert_eq!(
            engine.decide(by(&rules), &reported(11, 10), at(2)).answer,
            Answer::Deny(Denial::AlreadyExists)
        );
    }
    assert!(engine.tick(at(60_000), 1000).is_empty());
    let mut hasty = rules.clone();
    hasty.series.as_mut().unwrap().heartbeat_interval = Duration::from_secs(10);
    engine.revise(&[known_policy(&hasty)], at(60_001));
    let tasks: usize = (0..20).map(|tick| engine.tick(at(60_002 + tick), 1000).len()).sum();
    assert_eq!(tasks, 500);
}

#[test]
fn a_deleted_policy_is_removed_in_slices() {
    let (engine, rules) = (engine_for(10_000), rules());
    fill(&engine, &rules, "shop", 5000);
    engine.revise(&[], at(1));
    let before = ticked_until_empty(&engine, at(2));
    assert!(before.len() >= 10, "{before:?}");
    engine.tick(at(3), 100);
    engine.tick(at(600_003), 100);
    assert!(engine.counters().is_empty());
    // Its counters are retained.
    assert_eq!(engine.gauges(), Gauges { namespaces: 1, names: 5000, ..Gauges::default() });
}

#[test]
fn draining_finds_all_pending_series() {
    let (engine, rules) = (engine_for(20_000), rules());
    fill(&engine, &rules, "shop", 10_000);
    for number in (0..10_000).step_by(1000) {
        let text = format!("e.{number}");
        let again = named("another", distinct("shop", &text));
        let again = Observation { name: Some(format!("again.{number}").into()), ..again };
        assert_eq!(engine.decide(by(&rules), &again, at(1)).disposition, Some(Disposition::Compacted));
    }
    engine.drain();
    assert_eq!(engine.unflushed(), 10);
    let mut flushed = 0;
    for _ in 0..20 {
        for task in engine.tick(at(10), 100) {
            assert_eq!(flush(&engine, &task, Some(1), at(10)), Some(2));
            flushed += 1;
        }
    }
    assert_eq!((flushed, engine.unflushed(), engine.gauges().pending_occurrences), (10, 0, 0));
}
