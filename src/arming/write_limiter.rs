//! Limits how often the webhook configuration is written. Pure.
//!
//! Each write goes to etcd and to every API server, with up to 66 KB of namespaces. A client that creates and deletes a
//! policy again and again must not cause a write each time.

use std::time::Duration;

use squelch_engine::Moment;

/// How long a namespace stays selected after its last policy is gone, in case a policy comes back. Meanwhile its Event
/// writes are reviewed without effect.
const NARROW_DELAY: Duration = Duration::from_secs(5);

/// Maximum writes in a burst.
const BURST: u32 = 20;

/// The time after which one more write is allowed.
const REFILL: Duration = Duration::from_secs(1);

/// The kind of change that a write makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConfigurationChange {
    /// Removes the rules because the API server does not reach the webhook, or because a person asked for it.
    Disarm,
    /// Selects fewer namespaces, and nothing else.
    Narrow,
    /// Any other change, such as more namespaces.
    Other,
}

/// Limits writes of the configuration. Unlike governor's limiters, a check takes no token: only a write that the API
/// server has accepted does.
#[derive(Debug, Default)]
pub(super) struct WriteLimiter {
    /// When the token bucket is full again.
    full: Moment,
    /// Since when a narrower selection is desired.
    narrow_since: Option<Moment>,
}

impl WriteLimiter {
    /// Returns how long a write has to wait at `now`. `None`: not at all.
    pub(super) fn delay(&mut self, change: ConfigurationChange, now: Moment) -> Option<Duration> {
        let ready = match change {
            ConfigurationChange::Disarm => {
                self.record_synced();
                return None;
            }
            ConfigurationChange::Narrow => self.narrow_since.get_or_insert(now).plus(NARROW_DELAY),
            ConfigurationChange::Other => {
                self.record_synced();
                now
            }
        };
        let token = self.full.plus(REFILL).since(now).saturating_sub(REFILL * BURST);
        Some(ready.since(now).max(token)).filter(|wait| !wait.is_zero())
    }

    /// Records that the configuration is as desired.
    pub(super) fn record_synced(&mut self) {
        self.narrow_since = None;
    }

    /// Records that the API server has accepted a write.
    pub(super) fn record_write(&mut self, now: Moment) {
        self.record_synced();
        self.full = self.full.max(now).plus(REFILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Moment {
        Moment::from_epoch(Duration::from_millis(milliseconds))
    }

    #[test]
    fn twenty_writes_are_allowed_at_once_and_then_one_a_second() {
        let mut limiter = WriteLimiter::default();
        for _ in 0..BURST {
            assert_eq!(limiter.delay(ConfigurationChange::Other, at(100)), None);
            limiter.record_write(at(100));
        }
        assert_eq!(limiter.delay(ConfigurationChange::Other, at(100)), Some(REFILL));
        assert_eq!(limiter.delay(ConfigurationChange::Disarm, at(100)), None);
        assert_eq!(limiter.delay(ConfigurationChange::Other, at(1_099)), Some(Duration::from_millis(1)));
        assert_eq!(limiter.delay(ConfigurationChange::Other, at(1_100)), None);
        limiter.record_write(at(1_100));
        assert_eq!(limiter.delay(ConfigurationChange::Other, at(1_100)), Some(REFILL));
        // A full bucket allows one burst.
        (0..BURST).for_each(|_| limiter.record_write(at(100_000)));
        assert_eq!(limiter.delay(ConfigurationChange::Other, at(100_000)), Some(REFILL));
    }

    #[test]
    fn a_narrower_selection_is_written_after_five_seconds() {
        let mut limiter = WriteLimiter::default();
        assert_eq!(limiter.delay(ConfigurationChange::Narrow, at(0)), Some(NARROW_DELAY));
        assert_eq!(limiter.delay(ConfigurationChange::Narrow, at(4_000)), Some(Duration::from_secs(1)));
        // The wider selection is desired again in between.
        limiter.record_synced();
        assert_eq!(limiter.delay(ConfigurationChange::Narrow, at(4_500)), Some(NARROW_DELAY));
        assert_eq!(limiter.delay(ConfigurationChange::Narrow, at(9_500)), None);
    }
}
