//! Token buckets: governor's GCRA over a bounded table.
//!
//! A bucket is one number: the time at which it is full again. governor does the arithmetic. This module stores
//! the numbers. It lets a caller ask a bucket before charging it, so that a write refused by the next bucket
//! costs no token.

use std::cell::Cell;
use std::time::Duration;

use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::{NotKeyed, StateStore};
use governor::{Quota, RateLimiter};

use crate::decide::keys::Key;
use crate::store::deferred_drop::DeferredDrop;
use crate::store::table::{self, Table};
use crate::{BucketRules, Moment};

/// State of a bucket: the time at which it is full again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FullAt(Nanos);

/// A token that a bucket can give. [`Buckets::charge`] takes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charge {
    bucket_ref: BucketRef,
    after: FullAt,
}

impl Charge {
    /// Whether the bucket holds fewer than `tokens` after this charge.
    pub(crate) fn leaves_fewer_than(&self, tokens: u32, rules: &BucketRules, now: Moment) -> bool {
        self.after.holds_fewer_than(tokens, rules, now)
    }
}

#[derive(Clone, Copy, Debug)]
enum BucketRef {
    Known(table::At),
    New(Key),
    /// Replaces a bucket that is full again.
    Instead(table::At, Key),
    Overflow,
}

/// Buckets by key.
///
/// Only full buckets are evicted, which changes no decision. If none is full, all new keys share one overflow
/// bucket, so inventing keys gains at most the tokens of one bucket.
#[derive(Default)]
pub(crate) struct Buckets {
    table: Table<FullAt, 7>,
    overflow: Option<FullAt>,
    evicted: usize,
    deferred_drop: DeferredDrop<FullAt, 7>,
}

/// Number of least recently used buckets that are checked for a full one.
const MAX_SCANNED: usize = 8;

impl Buckets {
    /// Returns the number of evicted buckets. All of them were full.
    pub(crate) fn evicted(&self) -> usize {
        self.evicted
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Prefetches what [`Self::ask`] reads.
    pub(crate) fn prefetch(&self, key: Key, at_capacity: bool) {
        self.table.prefetch_outline();
        self.table.prefetch(key, at_capacity);
    }

    /// Returns a charge if the bucket of `key` has a token. Takes nothing; [`Self::charge`] does.
    /// `at_capacity`: no bucket may be added.
    pub(crate) fn ask(
        &mut self,
        key: Key,
        rules: &BucketRules,
        at_capacity: bool,
        now: Moment,
    ) -> Option<Charge> {
        if let Some(at) = self.table.find(key) {
            let after = take(*self.table.get(at)?, rules, now)?;
            return Some(Charge { bucket_ref: BucketRef::Known(at), after });
        }
        let (bucket_ref, bucket) = if !at_capacity {
            (BucketRef::New(key), None)
        } else if let Some(at) = self.spare(now) {
            (BucketRef::Instead(at, key), None)
        } else {
            (BucketRef::Overflow, self.overflow)
        };
        let after = take(bucket.unwrap_or(FullAt(since_epoch(now))), rules, now)?;
        Some(Charge { bucket_ref, after })
    }

    /// Takes the token.
    pub(crate) fn charge(&mut self, charge: Charge) {
        match charge.bucket_ref {
            BucketRef::Overflow => self.overflow = Some(charge.after),
            BucketRef::New(key) => drop(self.table.insert(key, charge.after)),
            BucketRef::Instead(at, key) => {
                self.table.replace(at, key, charge.after);
                self.evicted += 1;
            }
            BucketRef::Known(at) => {
                self.table.touch(at);
                if let Some(bucket) = self.table.get_mut(at) {
                    *bucket = charge.after;
                }
            }
        }
    }

    /// Removes at most `at_most` full buckets. Returns how many it removed or freed.
    pub(crate) fn forget(&mut self, at_most: usize, now: Moment) -> usize {
        let mut forgotten = 0;
        while forgotten < at_most
            && let Some(oldest) = self.table.oldest()
            && self.table.get(oldest).is_some_and(|bucket| bucket.0 <= since_epoch(now))
        {
            self.table.remove(oldest);
            forgotten += 1;
        }
        forgotten + self.deferred_drop.free_some(at_most)
    }

    /// Removes all buckets, because the spam filter was disabled.
    pub(crate) fn clear(&mut self) {
        self.deferred_drop.take(&mut self.table);
        self.overflow = None;
    }

    /// Whether there are no buckets and nothing is left to be freed.
    pub(crate) fn is_empty_and_freed(&self) -> bool {
        self.table.is_empty() && self.deferred_drop.is_empty()
    }

    /// Returns a full bucket that can be evicted.
    fn spare(&self, now: Moment) -> Option<table::At> {
        let mut cursor = self.table.oldest();
        for _ in 0..MAX_SCANNED {
            let at = cursor?;
            if self.table.get(at).is_some_and(|bucket| bucket.0 <= since_epoch(now)) {
                return Some(at);
            }
            cursor = self.table.next_newer(at);
        }
        None
    }
}

/// The bucket of a scope's budget.
#[derive(Default)]
pub(crate) struct BudgetBucket(Option<FullAt>);

impl BudgetBucket {
    /// Returns a charge if there is a token. Takes nothing.
    pub(crate) fn ask(&self, rules: &BucketRules, now: Moment) -> Option<BudgetCharge> {
        take(self.0.unwrap_or(FullAt(since_epoch(now))), rules, now).map(BudgetCharge)
    }

    /// Takes the token.
    pub(crate) fn charge(&mut self, BudgetCharge(after): BudgetCharge) {
        self.0 = Some(after);
    }
}

/// A token that the budget can give. [`BudgetBucket::charge`] takes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BudgetCharge(FullAt);

impl BudgetCharge {
    /// See [`Charge::leaves_fewer_than`].
    pub(crate) fn leaves_fewer_than(&self, tokens: u32, rules: &BucketRules, now: Moment) -> bool {
        self.0.holds_fewer_than(tokens, rules, now)
    }
}

impl FullAt {
    fn holds_fewer_than(self, tokens: u32, rules: &BucketRules, now: Moment) -> bool {
        let missing = self.0.as_u64().saturating_sub(since_epoch(now).as_u64());
        let of = |tokens: u32| rules.refill_interval.as_nanos() * u128::from(tokens);
        of(rules.burst.get()) < of(tokens) + u128::from(missing)
    }
}

/// Takes one token from a bucket at `now`. Returns the new state, or `None` if the bucket is empty.
fn take(bucket: FullAt, rules: &BucketRules, now: Moment) -> Option<FullAt> {
    let quota = Quota::with_period(rules.refill_interval)?.allow_burst(rules.burst);
    let one = One { before: bucket, after: Cell::new(None) };
    let limiter = RateLimiter::<NotKeyed, _, _, NoOpMiddleware<Duration>>::new(
        quota,
        one,
        FixedClock { now, building: Cell::new(true) },
    );
    limiter.check().ok()?;
    limiter.into_state_store().after.get()
}

fn since_epoch(now: Moment) -> Nanos {
    now.since(Moment::default()).into()
}

/// State store of a single question to one bucket.
struct One {
    before: FullAt,
    after: Cell<Option<FullAt>>,
}

impl StateStore for One {
    type Key = NotKeyed;

    fn measure_and_replace<T, F, E>(&self, _: &NotKeyed, measure: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let (outcome, after) = measure(Some(self.before.0))?;
        self.after.set(Some(FullAt(after)));
        Ok(outcome)
    }
}

/// Clock of a limiter: the epoch while the limiter is built, then `now`. All limiters thus count from the same
/// moment, and a bucket's state survives a change of its rules.
struct FixedClock {
    now: Moment,
    building: Cell<bool>,
}

impl Clock for FixedClock {
    type Instant = Duration;

    fn now(&self) -> Duration {
        if self.building.replace(false) { Duration::ZERO } else { self.now.since(Moment::default()) }
    }
}

impl Clone for FixedClock {
    fn clone(&self) -> Self {
        Self { now: self.now, building: self.building.clone() }
    }
}

#[cfg(test)]
mod tests;
