//! Compiles the stages of a policy. A disabled stage is `None`. Its fields are checked nevertheless, as by the CRD.

use std::num::NonZeroU32;
use std::time::Duration;

use squelch_engine::{AggregationRules, BucketRules, GroupBy, Per, SeriesRules, SpamFilterRules};

use crate::api::{self, BucketFields, DurationField, NumberField};

use super::Invalid;

pub(super) fn series(series: &api::SeriesCompaction) -> Result<Option<SeriesRules>, Invalid> {
    let at = StagePath("spec.series");
    let rules = SeriesRules {
        idle_timeout: at.duration(api::IDLE_TIMEOUT, &series.idle_timeout)?,
        heartbeat_interval: at.duration(api::HEARTBEAT_INTERVAL, &series.heartbeat_interval)?,
    };
    Ok((!series.disabled).then_some(rules))
}

pub(super) fn aggregation(aggregation: &api::Aggregation) -> Result<Option<AggregationRules>, Invalid> {
    let at = StagePath("spec.aggregation");
    let rules = AggregationRules {
        max_events: at.number(api::MAX_EVENTS, aggregation.max_events)?.get(),
        interval: at.duration(api::INTERVAL, &aggregation.interval)?,
        group_by: match aggregation.group_by {
            api::GroupBy::Object => GroupBy::Object,
            api::GroupBy::Kind => GroupBy::Kind,
        },
    };
    Ok((!aggregation.disabled).then_some(rules))
}

pub(super) fn spam_filter(filter: &api::SpamFilter) -> Result<Option<SpamFilterRules>, Invalid> {
    let at = StagePath("spec.spamFilter");
    let rules = SpamFilterRules {
        bucket: at.bucket(api::SPAM_FILTER, filter.burst, &filter.refill_interval)?,
        per: per(&filter.per).map_err(|message| at.invalid("per", message))?,
    };
    Ok((!filter.disabled).then_some(rules))
}

pub(super) fn budget(budget: Option<&api::Budget>) -> Result<Option<BucketRules>, Invalid> {
    let bucket = |budget: &api::Budget| {
        StagePath("spec.budget").bucket(api::BUDGET, budget.burst, &budget.refill_interval)
    };
    budget.map(bucket).transpose()
}

fn per(parts: &[api::Per]) -> Result<Per, &'static str> {
    if parts.is_empty() {
        return Err(api::EMPTY_PER);
    }
    let mut per = Per { emitter: false, regarding: false, event_type: false, reason: false };
    for part in parts {
        let is_included = match part {
            api::Per::Emitter => &mut per.emitter,
            api::Per::Regarding => &mut per.regarding,
            api::Per::Type => &mut per.event_type,
            api::Per::Reason => &mut per.reason,
        };
        if std::mem::replace(is_included, true) {
            return Err(api::DUPLICATE_PER);
        }
    }
    Ok(per)
}

/// The path of a stage, for error messages.
struct StagePath(&'static str);

impl StagePath {
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
        refill_interval: &str,
    ) -> Result<BucketRules, Invalid> {
        let burst = self.number(bucket.burst, burst)?;
        let refill_interval = self.duration(bucket.refill_interval, refill_interval)?;
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
            Some(AggregationRules { max_events: 10, interval: minutes(10), group_by: GroupBy::Object })
        );
        assert_eq!(
            rules.spam_filter,
            Some(SpamFilterRules {
                bucket: bucket(25, minutes(5)),
                per: Per { emitter: true, regarding: true, event_type: true, reason: false },
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
        assert_eq!(aggregation.interval, Duration::from_secs(600));
        let filter = rules.spam_filter.unwrap();
        assert_eq!(filter.bucket, bucket(25, Duration::from_millis(1)));
        assert_eq!(filter.per, Per { emitter: false, regarding: false, event_type: false, reason: true });
        assert_eq!(rules.budget, Some(bucket(7, Duration::from_millis(100))));
        assert_eq!(
            compiled(json!({"budget": {}})).unwrap().budget,
            Some(bucket(500, Duration::from_millis(100)))
        );
    }

    #[test]
    fn a_disabled_stage_is_none() {
        let disabled = json!({"disabled": true});
        assert_eq!(compiled(json!({"series": disabled})).unwrap().series, None);
        assert_eq!(compiled(json!({"aggregation": disabled})).unwrap().aggregation, None);
        assert_eq!(compiled(json!({"spamFilter": disabled})).unwrap().spam_filter, None);
        assert!(compiled(json!({"spamFilter": disabled})).unwrap().aggregation.is_some());
    }

    #[test]
    fn invalid_fields_stored_under_an_older_crd_are_rejected() {
        for (spec, message) in [
            (
                json!({"series": {"idleTimeout": "500ms"}}),
                "spec.series.idleTimeout: idleTimeout must be between 1s and 8760h, such as 6m",
            ),
            (
                json!({"series": {"heartbeatInterval": "soon", "disabled": true}}),
                "spec.series.heartbeatInterval: heartbeatInterval must be whole numbers of h, m, s or ms (each of \
                 at most 5 digits), such as 6m or 1h30m",
            ),
            (
                json!({"aggregation": {"maxEvents": 0}}),
                "spec.aggregation.maxEvents: maxEvents must be between 1 and 10000, such as 10",
            ),
            (
                json!({"aggregation": {"interval": "721h", "disabled": true}}),
                "spec.aggregation.interval: interval must be between 1s and 720h, such as 10m",
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
        }
    }

    #[test]
    fn an_empty_per_and_repeated_entries_are_rejected() {
        let with = |per: &[&str]| compiled(json!({"spamFilter": {"per": per}}));
        assert_eq!(with(&[]), Err(format!("spec.spamFilter.per: {}", api::EMPTY_PER)));
        assert_eq!(with(&["Type", "Type"]), Err(format!("spec.spamFilter.per: {}", api::DUPLICATE_PER)));
        let per = with(&["Type", "Reason", "Regarding", "Emitter"]).unwrap().spam_filter.unwrap().per;
        assert_eq!(per, Per { emitter: true, regarding: true, event_type: true, reason: true });
    }
}
