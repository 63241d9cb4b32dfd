//! The engine's notion of time: a number that its callers pass in.

use std::time::Duration;

/// A point on the process's monotonic clock: nanoseconds since its one epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

/// In a millisecond.
const NANOSECONDS: u64 = 1_000_000;

impl Moment {
    /// The moment `elapsed` after the epoch; saturates after 584 years.
    pub fn from_epoch(elapsed: Duration) -> Self {
        Self(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
    }

    /// The time from `earlier` to here; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The moment `later` after this one; saturates.
    pub fn plus(self, later: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(later.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Whole milliseconds since the epoch, the rest cut off.
    pub(crate) fn milliseconds(self) -> u64 {
        self.0 / NANOSECONDS
    }

    /// So many milliseconds after the epoch; saturates.
    pub(crate) fn from_milliseconds(milliseconds: u64) -> Self {
        Self(milliseconds.saturating_mul(NANOSECONDS))
    }
}
