//! The stages of a policy, compiled: each is `None` where it is off. What a stage says is checked all the same
//! where it is off, as the CRD does.

use std::num::NonZeroU32;
use std::time::Duration;

use squelch_engine::{AggregationRules, BucketRules, GroupBy, Per, SeriesRules, SpamFilterRules};

use crate::api::{self, Bucket, DurationField, NumberField};

use super::Invalid;

pub(super) fn series(series: &api::Series) -> Result<Option<SeriesRules>, Invalid> {
    let at = At("spec.series");
    let rules = SeriesRules {
        idle_timeout: at.duration(api::IDLE_TIMEOUT, &series.idle_timeout)?,
        heartbeat_interval: at.duration(api::HEARTBEAT_INTERVAL, &series.heartbeat_interval)?,
    };
    Ok((!series.disabled).then_some(rules))
}

pub(super) fn aggregation(aggregation: &api::Aggregation) -> Result<Option<AggregationRules>, Invalid> {
    let at = At("spec.aggregation");
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
    let at = At("spec.spamFilter");
    let rules = SpamFilterRules {
        bucket: at.bucket(api::SPAM_FILTER, filter.burst, &filter.refill_interval)?,
        per: per(&filter.per).map_err(|sentence| at.invalid("per", sentence))?,
    };
    Ok((!filter.disabled).then_some(rules))
}

pub(super) fn budget(budget: Option<&api::Budget>) -> Result<Option<BucketRules>, Invalid> {
    let bucket =
        |budget: &api::Budget| At("spec.budget").bucket(api::BUDGET, budget.burst, &budget.refill_interval);
    budget.map(bucket).transpose()
}

fn per(parts: &[api::Per]) -> Result<Per, &'static str> {
    if parts.is_empty() {
        return Err(api::EMPTY_PER);
    }
    let mut per = Per { emitter: false, regarding: false, event_type: false, reason: false };
    for part in parts {
        let named = match part {
            api::Per::Emitter => &mut per.emitter,
            api::Per::Regarding => &mut per.regarding,
            api::Per::Type => &mut per.event_type,
            api::Per::Reason => &mut per.reason,
        };
        if std::mem::replace(named, true) {
            return Err(api::DUPLICATE_PER);
        }
    }
    Ok(per)
}

/// The path of a stage: what is wrong in it is told with the path of the field.
struct At(&'static str);

impl At {
    fn duration(&self, field: DurationField, text: &str) -> Result<Duration, Invalid> {
        field.parse(text).map_err(|sentence| self.invalid(field.name, &sentence))
    }

    fn number(&self, field: NumberField, value: i32) -> Result<NonZeroU32, Invalid> {
        field.check(value).map_err(|sentence| self.invalid(field.name, &sentence))
    }

    fn bucket(&self, bucket: Bucket, burst: i32, refill_interval: &str) -> Result<BucketRules, Invalid> {
        let burst = self.number(bucket.burst, burst)?;
        let refill_interval = self.duration(bucket.refill_interval, refill_interval)?;
        if !Bucket::fills_up(burst, refill_interval) {
            return Err(Invalid::new(self.0, api::TOO_SLOW));
        }
        Ok(BucketRules { burst, refill_interval })
    }

    fn invalid(&self, field: &str, sentence: &str) -> Invalid {
        Invalid::new(format!("{}.{field}", self.0), sentence)
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
    fn what_is_not_given_is_as_in_client_go_and_there_is_no_budget() {
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
    fn what_is_given_is_taken_and_the_rest_is_not_touched() {
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
    fn each_stage_is_off_where_it_is_disabled() {
        let disabled = json!({"disabled": true});
        assert_eq!(compiled(json!({"series": disabled})).unwrap().series, None);
        assert_eq!(compiled(json!({"aggregation": disabled})).unwrap().aggregation, None);
        assert_eq!(compiled(json!({"spamFilter": disabled})).unwrap().spam_filter, None);
        assert!(compiled(json!({"spamFilter": disabled})).unwrap().aggregation.is_some());
    }

    #[test]
    fn what_an_older_crd_let_through_is_refused_with_the_field_and_a_sentence() {
        for (spec, told) in [
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
            assert_eq!(invalid(spec), told);
        }
    }

    #[test]
    fn a_bucket_that_would_take_more_than_100_years_to_fill_up_is_refused() {
        for stage in ["spamFilter", "budget"] {
            let with = |refill: &str| json!({stage: {"burst": 87_600, "refillInterval": refill}});
            assert!(compiled(with("10h")).is_ok());
            assert_eq!(invalid(with("10h1ms")), format!("spec.{stage}: {}", api::TOO_SLOW));
        }
    }

    #[test]
    fn per_names_something_and_nothing_twice() {
        let with = |per: &[&str]| compiled(json!({"spamFilter": {"per": per}}));
        assert_eq!(with(&[]), Err(format!("spec.spamFilter.per: {}", api::EMPTY_PER)));
        assert_eq!(with(&["Type", "Type"]), Err(format!("spec.spamFilter.per: {}", api::DUPLICATE_PER)));
        let per = with(&["Type", "Reason", "Regarding", "Emitter"]).unwrap().spam_filter.unwrap().per;
        assert_eq!(per, Per { emitter: true, regarding: true, event_type: true, reason: true });
    }
}
