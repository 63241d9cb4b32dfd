//! Properties of the engine for any writes at any times. `world` has runs in which clients, etcd and flush
//! writer follow their rules.

mod against_model;
mod found;
mod hostile;
mod observe;
mod repeatable;
mod write_rate;

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::testing::{at, by, cases, counters, rules, write};

/// Number of cases for each property, unless `SQUELCH_PROPTEST_CASES` says otherwise.
const CASES: u32 = 1000;

/// Milliseconds between two events: bursts, pauses, silences.
fn gap() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => Just(0), 4 => 1u64..3000, 2 => 3000u64..100_000, 2 => 300_000u64..700_000, 1 => 1_700_000u64..1_900_000
    ]
}

/// Writes with few users, names, messages and small values, so that they collide.
fn any_write() -> impl Strategy<Value = Observation<'static>> {
    let event = (0usize..2, 0usize..2, 0usize..4);
    let kind = (any::<bool>(), any::<bool>(), prop::bool::weighted(0.05), prop::bool::weighted(0.1));
    let values = (1i64..9, 1i64..9);
    let name = prop_oneof![8 => (0usize..6).prop_map(Some), 1 => Just(None)];
    (event, kind, values, name, prop::bool::weighted(0.1)).prop_map(
        |(event, kind, (value, old), name, older)| {
            let (user, object, message) = event;
            let (update, events, edited, unchanged) = kind;
            let update = update && name.is_some();
            let mut made = Observation {
                operation: if update { Operation::Update } else { Operation::Create },
                api: if events { Api::Events } else { Api::Core },
                user: ["one", "other"][user],
                name: name.map(|name| ["a.1", "a.2", "b.1", "b.2", "c.1", "c.2"][name].into()),
                generate_name: "g.".into(),
                value: if update && unchanged { old } else { value },
                old_value: if update { old } else { 0 },
                has_series: events && (update || value > 1),
                // The other half of the edits is stale.
                edited: update && edited && value % 2 == 0,
                stale: update && edited && value % 2 == 1,
                unchanged: update && unchanged,
                first_seen: older.then_some(Timestamp::MIN),
                ..write()
            };
            made.event.regarding.name = ["cart", "till"][object].into();
            made.event.event_type = ["Normal", "Warning", "Other", "Normal"][message].into();
            made.event.message = ["a 1", "a 2", "c", "(combined from similar events): d"][message].into();
            made
        },
    )
}

/// Most writes pass to the stages.
fn any_treatment() -> impl Strategy<Value = Treatment> {
    prop_oneof![8 => Just(Treatment::Stages), 1 => Just(Treatment::Exempt), 1 => Just(Treatment::Mute)]
}

/// Policies with every choice of stages and tight limits.
fn any_rules() -> impl Strategy<Value = Rules> {
    let bucket = (1u32..6, 1u64..900_000).prop_map(|(burst, refill)| BucketRules {
        burst: burst.try_into().unwrap(),
        refill_interval: Duration::from_millis(refill),
    });
    let series = (1u64..1000, 1u64..3600).prop_map(|(idle_timeout, heartbeat_interval)| SeriesRules {
        idle_timeout: Duration::from_secs(idle_timeout),
        heartbeat_interval: Duration::from_secs(heartbeat_interval),
    });
    let group_by = prop_oneof![Just(GroupBy::Object), Just(GroupBy::Kind)];
    let aggregation = (1u32..5, 1u64..1000, group_by).prop_map(|(max_events, interval, group_by)| {
        AggregationRules { max_events, idle_timeout: Duration::from_secs(interval), group_by }
    });
    let per = any::<[bool; 4]>().prop_map(|[emitter, object, event_type, reason]| Per {
        emitter,
        object,
        event_type,
        reason,
    });
    let spam_filter = (bucket.clone(), per).prop_map(|(bucket, per)| SpamFilterRules { bucket, per });
    let rejection = prop_oneof![Just(Rejection::AlreadyExists), Just(Rejection::Forbidden)];
    use prop::option::of;
    let warning_policy = prop_oneof![Just(WarningPolicy::NeverDrop), Just(WarningPolicy::Limit)];
    let max_message_bytes = prop::option::weighted(0.2, Just(2));
    let normalize = prop_oneof![Just(Masks::default()), Just([Mask::Numbers].into_iter().collect())];
    let messages = (normalize, max_message_bytes);
    (of(series), of(aggregation), of(spam_filter), of(bucket), rejection, warning_policy, messages).prop_map(
        |(series, aggregation, spam_filter, budget, rejection, warning_policy, messages)| Rules {
            warning_policy,
            normalize: messages.0,
            max_message_bytes: messages.1,
            series,
            aggregation,
            spam_filter,
            budget,
            rejection,
            ..rules()
        },
    )
}

/// Returns an engine with these rules and capacity for `max_series`.
fn governed(rules: &Rules, max_series: usize) -> Engine {
    let engine = Engine::new(Settings {
        seed: [5, 6],
        max_series,
        max_pending_series: 100_000,
        began: Timestamp::UNIX_EPOCH,
    });
    engine.revise(&[known_policy(rules)], Moment::default());
    engine
}

fn known_policy(rules: &Rules) -> KnownPolicy {
    let policy = rules.policy.clone();
    KnownPolicy { policy, namespace: Some("shop".into()), rules: Some(Arc::new(rules.clone())) }
}
