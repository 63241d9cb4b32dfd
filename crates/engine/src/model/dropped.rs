//! Numbers of dropped occurrences by reason, kind, component and disposition.

use std::fmt;
use std::sync::Arc;

use crate::text::{sanitise, truncate};
use crate::{Disposition, EventView};

/// Maximum length of reason, kind and component, in bytes. Those of Kubernetes are much shorter.
pub(crate) const MAX_TEXT: usize = 64;

/// Dropped occurrences of one scope with the same reason, kind, component and disposition.
#[derive(Clone, PartialEq, Eq)]
pub struct Dropped {
    /// Reason, kind and component in one allocation, which copies share.
    text: Arc<str>,
    /// End offsets of the reason and of the kind.
    ends: [u8; 2],
    /// The limit that dropped them.
    pub disposition: Disposition,
    /// Number of occurrences since the scope started to track this combination.
    pub count: u64,
}

/// All dropped occurrences of a scope: the tracked combinations and the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopDropped {
    /// Tracked combinations, in no order.
    pub entries: Vec<Dropped>,
    /// Dropped occurrences that no entry counts.
    pub others: u64,
}

/// Returns the truncated reason, kind and component, which identify a combination together with the
/// disposition.
pub(crate) fn identity<'a>(event: &'a EventView<'_>) -> [&'a str; 3] {
    [&event.reason, &event.regarding.kind, event.reporter().0].map(|text| truncate(text, MAX_TEXT))
}

impl Dropped {
    /// Creates an entry. Truncates and sanitises each text.
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

    /// Returns the reason: at most 64 bytes, sanitised.
    pub fn reason(&self) -> &str {
        &self.text[..usize::from(self.ends[0])]
    }

    /// Returns the kind of the regarding object: at most 64 bytes, sanitised.
    pub fn kind(&self) -> &str {
        &self.text[usize::from(self.ends[0])..usize::from(self.ends[1])]
    }

    /// Returns the reporting component: at most 64 bytes, sanitised.
    pub fn component(&self) -> &str {
        &self.text[usize::from(self.ends[1])..]
    }

    /// Whether both entries count the same combination.
    pub fn is_of(&self, other: &Self) -> bool {
        (&self.text, self.ends, self.disposition) == (&other.text, other.ends, other.disposition)
    }
}

impl fmt::Debug for Dropped {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A tenant wrote the text. It must not reach a log.
        write!(formatter, "Dropped({} bytes, {:?}, {})", self.text.len(), self.disposition, self.count)
    }
}

impl TopDropped {
    /// Returns the number of all dropped occurrences.
    pub fn sum(&self) -> u64 {
        self.entries.iter().fold(self.others, |sum, entry| sum.saturating_add(entry.count))
    }

    /// Adds the dropped occurrences of another scope of the same namespace.
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
