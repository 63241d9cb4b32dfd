//! The intended send times of an open loop.

const SECOND: u128 = 1_000_000_000;

/// An even rate from a start time. Several callers share a rate by taking every n-th review.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    start: u64,
    rate: u64,
    of: u64,
    share: u64,
}

impl Schedule {
    /// The reviews `share`, `share + of`, `share + 2 of`, ... of `rate` a second from `start` on.
    pub(super) fn new(start: u64, rate: u64, (share, of): (u64, u64)) -> Self {
        Self { start, rate, of, share }
    }

    /// The intended send time of this caller's review of this number.
    pub(super) fn intended(&self, number: u64) -> u64 {
        // Computed from the start: a sum of rounded intervals would drift.
        let after = u128::from(number * self.of + self.share) * SECOND / u128::from(self.rate);
        self.start + u64::try_from(after).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reviews_are_evenly_spaced_without_drift() {
        let schedule = Schedule::new(100, 3, (0, 1));
        assert_eq!(
            [0, 1, 2, 3].map(|number| schedule.intended(number)),
            [100, 333_333_433, 666_666_766, 1_000_000_100]
        );
        assert_eq!(schedule.intended(3_000_000_000), 100 + 1_000_000_000 * 1_000_000_000);
    }

    #[test]
    fn callers_that_share_a_rate_reach_it_together() {
        let whole = Schedule::new(0, 20_000, (0, 1));
        let shares = [0, 1, 2].map(|share| Schedule::new(0, 20_000, (share, 3)));
        for number in 0..30 {
            assert_eq!(whole.intended(number), shares[number as usize % 3].intended(number / 3));
        }
    }
}
