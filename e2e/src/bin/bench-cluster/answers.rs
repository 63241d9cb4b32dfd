//! What became of the writes of a cell.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::figures::{millis, quantile};

/// One write, answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    /// When it was sent, after the load began; when it was due, where the hand was late.
    pub(crate) after: Duration,
    /// From then until its answer.
    pub(crate) took: Duration,
    /// 0 where there was no answer.
    pub(crate) status: u16,
    /// A policy of the cell's kind is for it.
    pub(crate) governed: bool,
}

/// Those that were answered within the time that counts.
pub(crate) fn within(answered: &[Answered], from: Duration, to: Duration) -> Vec<Answered> {
    answered.iter().filter(|it| (from..to).contains(&(it.after + it.took))).copied().collect()
}

/// The time that so much of the writes took at most, in milliseconds.
pub(crate) fn latency(answered: &[Answered], part: f64) -> f64 {
    let mut took: Vec<f64> = answered.iter().map(|it| millis(it.took)).collect();
    took.sort_by(f64::total_cmp);
    quantile(&took, part)
}

/// How many were answered how.
pub(crate) fn statuses(answered: &[Answered]) -> BTreeMap<u16, usize> {
    let mut statuses = BTreeMap::new();
    answered.iter().for_each(|it| *statuses.entry(it.status).or_default() += 1);
    statuses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_counts_is_counted() {
        let at = |ms: u64| Answered {
            after: Duration::from_millis(ms),
            took: Duration::from_millis(ms / 10),
            status: if ms < 50 { 201 } else { 409 },
            governed: true,
        };
        let all: Vec<_> = (0..100).map(at).collect();
        // What was sent from 19 (answered at 20) to 54 (at 59).
        let some = within(&all, Duration::from_millis(20), Duration::from_millis(60));
        assert_eq!(statuses(&some), BTreeMap::from([(201, 31), (409, 5)]));
        assert!((latency(&some, 1.0) - 5.0).abs() < 0.001);
        assert!((latency(&some, 0.5) - 3.0).abs() < 1.001);
        assert!(latency(&[], 0.5).abs() < f64::EPSILON);
    }
}
