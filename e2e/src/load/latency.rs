//! Latency of reviews.

use hdrhistogram::Histogram;
use serde::Serialize;

/// A histogram of nanoseconds with three significant digits.
#[derive(Clone, Debug)]
pub struct Latency(Histogram<u64>);

/// Quantiles in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Quantiles {
    /// p50.
    pub p50: f64,
    /// p99.
    pub p99: f64,
    /// p99.9.
    pub p999: f64,
}

impl Latency {
    pub(super) fn new() -> Self {
        Self(Histogram::new(3).expect("3 significant digits are valid"))
    }

    /// Records a review by its intended start and its end.
    pub(super) fn record(&mut self, intended: u64, done: u64) {
        // The histogram resizes itself.
        self.0.record(done.saturating_sub(intended)).expect("the histogram resizes itself");
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("the histogram resizes itself");
    }

    /// The number of recorded reviews.
    pub fn number(&self) -> u64 {
        self.0.len()
    }

    /// The quantiles.
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

    /// A server with one connection that takes `usual` per review, and stalls once for `stall`.
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
    fn reviews_due_during_a_stall_are_late() {
        // 100 of 1,000 reviews were due during the stall. Measured from their send time, only one would have been
        // slow.
        let quantiles = asked(1_000, 1_000, MILLISECOND / 100, 100 * MILLISECOND).quantiles();
        assert!(quantiles.p50 < 0.02 * MILLISECOND as f64, "{quantiles:?}");
        assert!((85.0..95.0).contains(&(quantiles.p99 / MILLISECOND as f64)), "{quantiles:?}");
        assert!((98.0..=101.0).contains(&(quantiles.p999 / MILLISECOND as f64)), "{quantiles:?}");
    }

    #[test]
    fn latency_grows_on_a_server_below_the_rate() {
        let quantiles = asked(1_000, 1_000, 2 * MILLISECOND, 2 * MILLISECOND).quantiles();
        assert!((490.0..510.0).contains(&(quantiles.p50 / MILLISECOND as f64)), "{quantiles:?}");
    }

    #[test]
    fn histograms_are_added() {
        let (mut sum, mut other) = (Latency::new(), Latency::new());
        sum.record(0, 1_000);
        other.record(5_000, 10_000);
        // An end before the intended start counts as 0.
        other.record(2, 1);
        sum.add(&other);
        assert_eq!(sum.number(), 3);
        assert!((sum.quantiles().p50 - 1_000.0).abs() < 2.0);
    }
}
