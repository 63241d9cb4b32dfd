//! Time as the engine sees it: a number that its callers pass in.

use std::time::Duration;

/// A point on the monotonic clock of the process, in nanoseconds since its epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

/// Nanoseconds per millisecond.
const NANOSECONDS: u64 = 1_000_000;

impl Moment {
    /// Returns the moment `elapsed` after the epoch. Saturates after 584 years.
    pub fn from_epoch(elapsed: Duration) -> Self {
        Self(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Returns the time since `earlier`, or zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns the moment `later` after this one. Saturates.
    pub fn plus(self, later: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(later.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Returns whole milliseconds since the epoch, rounded down.
    pub(crate) fn milliseconds(self) -> u64 {
        self.0 / NANOSECONDS
    }

    /// Returns the moment `milliseconds` after the epoch. Saturates.
    pub(crate) fn from_milliseconds(milliseconds: u64) -> Self {
        Self(milliseconds.saturating_mul(NANOSECONDS))
    }
}
