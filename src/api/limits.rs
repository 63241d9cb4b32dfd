//! Numbers of a policy with their limits, from which come the CRD's rules, the sentences in which a refusal is
//! told, and the check at compilation.

use std::num::NonZeroU32;
use std::time::Duration;

use kube::core::Rule;

use super::duration::{DurationField, PATTERN};

/// One whole number of a policy: its name, limits and default.
#[derive(Clone, Copy, Debug)]
pub struct NumberField {
    /// The field's name as users write it.
    pub name: &'static str,
    /// The smallest value allowed; above 0.
    pub least: i32,
    /// The largest value allowed.
    pub most: i32,
    /// What it is where it is not given.
    pub default: i32,
}

impl NumberField {
    /// Checks a value; the error is a sentence that says what to write.
    pub fn check(&self, value: i32) -> Result<NonZeroU32, String> {
        let Self { name, least, most, default } = self;
        let allowed = u32::try_from(value).ok().filter(|_| (*least..=*most).contains(&value));
        allowed
            .and_then(NonZeroU32::new)
            .ok_or_else(|| format!("{name} must be between {least} and {most}, such as {default}"))
    }
}

/// How long a bucket may take to fill up: 100 years of 365 days. The arithmetic of the buckets (governor's) is
/// unchecked nanoseconds in 64 bits, which end after 584 years.
const MOST_TO_FILL_UP: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The sentence that refuses a bucket that takes longer.
pub const TOO_SLOW: &str = "burst times refillInterval, the time in which an empty bucket fills up, must be at most 100 years; lower one of them";

/// The two numbers of a token bucket.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    /// How many tokens it holds.
    pub burst: NumberField,
    /// How long it takes until one is back.
    pub refill_interval: DurationField,
}

impl Bucket {
    /// Whether a bucket of so many tokens fills up in time.
    pub fn fills_up(burst: NonZeroU32, refill_interval: Duration) -> bool {
        refill_interval.checked_mul(burst.get()).is_some_and(|all| all <= MOST_TO_FILL_UP)
    }

    /// The CEL rule on both together; silent where one of them is refused for itself.
    pub(super) fn fill_rule(&self) -> Rule {
        let (most, milliseconds) = (self.burst.most, MOST_TO_FILL_UP.as_millis());
        Rule::new(format!(
            "self.burst > {most} || !self.refillInterval.matches('{PATTERN}') || \
             self.burst * duration(self.refillInterval).getMilliseconds() <= {milliseconds}"
        ))
        .message(TOO_SLOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELD: NumberField = NumberField { name: "burst", least: 1, most: 1000, default: 25 };

    #[test]
    fn a_number_is_within_its_limits_or_told() {
        assert_eq!(FIELD.check(1).map(NonZeroU32::get), Ok(1));
        assert_eq!(FIELD.check(1000).map(NonZeroU32::get), Ok(1000));
        for value in [i32::MIN, -1, 0, 1001, i32::MAX] {
            assert_eq!(FIELD.check(value), Err("burst must be between 1 and 1000, such as 25".to_owned()));
        }
    }

    #[test]
    fn a_bucket_fills_up_within_100_years() {
        let fills_up =
            |burst, millis| Bucket::fills_up(NonZeroU32::new(burst).unwrap(), Duration::from_millis(millis));
        let hour = 3_600_000;
        assert!(fills_up(1, 720 * hour) && fills_up(1_000_000, 1));
        assert!(fills_up(87_600, 10 * hour) && !fills_up(87_600, 10 * hour + 1));
        assert!(!fills_up(u32::MAX, u64::MAX));
    }
}
