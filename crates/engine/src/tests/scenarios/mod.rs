//! Decisions by scenario. Each test is a sentence of the contract.

mod aggregation;
mod flushing;
mod limits;
mod normalize;
mod passing;
mod series;

use std::time::Duration;

use super::*;
use crate::testing::{at, by, counters, engine, flush, named, planned, revise, rules, stored, update, write};

/// Returns the verdicts on writes one second apart, starting at one second.
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

fn denied(disposition: Disposition, stage: Stage) -> Verdict {
    Verdict { disposition: Some(disposition), stage, occurrences: 1, answer: CONFLICT }
}

const CONFLICT: Answer = Answer::Deny(Denial::AlreadyExists);

/// Rules with every stage of a policy's defaults.
fn all_stages() -> Rules {
    Rules {
        aggregation: Some(AggregationRules {
            max_events: 3,
            idle_timeout: Duration::from_secs(600),
            group_by: GroupBy::Object,
        }),
        spam_filter: Some(SpamFilterRules {
            bucket: bucket(4, 300),
            per: Per { emitter: true, object: true, event_type: true, reason: false },
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
