//! Sizes of an engine's tables.

/// Current sizes of the tables, and evictions since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
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
    /// Writes admitted because the limit on pending series was reached, or because the text capacity was used
    /// up.
    pub pending_refused: u64,
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
