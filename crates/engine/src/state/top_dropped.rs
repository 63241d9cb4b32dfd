//! What a scope dropped most: the heavy hitters among reason, kind, component and disposition.
//!
//! The algorithm is Space-Saving (Metwally, Agrawal, El Abbadi, 2005). A combination that comes where all places
//! are taken takes the place of the lightest, and inherits its weight: it may have been here before, with as much.
//! Weights only choose who stays. What is shown is counted apart: what a combination dropped since it was taken in,
//! and in one sum what those dropped that had to go. So nothing is shown that did not happen, and nothing is missing
//! from the total.
//!
//! With N dropped occurrences in a scope and k places ([`MAX_RANKED`], fewer only where too many are held in all):
//! while there are at most k combinations every count is exact; beyond that a count can be short of the truth by
//! N / k at most, and a combination that has more than N / k of them is always there.

use std::hint::black_box;

use crate::decide::keys::Key;
use crate::model::dropped::identity;
use crate::{Disposition, Dropped, EventView, TopDropped};

/// So many combinations a scope holds at most.
pub(crate) const MAX_RANKED: usize = 32;

/// So many all scopes hold together, but for the seconds in which those of namespaces above their fair share make
/// room for newcomers. One takes some 100 bytes, and 300 where someone sees to it.
pub(crate) const MAX_IN_ALL: usize = 65_536;

/// The bounded sketch of one scope. Takes no memory before something is dropped.
#[derive(Default)]
pub(crate) struct Sketch {
    ranked: Vec<Ranked>,
    others: u64,
    evicted: u64,
    /// The weight of the heaviest that had to go: nobody who is not here has dropped more.
    evicted_weight: u64,
}

struct Ranked {
    key: Key,
    /// The most that it may have dropped before it was taken in.
    inherited: u64,
    dropped: Dropped,
}

impl Sketch {
    pub(crate) fn len(&self) -> usize {
        self.ranked.len()
    }

    /// Combinations given up for want of room.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Asks the memory for what [`Self::count`] will read: in a storm it is the first place.
    pub(crate) fn prefetch(&self) {
        black_box(self.ranked.first().map(|entry| (entry.key, entry.dropped.count)));
    }

    /// Counts `occurrences` of a combination that was dropped. `at_capacity`: too many are held in all, and this namespace
    /// has its fair share of them.
    pub(crate) fn count(
        &mut self,
        key: Key,
        event: &EventView<'_>,
        disposition: Disposition,
        occurrences: u64,
        at_capacity: bool,
    ) {
        if let Some(at) = self.ranked.iter().position(|entry| entry.key == key) {
            let count = &mut self.ranked[at].dropped.count;
            *count = count.saturating_add(occurrences);
            // A storm is the same again and again: what comes often moves to the front, where it is found first.
            if at > 0 {
                self.ranked.swap(at, at - 1);
            }
            return;
        }
        if self.ranked.len() >= MAX_RANKED || at_capacity {
            self.evict_one();
        }
        let inherited = self.evicted_weight;
        let dropped = Dropped::new(identity(event), disposition, occurrences);
        self.ranked.push(Ranked { key, inherited, dropped });
    }

    /// One place less, for those of other scopes; but every scope keeps one.
    pub(crate) fn evict_lightest(&mut self) {
        if self.ranked.len() > 1 {
            self.evict_one();
        }
    }

    fn evict_one(&mut self) {
        // Of the lightest the one at the back: it was dropped less often of late.
        let lightest = (0..self.ranked.len()).rev().min_by_key(|at| self.ranked[*at].weight());
        let Some(lightest) = lightest else { return };
        let entry = self.ranked.swap_remove(lightest);
        self.evicted_weight = self.evicted_weight.max(entry.weight());
        self.others = self.others.saturating_add(entry.dropped.count);
        self.evicted += 1;
    }

    /// What it holds, and how many more there were.
    pub(crate) fn top(&self) -> TopDropped {
        let entries = self.ranked.iter().map(|entry| entry.dropped.clone()).collect();
        TopDropped { entries, others: self.others }
    }
}

impl Ranked {
    /// At least as much as the combination ever dropped.
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

    /// Counts a drop for this reason.
    fn drop_of(sketch: &mut Sketch, reason: &str, occurrences: u64, at_capacity: bool) {
        let mut event = write().event;
        event.reason = reason.to_owned().into();
        let key = Hasher::new([1, 2]).dropped(&event, Disposition::Filtered);
        sketch.count(key, &event, Disposition::Filtered, occurrences, at_capacity);
    }

    fn counts(sketch: &Sketch) -> BTreeMap<String, u64> {
        let entries = sketch.top().entries;
        let counts: BTreeMap<_, _> = entries.iter().map(|it| (it.reason().to_owned(), it.count)).collect();
        assert_eq!(counts.len(), entries.len(), "a combination stands once");
        counts
    }

    #[test]
    fn text_is_cut_between_characters_and_made_harmless() {
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
    fn what_is_dropped_in_different_ways_is_told_apart() {
        let hasher = Hasher::new([1, 2]);
        let event = write().event;
        let mut sketch = Sketch::default();
        for disposition in [Disposition::Filtered, Disposition::Throttled, Disposition::Filtered] {
            sketch.count(hasher.dropped(&event, disposition), &event, disposition, 2, false);
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
    fn many_that_come_once_do_not_drive_out_one_that_comes_often() {
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
    fn where_too_many_are_held_in_all_a_scope_comes_down_and_keeps_the_heaviest() {
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
    fn scopes_of_one_namespace_add_up() {
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
        fn keeps_what_it_promises(
            // Squared, so that some come far more often than others.
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
