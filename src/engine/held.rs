//! How much the tables hold, in all namespaces together, and what there is room for.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::decide::Full;
use super::{Settings, dropped};

/// So many bytes of text there may be for each series that may live: names of stored Events, and what is needed to
/// create an Event again. A name takes 40 as a rule, and one series in ten has folded something and keeps 400 bytes:
/// that is 80, and leaves a fifth for longer names. For a million series it is 92 MiB, next to 75 MiB for the series
/// themselves and 122 MiB for two million remembered names.
const TEXT: usize = 96;

/// Declares what is counted, in a namespace as numbers and in all of them as sums of those.
macro_rules! counted {
    ($($(#[doc = $doc:literal])+ $name:ident),+ $(,)?) => {
        /// How much the tables of one namespace, or of one scope, hold; and what became of it.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(super) struct Sizes {
            $($(#[doc = $doc])+ pub(super) $name: usize,)+
        }

        /// The sums over all namespaces. Each tells its changes under its own lock, so that the sums are exact
        /// whenever nothing is being decided.
        #[derive(Debug, Default)]
        pub(super) struct Held {
            $($name: AtomicUsize,)+
            namespaces: AtomicUsize,
        }

        impl Sizes {
            /// These and others.
            pub(super) fn and(&self, others: &Self) -> Self {
                Self { $($name: self.$name + others.$name,)+ }
            }
        }

        impl Held {
            /// A namespace, or a scope of it, went from `before` to `after`.
            pub(super) fn change(&self, before: &Sizes, after: &Sizes) {
                $(shift(&self.$name, before.$name, after.$name);)+
            }

            /// The sums.
            pub(super) fn sizes(&self) -> Sizes {
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
    owed,
    /// Of the series those that owe.
    owing,
    /// Entries of the top dropped.
    dropped,
    /// Series that have something to be paid, or are being paid.
    unpaid,
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
    /// Entries of the top dropped given up for want of room.
    dropped_evicted,
}

impl Held {
    /// A namespace came.
    pub(super) fn namespace_opened(&self) {
        self.namespaces.fetch_add(1, Ordering::Relaxed);
    }

    /// A namespace went.
    pub(super) fn namespace_closed(&self) {
        self.namespaces.fetch_sub(1, Ordering::Relaxed);
    }

    /// What has no room for one more in a namespace of these sizes. A namespace below its fair share always has room:
    /// those above it make it, or at least cannot take it all (as debts would that the API server does not let
    /// squelch pay). Groups and buckets are opened by admitted writes just as series are, but are forgotten much
    /// earlier: half as many of each are plenty, and two fingerprints for each group.
    pub(super) fn full(&self, of: &Sizes, settings: &Settings) -> Full {
        let Settings { max_series, max_owing, .. } = *settings;
        let full = |all: &AtomicUsize, of: usize, bound: usize| {
            all.load(Ordering::Relaxed) >= bound && of >= self.fair(bound)
        };
        let half = max_series.div_ceil(2);
        Full {
            names: full(&self.names, of.names, max_series.saturating_mul(2)),
            series: full(&self.series, of.series, max_series),
            text: full(&self.text, of.text, max_series.saturating_mul(TEXT)),
            groups: full(&self.groups, of.groups, half),
            fingerprints: full(&self.fingerprints, of.fingerprints, max_series),
            buckets: full(&self.buckets, of.buckets, half),
            owing: full(&self.owing, of.owing, max_owing),
            dropped: full(&self.dropped, of.dropped, dropped::MAX_IN_ALL),
        }
    }

    /// Whether more names are remembered in all than may be.
    pub(super) fn has_too_many_names(&self, max_series: usize) -> bool {
        self.names.load(Ordering::Relaxed) > max_series.saturating_mul(2)
    }

    /// How many names a namespace that has `names` may keep: all, unless there are too many in all; then as many
    /// less, but never less than its fair share. One for each series that may live, and as many more.
    pub(super) fn room_for_names(&self, names: usize, max_series: usize) -> usize {
        let bound = max_series.saturating_mul(2);
        let beyond = self.names.load(Ordering::Relaxed).saturating_sub(bound);
        names.saturating_sub(beyond).max(self.fair(bound))
    }

    fn fair(&self, bound: usize) -> usize {
        bound / self.namespaces.load(Ordering::Relaxed).max(1)
    }
}

fn shift(count: &AtomicUsize, before: usize, after: usize) {
    if after > before {
        count.fetch_add(after - before, Ordering::Relaxed);
    } else if after < before {
        count.fetch_sub(before - after, Ordering::Relaxed);
    }
}
