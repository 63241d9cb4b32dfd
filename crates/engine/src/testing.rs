//! Helpers for the tests of the engine and of the crates that use it.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::ProptestConfig;
use proptest::test_runner::RngSeed;

#[cfg(test)]
pub(crate) use crate::tests::support::{
    counters, counters_of, flush, planned, revise, stored, summing, witness,
};
use crate::{
    Api, Engine, EventView, Exported, Governing, Masks, Mode, Moment, ObjectReference, Observation,
    Operation, PolicyId, Rejection, Rules, SeriesRules, Settings, Treatment, WarningPolicy,
};

/// Returns a CREATE of the first Event of a crash-looping Pod.
pub fn write() -> Observation<'static> {
    Observation {
        operation: Operation::Create,
        api: Api::Core,
        user: "system:node:n1",
        own: false,
        dry_run: false,
        namespace: "shop",
        name: Some("cart.1".into()),
        generate_name: "".into(),
        event: EventView {
            regarding: ObjectReference {
                api_version: "v1".into(),
                kind: "Pod".into(),
                namespace: "shop".into(),
                name: "cart".into(),
                uid: "0a1b".into(),
                field_path: "spec.containers{app}".into(),
            },
            event_type: "Warning".into(),
            reason: "BackOff".into(),
            message: "Back-off restarting failed container".into(),
            reporting_component: "kubelet".into(),
            reporting_instance: "n1".into(),
            source_component: "kubelet".into(),
            source_host: "n1".into(),
            ..EventView::default()
        },
        value: 1,
        old_value: 0,
        has_series: false,
        edited: false,
        unchanged: false,
        stale: false,
        first_seen: None,
        last_observed: None,
        occurred_at: Timestamp::UNIX_EPOCH,
    }
}

/// Returns the same Event as an UPDATE from `old_value` to `value`.
pub fn update(value: i64, old_value: i64) -> Observation<'static> {
    Observation { operation: Operation::Update, value, old_value, ..write() }
}

/// Returns rules in Enforce with series compaction alone. They may drop Warnings, as client-go does.
pub fn rules() -> Rules {
    Rules {
        policy: PolicyId { display: "shop/quiet".into(), uid: "p1".into() },
        mode: Mode::Enforce,
        warning_policy: WarningPolicy::Limit,
        normalize: Masks::default(),
        max_message_bytes: None,
        series: Some(SeriesRules {
            idle_timeout: Duration::from_secs(360),
            heartbeat_interval: Duration::from_secs(1800),
        }),
        aggregation: None,
        spam_filter: None,
        budget: None,
        rejection: Rejection::AlreadyExists,
        export: Exported::None,
    }
}

/// Returns an empty engine for 1000 series.
pub fn engine() -> Engine {
    Engine::new(Settings {
        seed: [3, 4],
        max_series: 1000,
        max_pending_series: 100_000,
        began: Timestamp::UNIX_EPOCH,
    })
}

/// Returns `rules` as the governing policy of a write that is neither exempt nor muted.
pub fn by(rules: &Rules) -> Option<Governing<'_>> {
    Some(Governing { rules, treatment: Treatment::Stages })
}

/// Returns the moment this many milliseconds after the epoch.
pub fn at(milliseconds: u64) -> Moment {
    Moment::from_epoch(Duration::from_millis(milliseconds))
}

/// Returns the write under another name.
pub fn named<'a>(name: &'a str, write: Observation<'a>) -> Observation<'a> {
    Observation { name: Some(name.into()), ..write }
}

/// Returns the number of cases for a property test. By default `by_default` cases with a fixed seed, so that a
/// failure is caused by a change. With `SQUELCH_PROPTEST_CASES` that many cases of `SQUELCH_PROPTEST_SEED`, or of a
/// random seed. A failing test prints both. A case that failed once is kept as a separate test.
pub fn cases(by_default: u32) -> ProptestConfig {
    let found_anew = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    match std::env::var("SQUELCH_PROPTEST_CASES") {
        Ok(cases) => {
            let cases = cases.parse().expect("SQUELCH_PROPTEST_CASES is a number");
            let seed = match std::env::var("SQUELCH_PROPTEST_SEED") {
                Ok(seed) => seed.parse().expect("SQUELCH_PROPTEST_SEED is a number"),
                Err(_) => RandomState::new().build_hasher().finish(),
            };
            eprintln!("to repeat: SQUELCH_PROPTEST_SEED={seed} SQUELCH_PROPTEST_CASES={cases}");
            ProptestConfig { cases, rng_seed: RngSeed::Fixed(seed), ..found_anew }
        }
        Err(_) => ProptestConfig { cases: by_default, rng_seed: RngSeed::Fixed(1), ..found_anew },
    }
}
