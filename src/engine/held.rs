//! How many entries the tables hold, in all namespaces together.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::decide::Full;

/// The sizes of the tables of one namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) series: usize,
    pub(super) names: usize,
    pub(super) groups: usize,
    pub(super) buckets: usize,
}

/// The sizes of all tables. Each namespace tells its changes under its own lock, so that the sums are exact
/// whenever nothing is being decided.
#[derive(Debug, Default)]
pub(super) struct Held {
    series: AtomicUsize,
    names: AtomicUsize,
    groups: AtomicUsize,
    buckets: AtomicUsize,
}

impl Held {
    /// A namespace went from `before` to `after`.
    pub(super) fn change(&self, before: Sizes, after: Sizes) {
        shift(&self.series, before.series, after.series);
        shift(&self.names, before.names, after.names);
        shift(&self.groups, before.groups, after.groups);
        shift(&self.buckets, before.buckets, after.buckets);
    }

    /// The sums.
    pub(super) fn sizes(&self) -> Sizes {
        Sizes {
            series: self.series.load(Ordering::Relaxed),
            names: self.names.load(Ordering::Relaxed),
            groups: self.groups.load(Ordering::Relaxed),
            buckets: self.buckets.load(Ordering::Relaxed),
        }
    }

    /// What has no room for one more, where `max_series` series may live. Groups and buckets are opened by
    /// admitted writes just as series are, but are forgotten much earlier: half as many of each are plenty.
    pub(super) fn full(&self, max_series: usize) -> Full {
        let sizes = self.sizes();
        let half = max_series.div_ceil(2);
        Full {
            series: sizes.series >= max_series,
            groups: sizes.groups >= half,
            buckets: sizes.buckets >= half,
        }
    }

    /// How many names there are beyond the bound: one for each series that may live, and as many more.
    pub(super) fn names_beyond(&self, max_series: usize) -> usize {
        self.sizes().names.saturating_sub(max_series.saturating_mul(2))
    }
}

fn shift(count: &AtomicUsize, before: usize, after: usize) {
    if after >= before {
        count.fetch_add(after - before, Ordering::Relaxed);
    } else {
        count.fetch_sub(before - after, Ordering::Relaxed);
    }
}
