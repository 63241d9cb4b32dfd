//! Decisions, scenario by scenario: each test is a sentence of the contract.

use std::sync::Arc;
use std::time::Duration;

use super::testing::{at, by, counters, engine, named, pay, rules, update, write};
use super::*;

/// The engine's answers to writes one second apart, beginning at one second.
fn answers(engine: &Engine, rules: &Rules, writes: &[Observation<'_>]) -> Vec<Verdict> {
    let seconds = (1..).map(|second| at(second * 1000));
    writes.iter().zip(seconds).map(|(write, now)| engine.decide(by(rules), write, now)).collect()
}

fn through_events(write: Observation<'static>) -> Observation<'static> {
    Observation { api: Api::Events, has_series: write.value > 1, ..write }
}

fn compacted(occurrences: i64, answer: Answer) -> Verdict {
    Verdict { disposition: Some(Disposition::Compacted), stage: Stage::Series, occurrences, answer }
}

fn admitted(stage: Stage, occurrences: i64) -> Verdict {
    Verdict { disposition: Some(Disposition::Admitted), stage, occurrences, answer: Answer::Allow }
}

const CONFLICT: Answer = Answer::Deny(Denial::AlreadyExists);

#[test]
fn own_writes_ungoverned_writes_dry_runs_and_edits_pass_uncounted() {
    let (engine, rules) = (engine(), rules());
    let own = Observation { own: true, ..write() };
    let dry = Observation { dry_run: true, ..write() };
    let edit = Observation { edited: true, ..update(5, 5) };
    let unchanged = Observation { unchanged: true, ..update(5, 5) };
    assert_eq!(engine.decide(by(&rules), &own, at(1)), Verdict::passed(Stage::Own));
    assert_eq!(engine.decide(None, &write(), at(1)), Verdict::passed(Stage::NoPolicy));
    assert_eq!(engine.decide(by(&rules), &dry, at(1)), Verdict::passed(Stage::DryRun));
    assert_eq!(engine.decide(by(&rules), &edit, at(1)), Verdict::passed(Stage::Edit));
    assert_eq!(engine.decide(by(&rules), &unchanged, at(1)), Verdict::passed(Stage::Edit));
    assert_eq!(counters(&engine).received(), 0);
}

#[test]
fn an_exempt_write_is_admitted_and_counted() {
    let (engine, rules) = (engine(), rules());
    let exempt = Governing { rules: &rules, exempt: true };
    for value in [1, 2, 3] {
        let write = if value == 1 { write() } else { update(value, value - 1) };
        assert_eq!(engine.decide(Some(exempt), &write, at(1)), admitted(Stage::Exempt, 1));
    }
    assert_eq!((counters(&engine).received(), engine.gauges().series), (3, 0));
}

#[test]
fn a_client_pays_by_itself_whenever_the_total_has_doubled() {
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
    assert_eq!(engine.gauges().owed, 488);
    assert_eq!(counters(&engine).received(), 1000);
}

#[test]
fn an_update_that_changes_nothing_counts_if_it_is_above_its_own_name() {
    let (engine, rules) = (engine(), rules());
    answers(&engine, &rules, &[write(), named("cart.2", write())]);
    // The stored Event shows 2 for both; the client of cart.1 counts 2 in the same second.
    let told = Observation { unchanged: true, ..update(2, 2) };
    assert_eq!(engine.decide(by(&rules), &told, at(2000)).occurrences, 1);
    assert_eq!(engine.decide(by(&rules), &told, at(2001)), Verdict::passed(Stage::Edit));
    let someone = Observation { user: "person", unchanged: true, ..update(9, 9) };
    assert_eq!(engine.decide(by(&rules), &someone, at(2002)), Verdict::passed(Stage::Edit));
}

#[test]
fn the_same_write_seen_twice_counts_once() {
    let (engine, rules) = (engine(), rules());
    let told = answers(&engine, &rules, &[write(), write(), update(3, 1), update(3, 1), update(2, 1)]);
    assert_eq!(told.iter().map(|verdict| verdict.occurrences).collect::<Vec<_>>(), [1, 0, 2, 0, 0]);
    assert_eq!(counters(&engine).received(), 3);
}

#[test]
fn a_second_name_of_the_same_story_is_refused_and_counted() {
    let (engine, rules) = (engine(), rules());
    let told = answers(
        &engine,
        &rules,
        &[write(), named("cart.2", write()), named("cart.2", Observation { value: 2, ..write() })],
    );
    assert_eq!(told[1], compacted(1, CONFLICT));
    assert_eq!(told[2], compacted(1, CONFLICT));
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
    // 3 may be a client's first refresh: let through. From 4 on only what is due.
    assert_eq!(engine.decide(by(&rules), &through_events(update(3, 2)), at(3)), admitted(Stage::Series, 1));
    assert_eq!(
        engine.decide(by(&rules), &through_events(update(4, 3)), at(4)),
        compacted(1, Answer::Restore)
    );
}

#[test]
fn a_client_that_holds_back_is_let_through_when_it_is_right_and_refused_with_403_when_it_is_not() {
    let (engine, rules) = (engine(), rules());
    engine.decide(by(&rules), &through_events(write()), at(1));
    engine.decide(by(&rules), &through_events(update(2, 1)), at(2));
    // 1,000 occurrences in one refresh, and right: due or not, it goes through.
    assert_eq!(
        engine.decide(by(&rules), &through_events(update(1002, 2)), at(3)),
        admitted(Stage::Series, 1000)
    );
    assert_eq!(
        engine.decide(by(&rules), &through_events(update(1100, 1002)), at(4)),
        admitted(Stage::Series, 98)
    );
    // Another emitter with the same identity has told more meanwhile: this refresh is short of the total.
    engine.decide(by(&rules), &named("cart.2", through_events(write())), at(5));
    let refresh = through_events(update(1200, 1100));
    assert_eq!(engine.decide(by(&rules), &refresh, at(6)), compacted(100, Answer::Deny(Denial::Forbidden)));
}

#[test]
fn nothing_lowers_a_stored_count() {
    let (engine, rules) = (engine(), rules());
    let core = engine.decide(by(&rules), &update(3, 8), at(1));
    assert_eq!((core.disposition, core.answer), (Some(Disposition::Compacted), CONFLICT));
    let kube = Observation { name: Some("other".into()), ..through_events(update(3, 8)) };
    let first = engine.decide(by(&rules), &kube, at(2));
    assert_eq!(first.answer, Answer::Deny(Denial::Forbidden), "its name was never seen: it may hold back");
    let again = Observation { value: 4, ..kube };
    assert_eq!(engine.decide(by(&rules), &again, at(3)).answer, Answer::Restore);
    let draining = super::testing::engine();
    draining.drain();
    assert_eq!(draining.decide(by(&rules), &update(3, 8), at(1)).answer, CONFLICT);
    assert_eq!(draining.decide(by(&rules), &update(9, 8), at(2)).answer, Answer::Allow);
}

#[test]
fn a_create_under_the_stored_name_goes_through_because_the_stored_one_is_gone() {
    let (engine, rules) = (engine(), rules());
    engine.decide(by(&rules), &write(), at(1));
    engine.decide(by(&rules), &named("cart.2", write()), at(2));
    let again = Observation { value: 2, ..write() };
    assert_eq!(engine.decide(by(&rules), &again, at(3)), admitted(Stage::Series, 1));
    assert_eq!(engine.gauges().owed, 1, "what the other name told stays owed");
}

#[test]
fn a_former_life_has_counted_what_happened_before_this_one() {
    let began: Timestamp = "2026-01-01T00:00:10Z".parse().unwrap();
    let engine = Engine::new(Settings { seed: [3, 4], max_series: 10, began });
    let rules = rules();
    let older =
        Observation { value: 40, first_seen: Some("2026-01-01T00:00:09Z".parse().unwrap()), ..write() };
    assert_eq!(engine.decide(by(&rules), &older, at(1)).occurrences, 1);
    let newer = Observation { first_seen: Some(began), ..named("cart.2", older) };
    assert_eq!(engine.decide(by(&rules), &newer, at(2)).occurrences, 40);
    assert_eq!(counters(&engine).recovered, 39);
}

#[test]
fn an_unknown_name_is_compared_with_what_is_stored() {
    let (engine, rules) = (engine(), rules());
    assert_eq!(engine.decide(by(&rules), &update(7, 5), at(1)).occurrences, 2);
    assert_eq!(engine.decide(by(&rules), &named("cart.2", update(3, 5)), at(2)).occurrences, 1);
}

#[test]
fn an_event_by_generate_name_gets_its_name_from_squelch_and_is_paid_under_it() {
    let (engine, rules) = (engine(), rules());
    let new = Observation { name: None, generate_name: "cart.".into(), ..write() };
    let Answer::AllowNamed(name) = engine.decide(by(&rules), &new, at(1)).answer else { panic!("no name") };
    assert!(name.starts_with("cart.") && name.len() == 15, "{name}");
    assert_eq!(engine.decide(by(&rules), &new, at(2)), compacted(1, CONFLICT));
    let orders = engine.tick(at(3000), 10);
    assert_eq!(orders.iter().map(|order| &*order.name).collect::<Vec<_>>(), [&*name]);
    let long = "x".repeat(300);
    let long = Observation { generate_name: long.as_str().into(), user: "else", ..new.clone() };
    let Answer::AllowNamed(name) = engine.decide(by(&rules), &long, at(4)).answer else { panic!("no name") };
    assert_eq!(name.len(), 253);
}

#[test]
fn observe_counts_the_same_and_lets_everything_through() {
    let enforcing = rules();
    let observing = Rules { mode: Mode::Observe, ..enforcing.clone() };
    let (one, other) = (engine(), engine());
    let mut stored = 1;
    for value in 1..=50 {
        let now = at(value as u64);
        let (held, seen) =
            if value == 1 { (write(), write()) } else { (update(value, stored), update(value, value - 1)) };
        let enforced = one.decide(by(&enforcing), &held, now);
        let observed = other.decide(by(&observing), &seen, now);
        assert_eq!(
            (observed.disposition, observed.occurrences),
            (enforced.disposition, enforced.occurrences),
            "{value}"
        );
        assert_eq!(observed.answer, Answer::Allow);
        if enforced.answer == Answer::Allow {
            stored = value;
        }
    }
    assert_eq!(counters(&one), counters(&other));
    assert!(other.tick(at(10_000_000), 100).is_empty(), "orders under Observe are never handed out");
}

#[test]
fn what_observe_owes_does_not_put_off_the_end() {
    let engine = engine();
    let observing = Rules { mode: Mode::Observe, ..rules() };
    for value in 1..=50 {
        let seen = if value == 1 { write() } else { update(value, value - 1) };
        engine.decide(by(&observing), &seen, at(value as u64));
    }
    assert_eq!(engine.gauges().owed, 18, "told to nobody, and not due for long");
    engine.drain();
    assert!(engine.tick(at(100), 10).is_empty());
    assert_eq!((engine.unpaid(), engine.write_off()), (0, 0));
}

#[test]
fn what_is_owed_is_paid_when_the_series_closes_and_then_forgotten() {
    let (engine, rules) = (engine(), rules());
    engine.decide(by(&rules), &write(), at(0));
    for value in 2..=7 {
        engine.decide(by(&rules), &update(value, if value > 4 { 4 } else { value - 1 }), at(value as u64));
    }
    let Gauges { series, names, owed, text, .. } = engine.gauges();
    assert_eq!((series, names, owed), (1, 1, 3));
    assert!(text > "cart.1".len(), "what is needed to create it again is kept");
    assert!(engine.tick(at(360_007), 10).is_empty(), "not idle yet");
    let orders = engine.tick(at(360_008), 10);
    assert_eq!(orders.len(), 1);
    assert!(engine.tick(at(400_000), 10).is_empty(), "one order at a time");
    assert_eq!(pay(&engine, &orders[0], Some(4), at(400_000)), Some(7));
    assert_eq!(engine.gauges(), Gauges { names: 1, ..Gauges::default() });
    assert_eq!(engine.unpaid(), 0);
}

#[test]
fn a_storm_that_goes_on_does_not_put_off_the_end() {
    let (engine, rules) = (engine(), rules());
    let told = answers(&engine, &rules, &[write(), update(2, 1), update(3, 2)]);
    assert_eq!(told[2], compacted(1, CONFLICT));
    engine.drain();
    assert_eq!(engine.decide(by(&rules), &update(4, 2), at(4000)).answer, Answer::Allow);
    assert_eq!(engine.unpaid(), 1, "what was folded is in that write, which may not be committed");
    let order = engine.tick(at(4100), 10).remove(0);
    assert_eq!(pay(&engine, &order, Some(4), at(4200)), None);
    for value in 5..50 {
        assert_eq!(engine.decide(by(&rules), &update(value, value - 1), at(4300)).answer, Answer::Allow);
        assert_eq!(engine.unpaid(), 0, "all that was folded is seen to be stored");
    }
}

#[test]
fn a_write_revives_a_closing_series() {
    let (engine, rules) = (engine(), rules());
    engine.decide(by(&rules), &write(), at(0));
    engine.decide(by(&rules), &named("cart.2", write()), at(1));
    let order = engine.tick(at(360_100), 10).remove(0);
    assert_eq!(engine.decide(by(&rules), &named("cart.3", write()), at(360_200)), compacted(1, CONFLICT));
    assert_eq!(pay(&engine, &order, Some(1), at(360_300)), Some(3));
    assert_eq!(engine.gauges().series, 1);
}

#[test]
fn a_failed_payment_stays_owed_and_is_ordered_again() {
    let (engine, rules) = (engine(), rules());
    engine.decide(by(&rules), &write(), at(0));
    engine.decide(by(&rules), &named("cart.2", write()), at(1));
    assert!(engine.tick(at(1999), 10).is_empty(), "the client's own write has two seconds to itself");
    let order = engine.tick(at(2000), 10).remove(0);
    engine.postpone(&order, Duration::from_secs(1), at(2100));
    assert_eq!(engine.gauges().owed, 1);
    assert!(engine.tick(at(3099), 10).is_empty());
    let order = engine.tick(at(3100), 10).remove(0);
    assert_eq!(pay(&engine, &order, Some(1), at(3200)), Some(2));
    assert_eq!(engine.gauges().owed, 0);
}

#[test]
fn a_deleted_event_comes_back_only_if_something_is_owed() {
    let (engine, rules) = (engine(), rules());
    engine.decide(by(&rules), &write(), at(0));
    engine.decide(by(&rules), &named("cart.2", write()), at(1));
    let order = engine.tick(at(2000), 10).remove(0);
    assert_eq!(pay(&engine, &order, None, at(2000)), Some(2), "never stored, and one is owed");
    engine.decide(by(&rules), &named("cart.3", write()), at(3000));
    engine.drain();
    let order = engine.tick(at(3001), 10).remove(0);
    assert_eq!(pay(&engine, &order, Some(3), at(3001)), None, "somebody else has stored it");
    assert_eq!(engine.unpaid(), 0);
}

#[test]
fn an_admitted_create_that_was_never_stored_is_told_all_the_same() {
    let (engine, rules) = (engine(), rules());
    engine.decide(by(&rules), &write(), at(0));
    let mut stored = None;
    engine.decide(by(&rules), &named("cart.2", write()), at(1));
    for millisecond in (0..800_000).step_by(500) {
        for order in engine.tick(at(millisecond), 10) {
            stored = pay(&engine, &order, stored, at(millisecond)).or(stored);
        }
    }
    assert_eq!(stored, Some(2));
}

#[test]
fn what_can_never_be_paid_is_counted_as_lost() {
    let (engine, rules) = (engine(), rules());
    engine.decide(by(&rules), &write(), at(0));
    engine.decide(by(&rules), &named("cart.2", write()), at(1));
    let order = engine.tick(at(2000), 10).remove(0);
    assert!(matches!(engine.plan(&order, None, at(2000)), Plan::Create { value: 2, .. }));
    assert_eq!(engine.abandon(&order, at(2001)), 1);
    assert_eq!((counters(&engine).lost, engine.gauges().owed, engine.unpaid()), (1, 0, 0));
}

#[test]
fn a_deleted_policy_pays_what_is_owed_and_is_forgotten() {
    let (engine, rules) = (engine(), rules());
    engine.decide(by(&rules), &write(), at(0));
    engine.decide(by(&rules), &named("cart.2", write()), at(1));
    engine.revise(&[], at(2000));
    let order = engine.tick(at(2001), 10).remove(0);
    assert_eq!(pay(&engine, &order, Some(1), at(2002)), Some(2));
    engine.tick(at(2003), 10);
    assert!(engine.accounts().is_empty());
}

#[test]
fn a_policy_that_turns_to_observe_pays_what_enforce_has_folded() {
    let (engine, enforcing) = (engine(), rules());
    engine.decide(by(&enforcing), &write(), at(0));
    engine.decide(by(&enforcing), &named("cart.2", write()), at(1));
    let observing = Rules { mode: Mode::Observe, ..enforcing };
    let standing = Standing {
        policy: observing.policy.clone(),
        namespace: Some("shop".into()),
        rules: Some(Arc::new(observing.clone())),
    };
    engine.revise(&[standing], at(2000));
    let observed = engine.decide(by(&observing), &named("cart.3", write()), at(2001));
    assert_eq!(observed, admitted(Stage::Admit, 1));
    let order = engine.tick(at(2002), 10).remove(0);
    assert_eq!(pay(&engine, &order, Some(1), at(2003)), Some(2));
}

#[test]
fn a_full_table_gives_up_its_oldest_and_never_one_that_owes() {
    let rules = rules();
    let engine = Engine::new(Settings { seed: [3, 4], max_series: 2, began: Timestamp::UNIX_EPOCH });
    let of = |user: &'static str, name: &'static str| Observation { user, ..named(name, write()) };
    engine.decide(by(&rules), &of("a", "a.1"), at(1));
    engine.decide(by(&rules), &of("a", "a.2"), at(2));
    engine.decide(by(&rules), &of("b", "b.1"), at(3));
    engine.decide(by(&rules), &of("c", "c.1"), at(4));
    assert_eq!((engine.gauges().series, engine.gauges().series_evicted), (2, 0), "a owes: it is paid first");
    let order = engine.tick(at(3000), 10).remove(0);
    assert_eq!(pay(&engine, &order, Some(1), at(3001)), Some(2));
    engine.decide(by(&rules), &of("d", "d.1"), at(3002));
    engine.decide(by(&rules), &of("e", "e.1"), at(3003));
    assert_eq!((engine.gauges().series, engine.gauges().series_evicted), (2, 1), "b was the oldest");
    for (n, name) in ["n1", "n2", "n3", "n4", "n5", "n6"].into_iter().enumerate() {
        engine.decide(by(&rules), &of("f", name), at(4000 + n as u64));
    }
    assert!(engine.gauges().names <= 4, "{:?}", engine.gauges());
}

/// Rules with every stage of a policy's defaults.
fn all_stages() -> Rules {
    Rules {
        aggregation: Some(AggregationRules {
            max_events: 3,
            interval: Duration::from_secs(600),
            group_by: GroupBy::Object,
        }),
        spam_filter: Some(SpamFilterRules {
            bucket: bucket(4, 300),
            per: Per { emitter: true, regarding: true, event_type: true, reason: false },
        }),
        ..rules()
    }
}

fn bucket(burst: u32, seconds: u64) -> BucketRules {
    BucketRules { burst: burst.try_into().unwrap(), refill_interval: Duration::from_secs(seconds) }
}

fn saying(message: &'static str, name: &'static str) -> Observation<'static> {
    let mut write = named(name, write());
    write.event.message = message.into();
    write
}

fn held(disposition: Disposition, stage: Stage) -> Verdict {
    Verdict { disposition: Some(disposition), stage, occurrences: 1, answer: CONFLICT }
}

#[test]
fn one_message_too_many_is_told_by_the_summary() {
    let (engine, rules) = (engine(), all_stages());
    let told =
        answers(&engine, &rules, &[saying("a", "1"), saying("b", "2"), saying("c", "3"), saying("d", "4")]);
    assert_eq!(told[1], admitted(Stage::Admit, 1));
    assert_eq!(told[2], held(Disposition::Aggregated, Stage::Aggregation));
    assert_eq!(told[3], held(Disposition::Aggregated, Stage::Aggregation));
    let order = engine.tick(at(4000), 10).remove(0);
    assert!(order.name.starts_with("cart.") && order.name.len() == "cart.".len() + 16, "{}", order.name);
    let Plan::Create { value: 2, content, .. } = engine.plan(&order, None, at(4001)) else {
        panic!("no summary")
    };
    let says = content.view();
    assert_eq!(says.message, "(combined from similar events): d");
    assert_eq!(says.annotations, r#"{"squelch.dev/policy":"shop/quiet","squelch.dev/summary":"true"}"#);
    engine.settle(&order, 2, at(4002));
    engine.decide(by(&rules), &saying("e", "5"), at(5000));
    engine.decide(by(&rules), &saying("f", "6"), at(5001));
    let order = engine.tick(at(6000), 10).remove(0);
    let plan = engine.plan(&order, Some(2), at(6001));
    let Plan::Write { value: 4, content: Some(content), .. } = plan else { panic!("{plan:?}") };
    assert_eq!(content.view().message, "(combined from similar events): f");
}

#[test]
fn what_stands_under_a_summarys_name_is_what_it_counts_from() {
    let (engine, rules) = (engine(), all_stages());
    answers(&engine, &rules, &[saying("a", "1"), saying("b", "2"), saying("c", "3")]);
    let order = engine.tick(at(4000), 10).remove(0);
    assert_eq!(engine.plan(&order, Some(7), at(4001)), Plan::Nothing, "one more than seven is not due");
    engine.drain();
    let order = engine.tick(at(4002), 10).into_iter().find(|order| order.name.len() > 10).unwrap();
    assert!(matches!(engine.plan(&order, Some(7), at(4003)), Plan::Write { value: 8, .. }));
}

#[test]
fn across_objects_the_summary_says_on_how_many() {
    let mut rules = all_stages();
    rules.aggregation.as_mut().unwrap().group_by = GroupBy::Kind;
    let engine = engine();
    for (at_second, (pod, user)) in
        [("a", "n1"), ("b", "n2"), ("c", "n3"), ("d", "n4")].into_iter().enumerate()
    {
        let mut write = Observation { user, ..named(pod, write()) };
        write.event.regarding.name = pod.into();
        write.event.reporting_instance = user.into();
        engine.decide(by(&rules), &write, at(at_second as u64));
    }
    let order = engine.tick(at(4000), 10).remove(0);
    let Plan::Create { value: 2, content, .. } = engine.plan(&order, None, at(4001)) else {
        panic!("no summary")
    };
    let says = content.view();
    assert!(
        says.message.starts_with("(combined from similar events): on 4 objects, the last: "),
        "{}",
        says.message
    );
    assert_eq!(says.regarding.name, "d");
}

#[test]
fn what_a_client_aggregated_itself_is_not_aggregated_again() {
    let (engine, rules) = (engine(), all_stages());
    answers(&engine, &rules, &[saying("a", "1"), saying("b", "2")]);
    let by_client = saying("(combined from similar events): z", "3");
    assert_eq!(engine.decide(by(&rules), &by_client, at(9000)), admitted(Stage::Admit, 1));
}

#[test]
fn an_empty_bucket_filters_and_the_budget_throttles_and_neither_costs_the_other() {
    let (engine, engine_of_budget) = (engine(), engine());
    let spam = Rules { aggregation: None, ..all_stages() };
    let messages = ["a", "b", "c", "d", "e", "f"];
    let told: Vec<Verdict> =
        messages.iter().map(|message| engine.decide(by(&spam), &saying(message, message), at(0))).collect();
    assert_eq!(told[3], admitted(Stage::Admit, 1));
    assert_eq!(told[4], held(Disposition::Filtered, Stage::SpamFilter));
    let both = Rules { budget: Some(bucket(2, 10)), ..spam };
    for message in &messages[..4] {
        engine_of_budget.decide(by(&both), &saying(message, message), at(0));
    }
    // Two were throttled: they cost the spam filter nothing, so two tokens of four are left.
    assert_eq!(counters(&engine_of_budget).of(Disposition::Throttled), 2);
    let later: Vec<_> = ["g", "h", "i"]
        .map(|message| engine_of_budget.decide(by(&both), &saying(message, message), at(20_000)))
        .into_iter()
        .map(|verdict| verdict.stage)
        .collect();
    assert_eq!(later, [Stage::Admit, Stage::Admit, Stage::SpamFilter]);
}

#[test]
fn folds_are_free() {
    let (engine, rules) = (engine(), all_stages());
    engine.decide(by(&rules), &write(), at(0));
    for value in 2..100 {
        engine.decide(by(&rules), &update(value, 1), at(value as u64));
    }
    let left = ["b"].map(|message| engine.decide(by(&rules), &saying(message, message), at(200)).stage);
    assert_eq!(left, [Stage::Admit]);
    assert_eq!(counters(&engine).of(Disposition::Filtered), 0);
}

#[test]
fn an_update_without_series_meets_the_buckets_and_no_aggregation() {
    let rules = Rules { series: None, ..all_stages() };
    let engine = engine();
    assert_eq!(engine.decide(by(&rules), &write(), at(0)), admitted(Stage::Admit, 1));
    for value in 2..=4 {
        assert_eq!(engine.decide(by(&rules), &update(value, value - 1), at(0)), admitted(Stage::Admit, 1));
    }
    assert_eq!(
        engine.decide(by(&rules), &update(5, 4), at(0)),
        held(Disposition::Filtered, Stage::SpamFilter)
    );
    let refused = through_events(update(6, 4));
    assert_eq!(engine.decide(by(&rules), &refused, at(0)).answer, Answer::Restore);
    // Let through later, the client's absolute value tells again what was filtered.
    assert_eq!(engine.decide(by(&rules), &update(7, 4), at(300_000)), admitted(Stage::Admit, 1));
    assert_eq!(counters(&engine).recovered, 2);
}
