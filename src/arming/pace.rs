//! How often the webhook configuration is written. Pure.
//!
//! Each write goes to etcd and to every API server, with up to 66 KB of namespaces in it. Somebody who creates and
//! deletes a policy again and again must not cause a write each time.

use std::time::Duration;

use squelch_engine::Moment;

/// A configuration that is too wide costs reviews that change nothing. It stays for this long, in case it is wanted
/// again.
const NARROWING: Duration = Duration::from_secs(5);

/// The writes that can follow each other at once.
const BURST: u32 = 20;

/// The time after which one more can.
const REFILL: Duration = Duration::from_secs(1);

/// What a write changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Takes the rules away because the webhook does not answer, or because a person wants it.
    Disarms,
    /// Fewer namespaces, and all else as it was.
    Narrows,
    /// Anything else, more namespaces for one.
    Other,
}

/// When the configuration may be written. (governor's limiters take a token with the question. Here the question comes
/// first, and only a write that the API server has accepted takes one.)
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When the bucket is full again.
    full: Moment,
    /// Since when a narrower configuration has been wanted.
    narrower: Option<Moment>,
}

impl Pace {
    /// How long a write has to wait at `now`; `None` if it is its turn.
    pub(super) fn wait(&mut self, change: Change, now: Moment) -> Option<Duration> {
        let ready = match change {
            Change::Disarms => {
                self.settle();
                return None;
            }
            Change::Narrows => self.narrower.get_or_insert(now).plus(NARROWING),
            Change::Other => {
                self.settle();
                now
            }
        };
        let token = self.full.plus(REFILL).since(now).saturating_sub(REFILL * BURST);
        Some(ready.since(now).max(token)).filter(|wait| !wait.is_zero())
    }

    /// What stands there is what is wanted.
    pub(super) fn settle(&mut self) {
        self.narrower = None;
    }

    /// The API server has accepted a write.
    pub(super) fn wrote(&mut self, now: Moment) {
        self.settle();
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
    fn twenty_writes_follow_each_other_and_then_one_a_second() {
        let mut pace = Pace::default();
        for _ in 0..BURST {
            assert_eq!(pace.wait(Change::Other, at(100)), None);
            pace.wrote(at(100));
        }
        assert_eq!(pace.wait(Change::Other, at(100)), Some(REFILL));
        assert_eq!(pace.wait(Change::Disarms, at(100)), None);
        assert_eq!(pace.wait(Change::Other, at(1_099)), Some(Duration::from_millis(1)));
        assert_eq!(pace.wait(Change::Other, at(1_100)), None);
        pace.wrote(at(1_100));
        assert_eq!(pace.wait(Change::Other, at(1_100)), Some(REFILL));
        // Filled up again it holds no more than before.
        (0..BURST).for_each(|_| pace.wrote(at(100_000)));
        assert_eq!(pace.wait(Change::Other, at(100_000)), Some(REFILL));
    }

    #[test]
    fn a_narrower_one_waits_until_it_was_wanted_for_five_seconds() {
        let mut pace = Pace::default();
        assert_eq!(pace.wait(Change::Narrows, at(0)), Some(NARROWING));
        assert_eq!(pace.wait(Change::Narrows, at(4_000)), Some(Duration::from_secs(1)));
        // Meanwhile the wider one is wanted again.
        pace.settle();
        assert_eq!(pace.wait(Change::Narrows, at(4_500)), Some(NARROWING));
        assert_eq!(pace.wait(Change::Narrows, at(9_500)), None);
    }
}
