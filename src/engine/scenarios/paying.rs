//! What is owed, and how it is paid.

use super::*;

#[test]
fn what_is_owed_is_paid_when_the_series_closes_and_then_forgotten() {
    let (engine, rules) = (engine(), rules());
    engine.decide(by(&rules), &write(), at(0));
    for value in 2..=7 {
        engine.decide(by(&rules), &update(value, if value > 4 { 4 } else { value - 1 }), at(value as u64));
    }
    let Gauges { series, names, owed, owing, text, .. } = engine.gauges();
    assert_eq!((series, names, owed, owing), (1, 1, 3, 1));
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
    assert_eq!((engine.unpaid(), engine.write_off()), (0, Vec::new()));
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
    assert_eq!(engine.abandon(&order), 1);
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
