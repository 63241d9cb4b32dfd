//! The engine neither panics nor exceeds its limits, whatever it observes.

use std::sync::LazyLock;

use super::*;

/// Unusual texts, and some that collide.
static TEXTS: LazyLock<Vec<String>> = LazyLock::new(|| {
    vec![
        "x".repeat(70_000),
        String::new(),
        "a".to_owned(),
        "\u{0}".to_owned(),
        "größer 🐙".repeat(400),
        AGGREGATE_PREFIX.to_owned(),
        "..-..".to_owned(),
        "{\"a\":".to_owned(),
    ]
});

fn text() -> impl Strategy<Value = &'static str> {
    let at = prop_oneof![1 => Just(0), 20 => 1..TEXTS.len()];
    at.prop_map(|at| TEXTS[at].as_str())
}

/// Names that collide, and very long ones.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![2 => text().prop_map(ToOwned::to_owned), 5 => (0u32..1000).prop_map(|number| format!("n.{number}"))]
}

/// Counts as the decoder accepts them: 1 to `i32::MAX`.
fn count() -> impl Strategy<Value = i64> {
    let most = i64::from(i32::MAX);
    prop_oneof![4 => 1i64..5, 1 => Just(most), 1 => Just(most - 1), 1 => 1..=most]
}

fn write_of_anything() -> impl Strategy<Value = Observation<'static>> {
    let texts = prop::collection::vec(text(), 8);
    let first_seen = prop_oneof![Just(None), Just(Some(Timestamp::MIN)), Just(Some(Timestamp::MAX))];
    let times = (first_seen, prop_oneof![Just(Timestamp::MIN), Just(Timestamp::MAX)]);
    (texts, prop::option::weighted(0.9, name()), count(), count(), any::<[bool; 5]>(), times).prop_map(
        |(texts, name, value, old_value, [update, events, has_series, unchanged, related], times)| {
            let update = update && name.is_some();
            let [namespace, user, regarding, kind, message, reporter, source, json] = texts[..] else {
                unreachable!("eight texts")
            };
            let mut made = Observation {
                operation: if update { Operation::Update } else { Operation::Create },
                api: if events { Api::Events } else { Api::Core },
                user,
                namespace,
                name: name.map(Into::into),
                generate_name: message.into(),
                value,
                old_value: if update { old_value } else { 0 },
                has_series,
                unchanged: update && unchanged,
                first_seen: times.0,
                last_observed: times.0,
                occurred_at: times.1,
                ..write()
            };
            made.event.regarding.name = regarding.into();
            made.event.regarding.kind = kind.into();
            made.event.message = message.into();
            made.event.reporting_component = reporter.into();
            made.event.source_host = source.into();
            (made.event.labels, made.event.annotations) = (json, json);
            made.event.related = related.then(|| made.event.regarding.clone());
            made
        },
    )
}

/// The widest and the narrowest limits of the API.
fn rules_at_their_limits() -> impl Strategy<Value = Rules> {
    let long = |most: u64| prop_oneof![Just(Duration::from_secs(1)), Just(Duration::from_secs(most))];
    let bucket = prop_oneof![Just((1, 1)), Just((1_000_000, 3_153_600)), Just((1, 2_592_000_000))].prop_map(
        |(burst, refill): (u32, u64)| BucketRules {
            burst: burst.try_into().unwrap(),
            refill_interval: Duration::from_millis(refill),
        },
    );
    let hours = |hours: u64| long(hours * 3600);
    (any_rules(), bucket, prop_oneof![Just(1u32), Just(10_000)], hours(8760), hours(8760), hours(720))
        .prop_map(|(mut rules, bucket, max_events, idle_timeout, heartbeat_interval, interval)| {
            rules.series = rules.series.map(|_| SeriesRules { idle_timeout, heartbeat_interval });
            rules.budget = rules.budget.map(|_| bucket);
            if let Some(filter) = &mut rules.spam_filter {
                filter.bucket = bucket;
            }
            if let Some(aggregation) = &mut rules.aggregation {
                (aggregation.max_events, aggregation.idle_timeout) = (max_events, interval);
            }
            rules
        })
}

/// Steps of the clock: none, short, years, or backwards, as another thread may see it.
fn clock() -> impl Strategy<Value = i64> {
    const YEAR: i64 = 365 * 24 * 3600 * 1000;
    prop_oneof![6 => Just(0), 4 => 1i64..5000, 2 => -2i64..0, 2 => 300_000i64..2_000_000, 1 => Just(YEAR)]
}

proptest! {
    #![proptest_config(cases(CASES))]

    #[test]
    fn no_observation_breaks_a_limit(
        rules in rules_at_their_limits(), max_series in 1usize..5, observe in prop::bool::weighted(0.2),
        writes in prop::collection::vec((clock(), write_of_anything(), any::<bool>()), 1..120)
    ) {
        let mode = if observe { Mode::Observe } else { Mode::Enforce };
        let rules = Rules { mode, ..rules };
        let engine = governed(&rules, max_series);
        let mut now = 0u64;
        let mut truth = 0;
        for (step, write, tick) in &writes {
            now = now.saturating_add_signed(*step);
            let verdict = engine.decide(by(&rules), write, at(now));
            prop_assert!((0..=i64::from(i32::MAX)).contains(&verdict.occurrences));
            truth += verdict.occurrences as u64;
            prop_assert_eq!(counters(&engine).received(), truth);
            prop_assert!(engine.is_counted_right());
            let gauges = engine.gauges();
            // A namespace below its fair share may add entries at the limit: less than as many again.
            prop_assert!(gauges.series < 2 * max_series.max(1), "{:?}", gauges);
            prop_assert!(gauges.groups < 2 * max_series.div_ceil(2).max(1), "{:?}", gauges);
            prop_assert!(gauges.buckets < 2 * max_series.div_ceil(2).max(1), "{:?}", gauges);
            prop_assert!(gauges.names <= 4 * max_series + 2, "{:?}", gauges);
            for ScopeCounters { counters, dropped, .. } in engine.counters() {
                let dropped_occurrences = counters.of(Disposition::Filtered) + counters.of(Disposition::Throttled);
                prop_assert_eq!(dropped.sum(), dropped_occurrences);
            }
            if *tick {
                for task in engine.tick(at(now), 1000) {
                    let plan = engine.plan(&task, None, at(now));
                    if let FlushPlan::Write { value, .. } | FlushPlan::Create { value, .. } = plan {
                        prop_assert!((1..=i64::from(i32::MAX)).contains(&value));
                        engine.ack(&task, value, at(now));
                    }
                }
                prop_assert!(engine.gauges().names <= 2 * max_series, "{:?}", engine.gauges());
                prop_assert!(engine.is_counted_right());
            }
        }
    }
}
