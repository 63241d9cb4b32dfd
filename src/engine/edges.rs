//! Where the contract is easily missed: each test was once a fault.

use std::sync::Arc;
use std::time::Duration;

use super::testing::{at, by, counters, engine, named, pay, rules, update, write};
use super::*;

#[test]
fn observe_counts_what_enforce_counts_however_slowly_a_client_writes() {
    let enforcing = rules();
    let observing = Rules { mode: Mode::Observe, ..enforcing.clone() };
    let (one, other) = (engine(), engine());
    let (mut stored, mut before) = (0i64, 0i64);
    for value in 1..=60i64 {
        let now = at(value as u64 * 3000);
        let (held, seen) =
            if value == 1 { (write(), write()) } else { (update(value, stored), update(value, before)) };
        let e = one.decide(by(&enforcing), &held, now);
        let o = other.decide(by(&observing), &seen, now);
        assert_eq!(o.disposition, e.disposition, "value {value}, stored under Enforce {stored}");
        if e.answer == Answer::Allow {
            stored = value;
        }
        before = value;
        let late = at(value as u64 * 3000 + 2500);
        for order in one.tick(late, 100) {
            if let Some(v) = pay(&one, &order, Some(stored), late) {
                stored = v;
            }
        }
        assert!(other.tick(late, 100).is_empty());
    }
}

#[test]
fn a_busy_namespace_leaves_orders_for_all() {
    let (engine, rules) = (engine(), rules());
    let engine = {
        drop(engine);
        Engine::new(Settings {
            seed: [3, 4],
            max_series: 1_000_000,
            max_owing: 100_000,
            began: Timestamp::UNIX_EPOCH,
        })
    };
    let spaces: Vec<String> = (0..6).map(|n| format!("ns{n}")).collect();
    let mut handed: std::collections::BTreeMap<String, usize> = Default::default();
    let mut number = 0;
    // Each namespace alone makes 30 debts a second (distinct messages, each told twice); --flush-qps 20.
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
        for order in engine.tick(now, 2) {
            *handed.entry(order.namespace.to_string()).or_default() += 1;
            pay(&engine, &order, Some(1), now);
        }
    }
    assert_eq!(handed.len(), spaces.len(), "orders in 10 minutes: {handed:?} {:?}", engine.gauges());
}

#[test]
fn a_namespace_that_invents_names_makes_no_other_forget_its_own() {
    let engine = Engine::new(Settings {
        seed: [3, 4],
        max_series: 50,
        max_owing: 100_000,
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
        // a legacy recorder, whose CREATEs are refused under its own name
        truth += 1;
        received += engine
            .decide(by(&rules), &named("victim", Observation { value: b, ..write() }), at(1000 + b as u64))
            .occurrences;
    }
    assert_eq!(received, truth, "{:?}", engine.gauges());
}

#[test]
fn a_new_namespace_opens_series_where_another_has_filled_the_tables() {
    let engine = Engine::new(Settings {
        seed: [3, 4],
        max_series: 50,
        max_owing: 100_000,
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

/// An engine for one series, whose one series is that of `cart.1`: told twice, and paid.
fn full() -> (Engine, Rules) {
    let settings = Settings { seed: [3, 4], max_series: 1, max_owing: 100_000, began: Timestamp::UNIX_EPOCH };
    let (engine, rules) = (Engine::new(settings), rules());
    engine.decide(by(&rules), &write(), at(0));
    engine.decide(by(&rules), &named("cart.2", write()), at(1));
    for order in engine.tick(at(3000), 1) {
        assert_eq!(pay(&engine, &order, Some(1), at(3000)), Some(2));
    }
    (engine, rules)
}

#[test]
fn a_series_that_is_over_leaves_its_room_to_the_next_of_its_kind() {
    let (engine, rules) = full();
    // Its idle timeout is over, and no tick has said so. The client counts to 2, as squelch has.
    let next = engine.decide(by(&rules), &update(2, 2), at(363_000));
    assert_eq!(next.disposition, Some(Disposition::Compacted));
    let [order] = &engine.tick(at(800_000), 10)[..] else { panic!("nothing is owed") };
    assert_eq!(pay(&engine, order, Some(2), at(800_000)), Some(3));
}

#[test]
fn what_an_update_leaves_out_where_there_is_no_room_is_counted_as_lost() {
    let (engine, rules) = full();
    // Another series takes the room, and owes.
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
        &[Standing {
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
    assert_eq!(engine.gauges().series, 1, "the series lives");
    received +=
        engine.decide(by(&rules), &named("cart.2", Observation { value: 6, ..write() }), later).occurrences;
    assert_eq!(received, 6);
}

#[test]
fn an_order_that_waited_does_not_meet_a_clients_write() {
    let (engine, rules) = (engine(), rules());
    engine.decide(by(&rules), &write(), at(0));
    engine.decide(by(&rules), &named("cart.2", write()), at(1));
    let order = engine.tick(at(2500), 10).remove(0);
    // it waits for --flush-qps; meanwhile the client writes its own Event (total 3)
    let v = engine.decide(by(&rules), &update(2, 1), at(12_000));
    let v2 = engine.decide(by(&rules), &Observation { value: 2, ..write() }, at(12_001));
    let v3 = engine.decide(by(&rules), &Observation { value: 3, ..write() }, at(12_002));
    assert_eq!(v3.answer, Answer::Allow, "{v:?} {v2:?}");
    assert_eq!(
        engine.plan(&order, None, at(12_003)),
        Plan::Nothing,
        "the client's own CREATE was admitted 1 ms ago"
    );
}

#[test]
fn series_switched_off_while_owing_tell_nothing_twice() {
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
        &[Standing {
            policy: on.policy.clone(),
            namespace: Some("shop".into()),
            rules: Some(Arc::new(off.clone())),
        }],
        at(100),
    );
    assert_eq!(engine.decide(by(&off), &update(8, 4), at(101)).answer, Answer::Allow);
    stored = 8;
    for order in engine.tick(at(5000), 10) {
        if let Some(v) = pay(&engine, &order, Some(stored), at(5000)) {
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
fn what_a_client_tells_again_while_draining_is_recovered() {
    let (engine, rules) = (engine(), rules());
    let (mut n, mut m) = (1, 1);
    engine.decide(by(&rules), &named("n", write()), at(0));
    let mut t = 400_000;
    engine.tick(at(t), 10); // n's series is over
    engine.decide(by(&rules), &named("m", write()), at(t));
    // n's recorder goes on: folded into m's series, its values grow
    for b in 2..=10 {
        engine.decide(by(&rules), &named("n", update(b, n)), at(t + b as u64));
    }
    t += 5000;
    while engine.gauges().series > 0 {
        for o in engine.tick(at(t), 10) {
            assert_eq!(&*o.name, "m");
            if let Some(v) = pay(&engine, &o, Some(m), at(t)) {
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
        if let Some(v) = pay(&engine, &o, Some(n), at(t + 2)) {
            n = v;
        }
    }
    assert_eq!(engine.unpaid(), 0);
    let c = counters(&engine);
    assert_eq!(
        (m + n) as u64,
        c.of(Disposition::Admitted) + c.of(Disposition::Compacted) + c.recovered,
        "{c:?}"
    );
}

#[test]
fn a_create_that_carries_nothing_asks_for_a_read() {
    let (engine, rules) = (engine(), rules());
    engine.decide(by(&rules), &write(), at(0));
    for n in 0..99u64 {
        let name = format!("x{n}");
        engine.decide(by(&rules), &named(&name, write()), at(1 + n));
    }
    let o = engine.tick(at(3000), 10).remove(0);
    assert_eq!(pay(&engine, &o, Some(1), at(3000)), Some(100));
    // deleted by a person, and created again by a client that tells nothing new
    assert_eq!(engine.decide(by(&rules), &write(), at(4000)).answer, Answer::Allow);
    assert_eq!(engine.tick(at(60_000), 10).len(), 1, "shows 1 of 100, and nobody looks");
}

#[test]
fn a_clients_payment_that_was_refused_after_admission_is_made_good() {
    let (engine, rules) = (engine(), rules());
    let ev = |w: Observation<'static>| Observation { api: Api::Events, has_series: w.value > 1, ..w };
    engine.decide(by(&rules), &ev(write()), at(0));
    for (b, old) in [(2, 1), (3, 2), (4, 3)] {
        println!("{:?}", engine.decide(by(&rules), &ev(update(b, old)), at(b as u64)));
    }
    let v = engine.decide(by(&rules), &ev(update(1000, 3)), at(5000));
    assert_eq!(v.answer, Answer::Allow);
    // refused by the API server after admission: etcd shows 3 of 1000
    assert!(!engine.tick(at(60_000), 10).is_empty(), "total >= 2 x confirmed: read first");
}

#[test]
fn a_hot_client_does_not_put_off_the_end() {
    let (engine, rules) = (engine(), rules());
    engine.decide(by(&rules), &write(), at(0));
    let (mut b, mut stored) = (1, 1);
    let mut tell = |now: u64, stored: &mut i64| {
        b += 1;
        if engine.decide(by(&rules), &update(b, *stored), at(now)).answer == Answer::Allow {
            *stored = b;
        }
    };
    for n in 1..=7 {
        tell(n, &mut stored);
    }
    engine.drain();
    let mut now = 10;
    for _ in 0..300 {
        // 30 s of ticks, 50 writes a second, the writer pays at once
        if engine.unpaid() == 0 {
            return;
        }
        for o in engine.tick(at(now), 512) {
            if let Some(v) = pay(&engine, &o, Some(stored), at(now)) {
                stored = v;
            }
        }
        for k in 1..=5 {
            tell(now + k * 20, &mut stored);
        }
        now += 100;
    }
    panic!("still unpaid after --shutdown-timeout; owed {}", engine.gauges().owed);
}

#[test]
fn a_client_that_counts_its_repeats_from_one_counts_on() {
    let (engine, rules) = (engine(), rules());
    let series = |write| Observation { api: Api::Events, has_series: true, ..write };
    engine.decide(by(&rules), &Observation { api: Api::Events, ..write() }, at(0));
    // Restored, it would take over the Event without a series, and say 1 again each time: soon after the first, or
    // when squelch has forgotten the series.
    for now in [30, 500_000] {
        let first = engine.decide(by(&rules), &series(update(1, 1)), at(now));
        assert_eq!((first.occurrences, first.answer), (0, Answer::Deny(Denial::AlreadyExists)));
        engine.tick(at(now), 10);
    }
    let refresh = engine.decide(by(&rules), &series(update(299, 1)), at(1_800_000));
    assert_eq!((refresh.occurrences, refresh.answer), (298, Answer::Allow));
    assert_eq!(counters(&engine).received(), 299);
    // Its Event is gone, and it creates one, while the series lives under another name.
    let again = engine.decide(by(&rules), &series(named("cart.2", write())), at(1_800_001));
    assert_eq!(again.answer, Answer::Deny(Denial::AlreadyExists));
    let loud = Rules { rejection: Rejection::Forbidden, ..rules };
    let again = engine.decide(by(&loud), &series(named("cart.3", write())), at(1_800_002));
    assert_eq!(again.answer, Answer::Deny(Denial::Forbidden));
}
