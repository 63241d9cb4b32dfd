//! Statistics of measurements.

use std::time::Duration;

use e2e::figures::median;

pub(crate) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// Minimum, median and maximum.
pub(crate) fn spread(values: &[f64]) -> [f64; 3] {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let [least, most] = [sorted.first(), sorted.last()].map(|it| it.copied().unwrap_or_default());
    [least, median(values), most]
}

/// Paired measurements with and without a setting in the same rounds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Paired {
    /// Difference per round: with minus without.
    pub(crate) differences: Vec<f64>,
    /// Ratio per round: with divided by without.
    pub(crate) ratios: Vec<f64>,
    /// Noise: median difference of the two measurements without the setting in a round.
    pub(crate) noise: f64,
}

impl Paired {
    /// `without` has two measurements per round, before and after `with`.
    pub(crate) fn of(with: &[f64], without: &[[f64; 2]]) -> Self {
        let pairs = || with.iter().zip(without.iter().map(|[before, after]| f64::midpoint(*before, *after)));
        let noise: Vec<f64> = without.iter().map(|[before, after]| (before - after).abs()).collect();
        Self {
            differences: pairs().map(|(with, without)| with - without).collect(),
            ratios: pairs().map(|(with, without)| with / without).collect(),
            noise: median(&noise),
        }
    }

    /// Whether the median difference is at most the noise.
    pub(crate) fn is_no_more(&self) -> bool {
        median(&self.differences) <= self.noise
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_come_from_the_measured_values() {
        assert_eq!(spread(&[3.0, 1.0, 2.0]).map(|it| it as i64), [1, 2, 3]);
    }

    #[test]
    fn a_difference_below_the_noise_counts_as_no_difference() {
        // Without: 10 and 12, a noise of 2.
        let without = [[10.0, 12.0]; 3];
        assert!(Paired::of(&[11.0, 13.0, 30.0], &without).is_no_more(), "the median difference is 2");
        assert!(!Paired::of(&[11.0, 13.5, 30.0], &without).is_no_more());
        assert!(Paired::of(&[1.0, 2.0, 30.0], &without).is_no_more());
        assert!((Paired::of(&[11.0, 22.0, 33.0], &without).ratios[1] - 2.0).abs() < f64::EPSILON);
    }
}
