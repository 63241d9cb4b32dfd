//! `spec.normalize`: masks replace the variable parts of a message, so that messages that differ only there are equal.
//! docs/normalize.md defines the masks.

mod bytes;
mod scan;

use crate::EventView;

use scan::Scan;

/// Masks begin in this number of bytes of a message. The rest is compared as it is.
const MAX_MASKED: usize = 1024;

/// A kind of variable part. In the order in which they are tried at each word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mask {
    /// The name of the regarding object, with generated suffixes.
    ObjectNames,
    /// UUIDs.
    Uuids,
    /// IP addresses with or without a port.
    Ips,
    /// Durations as Go writes them.
    Durations,
    /// Quantities of Kubernetes.
    Quantities,
    /// Hexadecimal hashes and generated names.
    Hashes,
    /// Decimal numbers.
    Numbers,
}

impl Mask {
    const fn bit(self) -> u8 {
        1 << self as u8
    }

    /// All masks, in the order in which they are tried.
    pub const ALL: [Self; 7] = [
        Self::ObjectNames,
        Self::Uuids,
        Self::Ips,
        Self::Durations,
        Self::Quantities,
        Self::Hashes,
        Self::Numbers,
    ];

    /// Returns the placeholder in documents.
    pub fn placeholder(self) -> &'static str {
        match self {
            Self::ObjectNames => "<name>",
            Self::Uuids => "<uuid>",
            Self::Ips => "<ip>",
            Self::Durations => "<duration>",
            Self::Quantities => "<quantity>",
            Self::Hashes => "<hash>",
            Self::Numbers => "<number>",
        }
    }
}

/// A set of masks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Masks(u8);

impl FromIterator<Mask> for Masks {
    fn from_iter<T: IntoIterator<Item = Mask>>(masks: T) -> Self {
        Self(masks.into_iter().fold(0, |set, mask| set | mask.bit()))
    }
}

/// A part of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessagePart<'m> {
    /// Text as it is.
    Text(&'m str),
    /// A part that a mask replaces.
    Masked(Mask),
}

impl Masks {
    /// Whether it has no mask.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn bits(self) -> u8 {
        self.0
    }

    pub(crate) fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// Whether it has this mask.
    pub fn contains(self, mask: Mask) -> bool {
        self.0 & mask.bit() != 0
    }

    /// In the order in which they are tried.
    fn iter(self) -> impl Iterator<Item = Mask> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let first = Mask::ALL.get(rest.trailing_zeros() as usize)?;
            rest &= rest - 1;
            Some(*first)
        })
    }

    /// Calls `each` with the parts of the Event's message, in order.
    pub fn split<'m>(self, event: &'m EventView<'_>, mut each: impl FnMut(MessagePart<'m>)) {
        let message = &*event.message;
        let mut scan = Scan::new(self, message.as_bytes(), event.regarding.name.as_bytes());
        let limit = message.len().min(MAX_MASKED);
        let (mut from, mut at) = (0, scan.next_candidate(0));
        while at < limit {
            let word = scan.word(at);
            let found = if word.length > 0 { scan.find(at, &word) } else { scan.find_at_separator(at) };
            let Some((mask, end)) = found else {
                at = scan.next_candidate(at + word.length.max(1));
                continue;
            };
            if from < at {
                each(MessagePart::Text(&message[from..at]));
            }
            each(MessagePart::Masked(mask));
            (from, at) = (end, scan.next_candidate(end));
        }
        if from < message.len() {
            each(MessagePart::Text(&message[from..]));
        }
    }

    /// Whether the messages of both Events differ only in parts that are masked.
    pub(crate) fn are_equal(self, one: &EventView<'_>, other: &EventView<'_>) -> bool {
        let (mut parts, mut at, mut equal) = (Vec::new(), 0, true);
        self.split(one, |part| parts.push(part));
        self.split(other, |part| {
            equal &= parts.get(at) == Some(&part);
            at += 1;
        });
        equal && at == parts.len()
    }

    /// Returns the Event's message with placeholders.
    pub fn shown(self, event: &EventView<'_>) -> String {
        let mut shown = String::with_capacity(event.message.len());
        self.split(event, |part| {
            shown.push_str(match part {
                MessagePart::Text(text) => text,
                MessagePart::Masked(mask) => mask.placeholder(),
            });
        });
        shown
    }
}

#[cfg(test)]
mod tests;
