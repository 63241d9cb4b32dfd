//! How much an engine holds.

/// How much the engine holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Live series.
    pub series: usize,
    /// Remembered Event names.
    pub names: usize,
    /// Groups of look-alikes.
    pub groups: usize,
    /// Buckets of spam filters.
    pub buckets: usize,
    /// Entries of the top dropped.
    pub dropped: usize,
    /// Occurrences folded and not yet written to stored Events.
    pub pending_occurrences: u64,
    /// Series that owe.
    pub pending_series: usize,
    /// Writes that were admitted because too many series owe, or there was no room to keep what their Event says,
    /// since the process began.
    pub pending_refused: u64,
    /// Bytes of text kept of series: the names of their Events, and what is needed to create those again.
    pub text: usize,
    /// Fingerprints by which groups tell messages and objects apart.
    pub fingerprints: usize,
    /// Records of ended series, kept so that a series that opens again knows what others told of it.
    pub ended: usize,
    /// Records of ended series given up for want of room, since the process began.
    pub ended_evicted: u64,
    /// Series given up for want of room, since the process began.
    pub series_evicted: u64,
    /// Series of which what is needed to create their Event again was given up for want of room, since the process
    /// began. They owed nothing.
    pub contents_evicted: u64,
    /// Names forgotten for want of room, since the process began.
    pub names_evicted: u64,
    /// Groups given up for want of room, since the process began.
    pub groups_evicted: u64,
    /// Buckets given up for want of room, since the process began. They were full: no decision changed.
    pub buckets_evicted: u64,
    /// Entries of the top dropped given up for want of room, since the process began.
    pub dropped_evicted: u64,
}
