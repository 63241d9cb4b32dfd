//! How much the tables hold, in all namespaces together, and what there is room for.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::Settings;
use crate::decide::pipeline::AtCapacity;
use crate::state::top_dropped;

/// So many bytes of text there may be for each series that may live: names of stored Events, and what is needed to
/// create an Event again. A name takes 40 as a rule, and one series in ten has folded something and keeps 400 bytes:
/// that is 80, and leaves a fifth for longer names. For a million series it is 92 MiB, next to 75 MiB for the series
/// themselves and 122 MiB for two million remembered names.
const TEXT: usize = 96;

/// One ended series is remembered for each this many that may live: 64,000 where a million may, 3 MiB.
const ENDED: usize = 16;

/// One more for each so many of a bound there may be where namespaces below their fair share came, and those above
/// theirs have not given up as much yet: see [`crate::Engine::evict_for_others`]. Nobody gets more, whatever his share.
const BEYOND: usize = 16;

/// Declares what is counted, in a namespace as numbers and in all of them as sums of those.
macro_rules! counted {
    ($($(#[doc = $doc:literal])+ $name:ident),+ $(,)?) => {
        /// How much the tables of one namespace, or of one scope, hold; and what became of it.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(crate) struct Sizes {
            $($(#[doc = $doc])+ pub(crate) $name: usize,)+
        }

        /// The sums over all namespaces. Each tells its changes under its own lock, so that the sums are exact
        /// whenever nothing is being decided.
        #[derive(Debug, Default)]
        pub(crate) struct Usage {
            $($name: AtomicUsize,)+
            namespaces: AtomicUsize,
        }

        impl Sizes {
            /// These and others.
            pub(crate) fn and(&self, others: &Self) -> Self {
                Self { $($name: self.$name + others.$name,)+ }
            }
        }

        impl Usage {
            /// A namespace, or a scope of it, went from `before` to `after`.
            pub(crate) fn change(&self, before: &Sizes, after: &Sizes) {
                $(shift(&self.$name, before.$name, after.$name);)+
            }

            /// The sums.
            pub(crate) fn sizes(&self) -> Sizes {
                Sizes { $($name: self.$name.load(Ordering::Relaxed),)+ }
            }
        }
    };
}

counted! {
    /// Live series.
    series,
    /// Bytes of their texts.
    text,
    /// Remembered Event names.
    names,
    /// Groups of look-alikes.
    groups,
    /// What tells messages and objects of groups apart.
    fingerprints,
    /// Buckets of spam filters.
    buckets,
    /// Occurrences that are owed.
    pending_occurrences,
    /// Of the series those that owe.
    pending_series,
    /// Records of ended series.
    ended,
    /// Entries of the top dropped.
    dropped,
    /// Series that have something to be paid, or are being paid.
    unflushed,
    /// Of those, the ones that were not paid since draining began.
    undrained,
    /// Series given up for want of room.
    series_evicted,
    /// What was kept to create an Event again, and was given up for want of room.
    contents_evicted,
    /// Names forgotten for want of room.
    names_evicted,
    /// Groups given up for want of room.
    groups_evicted,
    /// Buckets given up for want of room.
    buckets_evicted,
    /// Records of ended series given up for want of room.
    ended_evicted,
    /// Entries of the top dropped given up for want of room.
    dropped_evicted,
}

impl Usage {
    /// A namespace came.
    pub(crate) fn add_namespace(&self) {
        self.namespaces.fetch_add(1, Ordering::Relaxed);
    }

    /// A namespace went.
    pub(crate) fn remove_namespace(&self) {
        self.namespaces.fetch_sub(1, Ordering::Relaxed);
    }

    /// What has no room for one more in a namespace of these sizes. One below its fair share has room, because those
    /// above theirs make it; but a sixteenth beyond the bound there is none for anybody. (Debts and what is dropped
    /// most cannot be given up for a newcomer at once: there those above can only not take it all.) Groups and buckets
    /// are opened by admitted writes just as series are, but are forgotten much earlier: half as many of each are
    /// plenty, and two fingerprints for each group.
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

    /// What there is more of than its bound, and than the fair share of a namespace of these sizes: of that it has to
    /// give up some. Not what cannot be: a bucket that is not full again, a debt.
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

    /// Whether there is more of something than its bound, and somebody has to give up some.
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

    /// How many names a namespace that has `names` may keep: all, unless there are too many in all; then as many
    /// less, but never less than its fair share. One for each series that may live, and as many more.
    pub(crate) fn names_allowed(&self, names: usize, max_series: usize) -> usize {
        let bound = Bounds::of(max_series).names;
        let beyond = self.names.load(Ordering::Relaxed).saturating_sub(bound);
        names.saturating_sub(beyond).max(self.fair_share(bound))
    }

    /// Its part of a bound, if all namespaces have the same.
    fn fair_share(&self, bound: usize) -> usize {
        bound / self.namespaces.load(Ordering::Relaxed).max(1)
    }
}

/// How much there may be of each, where so many series may live.
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
