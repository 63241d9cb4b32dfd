//! The rules that the load is decided by.

use std::num::NonZeroU32;
use std::time::Duration;

use squelch::policy;
use squelch_engine::{
    AggregationRules, BucketRules, GroupBy, Per, PolicyId, Rules, SpamFilterRules, WarningPolicy,
};

use super::PER_OBJECT;

/// The defaults of the policy API, without aggregation and limits. Limits may drop Warnings.
pub(super) fn repeats_merged() -> Rules {
    let spec = serde_json::from_str("{}").expect("every field has a default");
    let policy = PolicyId { display: "shop/quiet".into(), uid: "p1".into() };
    let rules = policy::compile(policy, &spec).expect("the defaults are valid").rules;
    let warning_policy = WarningPolicy::Limit;
    Rules { warning_policy, aggregation: None, spam_filter: None, budget: None, ..rules }
}

pub(super) fn aggregation() -> AggregationRules {
    let max_events = u32::try_from(PER_OBJECT).expect("a small number");
    AggregationRules { max_events, idle_timeout: Duration::from_secs(600), group_by: GroupBy::Object }
}

pub(super) fn spam_filter(burst: usize, refill_interval: Duration) -> SpamFilterRules {
    let per = Per { emitter: true, object: true, event_type: true, reason: false };
    SpamFilterRules { bucket: bucket(burst, refill_interval), per }
}

pub(super) fn bucket(burst: usize, refill_interval: Duration) -> BucketRules {
    let burst = u32::try_from(burst).ok().and_then(NonZeroU32::new).expect("a small number, and not 0");
    BucketRules { burst, refill_interval }
}
