//! Leaving an API server alone that cannot keep up. Pure.

use std::time::Duration;

use squelch_engine::Moment;

/// So many strained answers in a row may be one namespace's affair (a webhook of somebody's that fails there).
const FORGIVEN: u32 = 2;
/// The first pause that nobody asked for; each next one is twice as long.
const FIRST: Duration = Duration::from_secs(1);

/// Whether squelch pays at all just now. A debt that could not be paid waits by itself; this is for all of them
/// together, so that a broken API server is asked by one look after the other and not by each debt in turn.
#[derive(Debug)]
pub(super) struct Pause {
    /// Strained answers since the last good one, those that came in one pause counted once.
    strained: u32,
    until: Moment,
    longest: Duration,
}

impl Pause {
    /// None yet. `longest`: what a pause lasts at most that the API server did not ask for.
    pub(super) fn new(longest: Duration) -> Self {
        Self { strained: 0, until: Moment::default(), longest }
    }

    /// The API server did its work, whatever it said.
    pub(super) fn answered(&mut self) {
        self.strained = 0;
    }

    /// It did not, and perhaps `asked` to be left alone for so long.
    pub(super) fn strained(&mut self, asked: Option<Duration>, now: Moment) {
        if let Some(asked) = asked {
            self.until = self.until.max(now.plus(asked));
        }
        // Those that were under way when the pause began tell nothing new.
        if now < self.until {
            return;
        }
        self.strained = self.strained.saturating_add(1);
        if let Some(doublings) = self.strained.checked_sub(FORGIVEN + 1) {
            let pause = FIRST.saturating_mul(2u32.saturating_pow(doublings)).min(self.longest);
            self.until = now.plus(pause);
        }
    }

    /// How much of a pause is left.
    pub(super) fn left(&self, now: Moment) -> Duration {
        self.until.since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Moment {
        Moment::from_epoch(Duration::from_millis(milliseconds))
    }

    #[test]
    fn a_failure_now_and_then_pauses_nothing() {
        let mut pause = Pause::new(Duration::from_secs(30));
        for second in 0..100 {
            pause.strained(None, at(second * 1000));
            pause.strained(None, at(second * 1000 + 1));
            pause.answered();
            assert_eq!(pause.left(at(second * 1000 + 2)), Duration::ZERO);
        }
    }

    #[test]
    fn failures_in_a_row_pause_for_longer_and_longer() {
        let mut pause = Pause::new(Duration::from_secs(30));
        let mut now = at(0);
        let mut pauses = Vec::new();
        for _ in 0..10 {
            // Eight fail together: they were under way.
            (0..8).for_each(|_| pause.strained(None, now));
            pauses.push(pause.left(now).as_secs());
            now = now.plus(pause.left(now));
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30, 30, 30, 30]);
        pause.answered();
        pause.strained(None, now);
        assert_eq!(pause.left(now), Duration::ZERO);
    }

    #[test]
    fn what_the_api_server_asks_for_it_gets_at_once() {
        let mut pause = Pause::new(Duration::from_secs(30));
        pause.strained(Some(Duration::from_secs(7)), at(0));
        pause.strained(Some(Duration::from_secs(1)), at(10));
        assert_eq!(pause.left(at(1000)), Duration::from_secs(6));
        assert_eq!(pause.left(at(7000)), Duration::ZERO);
    }
}
