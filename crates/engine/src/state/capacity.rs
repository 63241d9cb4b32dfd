//! Sizes of the tables over all namespaces, and their limits.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::Settings;
use crate::state::top_dropped;

/// The tables that are at capacity for a namespace. To add an entry there, the scope must evict one of its own.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AtCapacity {
    pub(crate) names: bool,
    pub(crate) series: bool,
    pub(crate) text: bool,
    pub(crate) groups: bool,
    pub(crate) fingerprints: bool,
    pub(crate) ended: bool,
    pub(crate) buckets: bool,
    /// The limit on pending series is reached.
    pub(crate) pending_series: bool,
    pub(crate) dropped: bool,
}

/// Maximum bytes of text per live series: names of stored Events and kept contents. A name takes about 40
/// bytes. One series in ten has merged occurrences and keeps about 400 bytes, so the average is 80 and a fifth
/// is left for longer names. For a million series this is 92 MiB, next to 75 MiB for the series and 122 MiB for
/// two million names.
const TEXT: usize = 96;

/// Live series per record of an ended series: 64,000 records (3 MiB) for a million series.
const ENDED: usize = 16;

/// A table may exceed its limit by one entry in this many. This happens while namespaces below their fair share
/// add entries and others have not evicted as many yet; see [`Engine::evict_for_others`](crate::Engine). Beyond
/// that no namespace may add entries.
const BEYOND: usize = 16;

/// Declares the counted sizes: as numbers for a namespace, and as atomic sums over all of them.
macro_rules! counted {
    ($($(#[doc = $doc:literal])+ $name:ident),+ $(,)?) => {
        /// Sizes of the tables of one namespace or scope, and its evictions.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(crate) struct Sizes {
            $($(#[doc = $doc])+ pub(crate) $name: usize,)+
        }

        /// Sums over all namespaces. Each namespace updates them under its own lock, so they are exact whenever
        /// no decision runs.
        #[derive(Debug, Default)]
        pub(crate) struct Usage {
            $($name: AtomicUsize,)+
            namespaces: AtomicUsize,
        }

        impl Sizes {
            /// Returns the sum of both.
            pub(crate) fn and(&self, others: &Self) -> Self {
                Self { $($name: self.$name + others.$name,)+ }
            }
        }

        impl Usage {
            /// Applies the change of a namespace or scope from `before` to `after`.
            pub(crate) fn change(&self, before: &Sizes, after: &Sizes) {
                $(shift(&self.$name, before.$name, after.$name);)+
            }

            /// Returns the current sums.
            pub(crate) fn sizes(&self) -> Sizes {
                Sizes { $($name: self.$name.load(Ordering::Relaxed),)+ }
            }
        }
    };
}

counted! {
    /// Live series.
    series,
    /// Bytes of their text.
    text,
    /// Remembered Event names.
    names,
    /// Aggregation groups.
    groups,
    /// Fingerprints of messages and objects in groups.
    fingerprints,
    /// Spam filter buckets.
    buckets,
    /// Occurrences merged and not yet written.
    pending_occurrences,
    /// Series with pending occurrences.
    pending_series,
    /// Records of ended series.
    ended,
    /// Tracked combinations of dropped Events.
    dropped,
    /// Series that need a flush or have one in flight.
    unflushed,
    /// Those that were not flushed since draining began.
    undrained,
    /// Evicted series.
    series_evicted,
    /// Evicted contents.
    contents_evicted,
    /// Names evicted because the table was at capacity.
    names_evicted,
    /// Evicted groups.
    groups_evicted,
    /// Evicted buckets.
    buckets_evicted,
    /// Evicted records of ended series.
    ended_evicted,
    /// Evicted combinations of dropped Events.
    dropped_evicted,
}

impl Usage {
    /// Counts a new namespace.
    pub(crate) fn add_namespace(&self) {
        self.namespaces.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a removed namespace.
    pub(crate) fn remove_namespace(&self) {
        self.namespaces.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the tables without capacity for a namespace of these sizes. A namespace below its fair share has
    /// capacity, because those above theirs evict entries for it. A sixteenth beyond the limit no namespace has
    /// any. Pending series and tracked combinations cannot be evicted at once; for them a namespace above its
    /// share must only stop growing. Groups and buckets are opened like series but expire much earlier, so half
    /// as many are allowed, with two fingerprints for each group.
    pub(crate) fn at_capacity(&self, of: &Sizes, settings: &Settings) -> AtCapacity {
        let Settings { max_series, max_pending_series, .. } = *settings;
        let shared = |all: &AtomicUsize, of: usize, bound: usize| {
            all.load(Ordering::Relaxed) >= bound && of >= self.fair_share(bound)
        };
        let at_capacity = |all: &AtomicUsize, of: usize, bound: usize| {
            let at_most = bound.saturating_add(bound.div_ceil(BEYOND));
            shared(all, of, bound) || all.load(Ordering::Relaxed) >= at_most
        };
        let bounds = Bounds::of(max_series);
        AtCapacity {
            names: at_capacity(&self.names, of.names, bounds.names),
            series: at_capacity(&self.series, of.series, bounds.series),
            text: at_capacity(&self.text, of.text, bounds.text),
            groups: at_capacity(&self.groups, of.groups, bounds.groups),
            fingerprints: at_capacity(&self.fingerprints, of.fingerprints, bounds.fingerprints),
            ended: at_capacity(&self.ended, of.ended, bounds.ended),
            buckets: at_capacity(&self.buckets, of.buckets, bounds.buckets),
            pending_series: shared(&self.pending_series, of.pending_series, max_pending_series),
            dropped: shared(&self.dropped, of.dropped, top_dropped::MAX_IN_ALL),
        }
    }

    /// Returns the tables that exceed both their limit and the namespace's fair share, of which it must evict
    /// entries. Buckets that are not full and pending occurrences are never evicted.
    pub(crate) fn surplus(&self, of: &Sizes, max_series: usize) -> AtCapacity {
        let beyond = |all: &AtomicUsize, of: usize, bound: usize| {
            all.load(Ordering::Relaxed) > bound && of > self.fair_share(bound)
        };
        let bounds = Bounds::of(max_series);
        AtCapacity {
            names: beyond(&self.names, of.names, bounds.names),
            series: beyond(&self.series, of.series, bounds.series),
            text: beyond(&self.text, of.text, bounds.text),
            groups: beyond(&self.groups, of.groups, bounds.groups),
            fingerprints: beyond(&self.fingerprints, of.fingerprints, bounds.fingerprints),
            ended: beyond(&self.ended, of.ended, bounds.ended),
            ..AtCapacity::default()
        }
    }

    /// Whether any table exceeds its limit.
    pub(crate) fn is_over_capacity(&self, max_series: usize) -> bool {
        let beyond = |all: &AtomicUsize, bound: usize| all.load(Ordering::Relaxed) > bound;
        let bounds = Bounds::of(max_series);
        beyond(&self.names, bounds.names)
            || beyond(&self.series, bounds.series)
            || beyond(&self.text, bounds.text)
            || beyond(&self.groups, bounds.groups)
            || beyond(&self.fingerprints, bounds.fingerprints)
            || beyond(&self.ended, bounds.ended)
    }

    /// Returns how many of its `names` a namespace may keep. All of them while the table is within its limit;
    /// otherwise fewer by the excess, but at least the fair share. The limit is twice the number of series.
    pub(crate) fn names_allowed(&self, names: usize, max_series: usize) -> usize {
        let bound = Bounds::of(max_series).names;
        let beyond = self.names.load(Ordering::Relaxed).saturating_sub(bound);
        names.saturating_sub(beyond).max(self.fair_share(bound))
    }

    /// Returns a namespace's equal share of a limit.
    fn fair_share(&self, bound: usize) -> usize {
        bound / self.namespaces.load(Ordering::Relaxed).max(1)
    }
}

/// Limits of all tables for a maximum number of series.
struct Bounds {
    names: usize,
    series: usize,
    text: usize,
    groups: usize,
    fingerprints: usize,
    ended: usize,
    buckets: usize,
}

impl Bounds {
    fn of(max_series: usize) -> Self {
        let half = max_series.div_ceil(2);
        Self {
            names: max_series.saturating_mul(2),
            series: max_series,
            text: max_series.saturating_mul(TEXT),
            groups: half,
            fingerprints: max_series,
            ended: max_series.div_ceil(ENDED),
            buckets: half,
        }
    }
}

fn shift(count: &AtomicUsize, before: usize, after: usize) {
    if after > before {
        count.fetch_add(after - before, Ordering::Relaxed);
    } else if after < before {
        count.fetch_sub(before - after, Ordering::Relaxed);
    }
}
