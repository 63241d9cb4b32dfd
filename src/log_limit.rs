//! A rate limit for log messages that clients can trigger.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use squelch_engine::Moment;

/// Minimum time between two messages.
const EVERY: Duration = Duration::from_secs(10);

/// The rate limit of one message: once every ten seconds.
#[derive(Debug, Default)]
pub(crate) struct LogLimit(Mutex<Logged>);

#[derive(Debug, Default)]
struct Logged {
    last: Option<Moment>,
    suppressed: u64,
}

impl LogLimit {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Logged { last: None, suppressed: 0 }))
    }

    /// Returns the number of messages suppressed since the last one if a message may be logged at `now`. Otherwise counts it
    /// as suppressed.
    pub(crate) fn permit(&self, now: Moment) -> Option<u64> {
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.last.is_some_and(|last| now.since(last) < EVERY) {
            logged.suppressed += 1;
            return None;
        }
        logged.last = Some(now);
        Some(std::mem::take(&mut logged.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_logged_once_every_ten_seconds_with_the_suppressed_number() {
        let at = |seconds| Moment::from_epoch(Duration::from_secs(seconds));
        let limit = LogLimit::new();
        assert_eq!(limit.permit(at(5)), Some(0));
        assert_eq!([limit.permit(at(5)), limit.permit(at(14))], [None; 2]);
        assert_eq!(limit.permit(at(15)), Some(2));
        assert_eq!(limit.permit(at(25)), Some(0));
    }
}
