//! Policy changes with pending occurrences: they are flushed, and nothing is counted twice.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::testing::{at, by, counters, engine, flush, named, rules, update, write};

/// An engine, one Event, and the current policy (`None`: deleted).
struct Scene {
    engine: Engine,
    rules: Option<Rules>,
    stored: i64,
    now: u64,
}

impl Scene {
    /// A legacy client has counted to 7, of which 4 are stored. With `others`, another client's occurrence is
    /// merged too.
    fn with_pending(others: bool) -> Self {
        let mut scene = Self { engine: engine(), rules: Some(rules()), stored: 0, now: 0 };
        scene.report(&write());
        for value in 2..=7 {
            scene.count_on(value);
        }
        assert_eq!((scene.stored, scene.engine.gauges().pending_occurrences), (4, 3));
        if others {
            // One occurrence, so that the total has not doubled.
            scene.report(&named("cart.2", write()));
            assert_eq!(scene.engine.gauges().pending_occurrences, 4);
        }
        scene
    }

    /// The client of `cart.1` counts up to this value.
    fn count_on(&mut self, value: i64) -> Option<Disposition> {
        self.report(&update(value, self.stored))
    }

    fn report(&mut self, write: &Observation<'_>) -> Option<Disposition> {
        self.now += 10;
        let governing = self.rules.as_ref().and_then(by);
        let verdict = self.engine.decide(governing, write, at(self.now));
        if verdict.answer == Answer::Allow && write.name.as_deref() == Some("cart.1") {
            self.stored = write.value;
        }
        verdict.disposition
    }

    fn change(&mut self, rules: Option<Rules>) {
        let known_policy = rules.as_ref().map(|rules| KnownPolicy {
            policy: rules.policy.clone(),
            namespace: Some("shop".into()),
            rules: Some(Arc::new(rules.clone())),
        });
        self.engine.revise(known_policy.as_slice(), at(self.now));
        self.rules = rules;
    }

    /// Flushes what is due during this many seconds.
    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now += 1000;
            for task in self.engine.tick(at(self.now), 10) {
                assert_eq!(&*task.name, "cart.1");
                if let Some(value) = flush(&self.engine, &task, Some(self.stored), at(self.now)) {
                    assert!(value >= self.stored, "lowered");
                    self.stored = value;
                }
            }
        }
    }

    /// Asserts that everything is flushed and removed and that the stored count is this.
    fn ends_with(&mut self, stored: i64) {
        self.pass(400);
        assert_eq!(self.stored, stored);
        let gauges = self.engine.gauges();
        assert_eq!((gauges.series, gauges.pending_occurrences, gauges.pending_series), (0, 0, 0));
        assert_eq!(counters(&self.engine).lost, 0);
    }
}

#[test]
fn a_deleted_policy_flushes_within_seconds() {
    let mut scene = Scene::with_pending(true);
    scene.change(None);
    scene.pass(3);
    assert_eq!((scene.stored, scene.engine.gauges().series), (8, 0));
    assert_eq!(counters(&scene.engine).received(), 8, "for the last scrape");
    scene.pass(601);
    assert!(scene.engine.counters().is_empty());
}

#[test]
fn a_client_write_completes_the_flush_of_a_deleted_policy() {
    let mut scene = Scene::with_pending(false);
    scene.change(None);
    assert_eq!(scene.count_on(8), None, "no policy governs it");
    scene.ends_with(8);
}

#[test]
fn a_narrowed_match_flushes_when_its_series_closes() {
    let mut scene = Scene::with_pending(false);
    let governing = scene.rules.take();
    // The engine no longer sees these writes; the client continues to count.
    for value in 8..=20 {
        scene.count_on(value);
    }
    assert_eq!(scene.stored, 20);
    scene.ends_with(20);
    scene.rules = governing;
    let received = counters(&scene.engine).received();
    assert_eq!(received, 7, "what it did not see is not received");
}

#[test]
fn disabling_series_flushes_and_admits_the_client() {
    let mut scene = Scene::with_pending(true);
    scene.change(Some(Rules { series: None, ..rules() }));
    assert_eq!(scene.count_on(8), Some(Disposition::Admitted));
    scene.ends_with(9);
    let counters = counters(&scene.engine);
    assert_eq!((counters.received(), counters.recovered), (9, 0));
}

#[test]
fn switching_to_observe_flushes_and_keeps_counting() {
    let mut scene = Scene::with_pending(false);
    let observing = Rules { mode: Mode::Observe, ..rules() };
    scene.change(Some(observing));
    scene.count_on(8);
    scene.pass(5);
    assert_eq!(scene.stored, 8);
    scene.ends_with(8);
    assert_eq!(counters(&scene.engine).received(), 8);
}

#[test]
fn switching_to_enforce_has_nothing_pending_of_stored_writes() {
    let observing = Rules { mode: Mode::Observe, ..rules() };
    let mut scene = Scene { engine: engine(), rules: Some(observing), stored: 0, now: 0 };
    scene.report(&write());
    for value in 2..=7 {
        scene.count_on(value);
    }
    assert_eq!(scene.stored, 7, "all of it");
    scene.change(Some(rules()));
    for value in 8..=10 {
        scene.count_on(value);
    }
    scene.ends_with(10);
    let counters = counters(&scene.engine);
    assert_eq!((counters.received(), counters.recovered), (10, 0));
}

#[test]
fn a_new_policy_takes_over_pending_occurrences_of_a_deleted_one() {
    let mut scene = Scene::with_pending(true);
    let policy = PolicyId { display: "shop/next".into(), uid: "p2".into() };
    scene.change(Some(Rules { policy, ..rules() }));
    for value in 8..=12 {
        scene.count_on(value);
    }
    // 12 occurrences of one client and 1 of the other.
    scene.ends_with(13);
}

#[test]
fn a_shorter_heartbeat_makes_the_flush_due_earlier() {
    let mut scene = Scene::with_pending(false);
    scene.pass(30);
    assert_eq!(scene.stored, 4, "neither doubled nor due");
    let mut timing = rules();
    if let Some(series) = &mut timing.series {
        series.heartbeat_interval = Duration::from_secs(5);
    }
    scene.change(Some(timing));
    scene.pass(6);
    assert_eq!(scene.stored, 7);
}

#[test]
fn an_invalid_policy_flushes_and_stops_merging() {
    let mut scene = Scene::with_pending(true);
    let known_policy = KnownPolicy { policy: rules().policy, namespace: Some("shop".into()), rules: None };
    scene.engine.revise(&[known_policy], at(scene.now));
    scene.rules = None;
    scene.pass(3);
    assert_eq!(scene.stored, 8);
    assert_eq!(counters(&scene.engine).received(), 8, "its counts are kept");
}

#[test]
fn disabling_aggregation_flushes_its_summaries() {
    let engine = engine();
    let aggregation =
        AggregationRules { max_events: 1, idle_timeout: Duration::from_secs(600), group_by: GroupBy::Object };
    let summing = Rules { aggregation: Some(aggregation), ..rules() };
    for (name, message) in [("cart.1", "a"), ("cart.2", "b"), ("cart.3", "c"), ("cart.4", "d")] {
        let mut write = named(name, write());
        write.event.message = message.into();
        engine.decide(by(&summing), &write, at(1));
    }
    assert_eq!(
        (engine.gauges().series, engine.gauges().pending_occurrences),
        (2, 3),
        "the first Event, and the summary"
    );
    let rules = Arc::new(rules());
    let known_policy =
        KnownPolicy { policy: rules.policy.clone(), namespace: Some("shop".into()), rules: Some(rules) };
    engine.revise(&[known_policy], at(2));
    let task = engine.tick(at(3), 10).remove(0);
    assert_eq!(flush(&engine, &task, None, at(4)), Some(3));
    assert_eq!((engine.gauges().series, engine.gauges().pending_occurrences), (1, 0));
}
