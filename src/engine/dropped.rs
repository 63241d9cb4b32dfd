//! What a scope dropped most: the heavy hitters among reason, kind, component and disposition.
//!
//! The algorithm is Space-Saving (Metwally, Agrawal, El Abbadi, 2005). A combination that comes where all places
//! are taken takes the place of the lightest, and inherits its weight: it may have been here before, with as much.
//! Weights only choose who stays. What is shown is counted apart: what a combination dropped since it was taken in,
//! and in one sum what those dropped that had to go. So nothing is shown that did not happen, and nothing is missing
//! from the total.
//!
//! With N dropped occurrences in a scope and k places ([`MAX_PLACES`], fewer only where too many are held in all):
//! while there are at most k combinations every count is exact; beyond that a count can be short of the truth by
//! N / k at most, and a combination that has more than N / k of them is always there.

use std::fmt;
use std::hint::black_box;
use std::sync::Arc;

use super::content::cut;
use super::key::Key;
use super::{Disposition, EventView};

/// So many combinations a scope holds at most.
pub(super) const MAX_PLACES: usize = 32;

/// So many all scopes hold together, but for the seconds in which those of namespaces above their fair share make
/// room for newcomers. One takes some 100 bytes, and 300 where someone sees to it.
pub(super) const MAX_IN_ALL: usize = 65_536;

/// Reason, kind and component are cut to so many bytes each, far more than what those of Kubernetes have.
const MAX_TEXT: usize = 64;

/// Occurrences that a scope dropped and that have reason, kind, component and disposition in common.
#[derive(Clone, PartialEq, Eq)]
pub struct Dropped {
    /// Reason, kind and component, one after the other: one allocation, which all copies share.
    text: Arc<str>,
    /// Where the reason and the kind end.
    ends: [u8; 2],
    /// How they were dropped.
    pub disposition: Disposition,
    /// How many, since the combination was taken in.
    pub count: u64,
}

/// What a scope dropped, in full: what it holds, and how many more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopDropped {
    /// By combination, in no order.
    pub entries: Vec<Dropped>,
    /// Dropped occurrences that are in no entry.
    pub others: u64,
}

/// The bounded sketch of one scope. Takes no memory before something is dropped.
#[derive(Default)]
pub(super) struct Sketch {
    places: Vec<Place>,
    others: u64,
    evicted: u64,
    /// The weight of the heaviest that had to go: nobody who is not here has dropped more.
    gone: u64,
}

struct Place {
    key: Key,
    /// The most that it may have dropped before it was taken in.
    inherited: u64,
    dropped: Dropped,
}

impl Sketch {
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Combinations given up for want of room.
    pub(super) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Asks the memory for what [`Self::count`] will read: in a storm it is the first place.
    pub(super) fn fetch(&self) {
        black_box(self.places.first().map(|place| (place.key, place.dropped.count)));
    }

    /// Counts `occurrences` of a combination that was dropped. `full`: too many are held in all, and this namespace
    /// has its fair share of them.
    pub(super) fn count(
        &mut self,
        key: Key,
        event: &EventView<'_>,
        disposition: Disposition,
        occurrences: u64,
        full: bool,
    ) {
        if let Some(at) = self.places.iter().position(|place| place.key == key) {
            let count = &mut self.places[at].dropped.count;
            *count = count.saturating_add(occurrences);
            // A storm is the same again and again: what comes often moves to the front, where it is found first.
            if at > 0 {
                self.places.swap(at, at - 1);
            }
            return;
        }
        if self.places.len() >= MAX_PLACES || full {
            self.give_up_the_lightest();
        }
        let inherited = self.gone;
        let dropped = Dropped::new(identity(event), disposition, occurrences);
        self.places.push(Place { key, inherited, dropped });
    }

    /// One place less, for those of other scopes; but every scope keeps one.
    pub(super) fn come_down(&mut self) {
        if self.places.len() > 1 {
            self.give_up_the_lightest();
        }
    }

    fn give_up_the_lightest(&mut self) {
        // Of the lightest the one at the back: it was dropped less often of late.
        let lightest = (0..self.places.len()).rev().min_by_key(|at| self.places[*at].weight());
        let Some(lightest) = lightest else { return };
        let place = self.places.swap_remove(lightest);
        self.gone = self.gone.max(place.weight());
        self.others = self.others.saturating_add(place.dropped.count);
        self.evicted += 1;
    }

    /// What it holds, and how many more there were.
    pub(super) fn top(&self) -> TopDropped {
        let entries = self.places.iter().map(|place| place.dropped.clone()).collect();
        TopDropped { entries, others: self.others }
    }
}

impl Place {
    /// At least as much as the combination ever dropped.
    fn weight(&self) -> u64 {
        self.inherited.saturating_add(self.dropped.count)
    }
}

/// What makes a combination, beside the disposition: reason, kind and component, cut.
pub(super) fn identity<'a>(event: &'a EventView<'_>) -> [&'a str; 3] {
    [&event.reason, &event.regarding.kind, event.reporter().0].map(|text| cut(text, MAX_TEXT))
}

/// A blank for what moves a terminal's cursor, turns the direction of what follows, or is not seen at all.
pub fn harmless(character: char) -> char {
    match character {
        // Unicode's Default_Ignorable_Code_Point, its line and paragraph separators, its marks of annotations, and the
        // blank pattern of Braille.
        '\u{ad}'
        | '\u{34f}'
        | '\u{61c}'
        | '\u{115f}'..='\u{1160}'
        | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{2800}'
        | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}'
        | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}' => ' ',
        control if control.is_control() => ' ',
        other => other,
    }
}

impl Dropped {
    /// `count` occurrences of this reason, kind and component. Each text is cut, and made harmless.
    pub fn new(texts: [&str; 3], disposition: Disposition, count: u64) -> Self {
        let (mut bytes, mut end, mut ends) = ([0; 3 * MAX_TEXT], 0, [0; 3]);
        for (text, its_end) in texts.into_iter().zip(&mut ends) {
            for character in cut(text, MAX_TEXT).chars() {
                end += harmless(character).encode_utf8(&mut bytes[end..]).len();
            }
            *its_end = u8::try_from(end).expect("three texts of at most 64 bytes");
        }
        let text = str::from_utf8(&bytes[..end]).expect("whole characters, one after the other");
        Self { text: text.into(), ends: [ends[0], ends[1]], disposition, count }
    }

    /// The reason of the Events; at most 64 bytes, harmless, as are the other two.
    pub fn reason(&self) -> &str {
        &self.text[..usize::from(self.ends[0])]
    }

    /// The kind of what they regard.
    pub fn kind(&self) -> &str {
        &self.text[usize::from(self.ends[0])..usize::from(self.ends[1])]
    }

    /// The component that reported them.
    pub fn component(&self) -> &str {
        &self.text[usize::from(self.ends[1])..]
    }

    /// Whether the other counts the same combination.
    pub fn is_of(&self, other: &Self) -> bool {
        (&self.text, self.ends, self.disposition) == (&other.text, other.ends, other.disposition)
    }
}

impl fmt::Debug for Dropped {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Event text is a tenant's: it does not belong into a log, even by accident.
        write!(formatter, "Dropped({} bytes, {:?}, {})", self.text.len(), self.disposition, self.count)
    }
}

impl TopDropped {
    /// All that was dropped.
    pub fn sum(&self) -> u64 {
        self.entries.iter().fold(self.others, |sum, entry| sum.saturating_add(entry.count))
    }

    /// Adds what another scope of the same namespace dropped.
    pub fn add(&mut self, other: &Self) {
        for entry in &other.entries {
            match self.entries.iter_mut().find(|mine| mine.is_of(entry)) {
                Some(mine) => mine.count = mine.count.saturating_add(entry.count),
                None => self.entries.push(entry.clone()),
            }
        }
        self.others = self.others.saturating_add(other.others);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::super::key::Hasher;
    use super::super::testing::write;
    use super::*;

    #[test]
    fn a_character_that_is_not_seen_is_a_blank() {
        let unseen = "\u{115f}\u{1160}\u{3164}\u{ffa0}\u{34f}\u{17b4}\u{180b}\u{fe0f}\u{e0100}\u{1d173}\u{2800}\u{200b}\u{7}";
        assert_eq!(unseen.chars().map(harmless).collect::<String>().trim_matches(' '), "");
        assert_eq!("Ä-b_1 \u{1f600}".chars().map(harmless).collect::<String>(), "Ä-b_1 \u{1f600}");
    }

    /// Counts a drop for this reason.
    fn drop_of(sketch: &mut Sketch, reason: &str, occurrences: u64, full: bool) {
        let mut event = write().event;
        event.reason = reason.to_owned().into();
        let key = Hasher::new([1, 2]).dropped(&event, Disposition::Filtered);
        sketch.count(key, &event, Disposition::Filtered, occurrences, full);
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
        assert_eq!((sketch.len(), sketch.top().sum()), (MAX_PLACES, 10_500));
        assert_eq!(sketch.evicted(), 10_001 - MAX_PLACES as u64);
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
            sketch.come_down();
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
            full in any::<bool>(),
        ) {
            let mut sketch = Sketch::default();
            let mut truth: BTreeMap<String, u64> = BTreeMap::new();
            for (at, (number, occurrences, comes_down)) in drops.into_iter().enumerate() {
                let reason = format!("R{}", number * number % (spread * 10) + at as u32 % spread);
                drop_of(&mut sketch, &reason, occurrences, full);
                *truth.entry(reason).or_default() += occurrences;
                if full && comes_down {
                    sketch.come_down();
                }
            }
            let total: u64 = truth.values().sum();
            let counts = counts(&sketch);
            prop_assert_eq!(sketch.top().sum(), total);
            prop_assert!(sketch.len() <= MAX_PLACES);
            if truth.len() <= MAX_PLACES && !full {
                prop_assert_eq!(&counts, &truth);
            }
            if !full {
                prop_assert!(sketch.gone <= total / MAX_PLACES as u64);
            }
            for (reason, all) in &truth {
                let shown = counts.get(reason).copied().unwrap_or(0);
                prop_assert!(shown <= *all && *all - shown <= sketch.gone, "{reason}: {shown} of {all}");
            }
        }
    }
}
