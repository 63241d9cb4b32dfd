//! The time that certificates are made by: the API server's, for it is the one who judges them.

use jiff::{SignedDuration, Timestamp};
use squelch_engine::Moment;
use tracing::warn;

use crate::clock;

/// A difference of the clocks that somebody should know of.
const WORTH_TELLING: SignedDuration = SignedDuration::from_mins(1);

/// The API server's clock, as far as it has told.
pub(super) struct Time {
    /// How far squelch's own clock is taken to be off, by `--clock-offset`.
    offset: SignedDuration,
    /// What the API server said last, and when. What has passed since is measured by the clock that never jumps.
    heard: Option<(Timestamp, Moment)>,
    told: bool,
}

impl Time {
    pub(super) fn new(offset: SignedDuration) -> Self {
        Self { offset, heard: None, told: false }
    }

    /// The API server's time; squelch's own before it has said any.
    pub(super) fn wall(&self) -> Timestamp {
        match self.heard {
            Some((then, at)) => then.checked_add(clock::now().since(at)).unwrap_or(Timestamp::MAX),
            None => self.own(),
        }
    }

    /// The API server has said that it is `date`, just now.
    pub(super) fn hear(&mut self, date: Timestamp) {
        self.heard = Some((date, clock::now()));
        let ahead = self.own().duration_since(date);
        let far = ahead.abs() > WORTH_TELLING;
        if far && !self.told {
            warn!(
                seconds_ahead = ahead.as_secs(),
                "squelch's clock is not the API server's, by which certificates are made: set the clocks right"
            );
        }
        self.told = far;
    }

    fn own(&self) -> Timestamp {
        clock::wall().checked_add(self.offset).unwrap_or(Timestamp::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_api_servers_clock_goes_before_the_own() {
        let mut time = Time::new(SignedDuration::from_hours(24 * 400));
        assert!(time.wall() > clock::wall().checked_add(SignedDuration::from_hours(24 * 399)).unwrap());
        let date: Timestamp = "2026-11-21T08:00:01Z".parse().unwrap();
        time.hear(date);
        assert!(time.wall() >= date && time.wall() < date.checked_add(SignedDuration::from_mins(1)).unwrap());
    }
}
