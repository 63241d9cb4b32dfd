//! Counts of what was dropped, by reason, kind, component and disposition.

use std::fmt;
use std::sync::Arc;

use crate::text::{sanitise, truncate};
use crate::{Disposition, EventView};

/// Reason, kind and component are cut to so many bytes each, far more than what those of Kubernetes have.
pub(crate) const MAX_TEXT: usize = 64;

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

/// What makes a combination, beside the disposition: reason, kind and component, cut.
pub(crate) fn identity<'a>(event: &'a EventView<'_>) -> [&'a str; 3] {
    [&event.reason, &event.regarding.kind, event.reporter().0].map(|text| truncate(text, MAX_TEXT))
}

impl Dropped {
    /// `count` occurrences of this reason, kind and component. Each text is cut, and made harmless.
    pub fn new(texts: [&str; 3], disposition: Disposition, count: u64) -> Self {
        let (mut bytes, mut end, mut ends) = ([0; 3 * MAX_TEXT], 0, [0; 3]);
        for (text, its_end) in texts.into_iter().zip(&mut ends) {
            for character in truncate(text, MAX_TEXT).chars() {
                end += sanitise(character).encode_utf8(&mut bytes[end..]).len();
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
