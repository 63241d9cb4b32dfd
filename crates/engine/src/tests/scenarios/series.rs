//! Step 8: series compaction.

use super::*;

#[test]
fn a_client_write_passes_whenever_the_total_has_doubled() {
    let (engine, rules) = (engine(), rules());
    let mut stored = 1;
    let mut writes = 1;
    assert_eq!(engine.decide(by(&rules), &write(), at(0)), admitted(Stage::Admit, 1));
    for value in 2..=1000 {
        let verdict = engine.decide(by(&rules), &update(value, stored), at(value as u64));
        if verdict.answer == Answer::Allow {
            (stored, writes) = (value, writes + 1);
        } else {
            assert_eq!(verdict, compacted(1, CONFLICT));
        }
    }
    assert_eq!((stored, writes), (512, 10), "1, 2, 4, ... 512");
    assert_eq!(engine.gauges().pending_occurrences, 488);
    assert_eq!(counters(&engine).received(), 1000);
}

#[test]
fn a_second_name_of_a_series_is_refused_and_counted() {
    let (engine, rules) = (engine(), rules());
    let reported = answers(
        &engine,
        &rules,
        &[write(), named("cart.2", write()), named("cart.2", Observation { value: 2, ..write() })],
    );
    assert_eq!(reported[1], compacted(1, CONFLICT));
    assert_eq!(reported[2], compacted(1, CONFLICT));
    let forbidding = Rules { rejection: Rejection::Forbidden, ..rules.clone() };
    let loud = engine.decide(by(&forbidding), &named("cart.3", write()), at(9000));
    assert_eq!(loud, compacted(1, Answer::Deny(Denial::Forbidden)));
    let series = Observation { api: Api::Events, has_series: true, value: 2, ..write() };
    assert_eq!(
        engine.decide(by(&rules), &named("cart.4", series), at(9001)).answer,
        Answer::Deny(Denial::Forbidden)
    );
}

#[test]
fn an_update_through_events_k8s_io_is_patched_back() {
    let (engine, rules) = (engine(), rules());
    engine.decide(by(&rules), &through_events(write()), at(1));
    assert_eq!(engine.decide(by(&rules), &through_events(update(2, 1)), at(2)), admitted(Stage::Series, 1));
    // 3 may be a client's first refresh and passes. From 4 on only due writes pass.
    assert_eq!(engine.decide(by(&rules), &through_events(update(3, 2)), at(3)), admitted(Stage::Series, 1));
    assert_eq!(
        engine.decide(by(&rules), &through_events(update(4, 3)), at(4)),
        compacted(1, Answer::Restore)
    );
}

#[test]
fn a_refresh_passes_if_its_count_is_complete_and_gets_403_otherwise() {
    let (engine, rules) = (engine(), rules());
    engine.decide(by(&rules), &through_events(write()), at(1));
    engine.decide(by(&rules), &through_events(update(2, 1)), at(2));
    // A refresh with 1,000 occurrences passes if its count is right, due or not.
    assert_eq!(
        engine.decide(by(&rules), &through_events(update(1002, 2)), at(3)),
        admitted(Stage::Series, 1000)
    );
    assert_eq!(
        engine.decide(by(&rules), &through_events(update(1100, 1002)), at(4)),
        admitted(Stage::Series, 98)
    );
    // Another emitter with the same identity has reported more, so this refresh is below the total.
    engine.decide(by(&rules), &named("cart.2", through_events(write())), at(5));
    let refresh = through_events(update(1200, 1100));
    assert_eq!(engine.decide(by(&rules), &refresh, at(6)), compacted(100, Answer::Deny(Denial::Forbidden)));
}

/// The first PATCH found no Event, the CREATE in its place was refused because the Event was stored meanwhile, and client-go
/// sends the PATCH again after 10 s. Its timers have reported more before.
#[test]
fn a_retry_below_the_reported_count_is_restored_after_a_silence_too() {
    let (engine, rules) = (engine(), rules());
    let with_series = Observation { value: 2, has_series: true, ..write() };
    for (second, write) in [(1, write()), (2, with_series), (3, update(20, 1))] {
        let verdict = engine.decide(by(&rules), &through_events(write), at(second));
        assert_eq!(verdict.answer, Answer::Allow);
    }
    let retry = through_events(update(2, 20));
    assert_eq!(engine.decide(by(&rules), &retry, at(400_000)), compacted(0, Answer::Restore));
    assert!(engine.tick(at(800_000), 10).is_empty(), "nothing more to store");
}

#[test]
fn a_create_of_the_stored_name_passes_because_the_event_is_gone() {
    let (engine, rules) = (engine(), rules());
    engine.decide(by(&rules), &write(), at(1));
    engine.decide(by(&rules), &named("cart.2", write()), at(2));
    let again = Observation { value: 2, ..write() };
    assert_eq!(engine.decide(by(&rules), &again, at(3)), admitted(Stage::Series, 1));
    assert_eq!(engine.gauges().pending_occurrences, 1, "the occurrence of the other name stays pending");
}

#[test]
fn squelch_names_an_event_with_generate_name_and_flushes_it() {
    let (engine, rules) = (engine(), rules());
    let new = Observation { name: None, generate_name: "cart.".into(), ..write() };
    let Answer::AllowNamed(name) = engine.decide(by(&rules), &new, at(1)).answer else { panic!("no name") };
    assert!(name.starts_with("cart.") && name.len() == 15, "{name}");
    assert_eq!(engine.decide(by(&rules), &new, at(2)), compacted(1, CONFLICT));
    let tasks = engine.tick(at(3000), 10);
    assert_eq!(tasks.iter().map(|task| &*task.name).collect::<Vec<_>>(), [&*name]);
    let long = "x".repeat(300);
    let long = Observation { generate_name: long.as_str().into(), user: "else", ..new.clone() };
    let Answer::AllowNamed(name) = engine.decide(by(&rules), &long, at(4)).answer else { panic!("no name") };
    assert_eq!(name.len(), 253);
}

#[test]
fn a_write_revives_a_closing_series() {
    let (engine, rules) = (engine(), rules());
    engine.decide(by(&rules), &write(), at(0));
    engine.decide(by(&rules), &named("cart.2", write()), at(1));
    let task = engine.tick(at(360_100), 10).remove(0);
    assert_eq!(engine.decide(by(&rules), &named("cart.3", write()), at(360_200)), compacted(1, CONFLICT));
    assert_eq!(flush(&engine, &task, Some(1), at(360_300)), Some(3));
    assert_eq!(engine.gauges().series, 1);
}

#[test]
fn at_capacity_the_oldest_series_is_evicted_unless_pending() {
    let rules = rules();
    let engine = Engine::new(Settings {
        seed: [3, 4],
        max_series: 2,
        max_pending_series: 100_000,
        began: Timestamp::UNIX_EPOCH,
    });
    let of = |user: &'static str, name: &'static str| Observation { user, ..named(name, write()) };
    engine.decide(by(&rules), &of("a", "a.1"), at(1));
    engine.decide(by(&rules), &of("a", "a.2"), at(2));
    engine.decide(by(&rules), &of("b", "b.1"), at(3));
    engine.decide(by(&rules), &of("c", "c.1"), at(4));
    assert_eq!(
        (engine.gauges().series, engine.gauges().series_evicted),
        (2, 0),
        "a is pending and flushed first"
    );
    let task = engine.tick(at(3000), 10).remove(0);
    assert_eq!(flush(&engine, &task, Some(1), at(3001)), Some(2));
    engine.decide(by(&rules), &of("d", "d.1"), at(3002));
    engine.decide(by(&rules), &of("e", "e.1"), at(3003));
    assert_eq!((engine.gauges().series, engine.gauges().series_evicted), (2, 1), "b was the oldest");
    for (n, name) in ["n1", "n2", "n3", "n4", "n5", "n6"].into_iter().enumerate() {
        engine.decide(by(&rules), &of("f", name), at(4000 + n as u64));
    }
    assert!(engine.gauges().names <= 4, "{:?}", engine.gauges());
}

/// client-go counts from the answer to a refresh. After a restored one it would count from the lower stored count, and its
/// next occurrences would be in no counter.
#[test]
fn a_dropped_refresh_is_refused_like_a_compacted_one() {
    let forbidden = Answer::Deny(Denial::Forbidden);
    let (muting, rules) = (engine(), rules());
    muting.decide(by(&rules), &through_events(write()), at(1));
    let first = muting.decide(by(&rules), &through_events(update(2, 1)), at(2));
    assert_eq!(first.answer, Answer::Allow);
    let mute = Some(Governing { rules: &rules, treatment: Treatment::Mute });
    let muted = muting.decide(mute, &through_events(update(40, 2)), at(1_800_000));
    assert_eq!((muted.disposition, muted.occurrences), (Some(Disposition::Muted), 38));
    assert_eq!(muted.answer, forbidden);

    let per = Per { emitter: true, object: true, event_type: true, reason: false };
    let spam_filter = Some(SpamFilterRules { bucket: bucket(1, 86_400), per });
    let filtering = Rules { series: None, spam_filter, ..rules };
    let engine = engine();
    engine.decide(by(&filtering), &through_events(write()), at(1));
    let filtered = engine.decide(by(&filtering), &through_events(update(40, 1)), at(1_800_000));
    assert_eq!((filtered.disposition, filtered.occurrences), (Some(Disposition::Filtered), 39));
    assert_eq!(filtered.answer, forbidden);
}
