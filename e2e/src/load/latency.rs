//! How long reviews took.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Times in nanoseconds, to three digits.
#[derive(Clone, Debug)]
pub struct Latency(Histogram<u64>);

/// What half of them, all but one in a hundred, and all but one in a thousand took at most, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Quantiles {
    /// Half of them.
    pub p50: f64,
    /// 99 of 100.
    pub p99: f64,
    /// 999 of 1,000.
    pub p999: f64,
}

impl Latency {
    pub(super) fn new() -> Self {
        Self(Histogram::new(3).expect("three digits are allowed"))
    }

    /// One that was meant to begin then and was over then.
    pub(super) fn record(&mut self, intended: u64, done: u64) {
        // It grows with what it is given, up to what no machine has time for.
        self.0.record(done.saturating_sub(intended)).expect("it grows");
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("both grow as they must");
    }

    /// How many there were.
    pub fn number(&self) -> u64 {
        self.0.len()
    }

    /// What they took.
    pub fn quantiles(&self) -> Quantiles {
        let at = |quantile| self.0.value_at_quantile(quantile) as f64;
        Quantiles { p50: at(0.5), p99: at(0.99), p999: at(0.999) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::schedule::Schedule;
    use super::*;

    const MILLISECOND: u64 = 1_000_000;

    /// A server on one connection that takes `usual` for each review, and stalls once, for `stall`.
    fn asked(reviews: u64, rate: u64, usual: u64, stall: u64) -> Latency {
        let (schedule, mut latency) = (Schedule::new(0, rate, (0, 1)), Latency::new());
        let mut free = 0;
        for number in 0..reviews {
            let began = free.max(schedule.intended(number));
            free = began + if number == reviews / 2 { stall } else { usual };
            latency.record(schedule.intended(number), free);
        }
        latency
    }

    #[test]
    fn whoever_waits_behind_a_stall_is_late() {
        // 100 of 1,000 were meant to be sent while the server stood still: measured from when they were sent, one
        // alone would have been slow.
        let quantiles = asked(1_000, 1_000, MILLISECOND / 100, 100 * MILLISECOND).quantiles();
        assert!(quantiles.p50 < 0.02 * MILLISECOND as f64, "{quantiles:?}");
        assert!((85.0..95.0).contains(&(quantiles.p99 / MILLISECOND as f64)), "{quantiles:?}");
        assert!((98.0..=101.0).contains(&(quantiles.p999 / MILLISECOND as f64)), "{quantiles:?}");
    }

    #[test]
    fn a_server_that_is_too_slow_gets_ever_later() {
        let quantiles = asked(1_000, 1_000, 2 * MILLISECOND, 2 * MILLISECOND).quantiles();
        assert!((490.0..510.0).contains(&(quantiles.p50 / MILLISECOND as f64)), "{quantiles:?}");
    }

    #[test]
    fn histograms_add_up() {
        let (mut sum, mut other) = (Latency::new(), Latency::new());
        sum.record(0, 1_000);
        other.record(5_000, 10_000);
        // A clock that was read too early is no negative time.
        other.record(2, 1);
        sum.add(&other);
        assert_eq!(sum.number(), 3);
        assert!((sum.quantiles().p50 - 1_000.0).abs() < 2.0);
    }
}
