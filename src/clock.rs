//! The only module that reads clocks. It reads tokio's monotonic clock, which tests can pause and advance.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use jiff::Timestamp;
use squelch_engine::Moment;
use tokio::time::Instant;

/// Time from the epoch to the first call. The paused time of a test can begin before the first call of another test in the
/// same process, and moments before the epoch are all equal.
const EPOCH_BEFORE_FIRST_CALL: Duration = if cfg!(test) { Duration::from_secs(60) } else { Duration::ZERO };

static EPOCH: LazyLock<Instant> = LazyLock::new(|| {
    #[expect(clippy::disallowed_methods, reason = "the only module that reads clocks")]
    let first_call = Instant::now();
    first_call.checked_sub(EPOCH_BEFORE_FIRST_CALL).unwrap_or(first_call)
});

/// Returns the monotonic time since the epoch of the process, which is the first call.
pub fn now() -> Moment {
    #[expect(clippy::disallowed_methods, reason = "the only module that reads clocks")]
    Moment::from_epoch(Instant::now().saturating_duration_since(*EPOCH))
}

/// Returns the wall clock time. Use it for timestamps, never for decisions.
pub fn wall() -> Timestamp {
    #[expect(clippy::disallowed_methods, reason = "the only module that reads clocks")]
    Timestamp::now()
}

/// The clocks of the process, or a manual clock.
#[derive(Clone, Debug, Default)]
pub struct Clock(Option<(Arc<AtomicU64>, Timestamp)>);

impl Clock {
    /// Creates a manual clock at its epoch. Its wall clock starts at the Unix epoch. Clones share the time.
    pub fn manual() -> Self {
        Self::manual_from(Timestamp::UNIX_EPOCH)
    }

    /// Creates a manual clock whose wall clock starts at `began`.
    pub fn manual_from(began: Timestamp) -> Self {
        Self(Some((Arc::default(), began)))
    }

    /// Sets a manual clock to the moment `elapsed` after its epoch. Has no effect on the clocks of the process.
    pub fn set(&self, elapsed: Duration) {
        if let Some((nanoseconds, _)) = &self.0 {
            nanoseconds.store(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX), Ordering::Release);
        }
    }

    /// Returns the monotonic time.
    pub fn now(&self) -> Moment {
        self.elapsed().map_or_else(now, |(elapsed, _)| Moment::from_epoch(elapsed))
    }

    /// Returns the wall clock time.
    pub fn wall(&self) -> Timestamp {
        self.elapsed()
            .map_or_else(wall, |(elapsed, began)| began.saturating_add(elapsed).unwrap_or(Timestamp::MAX))
    }

    fn elapsed(&self) -> Option<(Duration, Timestamp)> {
        let (nanoseconds, began) = self.0.as_ref()?;
        Some((Duration::from_nanos(nanoseconds.load(Ordering::Acquire)), *began))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_changes_only_when_it_is_set() {
        let clock = Clock::manual();
        let clone = clock.clone();
        assert_eq!((clock.now(), clock.wall()), (Moment::default(), Timestamp::UNIX_EPOCH));
        clock.set(Duration::from_millis(1_500));
        assert_eq!(clone.now(), Moment::from_epoch(Duration::from_millis(1_500)));
        assert_eq!(clone.wall().as_millisecond(), 1_500);
    }
}
