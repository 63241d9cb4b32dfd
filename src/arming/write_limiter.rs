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

/// The time after a restore until the next one, doubled with each.
const FIRST_RESTORE_DELAY: Duration = Duration::from_secs(5);

/// The time after a restore until rules are removed that another writer has put back.
const DISARM_DELAY: Duration = Duration::from_secs(1);

/// Maximum time between two restores.
const MAX_RESTORE_DELAY: Duration = Duration::from_secs(600);

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

/// Delays restores of the configuration after changes by another writer. A controller with another idea of it would
/// change it again each time. The first restore is immediate.
#[derive(Debug, Default)]
pub(super) struct RestoreBackoff {
    /// The last restore, and the delay after it.
    last: Option<(Moment, Duration)>,
    /// The last restore that removed rules.
    removed: Option<Moment>,
}

impl RestoreBackoff {
    /// Returns how long a restore has to wait at `now`. `None`: not at all. Rules that another writer puts back while the
    /// webhook hangs delay each Event write, so a restore that removes them waits only as long as keeps two writers from a
    /// storm.
    pub(super) fn delay(&self, removes_rules: bool, now: Moment) -> Option<Duration> {
        let ready = if removes_rules {
            self.last.map(|(restored, _)| restored).max(self.removed)?.plus(DISARM_DELAY)
        } else {
            let (restored, delay) = self.last?;
            restored.plus(delay)
        };
        Some(ready.since(now)).filter(|wait| !wait.is_zero())
    }

    /// Records a restore. The delay begins anew after [`MAX_RESTORE_DELAY`] without a change by others. One that removes rules
    /// has a delay of its own.
    pub(super) fn record(&mut self, removes_rules: bool, now: Moment) {
        if removes_rules {
            self.removed = Some(now);
            return;
        }
        let doubled = self.last.and_then(|(restored, delay)| {
            let is_recent = now.since(restored) <= delay + MAX_RESTORE_DELAY;
            is_recent.then(|| MAX_RESTORE_DELAY.min(delay * 2))
        });
        self.last = Some((now, doubled.unwrap_or(FIRST_RESTORE_DELAY)));
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

    /// The seconds at which a configuration is restored that another writer changes again after each restore.
    fn restores(backoff: &mut RestoreBackoff, mut now: u64, until: u64) -> Vec<u64> {
        let mut restores = Vec::new();
        while now < until {
            let wait = backoff.delay(false, at(now * 1000)).unwrap_or_default();
            now += wait.as_secs();
            backoff.record(false, at(now * 1000));
            restores.push(now);
        }
        restores
    }

    #[test]
    fn a_contested_configuration_is_restored_seven_times_in_ten_minutes() {
        let mut backoff = RestoreBackoff::default();
        assert_eq!(restores(&mut backoff, 0, 600), [0, 5, 15, 35, 75, 155, 315, 635]);
        assert_eq!(restores(&mut backoff, 635, 4_000), [1_235, 1_835, 2_435, 3_035, 3_635, 4_235]);
    }

    #[test]
    fn ten_quiet_minutes_end_the_backoff_of_restores() {
        let mut backoff = RestoreBackoff::default();
        assert_eq!(restores(&mut backoff, 0, 60), [0, 5, 15, 35, 75]);
        // The delay is 80 s: later changes are restored at once.
        assert_eq!(backoff.delay(false, at(75_000)), Some(Duration::from_secs(80)));
        assert_eq!(backoff.delay(false, at(155_000)), None);
        backoff.record(false, at(700_000));
        assert_eq!(backoff.delay(false, at(700_000)), Some(Duration::from_secs(160)));
        backoff.record(false, at(1_461_000));
        assert_eq!(backoff.delay(false, at(1_461_000)), Some(FIRST_RESTORE_DELAY));
    }

    #[test]
    fn rules_are_removed_a_second_apart_without_an_effect_on_other_restores() {
        let mut backoff = RestoreBackoff::default();
        restores(&mut backoff, 0, 600);
        // The delay of 600 s has ended long ago.
        for second in 36_000..36_010 {
            assert_eq!(backoff.delay(true, at(second * 1_000)), None);
            backoff.record(true, at(second * 1_000));
            assert_eq!(backoff.delay(true, at(second * 1_000 + 400)), Some(Duration::from_millis(600)));
        }
        assert_eq!(backoff.delay(false, at(36_010_000)), None);
    }
}
