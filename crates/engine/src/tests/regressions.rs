//! Regression tests. Each one failed once.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::testing::{at, by, counters, engine, flush, named, rules, update, write};

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
fn a_new_namespace_can_open_series_in_full_tables() {
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
fn full() -> (Engine, Rules) {
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
    let (engine, rules) = full();
    // The series is idle, but no tick has removed it. The client counts to 2, as squelch did.
    let next = engine.decide(by(&rules), &update(2, 2), at(363_000));
    assert_eq!(next.disposition, Some(Disposition::Compacted));
    let [task] = &engine.tick(at(800_000), 10)[..] else { panic!("nothing is pending") };
    assert_eq!(flush(&engine, task, Some(2), at(800_000)), Some(3));
}

#[test]
fn occurrences_omitted_by_an_update_without_capacity_are_lost() {
    let (engine, rules) = full();
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
fn a_name_outlives_its_series() {
    let (engine, mut rules) = (engine(), rules());
    rules.series.as_mut().unwrap().idle_timeout = Duration::from_secs(48 * 3600);
    engine.revise(
        &[KnownPolicy {
            policy: rules.policy.clone(),
            namespace: Some("shop".into()),
            rules: Some(Arc::new(rules.clone())),
        }],
        at(0),
    );
    engine.decide(by(&rules), &write(), at(0));
    let mut received = 0;
    for b in 1..=5 {
        received += engine
            .decide(by(&rules), &named("cart.2", Observation { value: b, ..write() }), at(b as u64))
            .occurrences;
    }
    let later = at(25 * 3600 * 1000);
    engine.tick(later, 10);
    assert_eq!(engine.gauges().series, 1, "the series is live");
    received +=
        engine.decide(by(&rules), &named("cart.2", Observation { value: 6, ..write() }), later).occurrences;
    assert_eq!(received, 6);
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
    engine.revise(
        &[KnownPolicy {
            policy: on.policy.clone(),
            namespace: Some("shop".into()),
            rules: Some(Arc::new(off.clone())),
        }],
        at(100),
    );
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
fn an_old_client_that_counts_from_one_keeps_counting() {
    let (engine, rules) = (engine(), rules());
    let series = |write| Observation { api: Api::Events, has_series: true, ..write };
    engine.decide(by(&rules), &Observation { api: Api::Events, ..write() }, at(0));
    // After [`Answer::Restore`] the client would adopt an Event without a series and report 1 each time. Soon
    // after the first repeat, and after squelch has removed the series.
    for now in [30, 500_000] {
        let first = engine.decide(by(&rules), &series(update(1, 1)), at(now));
        assert_eq!((first.occurrences, first.answer), (0, Answer::Deny(Denial::AlreadyExists)));
        engine.tick(at(now), 10);
    }
    let refresh = engine.decide(by(&rules), &series(update(299, 1)), at(1_800_000));
    assert_eq!((refresh.occurrences, refresh.answer), (298, Answer::Allow));
    assert_eq!(counters(&engine).received(), 299);
    // Its Event is gone and it creates another one, while the series is live under another name.
    let again = engine.decide(by(&rules), &series(named("cart.2", write())), at(1_800_001));
    assert_eq!(again.answer, Answer::Deny(Denial::AlreadyExists));
    let loud = Rules { rejection: Rejection::Forbidden, ..rules };
    let again = engine.decide(by(&loud), &series(named("cart.3", write())), at(1_800_002));
    assert_eq!(again.answer, Answer::Deny(Denial::Forbidden));
}

#[test]
fn a_client_that_reads_increments_and_writes_back_is_counted() {
    let (engine, rules) = (engine(), rules());
    engine.decide(by(&rules), &write(), at(0));
    let mut stored = 1;
    for n in 1..=100u64 {
        let last_observed = Some(Timestamp::from_second(n as i64).unwrap());
        let next = Observation { last_observed, ..update(stored + 1, stored) };
        for repeated in [false, true] {
            // The API server may send a write twice after a conflict. It carries one occurrence.
            if engine.decide(by(&rules), &next, at(n * 1000 + u64::from(repeated))).answer == Answer::Allow {
                stored = next.value;
            }
            assert_eq!(stored + engine.gauges().pending_occurrences as i64, n as i64 + 1);
        }
        for task in engine.tick(at(n * 1000 + 500), 10) {
            if let Some(value) = flush(&engine, &task, Some(stored), at(n * 1000 + 500)) {
                stored = value;
            }
        }
    }
    engine.drain();
    for task in engine.tick(at(200_000), 10) {
        stored = flush(&engine, &task, Some(stored), at(200_000)).unwrap_or(stored);
    }
    assert_eq!((counters(&engine).received(), stored), (101, 101));
}

#[test]
fn a_create_of_another_users_name_changes_nothing() {
    let (engine, rules) = (engine(), rules());
    engine.decide(by(&rules), &write(), at(0));
    for (name, value) in [("cart.1", 2_000_000_000), ("x.2", 1)] {
        let mut forged = Observation { user: "tenant", value, ..named(name, write()) };
        forged.event.message = "forged".into();
        let verdict = engine.decide(by(&rules), &forged, at(1));
        assert_eq!((verdict.answer, verdict.occurrences), (Answer::Allow, 1));
    }
    assert!(engine.tick(at(3000), 10).is_empty(), "nothing is pending");
    let next = engine.decide(by(&rules), &update(2, 1), at(4000)).occurrences;
    assert_eq!((counters(&engine).received(), counters(&engine).recovered, next), (4, 0, 1));
}

#[test]
fn an_undecided_create_of_another_users_name_changes_nothing() {
    let (engine, rules) = (engine(), rules());
    engine.decide(by(&rules), &write(), at(0));
    engine.fail_open(by(&rules), &Observation { user: "tenant", value: 2_000_000_000, ..write() }, at(1));
    let next = engine.decide(by(&rules), &update(2, 1), at(4000));
    assert_eq!((next.occurrences, next.answer), (1, Answer::Allow));
    assert_eq!((counters(&engine).of(Disposition::FailedOpen), counters(&engine).recovered), (1, 0));
}

#[test]
fn a_create_of_another_users_name_is_limited() {
    let engine = engine();
    let rules = Rules {
        budget: Some(BucketRules { burst: 2.try_into().unwrap(), refill_interval: Duration::from_secs(300) }),
        ..rules()
    };
    engine.decide(by(&rules), &write(), at(0));
    let forged = Observation { user: "tenant", ..write() };
    let reported = [1, 2].map(|now| engine.decide(by(&rules), &forged, at(now)).disposition);
    assert_eq!(reported, [Some(Disposition::Admitted), Some(Disposition::Throttled)]);
}

#[test]
fn a_name_claimed_by_a_create_belongs_to_the_user_who_updates_it() {
    let (engine, rules) = (engine(), rules());
    let taken = Observation { user: "tenant", value: 2_000_000_000, ..write() };
    engine.decide(by(&rules), &taken, at(0));
    engine.decide(by(&rules), &named("x.2", taken), at(1));
    assert!(
        engine.gauges().pending_occurrences > 0,
        "the tenant's own series, until an UPDATE shows the owner"
    );
    engine.decide(by(&rules), &write(), at(2));
    let next = engine.decide(by(&rules), &update(2, 1), at(3));
    assert_eq!((next.occurrences, next.answer), (1, Answer::Allow));
    assert_eq!(engine.gauges().pending_occurrences, 0);
    assert!(counters(&engine).lost > 0);
    assert_eq!(engine.decide(by(&rules), &update(3, 2), at(4)).occurrences, 1);
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

/// Returns the write by this user at this second of their clock.
fn by_user<'a>(user: &'a str, second: i64, write: Observation<'a>) -> Observation<'a> {
    Observation { user, last_observed: Some(Timestamp::from_second(second).unwrap()), ..write }
}

#[test]
fn several_users_that_read_and_add_one_are_counted() {
    let (engine, rules) = (engine(), rules());
    engine.decide(by(&rules), &by_user("a", 1, write()), at(1000));
    let mut stored = 1;
    for second in 2..=120 {
        let user = if second % 3 == 0 { "b" } else { "a" };
        let next = by_user(user, second, update(stored + 1, stored));
        let now = at(second as u64 * 1000);
        if engine.decide(by(&rules), &next, now).answer == Answer::Allow {
            stored = next.value;
        }
        for task in engine.tick(now, 10) {
            stored = flush(&engine, &task, Some(stored), now).unwrap_or(stored);
        }
        assert_eq!(stored + engine.gauges().pending_occurrences as i64, second);
    }
    assert_eq!(counters(&engine).received(), 120);
}

#[test]
fn occurrences_that_passed_unseen_are_counted_with_the_next_write_of_their_client() {
    let (engine, rules) = (engine(), rules());
    engine.decide(by(&rules), &by_user("u", 1, write()), at(0));
    engine.decide(by(&rules), &by_user("u", 1, named("cart.2", write())), at(1));
    let task = engine.tick(at(3000), 10).remove(0);
    assert_eq!(flush(&engine, &task, Some(1), at(3000)), Some(2));
    // The client's PATCH to 2 passes without a review and changes nothing in etcd. Its PATCH to 3 looks as if a
    // client had read the flushed count and added one. Counting it for one would lose an occurrence silently.
    let next = engine.decide(by(&rules), &by_user("u", 10, update(3, 2)), at(10_000));
    assert_eq!(next.occurrences, 2);
}

#[test]
fn a_retried_create_loses_nothing() {
    type Again = fn(&Engine, &Rules);
    let again: [Again; 2] = [
        |engine, rules| drop(engine.decide(by(rules), &write(), at(10_000))),
        |engine, rules| engine.fail_open(by(rules), &write(), at(10_000)),
    ];
    let found = |count, seconds| {
        Some(StoredEvent { age: Some(Duration::from_secs(seconds)), ..StoredEvent::with_count(count) })
    };
    for again in again {
        let (engine, rules) = (engine(), rules());
        engine.decide(by(&rules), &write(), at(0));
        engine.decide(by(&rules), &named("cart.2", write()), at(1));
        let task = engine.tick(at(9000), 10).remove(0);
        assert!(matches!(engine.plan(&task, found(1, 9), at(9000)), FlushPlan::Write { value: 2, .. }));
        engine.ack(&task, 2, at(9000));
        again(&engine, &rules);
        engine.decide(by(&rules), &named("cart.3", write()), at(11_000));
        let task = engine.tick(at(13_000), 10).remove(0);
        assert_eq!(
            engine.plan(&task, found(2, 13), at(13_000)),
            FlushPlan::Nothing,
            "one more than two is not due"
        );
        assert_eq!((counters(&engine).lost, engine.gauges().pending_occurrences), (0, 1));
    }
}

#[test]
fn another_users_update_discards_nothing_of_a_read_event() {
    let (engine, rules) = (engine(), rules());
    for n in 0..5 {
        engine.decide(by(&rules), &named(&format!("cart.{n}"), write()), at(0));
    }
    let task = engine.tick(at(2000), 10).remove(0);
    assert_eq!(flush(&engine, &task, Some(1), at(2000)), Some(5));
    engine.decide(by(&rules), &named("cart.9", write()), at(3000));
    let another = Observation { user: "nobody", ..named("cart.0", update(6, 5)) };
    engine.decide(by(&rules), &another, at(4000));
    assert_eq!(counters(&engine).lost, 0);
}

#[test]
fn a_count_claimed_by_another_user_does_not_hide_the_owners_occurrences() {
    let (engine, rules) = (engine(), rules());
    engine.decide(by(&rules), &by_user("owner", 1, write()), at(0));
    engine.decide(by(&rules), &by_user("nobody", 2, update(2_000_000_000, 1)), at(1000));
    // The write is refused behind the webhook, and the series is idle.
    let next = engine.decide(by(&rules), &by_user("owner", 500, update(2, 1)), at(500_000));
    assert_eq!(next.occurrences, 1);
}

#[test]
fn an_event_of_the_same_name_about_another_object_is_no_witness() {
    let (engine, rules) = (engine(), crate::testing::summing());
    let about = |object: &'static str, name: &'static str| {
        let mut write = named(name, write());
        write.event.regarding.name = object.into();
        write
    };
    engine.decide(by(&rules), &about("refused", "n"), at(0));
    let stored = about("allowed", "n");
    engine.decide(by(&rules), &stored, at(1000));
    engine.decide(by(&rules), &about("refused", "m"), at(2000));
    let task = engine.tick(at(5000), 10).remove(0);
    assert!(matches!(engine.plan(&task, None, at(5000)), FlushPlan::Create { .. }));
    let content = Some(Box::new(Content::of(&stored.event)));
    let read = StoredEvent { count: 1, age: Some(Duration::from_secs(4)), content };
    assert_eq!(engine.check_witness(&task, Some(read), at(5000)), FlushPlan::Lost { occurrences: 1 });
}

#[test]
fn a_changed_summary_is_restored_by_the_next_flush() {
    let (engine, rules) = (engine(), crate::testing::summing());
    crate::testing::witness(&engine, &rules, write().user, at(0));
    engine.decide(by(&rules), &named("a.1", write()), at(0));
    let task = engine.tick(at(100), 10).remove(0);
    assert_eq!(flush(&engine, &task, None, at(100)), Some(1));
    for name in ["a.2", "a.3"] {
        engine.decide(by(&rules), &named(name, write()), at(200));
    }
    let task = engine.tick(at(300), 10).remove(0);
    let changed =
        StoredEvent { content: Some(Box::new(Content::of(&write().event))), ..StoredEvent::with_count(1) };
    assert!(matches!(engine.plan(&task, Some(changed), at(300)), FlushPlan::Write { value: 3, .. }));
}

#[test]
fn a_witness_has_a_valid_name_and_is_removed_when_refused() {
    let (engine, rules) = (engine(), crate::testing::summing());
    let long = "x".repeat(300);
    engine.decide(by(&rules), &named(&long, write()), at(0));
    assert_eq!(engine.decide(by(&rules), &named("a.1", write()), at(1)).answer, Answer::Allow);
    engine.decide(by(&rules), &named("a.2", write()), at(2));
    let task = engine.tick(at(100), 10).remove(0);
    assert!(matches!(engine.plan(&task, None, at(100)), FlushPlan::Create { witness: Some(_), .. }));
    assert_eq!(engine.discard(&task), 1);
    let next = engine.decide(by(&rules), &named("a.3", write()), at(200));
    assert_eq!(next.answer, Answer::Allow, "its client sees why the API server refuses it");
}

#[test]
fn a_create_without_a_name_is_admitted_for_the_api_server_to_refuse() {
    let (engine, rules) = (engine(), rules());
    let nameless = Observation { name: None, generate_name: "".into(), ..write() };
    assert_eq!(engine.decide(by(&rules), &nameless, at(0)).answer, Answer::Allow);
    assert_eq!(engine.gauges().series, 0);
}

/// Returns rules under which Events about all Pods share a summary.
fn across_objects() -> Rules {
    let aggregation =
        AggregationRules { max_events: 1, interval: Duration::from_secs(600), group_by: GroupBy::Kind };
    Rules { aggregation: Some(aggregation), ..rules() }
}

/// Returns an Event about this Pod with its own message.
fn about<'a>(pod: &'a str, name: &'a str) -> Observation<'a> {
    let mut about = named(name, write());
    about.event.regarding.name = pod.into();
    about.event.message = name.into();
    about
}

/// Writes Events about this Pod, each of which is aggregated.
fn storm(engine: &Engine, rules: &Rules, pod: &str, names: std::ops::Range<i64>, now: u64) {
    for number in names {
        let verdict = engine.decide(by(rules), &about(pod, &format!("{pod}.{number}")), at(now));
        assert_eq!(verdict.disposition, Some(Disposition::Aggregated), "{pod}.{number}");
    }
}

#[test]
fn the_name_of_the_next_summary_cannot_be_derived_from_a_previous_one() {
    let (engine, rules) = (engine(), across_objects());
    let known_policy = KnownPolicy {
        policy: rules.policy.clone(),
        namespace: Some("shop".into()),
        rules: Some(Arc::new(rules.clone())),
    };
    engine.revise(&[known_policy], at(0));
    let summary_of = |pod: &str, now: u64| {
        engine.decide(by(&rules), &about(pod, &format!("{pod}.1")), at(now));
        storm(&engine, &rules, pod, 2..5, now + 1);
        let tasks = engine.tick(at(now + 3000), 10);
        let task = tasks.into_iter().find(|task| *task.name != *format!("{pod}.1")).unwrap();
        flush(&engine, &task, None, at(now + 3000)).unwrap();
        task.name.to_string()
    };
    let first = summary_of("cart", 0);
    for second in 5..1000 {
        for task in engine.tick(at(second * 1000), 10) {
            engine.plan(&task, Some(StoredEvent::with_count(3)), at(second * 1000));
        }
    }
    assert_eq!(engine.gauges().series, 0);
    let second = summary_of("till", 1_100_000);
    let digits = |name: &str| name.rsplit_once('.').unwrap().1.to_owned();
    assert_ne!(digits(&first), digits(&second));
}

#[test]
fn a_summary_continues_from_a_higher_count_that_squelch_did_not_write() {
    for (found, pending, lost) in [(1000, 100, 0), (i64::from(i32::MAX), 0, 100)] {
        let (engine, rules) = (engine(), across_objects());
        engine.decide(by(&rules), &about("cart", "cart.1"), at(0));
        storm(&engine, &rules, "cart", 2..4, 1);
        let task = engine.tick(at(3000), 10).remove(0);
        assert_eq!(flush(&engine, &task, None, at(3000)), Some(2));
        storm(&engine, &rules, "cart", 4..104, 4000);
        let task = engine.tick(at(5000), 10).remove(0);
        assert_eq!(flush(&engine, &task, Some(found), at(5000)), None, "a tenth more is not due yet");
        assert_eq!((engine.gauges().pending_occurrences, counters(&engine).lost), (pending, lost));
    }
}

#[test]
fn one_user_cannot_exhaust_the_count_of_a_shared_summary() {
    let (engine, rules) = (engine(), across_objects());
    engine.decide(by(&rules), &about("cart", "cart.1"), at(0));
    storm(&engine, &rules, "cart", 2..3, 1);
    let huge = Observation { user: "tenant", value: i64::from(i32::MAX), ..about("x", "tenant.1") };
    let verdict = engine.decide(by(&rules), &huge, at(2));
    assert_eq!((verdict.disposition, &verdict.answer), (Some(Disposition::Admitted), &Answer::Allow));
    storm(&engine, &rules, "cart", 3..103, 3);
    let aggregated = counters(&engine).of(Disposition::Aggregated);
    assert_eq!((aggregated, engine.gauges().pending_occurrences, counters(&engine).lost), (101, 101, 0));
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

/// No other user may claim a generated name, with or without series.
#[test]
fn a_generated_name_belongs_to_the_user_of_the_write() {
    for series in [rules().series, None] {
        let rules = Rules { series, ..across_objects() };
        let engine = engine();
        let generated = Observation { name: None, generate_name: "cart.".into(), user: "owner", ..write() };
        let Answer::AllowNamed(name) = engine.decide(by(&rules), &generated, at(0)).answer else {
            panic!("no name was generated");
        };
        let before = counters(&engine);
        let claimed = Observation { user: "tenant", value: 7, ..about("x", &name) };
        assert_eq!(engine.decide(by(&rules), &claimed, at(1)).answer, Answer::Allow);
        assert_eq!(counters(&engine).received() - before.received(), 1, "the API server refuses it with 409");
    }
}

#[test]
fn a_flush_that_comes_too_early_proves_no_name() {
    let (engine, rules) = (engine(), rules());
    // A tenant claims the name of another user's Event. The API server refuses the CREATE.
    let claim = Observation { user: "tenant", ..write() };
    engine.decide(by(&rules), &claim, at(0));
    engine.decide(by(&rules), &named("x.2", claim.clone()), at(1));
    let task = engine.tick(at(2500), 10).remove(0);
    engine.decide(by(&rules), &Observation { value: 2, ..claim }, at(2600));
    let mut owned = update(2, 1);
    owned.event.reason = "Other".into();
    let content = Some(Box::new(Content::of(&owned.event)));
    let found = StoredEvent { content, ..StoredEvent::with_count(1) };
    assert_eq!(engine.plan(&task, Some(found), at(2700)), FlushPlan::Nothing, "the claim was just repeated");
    let verdict = engine.decide(by(&rules), &owned, at(3000));
    assert_eq!((verdict.occurrences, verdict.answer), (1, Answer::Allow));
    assert_eq!((counters(&engine).lost, engine.gauges().pending_occurrences), (1, 0));
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
