//! Names of Events and the users who write them.

use super::*;

#[test]
fn a_name_outlives_its_series() {
    let (engine, mut rules) = (engine(), rules());
    rules.series.as_mut().unwrap().idle_timeout = Duration::from_secs(48 * 3600);
    revise(&engine, &rules, at(0));
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
fn a_client_that_reads_before_a_flush_and_patches_after_it_is_counted() {
    let (engine, rules) = (engine(), rules());
    engine.decide(by(&rules), &write(), at(0));
    let (mut stored, mut read) = (1, 1);
    for n in 1..=100u64 {
        let last_observed = Some(Timestamp::from_second(n as i64).unwrap());
        // A patch without a resource version: the count may be higher than the one that was read.
        let next = Observation { last_observed, ..update(read + 1, stored) };
        for repeated in [false, true] {
            if engine.decide(by(&rules), &next, at(n * 1000 + u64::from(repeated))).answer == Answer::Allow {
                stored = next.value;
            }
            assert_eq!(stored + engine.gauges().pending_occurrences as i64, n as i64 + 1);
        }
        read = stored;
        for task in engine.tick(at(n * 1000 + 500), 10) {
            if let Some(value) = flush(&engine, &task, Some(stored), at(n * 1000 + 500)) {
                stored = value;
            }
        }
    }
    assert_eq!(counters(&engine).received(), 101);
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
        |engine, rules| drop(engine.fail_open(by(rules), &write(), at(10_000))),
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

/// After a restart, a client retries the CREATE of an Event that the former process had flushed.
#[test]
fn a_refused_create_hides_nothing_that_others_report() {
    for (found, written) in [(1, 3), (2, 4), (5, 7)] {
        let (engine, rules) = (engine(), rules());
        engine.decide(by(&rules), &write(), at(0));
        for name in ["cart.2", "cart.3"] {
            engine.decide(by(&rules), &named(name, write()), at(1));
        }
        let task = engine.tick(at(2000), 10).remove(0);
        assert_eq!(flush(&engine, &task, Some(found), at(2000)), Some(written), "{found} were stored");
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
fn an_update_whose_event_was_read_before_the_last_flush_of_its_series_loses_nothing() {
    for answer_is_lost in [false, true] {
        read_before_the_last_flush(answer_is_lost);
    }
}

/// The answer to the flush may be lost. Then the next read shows what it has written.
fn read_before_the_last_flush(answer_is_lost: bool) {
    let mut rules = rules();
    rules.series.as_mut().unwrap().idle_timeout = Duration::from_secs(6);
    let engine = engine();
    engine.decide(by(&rules), &write(), at(0));
    let mut stored = 1;
    for value in 2..=31i64 {
        if engine.decide(by(&rules), &update(value, stored), at(10)).answer == Answer::Allow {
            stored = value;
        }
    }
    let read = stored;
    let tasks: Vec<_> = [8_000, 8_100].into_iter().flat_map(|now| engine.tick(at(now), 10)).collect();
    let [task] = &tasks[..] else { panic!("{tasks:?}") };
    if answer_is_lost {
        assert!(matches!(planned(&engine, task, Some(read), at(8_200)), FlushPlan::Write { value: 31, .. }));
        engine.requeue_after(task, Duration::ZERO, at(8_200));
        let tasks = engine.tick(at(10_000), 10);
        assert_eq!((tasks.len(), flush(&engine, &tasks[0], Some(31), at(10_000))), (1, None));
    } else {
        assert_eq!(flush(&engine, task, Some(read), at(8_200)), Some(31));
    }
    stored = 31;
    assert_eq!(engine.gauges().series, 0);
    // If the write passes, it meets a conflict, and squelch is asked again.
    if engine.decide(by(&rules), &update(32, read), at(10_100)).answer == Answer::Allow
        && engine.decide(by(&rules), &update(32, stored), at(10_100)).answer == Answer::Allow
    {
        stored = 32;
    }
    for value in 33..=60 {
        if engine.decide(by(&rules), &update(value, stored), at(10_100)).answer == Answer::Allow {
            stored = value;
        }
    }
    assert_eq!(stored + engine.gauges().pending_occurrences as i64, 60);
    assert_eq!(counters(&engine).received(), 60);
}

/// Reports an occurrence as a client that replaces or creates: a CREATE under its fixed name, and after a 409, from
/// squelch or from storage, an UPDATE of what it reads. Both have the same time.
fn replaces_or_creates(engine: &Engine, rules: &Rules, create: i64, stored: &mut i64, second: u64) {
    let last_observed = Some(Timestamp::from_second(second as i64).unwrap());
    let now = at(second * 1000);
    let created = Observation { value: create, last_observed, ..write() };
    if engine.decide(by(rules), &created, now).answer == Answer::Allow && *stored == 0 {
        *stored = create;
        return;
    }
    for _ in 0..10 {
        let replaced = Observation { last_observed, ..update(*stored + 1, *stored) };
        match engine.decide(by(rules), &replaced, now).answer {
            Answer::Deny(_) => continue,
            Answer::Allow => *stored += 1,
            _ => {}
        }
        return;
    }
}

#[test]
fn a_client_that_creates_before_it_replaces_is_counted() {
    for (seconds, creates_one) in [(1, false), (1, true), (3, false), (3, true)] {
        let (engine, rules) = (engine(), rules());
        let mut stored = 0;
        for number in 1..=100 {
            let create = if creates_one { 1 } else { stored + 1 };
            replaces_or_creates(&engine, &rules, create, &mut stored, number * seconds);
            let counted = counters(&engine).received();
            assert_eq!(counted, number, "every {seconds} s, CREATE of 1: {creates_one}, {stored} stored");
            let late = at((number + 1) * seconds * 1000 - 500);
            for task in engine.tick(late, 10) {
                stored = flush(&engine, &task, Some(stored), late).unwrap_or(stored);
            }
            assert_eq!(stored + engine.gauges().pending_occurrences as i64, number as i64);
        }
    }
}

#[test]
fn a_patch_of_a_count_read_between_two_flushes_carries_one_occurrence() {
    let (engine, rules) = (engine(), rules());
    let patched = |second: i64, value, stored| {
        let last_observed = Some(Timestamp::from_second(second).unwrap());
        let patch = Observation { last_observed, ..update(value, stored) };
        engine.decide(by(&rules), &patch, at(second as u64 * 1000)).occurrences
    };
    engine.decide(by(&rules), &write(), at(0));
    let before = [patched(1, 2, 1), patched(2, 3, 2), patched(3, 3, 2), patched(4, 3, 2)];
    assert_eq!(before, [1; 4]);
    // Two flushes write 4 and 5. The client has read 4.
    assert_eq!(patched(5, 5, 5), 1);
}

#[test]
fn a_client_that_creates_before_it_replaces_does_not_delay_every_flush() {
    for creates_one in [false, true] {
        let (engine, rules) = (engine(), rules());
        let mut stored = 0;
        for second in 1..=100 {
            let create = if creates_one { 1 } else { stored + 1 };
            replaces_or_creates(&engine, &rules, create, &mut stored, second);
            let late = at(second * 1000 + 500);
            for task in engine.tick(late, 10) {
                stored = flush(&engine, &task, Some(stored), late).unwrap_or(stored);
            }
            assert!(
                2 * stored + 8 >= second as i64,
                "{stored} stored after {second}, CREATE of 1: {creates_one}"
            );
        }
    }
}

/// The API server refuses the CREATE, because the Event exists. The flush must not take that Event for another one.
#[test]
fn a_create_of_an_old_event_loses_no_pending_occurrences() {
    let (engine, rules) = (engine(), rules());
    engine.decide(by(&rules), &write(), at(0));
    assert_eq!(engine.decide(by(&rules), &update(2, 1), at(1_000)).answer, Answer::Allow);
    // Two minutes later it is repeated under another name, and its client creates it again.
    engine.decide(by(&rules), &named("cart.2", write()), at(120_000));
    let last_observed = Some(Timestamp::from_second(120).unwrap());
    engine.decide(by(&rules), &Observation { value: 3, last_observed, ..write() }, at(120_000));
    let found = || StoredEvent { age: Some(Duration::from_secs(130)), ..StoredEvent::with_count(2) };
    let task = engine.tick(at(130_000), 10).remove(0);
    let FlushPlan::Write { value, .. } = engine.plan(&task, Some(found()), at(130_000)) else {
        panic!("{:?}, {}", engine.gauges(), counters(&engine).lost);
    };
    assert_eq!(value, 4, "both occurrences");
}

/// The clock of a name's record wraps after six days.
#[test]
fn a_client_that_reads_is_counted_after_days_of_silence() {
    const MONTH: Duration = Duration::from_secs(30 * 24 * 3600);
    let (engine, mut rules) = (engine(), rules());
    rules.series = Some(SeriesRules { idle_timeout: MONTH, heartbeat_interval: MONTH });
    revise(&engine, &rules, at(0));
    let decide = |second: i64, write: Observation<'static>| {
        let last_observed = Some(Timestamp::from_second(1_000_000 + second).unwrap());
        let now = at(u64::try_from(second).unwrap() * 1000);
        engine.decide(by(&rules), &Observation { last_observed, ..write }, now)
    };
    decide(0, write());
    assert_eq!(decide(10, update(2, 1)).answer, Answer::Allow);
    assert_eq!(decide(20, update(3, 2)).occurrences, 1);
    assert_eq!(decide(30, update(3, 2)).occurrences, 1);
    let task = engine.tick(at(40_000), 10).remove(0);
    assert_eq!(flush(&engine, &task, Some(2), at(40_000)), Some(4));
    assert_eq!(decide(50, update(5, 4)).occurrences, 1);
    assert_eq!(decide(50 + 4 * 24 * 3600, update(5, 4)).occurrences, 1);
}

/// core/v1 stores an Event under any name that is a path segment.
#[test]
fn an_event_with_a_name_above_253_bytes_is_flushed_under_its_whole_name() {
    let (engine, rules) = (engine(), rules());
    let long = format!("{}.187a2b3c4d5e6f70", "x".repeat(253));
    engine.decide(by(&rules), &named(&long, write()), at(0));
    engine.decide(by(&rules), &named("cart.2", write()), at(1));
    let task = engine.tick(at(3_000), 10).remove(0);
    assert_eq!(*task.name, *long);
    // After a restart.
    let later = crate::testing::engine();
    let verdict = later.decide(by(&rules), &named(&long, update(2, 1)), at(0));
    assert_eq!(verdict.disposition, Some(Disposition::Admitted));
}

/// Its name is not remembered whole, so no series is opened.
#[test]
fn an_event_with_a_name_above_1024_bytes_passes() {
    let (engine, rules) = (engine(), rules());
    let long = "x".repeat(1_025);
    for write in [write(), update(2, 1), update(3, 2)] {
        let verdict = engine.decide(by(&rules), &named(&long, write), at(0));
        assert_eq!(verdict.disposition, Some(Disposition::Admitted));
    }
    assert_eq!(engine.gauges().series, 0);
}
