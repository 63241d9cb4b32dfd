//! How many entries the tables hold, in all namespaces together.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::decide::Full;
use super::{Settings, dropped};

/// The sizes of the tables of one namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) series: usize,
    pub(super) names: usize,
    pub(super) groups: usize,
    pub(super) buckets: usize,
    /// Of the series those that owe.
    pub(super) owing: usize,
    pub(super) dropped: usize,
}

/// The sizes of all tables. Each namespace tells its changes under its own lock, so that the sums are exact
/// whenever nothing is being decided.
#[derive(Debug, Default)]
pub(super) struct Held {
    series: AtomicUsize,
    names: AtomicUsize,
    groups: AtomicUsize,
    buckets: AtomicUsize,
    owing: AtomicUsize,
    dropped: AtomicUsize,
    namespaces: AtomicUsize,
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

    /// A namespace went from `before` to `after`.
    pub(super) fn change(&self, before: Sizes, after: Sizes) {
        shift(&self.series, before.series, after.series);
        shift(&self.names, before.names, after.names);
        shift(&self.groups, before.groups, after.groups);
        shift(&self.buckets, before.buckets, after.buckets);
        shift(&self.owing, before.owing, after.owing);
        shift(&self.dropped, before.dropped, after.dropped);
    }

    /// The sums.
    pub(super) fn sizes(&self) -> Sizes {
        Sizes {
            series: self.series.load(Ordering::Relaxed),
            names: self.names.load(Ordering::Relaxed),
            groups: self.groups.load(Ordering::Relaxed),
            buckets: self.buckets.load(Ordering::Relaxed),
            owing: self.owing.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
        }
    }

    /// What has no room for one more in a namespace of these sizes. A namespace below its fair share always has room:
    /// those above it make it, or at least cannot take it all (as debts would that the API server does not let
    /// squelch pay). Groups and buckets are opened by admitted writes just as series are, but are forgotten much
    /// earlier: half as many of each are plenty.
    pub(super) fn full(&self, of: Sizes, settings: &Settings) -> Full {
        let Settings { max_series, max_owing, .. } = *settings;
        let all = self.sizes();
        let full = |all: usize, of: usize, bound: usize| all >= bound && of >= self.fair(bound);
        let half = max_series.div_ceil(2);
        Full {
            series: full(all.series, of.series, max_series),
            groups: full(all.groups, of.groups, half),
            buckets: full(all.buckets, of.buckets, half),
            owing: full(all.owing, of.owing, max_owing),
            dropped: full(all.dropped, of.dropped, dropped::MAX_IN_ALL),
        }
    }

    /// How many names a namespace that has `names` may keep: all, unless there are too many in all; then as many
    /// less, but never less than its fair share. One for each series that may live, and as many more.
    pub(super) fn room_for_names(&self, names: usize, max_series: usize) -> usize {
        let bound = max_series.saturating_mul(2);
        let beyond = self.sizes().names.saturating_sub(bound);
        names.saturating_sub(beyond).max(self.fair(bound))
    }

    fn fair(&self, bound: usize) -> usize {
        bound / self.namespaces.load(Ordering::Relaxed).max(1)
    }
}

fn shift(count: &AtomicUsize, before: usize, after: usize) {
    if after >= before {
        count.fetch_add(after - before, Ordering::Relaxed);
    } else {
        count.fetch_sub(before - after, Ordering::Relaxed);
    }
}
