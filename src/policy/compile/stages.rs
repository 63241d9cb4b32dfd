//! Compiles the stages of a policy and the limit on messages. A disabled stage is `None`. Its fields are checked
//! nevertheless, as by the CRD.

use std::num::NonZeroU32;
use std::time::Duration;

use squelch_engine::{AggregationRules, BucketRules, GroupBy, Per, SeriesRules, SpamFilterRules};

use crate::api::{self, BucketFields, DurationField, NumberField};

use super::Invalid;

pub(super) fn series(series: &api::SeriesCompaction) -> Result<Option<SeriesRules>, Invalid> {
    let at = SpecPath("spec.series");
    let rules = SeriesRules {
        idle_timeout: at.duration(api::IDLE_TIMEOUT, &series.idle_timeout)?,
        heartbeat_interval: at.duration(api::HEARTBEAT_INTERVAL, &series.heartbeat_interval)?,
    };
    Ok(enforced(series.mode, rules))
}

pub(super) fn aggregation(aggregation: &api::Aggregation) -> Result<Option<AggregationRules>, Invalid> {
    let at = SpecPath("spec.aggregation");
    let rules = AggregationRules {
        max_events: at.number(api::MAX_EVENTS, aggregation.max_events)?.get(),
        idle_timeout: at.duration(api::GROUP_IDLE_TIMEOUT, &aggregation.idle_timeout)?,
        group_by: match aggregation.group_by {
            api::GroupBy::Object => GroupBy::Object,
            api::GroupBy::Kind => GroupBy::Kind,
        },
    };
    Ok(enforced(aggregation.mode, rules))
}

pub(super) fn spam_filter(filter: &api::SpamFilter) -> Result<Option<SpamFilterRules>, Invalid> {
    let at = SpecPath("spec.spamFilter");
    let rules = SpamFilterRules {
        bucket: at.bucket(
            api::SPAM_FILTER,
            filter.burst,
            (&filter.refill_interval, filter.tokens_per_refill),
        )?,
        per: per(&filter.per).map_err(|message| at.invalid("per", message))?,
    };
    Ok(enforced(filter.mode, rules))
}

pub(super) fn budget(budget: Option<&api::Budget>) -> Result<Option<BucketRules>, Invalid> {
    let Some(budget) = budget else { return Ok(None) };
    let refill = (budget.refill_interval.as_str(), budget.tokens_per_refill);
    let bucket = SpecPath("spec.budget").bucket(api::BUDGET, budget.burst, refill)?;
    Ok(enforced(budget.mode, bucket))
}

pub(super) fn max_message_bytes(max: Option<i32>) -> Result<Option<usize>, Invalid> {
    let number = |max| SpecPath("spec").number(api::MAX_MESSAGE_BYTES, max);
    Ok(max.map(number).transpose()?.and_then(|max| usize::try_from(max.get()).ok()))
}

fn enforced<T>(mode: api::StageMode, rules: T) -> Option<T> {
    match mode {
        api::StageMode::Enforce => Some(rules),
        api::StageMode::Disabled => None,
    }
}

fn per(parts: &[api::Per]) -> Result<Per, &'static str> {
    if parts.is_empty() {
        return Err(api::EMPTY_PER);
    }
    let mut per = Per { emitter: false, object: false, event_type: false, reason: false };
    for part in parts {
        let is_included = match part {
            api::Per::Emitter => &mut per.emitter,
            api::Per::Object => &mut per.object,
            api::Per::Type => &mut per.event_type,
            api::Per::Reason => &mut per.reason,
        };
        if std::mem::replace(is_included, true) {
            return Err(api::DUPLICATE_PER);
        }
    }
    Ok(per)
}

/// The path of the fields, for error messages.
struct SpecPath(&'static str);

impl SpecPath {
    fn duration(&self, field: DurationField, text: &str) -> Result<Duration, Invalid> {
        field.parse(text).map_err(|message| self.invalid(field.name, &message))
    }

    fn number(&self, field: NumberField, value: i32) -> Result<NonZeroU32, Invalid> {
        field.check(value).map_err(|message| self.invalid(field.name, &message))
    }

    fn bucket(
        &self,
        bucket: BucketFields,
        burst: i32,
        (refill_interval, tokens_per_refill): (&str, i32),
    ) -> Result<BucketRules, Invalid> {
        let burst = self.number(bucket.burst, burst)?;
        let refill_interval = self.duration(bucket.refill_interval, refill_interval)?;
        let refill_interval =
            refill_interval / self.number(bucket.tokens_per_refill, tokens_per_refill)?.get();
        if !BucketFields::refills_in_time(burst, refill_interval) {
            return Err(Invalid::new(self.0, api::TOO_SLOW));
        }
        Ok(BucketRules { burst, refill_interval })
    }

    fn invalid(&self, field: &str, message: &str) -> Invalid {
        Invalid::new(format!("{}.{field}", self.0), message)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use squelch_engine::Rules;

    use super::*;
    use crate::policy::compile;
    use crate::policy::fixtures::id;

    fn compiled(spec: Value) -> Result<Rules, String> {
        let spec = serde_json::from_value(spec).unwrap();
        compile(id("ci", "p"), &spec).map(|policy| policy.rules).map_err(|invalid| invalid.to_string())
    }

    fn invalid(spec: Value) -> String {
        compiled(spec).unwrap_err()
    }

    fn bucket(burst: u32, refill_interval: Duration) -> BucketRules {
        BucketRules { burst: NonZeroU32::new(burst).unwrap(), refill_interval }
    }

    #[test]
    fn the_defaults_are_those_of_client_go_without_budget() {
        let rules = compiled(json!({})).unwrap();
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        assert_eq!(
            rules.series,
            Some(SeriesRules { idle_timeout: minutes(6), heartbeat_interval: minutes(30) })
        );
        assert_eq!(
            rules.aggregation,
            Some(AggregationRules { max_events: 10, idle_timeout: minutes(10), group_by: GroupBy::Object })
        );
        assert_eq!(
            rules.spam_filter,
            Some(SpamFilterRules {
                bucket: bucket(25, minutes(5)),
                per: Per { emitter: true, object: true, event_type: true, reason: false },
            })
        );
        assert_eq!(rules.budget, None);
    }

    #[test]
    fn unspecified_fields_keep_their_defaults() {
        let rules = compiled(json!({
            "aggregation": {"groupBy": "Kind", "maxEvents": 3},
            "spamFilter": {"per": ["Reason"], "refillInterval": "1ms"},
            "budget": {"burst": 7},
        }))
        .unwrap();
        let aggregation = rules.aggregation.unwrap();
        assert_eq!((aggregation.group_by, aggregation.max_events), (GroupBy::Kind, 3));
        assert_eq!(aggregation.idle_timeout, Duration::from_secs(600));
        let filter = rules.spam_filter.unwrap();
        assert_eq!(filter.bucket, bucket(25, Duration::from_millis(1)));
        assert_eq!(filter.per, Per { emitter: false, object: false, event_type: false, reason: true });
        assert_eq!(rules.budget, Some(bucket(7, Duration::from_millis(100))));
        assert_eq!(
            compiled(json!({"budget": {}})).unwrap().budget,
            Some(bucket(500, Duration::from_millis(100)))
        );
    }

    #[test]
    fn several_tokens_of_an_interval_return_evenly() {
        let budget = |tokens: i32, interval: &str| {
            let budget = json!({"burst": 7, "refillInterval": interval, "tokensPerRefill": tokens});
            compiled(json!({ "budget": budget })).unwrap().budget
        };
        assert_eq!(budget(10, "1s"), Some(bucket(7, Duration::from_millis(100))));
        assert_eq!(budget(3, "1s"), Some(bucket(7, Duration::from_nanos(333_333_333))));
        // The highest rate.
        assert_eq!(budget(1_000_000, "1ms"), Some(bucket(7, Duration::from_nanos(1))));
    }

    #[test]
    fn a_disabled_stage_is_none() {
        let disabled = json!({"mode": "Disabled"});
        assert_eq!(compiled(json!({"series": disabled})).unwrap().series, None);
        assert_eq!(compiled(json!({"aggregation": disabled})).unwrap().aggregation, None);
        assert_eq!(compiled(json!({"spamFilter": disabled})).unwrap().spam_filter, None);
        assert!(compiled(json!({"spamFilter": disabled})).unwrap().aggregation.is_some());
        assert_eq!(compiled(json!({"budget": disabled})).unwrap().budget, None);
    }

    #[test]
    fn invalid_fields_stored_under_an_older_crd_are_rejected() {
        for (spec, message) in [
            (
                json!({"series": {"idleTimeout": "500ms"}}),
                "spec.series.idleTimeout: idleTimeout must be between 1s and 8760h, such as 6m",
            ),
            (
                json!({"series": {"heartbeatInterval": "soon", "mode": "Disabled"}}),
                "spec.series.heartbeatInterval: heartbeatInterval must be whole numbers of h, m, s or ms (each of \
                 at most 5 digits), such as 6m or 1h30m",
            ),
            (
                json!({"aggregation": {"maxEvents": 0}}),
                "spec.aggregation.maxEvents: maxEvents must be between 1 and 10000, such as 10",
            ),
            (
                json!({"aggregation": {"idleTimeout": "721h", "mode": "Disabled"}}),
                "spec.aggregation.idleTimeout: idleTimeout must be between 1s and 720h, such as 10m",
            ),
            (
                json!({"spamFilter": {"burst": -1}}),
                "spec.spamFilter.burst: burst must be between 1 and 1000000, such as 25",
            ),
            (
                json!({"spamFilter": {"refillInterval": "0s"}}),
                "spec.spamFilter.refillInterval: refillInterval must be between 1ms and 720h, such as 5m",
            ),
            (
                json!({"budget": {"burst": 1_000_001}}),
                "spec.budget.burst: burst must be between 1 and 1000000, such as 500",
            ),
            (
                json!({"budget": {"tokensPerRefill": 0}}),
                "spec.budget.tokensPerRefill: tokensPerRefill must be between 1 and 1000000, such as 1",
            ),
            (
                json!({"budget": {"refillInterval": "0s"}}),
                "spec.budget.refillInterval: refillInterval must be between 1ms and 720h, such as 100ms",
            ),
        ] {
            assert_eq!(invalid(spec), message);
        }
    }

    #[test]
    fn a_bucket_that_takes_more_than_100_years_to_refill_is_rejected() {
        for stage in ["spamFilter", "budget"] {
            let with = |refill: &str| json!({stage: {"burst": 87_600, "refillInterval": refill}});
            assert!(compiled(with("10h")).is_ok());
            assert_eq!(invalid(with("10h1ms")), format!("spec.{stage}: {}", api::TOO_SLOW));
            let with = |tokens: i32| json!({stage: {"burst": 87_600, "refillInterval": "30h", "tokensPerRefill": tokens}});
            assert!(compiled(with(3)).is_ok());
            assert_eq!(invalid(with(2)), format!("spec.{stage}: {}", api::TOO_SLOW));
        }
    }

    #[test]
    fn an_empty_per_and_repeated_entries_are_rejected() {
        let with = |per: &[&str]| compiled(json!({"spamFilter": {"per": per}}));
        assert_eq!(with(&[]), Err(format!("spec.spamFilter.per: {}", api::EMPTY_PER)));
        assert_eq!(with(&["Type", "Type"]), Err(format!("spec.spamFilter.per: {}", api::DUPLICATE_PER)));
        let per = with(&["Type", "Reason", "Object", "Emitter"]).unwrap().spam_filter.unwrap().per;
        assert_eq!(per, Per { emitter: true, object: true, event_type: true, reason: true });
    }
}
