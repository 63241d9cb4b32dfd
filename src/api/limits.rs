//! Bounds of the numbers in policies. The CRD's rules, their messages and the check at compilation are derived from them.

use std::num::NonZeroU32;
use std::time::Duration;

use kube::core::Rule;

use super::duration::{DurationField, PATTERN};

/// A whole number in a policy: its name, bounds and default.
#[derive(Clone, Copy, Debug)]
pub struct NumberField {
    /// Name of the field in the API.
    pub name: &'static str,
    /// Minimum, above 0.
    pub min: i32,
    /// Maximum.
    pub max: i32,
    /// Default.
    pub default: i32,
}

impl NumberField {
    /// Checks a value. The error is a message with the bounds.
    pub fn check(&self, value: i32) -> Result<NonZeroU32, String> {
        let Self { name, min, max, default } = self;
        let allowed = u32::try_from(value).ok().filter(|_| (*min..=*max).contains(&value));
        allowed
            .and_then(NonZeroU32::new)
            .ok_or_else(|| format!("{name} must be between {min} and {max}, such as {default}"))
    }
}

/// Maximum time to refill an empty bucket: 100 years of 365 days. The engine's buckets use governor's arithmetic, unchecked
/// nanoseconds in 64 bits, which overflow after 584 years.
const MAX_REFILL_TIME: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Message for a bucket that takes longer.
pub const TOO_SLOW: &str = "burst times refillInterval / tokensPerRefill (the time to refill an empty bucket) must be at most 100 years; reduce burst or refillInterval";

/// The numbers of a token bucket.
#[derive(Clone, Copy, Debug)]
pub struct BucketFields {
    /// Number of tokens in a full bucket.
    pub burst: NumberField,
    /// Time to add `tokens_per_refill`.
    pub refill_interval: DurationField,
    /// Number of tokens added in this time.
    pub tokens_per_refill: NumberField,
}

impl BucketFields {
    /// Whether an empty bucket is full within 100 years, with this time for one token.
    pub fn refills_in_time(burst: NonZeroU32, token_interval: Duration) -> bool {
        token_interval.checked_mul(burst.get()).is_some_and(|all| all <= MAX_REFILL_TIME)
    }

    /// The CEL rule on all numbers together. It holds if one of them is invalid by itself, so that only one message is
    /// shown.
    pub(super) fn refill_rule(&self) -> Rule {
        let (max, milliseconds) = (self.burst.max, MAX_REFILL_TIME.as_millis());
        Rule::new(format!(
            "self.burst > {max} || !self.refillInterval.matches('{PATTERN}') || \
             self.burst * duration(self.refillInterval).getMilliseconds() <= \
             {milliseconds} * self.tokensPerRefill"
        ))
        .message(TOO_SLOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELD: NumberField = NumberField { name: "burst", min: 1, max: 1000, default: 25 };

    #[test]
    fn numbers_out_of_bounds_are_rejected() {
        assert_eq!(FIELD.check(1).map(NonZeroU32::get), Ok(1));
        assert_eq!(FIELD.check(1000).map(NonZeroU32::get), Ok(1000));
        for value in [i32::MIN, -1, 0, 1001, i32::MAX] {
            assert_eq!(FIELD.check(value), Err("burst must be between 1 and 1000, such as 25".to_owned()));
        }
    }

    #[test]
    fn a_bucket_refills_within_100_years() {
        let refills = |burst, millis| {
            BucketFields::refills_in_time(NonZeroU32::new(burst).unwrap(), Duration::from_millis(millis))
        };
        let hour = 3_600_000;
        assert!(refills(1, 720 * hour) && refills(1_000_000, 1));
        assert!(refills(87_600, 10 * hour) && !refills(87_600, 10 * hour + 1));
        assert!(!refills(u32::MAX, u64::MAX));
    }
}
