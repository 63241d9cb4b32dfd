//! When the webhook may be armed again after it was disarmed. Pure.

use std::time::Duration;

use squelch_engine::Moment;

/// The time between a disarming and the next arming.
const FIRST_WAIT: Duration = Duration::from_secs(5);
/// Its maximum, after repeated disarmings.
const MAX_WAIT: Duration = Duration::from_secs(600);
/// A disarming this long after the webhook could be armed again is the first one.
const MEMORY: Duration = Duration::from_secs(600);

/// The wait after a disarming. It doubles with each further disarming within ten minutes, so that a fault that comes
/// and goes does not write the configuration each time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rearming {
    /// Not armed before this time.
    not_before: Moment,
    /// The last wait. Zero before the first disarming.
    wait: Duration,
}

impl Rearming {
    /// Records that the webhook was disarmed at `now`, by anyone.
    pub(super) fn record_disarmed(&mut self, now: Moment) {
        let again = !self.wait.is_zero() && now < self.not_before.plus(MEMORY);
        self.wait = if again { (self.wait * 2).min(MAX_WAIT) } else { FIRST_WAIT };
        self.not_before = now.plus(self.wait);
    }

    /// Records that this replica has become active: its webhook is not the one that did not answer. Only the first wait
    /// ends, because repeated disarmings may have the same cause.
    pub(super) fn record_takeover(&mut self, now: Moment) {
        if self.wait == FIRST_WAIT {
            self.not_before = self.not_before.min(now);
        }
    }

    /// Returns the time until the webhook may be armed. `None`: now.
    pub(super) fn delay(&self, now: Moment) -> Option<Duration> {
        Some(self.not_before.since(now)).filter(|left| !left.is_zero())
    }

    /// Returns the wait after the last disarming.
    pub(super) fn wait(&self) -> Duration {
        self.wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_epoch(Duration::from_secs(seconds))
    }

    #[test]
    fn each_further_disarming_within_ten_minutes_doubles_the_wait() {
        let mut rearming = Rearming::default();
        assert_eq!(rearming.delay(at(1_000)), None);
        let mut now = 1_000;
        let mut waits = Vec::new();
        for _ in 0..9 {
            rearming.record_disarmed(at(now));
            let wait = rearming.delay(at(now)).unwrap();
            assert_eq!(wait, rearming.wait());
            waits.push(wait.as_secs());
            now += wait.as_secs();
            assert_eq!(
                (rearming.delay(at(now - 1)), rearming.delay(at(now))),
                (Some(Duration::from_secs(1)), None)
            );
            now += 30;
        }
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 320, 600, 600]);
        // Armed for ten minutes.
        rearming.record_disarmed(at(now + 600));
        assert_eq!(rearming.wait(), FIRST_WAIT);
    }

    #[test]
    fn a_takeover_ends_the_first_wait_only() {
        let mut rearming = Rearming::default();
        rearming.record_disarmed(at(1_000));
        rearming.record_takeover(at(1_002));
        assert_eq!(rearming.delay(at(1_002)), None);
        rearming.record_disarmed(at(1_100));
        rearming.record_takeover(at(1_101));
        assert_eq!(rearming.delay(at(1_101)), Some(Duration::from_secs(9)));
        // A wait that is over stays over.
        let mut rearming = Rearming::default();
        rearming.record_disarmed(at(1_000));
        rearming.record_takeover(at(1_060));
        rearming.record_disarmed(at(1_601));
        assert_eq!(rearming.wait(), Duration::from_secs(10), "the memory counts from the end of the wait");
    }

    /// A cut that comes and goes each 40 s for ten minutes, if three probes were enough each time.
    #[test]
    fn a_fault_that_comes_and_goes_arms_less_and_less_often() {
        let (mut rearming, mut armed, mut transitions) = (Rearming::default(), true, 0);
        for second in 0..600 {
            let phase = second % 80;
            if armed && phase == 2 {
                rearming.record_disarmed(at(second));
                (armed, transitions) = (false, transitions + 1);
            } else if !armed && phase >= 43 && rearming.delay(at(second)).is_none() {
                (armed, transitions) = (true, transitions + 1);
            }
        }
        assert!(transitions <= 11, "{transitions}");
    }
}
