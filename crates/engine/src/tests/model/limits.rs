//! Steps 10 and 11 in whole numbers: a bucket holds fractions of tokens, one for each nanosecond.

use super::{
    BucketRules, Disposition, Key, Moment, NaiveModel, Observation, Stage, WarningPolicy, emitter, object,
};

pub(super) struct Bucket {
    parts: u128,
    at: Moment,
}

impl Bucket {
    fn full(rules: &BucketRules, now: Moment) -> Self {
        Self { parts: capacity(rules), at: now }
    }

    /// Adds what returned since the last call. Returns whether the bucket holds a token.
    fn has_one(&mut self, rules: &BucketRules, now: Moment) -> bool {
        let refilled = now.since(self.at).as_nanos();
        (self.parts, self.at) = ((self.parts + refilled).min(capacity(rules)), now);
        self.parts >= rules.refill_interval.as_nanos()
    }
}

fn capacity(rules: &BucketRules) -> u128 {
    rules.refill_interval.as_nanos() * u128::from(rules.burst.get())
}

impl NaiveModel {
    /// Returns the limit that drops the write. Asks all buckets before it charges any.
    pub(super) fn limited(&mut self, write: &Observation<'_>, now: Moment) -> Option<(Disposition, Stage)> {
        self.few_tokens = false;
        if !self.may_be_dropped(write) {
            return None;
        }
        let (filter, budget) = (self.rules.spam_filter, self.rules.budget);
        let place = filter.map(|filter| {
            let key = self.key_of_bucket(write);
            let place = self.buckets.iter().position(|(of, _)| *of == key);
            let place = place.unwrap_or(self.buckets.len());
            if place == self.buckets.len() {
                self.buckets.push((key, Bucket::full(&filter.bucket, now)));
            }
            (place, filter.bucket)
        });
        if let Some((place, rules)) = place
            && !self.buckets[place].1.has_one(&rules, now)
        {
            return Some((Disposition::Filtered, Stage::SpamFilter));
        }
        if let Some(rules) = &budget {
            let bucket = self.budget.get_or_insert_with(|| Bucket::full(rules, now));
            if !bucket.has_one(rules, now) {
                return Some((Disposition::Throttled, Stage::Budget));
            }
            bucket.parts -= rules.refill_interval.as_nanos();
            self.few_tokens |= bucket.parts < 4 * rules.refill_interval.as_nanos();
        }
        if let Some((place, rules)) = place {
            let bucket = &mut self.buckets[place].1;
            bucket.parts -= rules.refill_interval.as_nanos();
            self.few_tokens |= bucket.parts < 4 * rules.refill_interval.as_nanos();
        }
        None
    }

    /// Warnings, and types that are unknown, are dropped only under `warningPolicy: Limit`.
    pub(super) fn may_be_dropped(&self, write: &Observation<'_>) -> bool {
        match self.rules.warning_policy {
            WarningPolicy::Limit => true,
            WarningPolicy::NeverDrop => write.event.event_type == "Normal",
        }
    }

    fn key_of_bucket(&self, write: &Observation<'_>) -> Key {
        let Some(per) = self.rules.spam_filter.map(|filter| filter.per) else { return Vec::new() };
        let parts = [
            (per.emitter, emitter(write)),
            (per.object, object(&write.event.regarding)),
            (per.event_type, vec![write.event.event_type.to_string()]),
            (per.reason, vec![write.event.reason.to_string()]),
        ];
        parts.into_iter().filter(|(meant, _)| *meant).flat_map(|(_, part)| part).collect()
    }
}
