//! Steps 1 to 4, and the occurrences that a write carries.

use super::*;

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
fn a_stale_update_changes_nothing_and_its_retry_counts() {
    let rules = rules();
    let exempt = Governing { rules: &rules, treatment: Treatment::Exempt };
    for governing in [by(&rules), Some(exempt)] {
        let engine = engine();
        engine.decide(governing, &write(), at(0));
        let before = (counters(&engine), engine.gauges());
        // Another client has written 2 since this one read 1.
        let stale = Observation { stale: true, ..update(2, 2) };
        assert_eq!(engine.decide(governing, &stale, at(1)), Verdict::passed(Stage::Edit));
        engine.fail_open(governing, &stale, at(2));
        assert_eq!((counters(&engine), engine.gauges()), before);
        assert_eq!(engine.decide(governing, &update(3, 2), at(3)).occurrences, 2, "its name still shows 1");
        let lowers = Observation { stale: true, ..update(3, 8) };
        assert_eq!(engine.decide(governing, &lowers, at(4)), Verdict::passed(Stage::Edit));
    }
}

#[test]
fn an_exempt_write_is_admitted_and_counted() {
    let (engine, rules) = (engine(), rules());
    let exempt = Governing { rules: &rules, treatment: Treatment::Exempt };
    for value in [1, 2, 3] {
        let write = if value == 1 { write() } else { update(value, value - 1) };
        assert_eq!(engine.decide(Some(exempt), &write, at(1)), admitted(Stage::Exempt, 1));
    }
    assert_eq!((counters(&engine).received(), engine.gauges().series), (3, 0));
}

#[test]
fn an_unchanged_update_above_its_own_highest_value_counts() {
    let (engine, rules) = (engine(), rules());
    answers(&engine, &rules, &[write(), named("cart.2", write())]);
    // The stored count is 2 for both. The client of cart.1 counts to 2 in the same second.
    let reported = Observation { unchanged: true, ..update(2, 2) };
    assert_eq!(engine.decide(by(&rules), &reported, at(2000)).occurrences, 1);
    assert_eq!(engine.decide(by(&rules), &reported, at(2001)), Verdict::passed(Stage::Edit));
    let someone = Observation { user: "person", unchanged: true, ..update(9, 9) };
    assert_eq!(engine.decide(by(&rules), &someone, at(2002)), Verdict::passed(Stage::Edit));
}

#[test]
fn the_same_write_seen_twice_counts_once() {
    let (engine, rules) = (engine(), rules());
    let reported = answers(&engine, &rules, &[write(), write(), update(3, 1), update(3, 1), update(2, 1)]);
    assert_eq!(reported.iter().map(|verdict| verdict.occurrences).collect::<Vec<_>>(), [1, 0, 2, 0, 0]);
    assert_eq!(counters(&engine).received(), 3);
}

#[test]
fn an_earlier_process_has_counted_older_events() {
    let began: Timestamp = "2026-01-01T00:00:10Z".parse().unwrap();
    let engine = Engine::new(Settings { seed: [3, 4], max_series: 10, max_pending_series: 100_000, began });
    let rules = rules();
    let older =
        Observation { value: 40, first_seen: Some("2026-01-01T00:00:09Z".parse().unwrap()), ..write() };
    assert_eq!(engine.decide(by(&rules), &older, at(1)).occurrences, 1);
    let newer = Observation { first_seen: Some(began), ..named("cart.2", older) };
    assert_eq!(engine.decide(by(&rules), &newer, at(2)).occurrences, 40);
    assert_eq!(counters(&engine).recovered, 39);
}

#[test]
fn an_unknown_name_is_compared_with_the_stored_count() {
    let (engine, rules) = (engine(), rules());
    assert_eq!(engine.decide(by(&rules), &update(7, 5), at(1)).occurrences, 2);
    assert_eq!(engine.decide(by(&rules), &named("cart.2", update(3, 5)), at(2)).occurrences, 1);
}

#[test]
fn nothing_lowers_a_stored_count() {
    let (engine, rules) = (engine(), rules());
    let core = engine.decide(by(&rules), &update(3, 8), at(1));
    assert_eq!((core.disposition, core.answer), (Some(Disposition::Compacted), CONFLICT));
    let kube = Observation { name: Some("other".into()), ..through_events(update(3, 8)) };
    let first = engine.decide(by(&rules), &kube, at(2));
    assert_eq!(first.answer, Answer::Deny(Denial::Forbidden), "a write under a new name may be denied");
    let again = Observation { value: 4, ..kube };
    assert_eq!(engine.decide(by(&rules), &again, at(3)).answer, Answer::Restore);
    let draining = crate::testing::engine();
    draining.drain();
    assert_eq!(draining.decide(by(&rules), &update(3, 8), at(1)).answer, CONFLICT);
    let raises = Observation { name: Some("raised".into()), ..update(9, 8) };
    assert_eq!(draining.decide(by(&rules), &raises, at(2)).answer, Answer::Allow);
}

#[test]
fn observe_counts_the_same_and_admits_everything() {
    let enforcing = rules();
    let observing = Rules { mode: Mode::Observe, ..enforcing.clone() };
    let (one, other) = (engine(), engine());
    let mut stored = 1;
    for value in 1..=50 {
        let now = at(value as u64);
        let (enforced, observed) =
            if value == 1 { (write(), write()) } else { (update(value, stored), update(value, value - 1)) };
        let enforced = one.decide(by(&enforcing), &enforced, now);
        let observed = other.decide(by(&observing), &observed, now);
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
    assert!(other.tick(at(10_000_000), 100).is_empty(), "Observe issues no tasks");
}
