//! The API server's clock. Certificates are made by it, because the API server verifies them.

use jiff::{SignedDuration, Timestamp};
use squelch_engine::Moment;
use tracing::warn;

use crate::clock;

/// The difference of the clocks from which a warning is logged.
const MAX_SKEW: SignedDuration = SignedDuration::from_mins(1);

/// The API server's clock, from the dates of its answers.
pub(super) struct ApiServerClock {
    /// Added to squelch's own clock (`--clock-offset`).
    offset: SignedDuration,
    /// The last date, and when it was received by the monotonic clock.
    last: Option<(Timestamp, Moment)>,
    skew_logged: bool,
}

impl ApiServerClock {
    pub(super) fn new(offset: SignedDuration) -> Self {
        Self { offset, last: None, skew_logged: false }
    }

    /// Returns the API server's time, or squelch's own before the first answer.
    pub(super) fn wall(&self) -> Timestamp {
        match self.last {
            Some((then, at)) => then.checked_add(clock::now().since(at)).unwrap_or(Timestamp::MAX),
            None => self.own(),
        }
    }

    /// Records the date of an answer that was just received.
    pub(super) fn record(&mut self, date: Timestamp) {
        self.last = Some((date, clock::now()));
        let ahead = self.own().duration_since(date);
        let is_skewed = ahead.abs() > MAX_SKEW;
        if is_skewed && !self.skew_logged {
            warn!(
                seconds_ahead = ahead.as_secs(),
                "clock differs from the API server's, check time synchronisation of the nodes"
            );
        }
        self.skew_logged = is_skewed;
    }

    fn own(&self) -> Timestamp {
        clock::wall().checked_add(self.offset).unwrap_or(Timestamp::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_api_servers_clock_overrides_the_own_clock() {
        let mut clock = ApiServerClock::new(SignedDuration::from_hours(24 * 400));
        assert!(
            clock.wall() > crate::clock::wall().checked_add(SignedDuration::from_hours(24 * 399)).unwrap()
        );
        let date: Timestamp = "2026-11-21T08:00:01Z".parse().unwrap();
        clock.record(date);
        assert!(
            clock.wall() >= date && clock.wall() < date.checked_add(SignedDuration::from_mins(1)).unwrap()
        );
    }
}
