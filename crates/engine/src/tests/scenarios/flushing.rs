//! Pending occurrences and their flushes.

use super::*;

#[test]
fn a_closing_series_is_flushed_and_removed() {
    let (engine, rules) = (engine(), rules());
    engine.decide(by(&rules), &write(), at(0));
    for value in 2..=7 {
        engine.decide(by(&rules), &update(value, if value > 4 { 4 } else { value - 1 }), at(value as u64));
    }
    let Gauges { series, names, pending_occurrences: pending, pending_series, text, .. } = engine.gauges();
    assert_eq!((series, names, pending, pending_series), (1, 1, 3, 1));
    assert!(text > "cart.1".len(), "what is needed to create it again is kept");
    assert!(engine.tick(at(360_007), 10).is_empty(), "not idle yet");
    let tasks = engine.tick(at(360_008), 10);
    assert_eq!(tasks.len(), 1);
    assert!(engine.tick(at(400_000), 10).is_empty(), "one task at a time");
    assert_eq!(flush(&engine, &tasks[0], Some(4), at(400_000)), Some(7));
    assert_eq!(engine.gauges(), Gauges { namespaces: 1, names: 1, ..Gauges::default() });
    assert_eq!(engine.unflushed(), 0);
}

#[test]
fn a_continuing_storm_does_not_delay_the_shutdown() {
    let (engine, rules) = (engine(), rules());
    let reported = answers(&engine, &rules, &[write(), update(2, 1), update(3, 2)]);
    assert_eq!(reported[2], compacted(1, CONFLICT));
    engine.drain();
    assert_eq!(engine.decide(by(&rules), &update(4, 2), at(4000)).answer, Answer::Allow);
    assert_eq!(engine.unflushed(), 1, "the write includes the merged occurrences, but may not be committed");
    let task = engine.tick(at(4100), 10).remove(0);
    assert_eq!(flush(&engine, &task, Some(4), at(4200)), None);
    for value in 5..50 {
        assert_eq!(engine.decide(by(&rules), &update(value, value - 1), at(4300)).answer, Answer::Allow);
        assert_eq!(engine.unflushed(), 0, "everything merged is confirmed in etcd");
    }
}

#[test]
fn pending_occurrences_in_observe_do_not_delay_the_shutdown() {
    let engine = engine();
    let observing = Rules { mode: Mode::Observe, ..rules() };
    for value in 1..=50 {
        let seen = if value == 1 { write() } else { update(value, value - 1) };
        engine.decide(by(&observing), &seen, at(value as u64));
    }
    assert_eq!(engine.gauges().pending_occurrences, 0, "every write is stored");
    engine.drain();
    assert!(engine.tick(at(100), 10).is_empty());
    assert_eq!((engine.unflushed(), engine.discard_pending()), (0, Vec::new()));
}

#[test]
fn a_failed_flush_stays_pending_and_is_retried() {
    let (engine, rules) = (engine(), rules());
    engine.decide(by(&rules), &write(), at(0));
    engine.decide(by(&rules), &named("cart.2", write()), at(1));
    assert!(engine.tick(at(1999), 10).is_empty(), "the client's own write has two seconds to itself");
    let task = engine.tick(at(2000), 10).remove(0);
    engine.requeue_after(&task, Duration::from_secs(1), at(2100));
    assert_eq!(engine.gauges().pending_occurrences, 1);
    assert!(engine.tick(at(3099), 10).is_empty());
    let task = engine.tick(at(3100), 10).remove(0);
    assert_eq!(flush(&engine, &task, Some(1), at(3200)), Some(2));
    assert_eq!(engine.gauges().pending_occurrences, 0);
}

#[test]
fn a_deleted_event_is_recreated_only_for_pending_occurrences() {
    let (engine, rules) = (engine(), rules());
    engine.decide(by(&rules), &write(), at(0));
    engine.decide(by(&rules), &named("cart.2", write()), at(1));
    let task = engine.tick(at(2000), 10).remove(0);
    assert_eq!(flush(&engine, &task, Some(1), at(2000)), Some(2));
    for name in ["cart.3", "cart.4"] {
        engine.decide(by(&rules), &named(name, write()), at(3000));
    }
    let task = engine.tick(at(5000), 10).remove(0);
    assert_eq!(flush(&engine, &task, None, at(5000)), Some(4), "read before, and two are pending");
    engine.decide(by(&rules), &named("cart.5", write()), at(6000));
    engine.drain();
    let task = engine.tick(at(6001), 10).remove(0);
    assert_eq!(flush(&engine, &task, Some(5), at(6001)), None, "another client has stored it");
    assert_eq!(engine.unflushed(), 0);
}

#[test]
fn squelch_does_not_create_an_event_that_the_api_server_never_stored() {
    let (engine, rules) = (engine(), rules());
    engine.decide(by(&rules), &write(), at(0));
    engine.decide(by(&rules), &named("cart.2", write()), at(1));
    let mut plans = Vec::new();
    for millisecond in (0..8000).step_by(500) {
        for task in engine.tick(at(millisecond), 10) {
            plans.push((millisecond, engine.plan(&task, None, at(millisecond))));
        }
    }
    let (last, waited) = plans.split_last().unwrap();
    assert!(waited.iter().all(|(_, plan)| *plan == FlushPlan::Wait), "{plans:?}");
    assert_eq!(*last, (5000, FlushPlan::Lost { occurrences: 1 }), "{plans:?}");
    assert_eq!((counters(&engine).lost, engine.gauges().series, engine.unflushed()), (1, 0, 0));
    let third = engine.decide(by(&rules), &named("cart.3", write()), at(8000));
    assert_eq!(third, admitted(Stage::Admit, 1), "its client sees why the API server refuses it");
}

#[test]
fn draining_waits_for_an_event_that_may_still_be_stored() {
    let (engine, rules) = (engine(), rules());
    engine.decide(by(&rules), &write(), at(0));
    engine.decide(by(&rules), &named("cart.2", write()), at(1));
    engine.drain();
    let task = engine.tick(at(2), 10).remove(0);
    assert_eq!(engine.plan(&task, None, at(3)), FlushPlan::Wait);
    assert_eq!(engine.unflushed(), 1);
    let task = engine.tick(at(1100), 10).remove(0);
    assert_eq!(flush(&engine, &task, Some(1), at(1100)), Some(2));
    assert_eq!((engine.unflushed(), counters(&engine).lost), (0, 0));
}

#[test]
fn another_event_of_the_same_name_is_never_written() {
    let forged = |change: fn(&mut EventView<'static>)| {
        let mut event = write().event;
        change(&mut event);
        stored(1, &event)
    };
    let older = StoredEvent { age: Some(Duration::from_secs(63)), ..forged(|_| {}) };
    let others = [
        older,
        forged(|event| event.regarding.uid = "other".into()),
        forged(|event| event.event_type = "Normal".into()),
        forged(|event| event.reason = "Other".into()),
        forged(|event| event.reporting_component = "other".into()),
    ];
    for other in others {
        let (engine, rules) = (engine(), rules());
        engine.decide(by(&rules), &write(), at(0));
        engine.decide(by(&rules), &named("cart.2", write()), at(1));
        let task = engine.tick(at(2000), 10).remove(0);
        assert_eq!(engine.plan(&task, Some(other), at(2000)), FlushPlan::Lost { occurrences: 1 });
        assert_eq!((counters(&engine).lost, engine.gauges().series), (1, 0));
    }
    for own in [forged(|_| {}), forged(|event| event.message = "core/v1 lets it change".into())] {
        let (engine, rules) = (engine(), rules());
        engine.decide(by(&rules), &write(), at(0));
        engine.decide(by(&rules), &named("cart.2", write()), at(1));
        let task = engine.tick(at(2000), 10).remove(0);
        let own = StoredEvent { age: Some(Duration::from_secs(62)), ..own };
        assert!(matches!(engine.plan(&task, Some(own), at(2000)), FlushPlan::Write { value: 2, .. }));
    }
}

#[test]
fn an_event_is_recreated_with_the_content_that_was_read() {
    let (engine, rules) = (engine(), rules());
    engine.decide(by(&rules), &write(), at(0));
    engine.decide(by(&rules), &named("cart.2", write()), at(1));
    let task = engine.tick(at(2000), 10).remove(0);
    let read = EventView { labels: r#"{"added":"by-another-webhook"}"#, ..write().event };
    assert!(matches!(
        engine.plan(&task, Some(stored(1, &read)), at(2000)),
        FlushPlan::Write { value: 2, .. }
    ));
    let FlushPlan::Create { value: 2, content, witness: None, .. } = engine.plan(&task, None, at(2001))
    else {
        panic!("it was read, and is gone")
    };
    assert_eq!(content.view().labels, r#"{"added":"by-another-webhook"}"#);
}

#[test]
fn discarded_occurrences_are_counted_as_lost() {
    let (engine, rules) = (engine(), rules());
    engine.decide(by(&rules), &write(), at(0));
    engine.decide(by(&rules), &named("cart.2", write()), at(1));
    let task = engine.tick(at(2000), 10).remove(0);
    assert!(matches!(planned(&engine, &task, Some(1), at(2000)), FlushPlan::Write { value: 2, .. }));
    assert_eq!(engine.discard(&task), 1);
    assert_eq!((counters(&engine).lost, engine.gauges().pending_occurrences, engine.unflushed()), (1, 0, 0));
}

#[test]
fn a_deleted_policy_flushes_and_is_removed() {
    let (engine, rules) = (engine(), rules());
    engine.decide(by(&rules), &write(), at(0));
    engine.decide(by(&rules), &named("cart.2", write()), at(1));
    engine.revise(&[], at(2000));
    let task = engine.tick(at(2001), 10).remove(0);
    assert_eq!(flush(&engine, &task, Some(1), at(2002)), Some(2));
    engine.tick(at(2003), 10);
    engine.tick(at(602_003), 10);
    assert!(engine.counters().is_empty());
}

#[test]
fn switching_to_observe_flushes_what_enforce_merged() {
    let (engine, enforcing) = (engine(), rules());
    engine.decide(by(&enforcing), &write(), at(0));
    engine.decide(by(&enforcing), &named("cart.2", write()), at(1));
    let observing = Rules { mode: Mode::Observe, ..enforcing };
    revise(&engine, &observing, at(2000));
    let observed = engine.decide(by(&observing), &named("cart.3", write()), at(2001));
    assert_eq!(observed, admitted(Stage::Admit, 1));
    let task = engine.tick(at(2002), 10).remove(0);
    assert_eq!(flush(&engine, &task, Some(1), at(2003)), Some(2));
}

/// A write without a decision does not include what others reported to the same series.
#[test]
fn an_undecided_write_leaves_pending_occurrences_pending() {
    let (engine, rules) = (engine(), rules());
    answers(&engine, &rules, &[write(), named("cart.2", write()), named("cart.3", write())]);
    assert_eq!(engine.gauges().pending_occurrences, 2);
    engine.fail_open(by(&rules), &update(2, 1), at(4000));
    assert_eq!(counters(&engine).of(Disposition::FailedOpen), 1);
    engine.drain();
    let task = engine.tick(at(10_000), 10).remove(0);
    assert_eq!(flush(&engine, &task, Some(2), at(10_001)), Some(4));
}

/// A client's own count is absolute. Without a decision it lowers the stored count until the next flush.
#[test]
fn an_undecided_write_that_lowers_a_count_is_overwritten() {
    let (engine, rules) = (engine(), rules());
    answers(&engine, &rules, &[write(), named("cart.2", write()), named("cart.3", write())]);
    let task = engine.tick(at(3100), 10).remove(0);
    assert_eq!(flush(&engine, &task, Some(1), at(3101)), Some(3));
    engine.fail_open(by(&rules), &update(2, 3), at(4000));
    engine.drain();
    let task = engine.tick(at(10_000), 10).remove(0);
    assert_eq!(flush(&engine, &task, Some(2), at(10_001)), Some(4));
}
