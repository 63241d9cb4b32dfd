//! Regression tests. Each one failed once.

mod capacity;
mod created_again;
mod messages;
mod names;
mod namespaces;
mod summaries;

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::testing::{at, by, counters, engine, flush, named, planned, revise, rules, stored, update, write};

#[test]
fn observe_counts_what_enforce_counts_however_slowly_a_client_writes() {
    let enforcing = rules();
    let observing = Rules { mode: Mode::Observe, ..enforcing.clone() };
    let (one, other) = (engine(), engine());
    let (mut stored, mut before) = (0i64, 0i64);
    for value in 1..=60i64 {
        let now = at(value as u64 * 3000);
        let (enforced, observed) =
            if value == 1 { (write(), write()) } else { (update(value, stored), update(value, before)) };
        let e = one.decide(by(&enforcing), &enforced, now);
        let o = other.decide(by(&observing), &observed, now);
        assert_eq!(o.disposition, e.disposition, "value {value}, stored under Enforce {stored}");
        if e.answer == Answer::Allow {
            stored = value;
        }
        before = value;
        let late = at(value as u64 * 3000 + 2500);
        for task in one.tick(late, 100) {
            if let Some(v) = flush(&one, &task, Some(stored), late) {
                stored = v;
            }
        }
        assert!(other.tick(late, 100).is_empty());
    }
}

#[test]
fn a_busy_namespace_does_not_starve_the_flushes_of_others() {
    let (engine, rules) = (engine(), rules());
    let engine = {
        drop(engine);
        Engine::new(Settings {
            seed: [3, 4],
            max_series: 1_000_000,
            max_pending_series: 100_000,
            began: Timestamp::UNIX_EPOCH,
        })
    };
    let spaces: Vec<String> = (0..6).map(|n| format!("ns{n}")).collect();
    let mut handed: std::collections::BTreeMap<String, usize> = Default::default();
    let mut number = 0;
    // Each namespace adds 30 pending series a second. The writer does 20 flushes a second.
    for round in 0..6000u64 {
        let now = at(round * 100);
        for ns in &spaces {
            for _ in 0..3 {
                number += 1;
                for twice in 0..2 {
                    let name = format!("x.{number}.{twice}");
                    let mut w = Observation { namespace: ns, ..named(&name, write()) };
                    w.event.message = number.to_string().into();
                    engine.decide(by(&rules), &w, now);
                }
            }
        }
        for task in engine.tick(now, 2) {
            *handed.entry(task.namespace.to_string()).or_default() += 1;
            flush(&engine, &task, Some(1), now);
        }
    }
    assert_eq!(handed.len(), spaces.len(), "tasks in 10 minutes: {handed:?} {:?}", engine.gauges());
}

#[test]
fn a_delayed_flush_task_does_not_conflict_with_a_client_write() {
    let (engine, rules) = (engine(), rules());
    engine.decide(by(&rules), &write(), at(0));
    engine.decide(by(&rules), &named("cart.2", write()), at(1));
    let task = engine.tick(at(2500), 10).remove(0);
    // The task waits for `--flush-qps`. Meanwhile the client writes its own Event (total 3).
    let v = engine.decide(by(&rules), &update(2, 1), at(12_000));
    let v2 = engine.decide(by(&rules), &Observation { value: 2, ..write() }, at(12_001));
    let v3 = engine.decide(by(&rules), &Observation { value: 3, ..write() }, at(12_002));
    assert_eq!(v3.answer, Answer::Allow, "{v:?} {v2:?}");
    assert_eq!(
        engine.plan(&task, None, at(12_003)),
        FlushPlan::Nothing,
        "the client's own CREATE was admitted 1 ms ago"
    );
}

#[test]
fn disabling_series_with_pending_occurrences_counts_nothing_twice() {
    let (engine, on) = (engine(), rules());
    let off = Rules { series: None, ..on.clone() };
    let mut stored = 1;
    engine.decide(by(&on), &write(), at(0));
    for b in 2..=7 {
        if engine.decide(by(&on), &update(b, stored), at(b as u64)).answer == Answer::Allow {
            stored = b;
        }
    }
    assert_eq!(stored, 4);
    revise(&engine, &off, at(100));
    assert_eq!(engine.decide(by(&off), &update(8, 4), at(101)).answer, Answer::Allow);
    stored = 8;
    for task in engine.tick(at(5000), 10) {
        if let Some(v) = flush(&engine, &task, Some(stored), at(5000)) {
            stored = v;
        }
    }
    let c = counters(&engine);
    assert_eq!(
        stored as u64,
        c.of(Disposition::Admitted) + c.of(Disposition::Compacted) + c.recovered,
        "{c:?}"
    );
}

#[test]
fn occurrences_reported_again_while_draining_are_recovered() {
    let (engine, rules) = (engine(), rules());
    let (mut n, mut m) = (1, 1);
    engine.decide(by(&rules), &named("n", write()), at(0));
    let mut t = 400_000;
    engine.tick(at(t), 10); // n's series is over
    engine.decide(by(&rules), &named("m", write()), at(t));
    // The recorder of n continues. Its occurrences are merged into the series of m, and its values grow.
    for b in 2..=10 {
        engine.decide(by(&rules), &named("n", update(b, n)), at(t + b as u64));
    }
    t += 5000;
    while engine.gauges().series > 0 {
        for o in engine.tick(at(t), 10) {
            assert_eq!(&*o.name, "m");
            if let Some(v) = flush(&engine, &o, Some(m), at(t)) {
                m = v;
            }
        }
        t += 1000;
    }
    assert_eq!((m, n), (10, 1));
    assert_ne!(engine.decide(by(&rules), &named("n", update(11, n)), at(t)).answer, Answer::Allow); // total 2 is not 11
    engine.drain();
    assert_eq!(engine.decide(by(&rules), &named("n", update(12, n)), at(t + 1)).answer, Answer::Allow);
    n = 12;
    for o in engine.tick(at(t + 2), 10) {
        if let Some(v) = flush(&engine, &o, Some(n), at(t + 2)) {
            n = v;
        }
    }
    assert_eq!(engine.unflushed(), 0);
    let c = counters(&engine);
    assert_eq!(
        (m + n) as u64,
        c.of(Disposition::Admitted) + c.of(Disposition::Compacted) + c.recovered,
        "{c:?}"
    );
}

/// A stall is over. The API server has stored three writes of a client without an answer, and squelch counts them now, in
/// any order.
#[test]
fn writes_counted_out_of_order_are_recovered_once() {
    // Values, and the stored counts before. The first write repeats 8 occurrences that are merged into the series of m.
    let late = [(10, 1), (11, 10), (12, 11)];
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let (engine, rules) = (engine(), rules());
        engine.decide(by(&rules), &named("n", write()), at(0));
        engine.tick(at(400_000), 10); // n's series is over
        engine.decide(by(&rules), &named("m", write()), at(400_000));
        for value in 2..=9 {
            engine.decide(by(&rules), &named("n", update(value, 1)), at(400_000 + value as u64));
        }
        assert_eq!(counters(&engine).of(Disposition::Compacted), 8);
        for (value, old_value) in order.map(|number| late[number]) {
            engine.fail_open(by(&rules), &named("n", update(value, old_value)), at(402_500));
        }
        let undecided = counters(&engine).of(Disposition::FailedOpen);
        assert_eq!((undecided, counters(&engine).recovered), (3, 8), "order {order:?}");
        // Later writes are not affected.
        engine.fail_open(by(&rules), &named("n", update(15, 12)), at(402_600));
        engine.fail_open(by(&rules), &named("n", update(15, 9)), at(402_700));
        let undecided = counters(&engine).of(Disposition::FailedOpen);
        assert_eq!((undecided, counters(&engine).recovered), (6, 14), "order {order:?}");
    }
}

#[test]
fn a_create_without_occurrences_causes_a_read() {
    let (engine, rules) = (engine(), rules());
    engine.decide(by(&rules), &write(), at(0));
    for n in 0..99u64 {
        let name = format!("x{n}");
        engine.decide(by(&rules), &named(&name, write()), at(1 + n));
    }
    let o = engine.tick(at(3000), 10).remove(0);
    assert_eq!(flush(&engine, &o, Some(1), at(3000)), Some(100));
    // Deleted by a person and created again by a client with nothing new.
    assert_eq!(engine.decide(by(&rules), &write(), at(4000)).answer, Answer::Allow);
    assert_eq!(engine.tick(at(60_000), 10).len(), 1, "shows 1 of 100 and has no task");
}

#[test]
fn a_client_write_refused_after_admission_is_flushed() {
    let (engine, rules) = (engine(), rules());
    let ev = |w: Observation<'static>| Observation { api: Api::Events, has_series: w.value > 1, ..w };
    engine.decide(by(&rules), &ev(write()), at(0));
    for (b, old) in [(2, 1), (3, 2), (4, 3)] {
        println!("{:?}", engine.decide(by(&rules), &ev(update(b, old)), at(b as u64)));
    }
    let v = engine.decide(by(&rules), &ev(update(1000, 3)), at(5000));
    assert_eq!(v.answer, Answer::Allow);
    // The API server refused it after admission: etcd shows 3 of 1000.
    assert!(!engine.tick(at(60_000), 10).is_empty(), "total >= 2 x confirmed: read first");
}

#[test]
fn a_busy_client_does_not_delay_the_shutdown() {
    let (engine, rules) = (engine(), rules());
    engine.decide(by(&rules), &write(), at(0));
    let (mut b, mut stored) = (1, 1);
    let mut report = |now: u64, stored: &mut i64| {
        b += 1;
        if engine.decide(by(&rules), &update(b, *stored), at(now)).answer == Answer::Allow {
            *stored = b;
        }
    };
    for n in 1..=7 {
        report(n, &mut stored);
    }
    engine.drain();
    let mut now = 10;
    for _ in 0..300 {
        // 30 s of ticks with 50 writes a second, and a writer that flushes at once.
        if engine.unflushed() == 0 {
            return;
        }
        for o in engine.tick(at(now), 512) {
            if let Some(v) = flush(&engine, &o, Some(stored), at(now)) {
                stored = v;
            }
        }
        for k in 1..=5 {
            report(now + k * 20, &mut stored);
        }
        now += 100;
    }
    panic!("not flushed within --shutdown-timeout; pending: {}", engine.gauges().pending_occurrences);
}

#[test]
fn a_create_without_a_name_is_admitted_for_the_api_server_to_refuse() {
    let (engine, rules) = (engine(), rules());
    let nameless = Observation { name: None, generate_name: "".into(), ..write() };
    assert_eq!(engine.decide(by(&rules), &nameless, at(0)).answer, Answer::Allow);
    assert_eq!(engine.gauges().series, 0);
}

#[test]
fn an_occurrence_beyond_the_maximum_count_is_counted_as_lost() {
    let (engine, rules) = (engine(), rules());
    engine.decide(by(&rules), &Observation { value: i64::from(i32::MAX) - 10, ..write() }, at(0));
    for number in 2..102 {
        engine.decide(by(&rules), &named(&format!("cart.{number}"), write()), at(1));
    }
    assert_eq!(counters(&engine).of(Disposition::Compacted), 100);
    assert_eq!((engine.gauges().pending_occurrences, counters(&engine).lost), (10, 90));
}

/// The reviews of a CREATE and an UPDATE timed out, and the API server stored both. squelch finds the CREATE after it has merged
/// a retry of it.
#[test]
fn a_late_create_does_not_reset_a_confirmed_count() {
    let (engine, rules) = (engine(), rules());
    engine.fail_open(by(&rules), &named("m", write()), at(0));
    engine.decide(by(&rules), &named("m", update(2, 2)), at(0));
    engine.fail_open(by(&rules), &named("m", Observation { value: 2, ..write() }), at(0));
    engine.decide(by(&rules), &named("other", write()), at(10));
    let merged = counters(&engine).of(Disposition::Compacted);
    assert_eq!(merged, 2);
    engine.decide(by(&rules), &named("m", update(4, 3)), at(20));
    let task = engine.tick(at(400_000), 10).remove(0);
    // 4 of this client, and the other client's.
    assert_eq!(flush(&engine, &task, Some(3), at(400_000)), Some(5));
}

/// Two CREATEs of one client, of 1 and 2, are reviewed. The API server has stored the first, whose client retries it without an
/// answer, and refuses the second with 409.
#[test]
fn a_retry_of_an_earlier_create_does_not_hide_a_refused_one() {
    let (engine, rules) = (engine(), rules());
    for value in [1, 2, 1] {
        engine.decide(by(&rules), &Observation { value, ..write() }, at(0));
    }
    engine.tick(at(400_000), 10); // its series is over
    assert_eq!(engine.decide(by(&rules), &update(2, 1), at(400_000)).answer, Answer::Allow);
}

/// A person deletes the Event, and its client starts again at 1 under the same name.
#[test]
fn an_event_created_anew_with_a_lower_count_stores_what_its_client_reports() {
    for reported in [2, 3] {
        let (engine, rules) = (engine(), rules());
        for value in [2, 1] {
            engine.decide(by(&rules), &Observation { value, ..write() }, at(0));
        }
        engine.tick(at(400_000), 10);
        assert_eq!(engine.decide(by(&rules), &update(reported, 1), at(400_000)).answer, Answer::Allow);
        assert!(engine.tick(at(800_000), 10).is_empty(), "nothing more to store");
    }
}

/// The Event has expired. Its client has restarted, and counts again from 1 under the same name.
#[test]
fn an_event_created_anew_does_not_get_the_count_of_the_deleted_one() {
    let (engine, rules) = (engine(), rules());
    let at_second = |second, write| {
        let last_observed = Some(Timestamp::from_second(second).unwrap());
        Observation { last_observed, ..write }
    };
    engine.decide(by(&rules), &at_second(1, Observation { value: 10, ..write() }), at(0));
    engine.tick(at(400_000), 10);
    engine.decide(by(&rules), &at_second(400, write()), at(400_000));
    let repeat = engine.decide(by(&rules), &at_second(401, update(2, 1)), at(401_000));
    assert_eq!((repeat.answer, engine.gauges().pending_occurrences), (Answer::Allow, 0));
}
