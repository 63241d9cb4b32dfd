//! Answers to the writes of a cell.

use std::collections::BTreeMap;
use std::time::Duration;

use e2e::figures::quantile;

use crate::figures::millis;

/// One write with its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    /// Send time since the start of the load; the due time if the worker was late.
    pub(crate) after: Duration,
    /// Time until the answer.
    pub(crate) took: Duration,
    /// HTTP status. 0: no answer.
    pub(crate) status: u16,
    /// The occurrences that it reports.
    pub(crate) occurrences: i64,
    /// Whether the policy of the cell matches it.
    pub(crate) governed: bool,
}

/// The writes that were answered within the measured time.
pub(crate) fn within(answered: &[Answered], from: Duration, to: Duration) -> Vec<Answered> {
    answered.iter().filter(|it| (from..to).contains(&(it.after + it.took))).copied().collect()
}

/// A quantile of the latency, in milliseconds.
pub(crate) fn latency(answered: &[Answered], part: f64) -> f64 {
    let took: Vec<f64> = answered.iter().map(|it| millis(it.took)).collect();
    quantile(&took, part)
}

/// Number of answers by status.
pub(crate) fn statuses(answered: &[Answered]) -> BTreeMap<u16, usize> {
    let mut statuses = BTreeMap::new();
    answered.iter().for_each(|it| *statuses.entry(it.status).or_default() += 1);
    statuses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_answers_within_the_measured_time_are_counted() {
        let at = |ms: u64| Answered {
            after: Duration::from_millis(ms),
            took: Duration::from_millis(ms / 10),
            status: if ms < 50 { 201 } else { 409 },
            occurrences: 1,
            governed: true,
        };
        let all: Vec<_> = (0..100).map(at).collect();
        // Sent from 19 (answered at 20) to 54 (answered at 59).
        let some = within(&all, Duration::from_millis(20), Duration::from_millis(60));
        assert_eq!(statuses(&some), BTreeMap::from([(201, 31), (409, 5)]));
        assert!((latency(&some, 1.0) - 5.0).abs() < 0.001);
        assert!((latency(&some, 0.5) - 3.0).abs() < 1.001);
        assert!(latency(&[], 0.5).abs() < f64::EPSILON);
    }
}
