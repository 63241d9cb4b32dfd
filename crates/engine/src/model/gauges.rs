//! Sizes of an engine's tables.

use std::ops::AddAssign;

/// Current sizes of the tables, and evictions since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Namespaces with any state.
    pub namespaces: usize,
    /// Live series.
    pub series: usize,
    /// Remembered Event names.
    pub names: usize,
    /// Aggregation groups.
    pub groups: usize,
    /// Spam filter buckets.
    pub buckets: usize,
    /// Tracked combinations of dropped Events.
    pub dropped: usize,
    /// Occurrences merged and not yet written to stored Events.
    pub pending_occurrences: u64,
    /// Series with pending occurrences.
    pub pending_series: usize,
    /// Writes admitted because a limit on pending occurrences was reached.
    pub pending_limit_admissions: PendingLimitAdmissions,
    /// Bytes of kept text: names of stored Events and the content to create them again.
    pub text: usize,
    /// Fingerprints that distinguish messages and objects in groups, and their witnesses.
    pub fingerprints: usize,
    /// Records of ended series: they keep what other clients reported, for a series that opens again.
    pub ended: usize,
    /// Evicted records of ended series.
    pub ended_evicted: u64,
    /// Evicted series. They had no pending occurrences.
    pub series_evicted: u64,
    /// Series whose kept content was evicted. They had no pending occurrences.
    pub contents_evicted: u64,
    /// Names evicted because the table was at capacity.
    pub names_evicted: u64,
    /// Evicted groups.
    pub groups_evicted: u64,
    /// Evicted buckets. They were full, so no decision changed.
    pub buckets_evicted: u64,
    /// Evicted combinations of dropped Events.
    pub dropped_evicted: u64,
}

/// A limit on pending occurrences that a write would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PendingLimit {
    /// The number of series with pending occurrences: [`Settings::max_pending_series`].
    ///
    /// [`Settings::max_pending_series`]: crate::Settings::max_pending_series
    Series,
    /// The bytes of kept text: [`Gauges::text`].
    Text,
}

/// Number of writes admitted because of each [`PendingLimit`], since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PendingLimitAdmissions {
    /// Because of [`PendingLimit::Series`].
    pub series: u64,
    /// Because of [`PendingLimit::Text`].
    pub text: u64,
}

impl AddAssign<PendingLimit> for PendingLimitAdmissions {
    fn add_assign(&mut self, limit: PendingLimit) {
        match limit {
            PendingLimit::Series => self.series += 1,
            PendingLimit::Text => self.text += 1,
        }
    }
}
