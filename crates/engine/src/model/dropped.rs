//! Numbers of dropped occurrences by type, reason, kind, component and disposition.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

use crate::text::{sanitise, truncate};
use crate::{Disposition, EventView};

/// Maximum length of reason, kind, component and example object, in bytes. Those of Kubernetes are mostly shorter.
pub(crate) const MAX_TEXT: usize = 64;

/// Maximum length of the example message, in bytes.
const MAX_MESSAGE: usize = 128;

/// Maximum length of all texts of an entry.
const MAX_TEXTS: usize = 4 * MAX_TEXT + MAX_MESSAGE;

/// Dropped occurrences of one scope with the same type, reason, kind, component and disposition.
#[derive(Clone, PartialEq, Eq)]
pub struct Dropped {
    /// Reason, kind, component, example object and message in one allocation, which copies share.
    text: Arc<str>,
    /// End offsets of the first four.
    ends: [u16; 4],
    /// Whether they are Warnings.
    pub is_warning: bool,
    /// The limit that dropped them.
    pub disposition: Disposition,
    /// Number of occurrences since the scope started to track this combination.
    pub count: u64,
    /// Time of the first of these occurrences, as its client wrote it.
    pub first_at: Timestamp,
    /// Time of the last one.
    pub last_at: Timestamp,
}

/// All dropped occurrences of a scope: the tracked combinations and the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopDropped {
    /// Tracked combinations, in no order.
    pub entries: Vec<Dropped>,
    /// Dropped occurrences that no entry counts.
    pub others: u64,
}

/// Returns the truncated reason, kind and component, which identify a combination together with the type and the
/// disposition.
pub(crate) fn identity<'a>(event: &'a EventView<'_>) -> [&'a str; 3] {
    [&event.reason, &event.regarding.kind, event.reporter().0].map(|text| truncate(text, MAX_TEXT))
}

impl Dropped {
    /// Creates an entry without an example. Truncates and sanitises each text.
    pub fn new([reason, kind, component]: [&str; 3], disposition: Disposition, count: u64) -> Self {
        Self::with_texts([reason, kind, component, "", ""], disposition, count)
    }

    /// Creates the entry of a first dropped occurrence, which becomes its example.
    pub(crate) fn first(
        event: &EventView<'_>,
        disposition: Disposition,
        occurrences: u64,
        at: Timestamp,
    ) -> Self {
        let [reason, kind, component] = identity(event);
        let texts = [reason, kind, component, &event.regarding.name, &event.message];
        let entry = Self::with_texts(texts, disposition, occurrences);
        Self { is_warning: event.is_warning(), first_at: at, last_at: at, ..entry }
    }

    fn with_texts(texts: [&str; 5], disposition: Disposition, count: u64) -> Self {
        let (mut bytes, mut end, mut ends) = ([0; MAX_TEXTS], 0, [0; 5]);
        for (at, text) in texts.into_iter().enumerate() {
            let max = if at == 4 { MAX_MESSAGE } else { MAX_TEXT };
            for character in truncate(text, max).chars() {
                end += sanitise(character).encode_utf8(&mut bytes[end..]).len();
            }
            ends[at] = u16::try_from(end).expect("at most MAX_TEXTS bytes");
        }
        let text = str::from_utf8(&bytes[..end]).expect("whole characters, one after the other");
        let ends = [ends[0], ends[1], ends[2], ends[3]];
        let (first_at, last_at) = (Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH);
        Self { text: text.into(), ends, is_warning: false, disposition, count, first_at, last_at }
    }

    /// Adds occurrences, the last of them at this time.
    pub(crate) fn add(&mut self, occurrences: u64, at: Timestamp) {
        self.count = self.count.saturating_add(occurrences);
        self.last_at = self.last_at.max(at);
    }

    fn text(&self, at: usize) -> &str {
        let start = at.checked_sub(1).map_or(0, |before| usize::from(self.ends[before]));
        let end = self.ends.get(at).map_or(self.text.len(), |end| usize::from(*end));
        &self.text[start..end]
    }

    /// Returns the reason: at most 64 bytes, sanitised.
    pub fn reason(&self) -> &str {
        self.text(0)
    }

    /// Returns the kind of the regarding object: at most 64 bytes, sanitised.
    pub fn kind(&self) -> &str {
        self.text(1)
    }

    /// Returns the reporting component: at most 64 bytes, sanitised.
    pub fn component(&self) -> &str {
        self.text(2)
    }

    /// Returns the name of the object of the first occurrence: at most 64 bytes, sanitised.
    pub fn example_object(&self) -> &str {
        self.text(3)
    }

    /// Returns the message of the first occurrence: at most 128 bytes, sanitised.
    pub fn example_message(&self) -> &str {
        self.text(4)
    }

    /// Whether both entries count the same combination, of any type.
    pub fn is_of(&self, other: &Self) -> bool {
        let identity = |it: &Self| (it.ends[0], it.ends[1], it.ends[2], it.disposition);
        identity(self) == identity(other)
            && self.text[..usize::from(self.ends[2])] == other.text[..usize::from(other.ends[2])]
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

    /// Adds the dropped occurrences of another scope of the same namespace. Entries of both types become one.
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
