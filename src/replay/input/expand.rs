//! The occurrences of one stored Event, spread evenly between its first and its last time.

use std::time::Duration;

use squelch_engine::Moment;

/// Maximum writes of one Event. With a higher count, each write has several occurrences: a count of two billion must
/// not take hours.
const MOST: i64 = 1_000_000;

/// The occurrences of one Event. Each write has a higher count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventOccurrences {
    first: Moment,
    last: Moment,
    count: i64,
    writes: i64,
    emitted: i64,
}

impl EventOccurrences {
    /// `count` occurrences, at least one, from `first` to `last`.
    pub(super) fn new(first: Moment, last: Moment, count: i64) -> Self {
        let count = count.max(1);
        Self { first, last: last.max(first), count, writes: count.min(MOST), emitted: 0 }
    }

    /// Returns the time of the next write; `None` after the last one.
    pub(super) fn next_at(&self) -> Option<Moment> {
        if self.emitted == self.writes {
            return None;
        }
        let span = self.last.since(self.first).as_nanos();
        let steps = u128::from((self.writes - 1).unsigned_abs().max(1));
        let elapsed = span * u128::from(self.emitted.unsigned_abs()) / steps;
        Some(self.first.plus(Duration::from_nanos(u64::try_from(elapsed).unwrap_or(u64::MAX))))
    }

    /// Returns the count of the next write.
    pub(super) fn emit(&mut self) -> i64 {
        self.emitted += 1;
        // At most 2^31 and 2^20.
        self.count * self.emitted / self.writes
    }

    /// The number of writes.
    pub(super) fn writes(&self) -> u64 {
        self.writes.unsigned_abs()
    }

    /// The number of occurrences without a write of their own.
    pub(super) fn bundled(&self) -> u64 {
        (self.count - self.writes).unsigned_abs()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_epoch(Duration::from_secs(seconds))
    }

    fn all(mut occurrences: EventOccurrences) -> Vec<(Moment, i64)> {
        std::iter::from_fn(|| Some((occurrences.next_at()?, occurrences.emit()))).collect()
    }

    #[test]
    fn occurrences_are_spread_from_the_first_time_to_the_last() {
        let emitted = all(EventOccurrences::new(at(10), at(40), 4));
        assert_eq!(emitted, [(at(10), 1), (at(20), 2), (at(30), 3), (at(40), 4)]);
        assert_eq!(all(EventOccurrences::new(at(10), at(40), 1)), [(at(10), 1)]);
        assert_eq!(all(EventOccurrences::new(at(10), at(5), 2)), [(at(10), 1), (at(10), 2)]);
        assert_eq!(all(EventOccurrences::new(at(10), at(40), -3)), [(at(10), 1)]);
    }

    #[test]
    fn a_huge_count_is_bundled_into_a_million_writes() {
        let occurrences = EventOccurrences::new(at(0), at(1_000), i64::from(i32::MAX));
        assert_eq!(occurrences.writes(), 1_000_000);
        assert_eq!(occurrences.bundled(), 2_146_483_647);
        let emitted = all(occurrences);
        assert_eq!(emitted.last(), Some(&(at(1_000), i64::from(i32::MAX))));
        assert!(emitted.windows(2).all(|pair| pair[0].1 < pair[1].1 && pair[0].0 <= pair[1].0));
    }

    proptest! {
        #[test]
        fn all_occurrences_are_emitted_in_order(first in 0u64..1 << 40, span in 0u64..1 << 40, count in 1i64..5_000) {
            let emitted = all(EventOccurrences::new(at(first), at(first + span), count));
            prop_assert_eq!(emitted.len() as i64, count);
            prop_assert!(emitted.iter().map(|(_, value)| *value).eq(1..=count));
            prop_assert!(emitted.is_sorted_by_key(|(at, _)| *at));
            prop_assert_eq!(emitted[0].0, at(first));
            prop_assert!(count == 1 || emitted[emitted.len() - 1].0 == at(first + span));
        }
    }
}
