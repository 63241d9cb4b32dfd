//! The most frequently dropped combinations of type, reason, kind, component and disposition in a scope.
//!
//! The algorithm is Space-Saving (Metwally, Agrawal, El Abbadi, 2005). If all entries are used, a new
//! combination replaces the lightest one and inherits its weight, because it may have been tracked before.
//! Weights only select which combinations stay. The shown counts are separate: the occurrences since a
//! combination is tracked, and one sum for all others. So every shown occurrence happened, and the total is
//! exact.
//!
//! For N dropped occurrences and k entries ([`MAX_RANKED`], fewer if too many are used in all): with at most k
//! combinations all counts are exact. Otherwise a count is at most N / k too low, and a combination with more
//! than N / k occurrences is always present.

use std::hint::black_box;

use jiff::Timestamp;

use crate::decide::keys::Key;
use crate::{Disposition, Dropped, EventView, TopDropped};

/// Maximum number of combinations per scope.
pub(crate) const MAX_RANKED: usize = 32;

/// Maximum number of combinations in all scopes. It may be exceeded for seconds, until namespaces above their
/// fair share evict entries. An entry takes about 500 bytes, with texts of the longest kind.
pub(crate) const MAX_IN_ALL: usize = 65_536;

/// The bounded sketch of one scope. It allocates nothing before something is dropped.
#[derive(Default)]
pub(crate) struct Sketch {
    ranked: Vec<Ranked>,
    others: u64,
    evicted: u64,
    /// Weight of the heaviest evicted combination. An untracked combination never dropped more.
    evicted_weight: u64,
}

struct Ranked {
    key: Key,
    /// Maximum number of occurrences before the combination was tracked.
    inherited: u64,
    dropped: Dropped,
}

impl Sketch {
    pub(crate) fn len(&self) -> usize {
        self.ranked.len()
    }

    /// Returns the number of evicted combinations.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Prefetches what [`Self::count`] reads: in a storm, the first entry.
    pub(crate) fn prefetch(&self) {
        black_box(self.ranked.first().map(|entry| (entry.key, entry.dropped.count)));
    }

    /// Counts dropped occurrences of a combination. `at_capacity`: too many entries are used in all, and this
    /// namespace has its fair share.
    pub(crate) fn count(
        &mut self,
        key: Key,
        event: &EventView<'_>,
        disposition: Disposition,
        (occurrences, occurred_at): (u64, Timestamp),
        at_capacity: bool,
    ) {
        if let Some(at) = self.ranked.iter().position(|entry| entry.key == key) {
            self.ranked[at].dropped.add(occurrences, occurred_at);
            // A storm repeats the same combination. Frequent ones move to the front, where the search starts.
            if at > 0 {
                self.ranked.swap(at, at - 1);
            }
            return;
        }
        if self.ranked.len() >= MAX_RANKED || at_capacity {
            self.evict_one();
        }
        let inherited = self.evicted_weight;
        let dropped = Dropped::first(event, disposition, occurrences, occurred_at);
        self.ranked.push(Ranked { key, inherited, dropped });
    }

    /// Evicts one entry for other scopes, but keeps the last.
    pub(crate) fn evict_lightest(&mut self) {
        if self.ranked.len() > 1 {
            self.evict_one();
        }
    }

    /// Forgets the combinations of a deleted namespace. Their occurrences stay in the number of others.
    pub(crate) fn forget(&mut self) {
        let all =
            self.ranked.drain(..).fold(self.others, |sum, entry| sum.saturating_add(entry.dropped.count));
        (self.others, self.evicted_weight) = (all, 0);
    }

    fn evict_one(&mut self) {
        // Of several lightest entries the last one was dropped least recently.
        let lightest = (0..self.ranked.len()).rev().min_by_key(|at| self.ranked[*at].weight());
        let Some(lightest) = lightest else { return };
        let entry = self.ranked.swap_remove(lightest);
        self.evicted_weight = self.evicted_weight.max(entry.weight());
        self.others = self.others.saturating_add(entry.dropped.count);
        self.evicted += 1;
    }

    /// Returns the tracked combinations and the number of other occurrences.
    pub(crate) fn top(&self) -> TopDropped {
        let entries = self.ranked.iter().map(|entry| entry.dropped.clone()).collect();
        TopDropped { entries, others: self.others }
    }
}

impl Ranked {
    /// Returns an upper bound of the occurrences that this combination ever dropped.
    fn weight(&self) -> u64 {
        self.inherited.saturating_add(self.dropped.count)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::decide::keys::Hasher;
    use crate::model::dropped::MAX_TEXT;
    use crate::testing::write;

    /// Counts dropped occurrences with this reason.
    fn drop_of(sketch: &mut Sketch, reason: &str, occurrences: u64, at_capacity: bool) {
        let mut event = write().event;
        event.reason = reason.to_owned().into();
        let key = Hasher::new([1, 2]).dropped(&event, Disposition::Filtered);
        sketch.count(key, &event, Disposition::Filtered, (occurrences, Timestamp::UNIX_EPOCH), at_capacity);
    }

    fn counts(sketch: &Sketch) -> BTreeMap<String, u64> {
        let entries = sketch.top().entries;
        let counts: BTreeMap<_, _> = entries.iter().map(|it| (it.reason().to_owned(), it.count)).collect();
        assert_eq!(counts.len(), entries.len(), "a combination stands once");
        counts
    }

    #[test]
    fn dropped_text_is_truncated_and_sanitised() {
        let long = "ü".repeat(40);
        let dropped = Dropped::new([&long, "Po\u{1b}[31md\n", ""], Disposition::Throttled, 3);
        assert_eq!(dropped.reason(), "ü".repeat(32));
        assert_eq!((dropped.kind(), dropped.component()), ("Po [31md ", ""));
        let turned = Dropped::new(["a\u{202e}b", "\u{200b}c", "\u{e0041}\u{2028}"], Disposition::Filtered, 1);
        assert_eq!((turned.reason(), turned.kind(), turned.component()), ("a b", " c", "  "));
        let widest = "x".repeat(1000);
        let dropped = Dropped::new([&widest, &widest, &widest], Disposition::Filtered, 1);
        assert_eq!(dropped.reason().len() + dropped.kind().len() + dropped.component().len(), 3 * MAX_TEXT);
    }

    #[test]
    fn dispositions_are_separate_combinations() {
        let hasher = Hasher::new([1, 2]);
        let event = write().event;
        let mut sketch = Sketch::default();
        for disposition in [Disposition::Filtered, Disposition::Throttled, Disposition::Filtered] {
            let key = hasher.dropped(&event, disposition);
            sketch.count(key, &event, disposition, (2, Timestamp::UNIX_EPOCH), false);
        }
        let mut entries = sketch.top().entries;
        entries.sort_by_key(|entry| entry.disposition);
        assert_eq!(
            entries.iter().map(|entry| (entry.disposition, entry.count)).collect::<Vec<_>>(),
            [(Disposition::Filtered, 4), (Disposition::Throttled, 2)]
        );
        assert_eq!((entries[0].kind(), entries[0].component()), ("Pod", "kubelet"));
    }

    #[test]
    fn many_rare_combinations_do_not_evict_a_frequent_one() {
        let mut sketch = Sketch::default();
        for number in 0..10_000 {
            drop_of(&mut sketch, &format!("Once{number}"), 1, false);
            if number % 20 == 0 {
                drop_of(&mut sketch, "Often", 1, false);
            }
        }
        assert_eq!(counts(&sketch).get("Often"), Some(&500));
        assert_eq!((sketch.len(), sketch.top().sum()), (MAX_RANKED, 10_500));
        assert_eq!(sketch.evicted(), 10_001 - MAX_RANKED as u64);
    }

    #[test]
    fn at_capacity_a_scope_keeps_the_heaviest_combination() {
        let mut sketch = Sketch::default();
        for number in 1..=20 {
            drop_of(&mut sketch, &format!("Reason{number}"), number, false);
        }
        drop_of(&mut sketch, "Newcomer", 1, true);
        assert_eq!((sketch.len(), sketch.top().others), (20, 1), "one for one");
        for _ in 0..30 {
            sketch.evict_lightest();
        }
        assert_eq!(counts(&sketch), [("Reason20".to_owned(), 20)].into());
        assert_eq!(sketch.top().sum(), (1..=20).sum::<u64>() + 1);
    }

    #[test]
    fn top_dropped_of_several_scopes_add_up() {
        let entry = |reason, count| Dropped::new([reason, "Pod", "kubelet"], Disposition::Filtered, count);
        let mut all = TopDropped { entries: vec![entry("A", 1), entry("B", 2)], others: 3 };
        all.add(&TopDropped { entries: vec![entry("B", 10), entry("C", 20)], others: 30 });
        let expected =
            TopDropped { entries: vec![entry("A", 1), entry("B", 12), entry("C", 20)], others: 33 };
        assert_eq!(all, expected);
        assert_eq!(all.sum(), 66);
    }

    proptest! {
        #[test]
        fn the_sketch_keeps_its_error_bounds(
            // Squared, so that some reasons are far more frequent.
            drops in prop::collection::vec((0u32..12, 1u64..4, prop::bool::weighted(0.1)), 0..600),
            spread in 1u32..12,
            at_capacity in any::<bool>(),
        ) {
            let mut sketch = Sketch::default();
            let mut truth: BTreeMap<String, u64> = BTreeMap::new();
            for (at, (number, occurrences, comes_down)) in drops.into_iter().enumerate() {
                let reason = format!("R{}", number * number % (spread * 10) + at as u32 % spread);
                drop_of(&mut sketch, &reason, occurrences, at_capacity);
                *truth.entry(reason).or_default() += occurrences;
                if at_capacity && comes_down {
                    sketch.evict_lightest();
                }
            }
            let total: u64 = truth.values().sum();
            let counts = counts(&sketch);
            prop_assert_eq!(sketch.top().sum(), total);
            prop_assert!(sketch.len() <= MAX_RANKED);
            if truth.len() <= MAX_RANKED && !at_capacity {
                prop_assert_eq!(&counts, &truth);
            }
            if !at_capacity {
                prop_assert!(sketch.evicted_weight <= total / MAX_RANKED as u64);
            }
            for (reason, all) in &truth {
                let shown = counts.get(reason).copied().unwrap_or(0);
                prop_assert!(shown <= *all && *all - shown <= sketch.evicted_weight, "{reason}: {shown} of {all}");
            }
        }
    }
}
