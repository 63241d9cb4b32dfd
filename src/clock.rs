//! The one place that reads clocks. The monotonic one is tokio's, so that a test which moves its time moves this too.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use jiff::Timestamp;
use squelch_engine::Moment;
use tokio::time::Instant;

/// How long before the first call the epoch is. A test's paused time may begin before the first call of another test in
/// the same process; moments before the epoch would all be the same.
const EPOCH_BEFORE_FIRST_CALL: Duration = if cfg!(test) { Duration::from_secs(60) } else { Duration::ZERO };

static EPOCH: LazyLock<Instant> = LazyLock::new(|| {
    #[expect(clippy::disallowed_methods, reason = "this is where time is read")]
    let first_call = Instant::now();
    first_call.checked_sub(EPOCH_BEFORE_FIRST_CALL).unwrap_or(first_call)
});

/// The monotonic time since the process's epoch (the first call).
pub fn now() -> Moment {
    #[expect(clippy::disallowed_methods, reason = "this is where time is read")]
    Moment::from_epoch(Instant::now().saturating_duration_since(*EPOCH))
}

/// The wall clock: data for timestamps, never for decisions.
pub fn wall() -> Timestamp {
    #[expect(clippy::disallowed_methods, reason = "this is where time is read")]
    Timestamp::now()
}

/// The time of whoever decides: the process's clocks, or one that is moved by hand.
#[derive(Clone, Debug, Default)]
pub struct Clock(Option<(Arc<AtomicU64>, Timestamp)>);

impl Clock {
    /// A clock that stands at its epoch, which is the Unix epoch for its wall clock, until it is moved. All clones stand
    /// where it stands.
    pub fn by_hand() -> Self {
        Self::by_hand_from(Timestamp::UNIX_EPOCH)
    }

    /// The same, whose wall clock begins at this time.
    pub fn by_hand_from(began: Timestamp) -> Self {
        Self(Some((Arc::default(), began)))
    }

    /// Moves it to the moment `elapsed` after its epoch; the process's own clocks stay as they are.
    pub fn set(&self, elapsed: Duration) {
        if let Some((hand, _)) = &self.0 {
            hand.store(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX), Ordering::Release);
        }
    }

    /// The monotonic time.
    pub fn now(&self) -> Moment {
        self.elapsed().map_or_else(now, |(elapsed, _)| Moment::from_epoch(elapsed))
    }

    /// The wall clock.
    pub fn wall(&self) -> Timestamp {
        self.elapsed()
            .map_or_else(wall, |(elapsed, began)| began.saturating_add(elapsed).unwrap_or(Timestamp::MAX))
    }

    fn elapsed(&self) -> Option<(Duration, Timestamp)> {
        let (hand, began) = self.0.as_ref()?;
        Some((Duration::from_nanos(hand.load(Ordering::Acquire)), *began))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_moved_by_hand_stands_until_it_is_moved() {
        let clock = Clock::by_hand();
        let clone = clock.clone();
        assert_eq!((clock.now(), clock.wall()), (Moment::default(), Timestamp::UNIX_EPOCH));
        clock.set(Duration::from_millis(1_500));
        assert_eq!(clone.now(), Moment::from_epoch(Duration::from_millis(1_500)));
        assert_eq!(clone.wall().as_millisecond(), 1_500);
    }
}
