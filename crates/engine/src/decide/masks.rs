//! `spec.normalize`: masks replace the variable parts of a message, so that messages that differ only there are equal.
//!
//! docs/normalize.md defines the masks. The cost is linear: each attempt reads a bounded number of bytes besides the word
//! at which it begins, and a word without a match is skipped as a whole.

use std::net::Ipv6Addr;

use crate::EventView;

/// Masks begin in this number of bytes of a message. The rest is compared as it is.
const MAX_MASKED: usize = 1024;

/// Maximum length of a duration or quantity, in bytes. Go's longest duration has 25.
const MAX_AMOUNT: usize = 40;

/// Maximum length of an IPv6 address as text, in bytes.
const MAX_IPV6: usize = 45;

/// Minimum length of an object's name that is masked. Shorter ones are too likely to be words.
const MIN_NAME: usize = 3;

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
        Self(masks.into_iter().fold(0, |set, mask| set | 1 << mask as u8))
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

    /// Whether it has this mask.
    pub fn contains(self, mask: Mask) -> bool {
        self.0 & 1 << mask as u8 != 0
    }

    /// Calls `each` with the parts of the Event's message, in order.
    pub fn split<'m>(self, event: &'m EventView<'_>, mut each: impl FnMut(MessagePart<'m>)) {
        let message = &*event.message;
        let mut scan = Scan {
            masks: self,
            bytes: message.as_bytes(),
            name: event.regarding.name.as_bytes(),
            last_hash: 0,
        };
        let (mut from, mut at) = (0, 0);
        while at < message.len().min(MAX_MASKED) {
            let Some((mask, end)) = scan.find(at) else {
                at = scan.skip(at);
                continue;
            };
            if from < at {
                each(MessagePart::Text(&message[from..at]));
            }
            each(MessagePart::Masked(mask));
            (from, at) = (end, end);
        }
        if from < message.len() {
            each(MessagePart::Text(&message[from..]));
        }
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

/// A scan of one message.
struct Scan<'m> {
    masks: Masks,
    bytes: &'m [u8],
    /// Name of the regarding object.
    name: &'m [u8],
    /// End of the last masked hash; 0 if there is none.
    last_hash: usize,
}

/// Whether the byte belongs to a word. So do all bytes of characters other than ASCII.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

/// Whether Kubernetes uses the byte in generated names (apimachinery, util/rand).
fn is_generated(byte: u8) -> bool {
    b"bcdfghjklmnpqrstvwxz2456789".contains(&byte)
}

fn leading(bytes: &[u8], is: impl Fn(u8) -> bool) -> usize {
    bytes.iter().position(|byte| !is(*byte)).unwrap_or(bytes.len())
}

impl Scan<'_> {
    /// Returns the mask that matches at a word or separator, and its end.
    fn find(&mut self, at: usize) -> Option<(Mask, usize)> {
        let first = self.bytes[at];
        if !is_word(first) {
            let end = match first {
                _ if !self.masks.contains(Mask::Ips) => None,
                b'[' => self.ipv6_in_brackets(at),
                b':' => self.ipv6(at),
                _ => None,
            };
            return Some((Mask::Ips, end?));
        }
        let found = Mask::ALL.into_iter().filter(|mask| self.masks.contains(*mask)).find_map(|mask| {
            let end = match mask {
                Mask::ObjectNames => self.object_name(at),
                Mask::Uuids => self.uuid(at),
                Mask::Ips => self.ipv4(at).or_else(|| self.ipv6(at)),
                Mask::Durations => self.amounts(at, duration_unit, true),
                Mask::Quantities => self.amounts(at, quantity_suffix, false),
                Mask::Hashes => self.hash(at),
                Mask::Numbers => self.number(at),
            };
            Some((mask, end?))
        });
        if let Some((Mask::Hashes, end)) = found {
            self.last_hash = end;
        }
        found
    }

    /// Returns the next position at which a mask can begin.
    fn skip(&self, at: usize) -> usize {
        at + leading(&self.bytes[at..], is_word).max(1)
    }

    fn follows(&self, at: usize, is: impl Fn(u8) -> bool) -> bool {
        at > 0 && is(self.bytes[at - 1])
    }

    /// Returns `end` if no word continues there.
    fn ending(&self, end: usize) -> Option<usize> {
        (!self.bytes.get(end).is_some_and(|byte| is_word(*byte))).then_some(end)
    }

    /// The object's name, and up to two generated suffixes: `web`, `web-7d4b9c6f5d`, `web-7d4b9c6f5d-x2x4q`.
    fn object_name(&self, at: usize) -> Option<usize> {
        if self.name.len() < MIN_NAME || !self.bytes[at..].starts_with(self.name) {
            return None;
        }
        let mut end = at + self.name.len();
        for _ in 0..2 {
            let suffix = self.bytes.get(end).filter(|byte| **byte == b'-').map(|_| &self.bytes[end + 1..]);
            let length = suffix.map_or(0, |suffix| {
                let length = leading(suffix, is_word);
                let suffix = &suffix[..length];
                let is_number = length <= 10 && suffix.iter().all(u8::is_ascii_digit);
                let is_random = matches!(length, 5 | 8..=10) && suffix.iter().copied().all(is_generated);
                if is_number || is_random { length } else { 0 }
            });
            if length == 0 {
                break;
            }
            end += 1 + length;
        }
        self.ending(end)
    }

    fn uuid(&self, at: usize) -> Option<usize> {
        const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];
        let mut end = at;
        for (number, length) in GROUPS.into_iter().enumerate() {
            if number > 0 {
                (self.bytes.get(end) == Some(&b'-')).then_some(())?;
                end += 1;
            }
            let group = self.bytes.get(end..end + length)?;
            group.iter().all(u8::is_ascii_hexdigit).then_some(())?;
            end += length;
        }
        self.ending(end)
    }

    fn ipv4(&self, at: usize) -> Option<usize> {
        let mut end = at;
        for number in 0..4 {
            if number > 0 {
                (self.bytes.get(end) == Some(&b'.')).then_some(())?;
                end += 1;
            }
            end += self.octet(end)?;
        }
        let end = self.ending(end)?;
        Some(self.port(end).unwrap_or(end))
    }

    /// Returns the length of a number up to 255 without leading zeros.
    fn octet(&self, at: usize) -> Option<usize> {
        let digits = self.bytes.get(at..self.bytes.len().min(at + 3))?;
        let length = leading(digits, |byte| byte.is_ascii_digit());
        let value = digits[..length].iter().fold(0, |value, digit| 10 * value + u32::from(digit - b'0'));
        (length > 0 && value <= 255 && (length == 1 || digits[0] != b'0')).then_some(length)
    }

    /// The longest run of hexadecimal digits, `:` and `.`, or the same without a `:` or `.` before a space. Before
    /// `<` there is none: a message with placeholders must not change when it is masked again.
    fn ipv6(&self, at: usize) -> Option<usize> {
        let run = &self.bytes[at..self.bytes.len().min(at + MAX_IPV6 + 2)];
        let run = &run[..leading(run, |byte| byte.is_ascii_hexdigit() || byte == b':' || byte == b'.')];
        let next = self.bytes.get(at + run.len());
        let (address, trimmed) = match run.split_last() {
            Some((b':' | b'.', rest)) if next.is_none_or(u8::is_ascii_whitespace) => (run, Some(rest)),
            _ if next == Some(&b'<') => return None,
            _ => (run, None),
        };
        let is_address = |text: &[u8]| {
            let may_be = (3..=MAX_IPV6).contains(&text.len())
                && text.iter().filter(|byte| **byte == b':').count() >= 2;
            may_be && str::from_utf8(text).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok())
        };
        let address = [Some(address), trimmed].into_iter().flatten().find(|text| is_address(text))?;
        self.ending(at + address.len())
    }

    /// `[fd00::7]`, with or without a port.
    fn ipv6_in_brackets(&self, at: usize) -> Option<usize> {
        let end = self.ipv6(at + 1).filter(|end| self.bytes.get(*end) == Some(&b']'))? + 1;
        self.port(end).or_else(|| self.ending(end))
    }

    /// Returns the end of a port that follows an address.
    fn port(&self, at: usize) -> Option<usize> {
        (self.bytes.get(at) == Some(&b':')).then_some(())?;
        let digits = leading(&self.bytes[at + 1..], |byte| byte.is_ascii_digit());
        (1..=5).contains(&digits).then_some(())?;
        self.ending(at + 1 + digits)
    }

    /// One number with a unit, or several without a space: `1.5s`, `1h30m`.
    fn amounts(&self, at: usize, unit: impl Fn(&[u8]) -> usize, several: bool) -> Option<usize> {
        let mut end = at;
        loop {
            let number = self.decimal(end).or_else(|| self.digits(end))?;
            let unit = unit(&self.bytes[number..]);
            (unit > 0 && number + unit - at <= MAX_AMOUNT).then_some(())?;
            end = number + unit;
            if !several || !self.bytes.get(end).is_some_and(u8::is_ascii_digit) {
                return self.ending(end);
            }
        }
    }

    /// Returns the end of the digits.
    fn digits(&self, at: usize) -> Option<usize> {
        let digits = self.bytes.get(at..self.bytes.len().min(at + MAX_AMOUNT))?;
        let length = leading(digits, |byte| byte.is_ascii_digit());
        (1..MAX_AMOUNT).contains(&length).then_some(at + length)
    }

    /// Returns the end of the digits with a fraction.
    fn decimal(&self, at: usize) -> Option<usize> {
        let point = self.digits(at).filter(|end| self.bytes.get(*end) == Some(&b'.'))?;
        self.digits(point + 1)
    }

    fn number(&self, at: usize) -> Option<usize> {
        let decimal = self.decimal(at).and_then(|end| self.ending(end));
        decimal.or_else(|| self.ending(self.digits(at)?))
    }

    /// A hexadecimal hash, or a part of a generated name.
    fn hash(&self, at: usize) -> Option<usize> {
        let word = &self.bytes[at..at + leading(&self.bytes[at..], is_word)];
        let (digits, mixed) = {
            let digits = word.iter().filter(|byte| byte.is_ascii_digit()).count();
            (digits, digits > 0 && digits < word.len())
        };
        let hexadecimal = |is: fn(&u8) -> bool| word.iter().all(|byte| byte.is_ascii_hexdigit() && is(byte));
        let is_hexadecimal = word.len() >= 7
            && mixed
            && (hexadecimal(|byte| !byte.is_ascii_uppercase())
                || hexadecimal(|byte| !byte.is_ascii_lowercase()));
        let generated = word.iter().copied().all(is_generated);
        let is_template = (8..=10).contains(&word.len()) && mixed && generated;
        let follows_hash = self.last_hash > 0 && self.last_hash + 1 == at;
        let is_suffix = word.len() == 5
            && generated
            && self.follows(at, |byte| byte == b'-')
            && (mixed || follows_hash && digits < word.len());
        (is_hexadecimal || is_template || is_suffix).then_some(at + word.len())
    }
}

/// Returns the length of a unit of Go's durations, or of days.
fn duration_unit(bytes: &[u8]) -> usize {
    const UNITS: [&str; 9] = ["ns", "us", "µs", "μs", "ms", "s", "m", "h", "d"];
    let unit = UNITS.into_iter().find(|unit| bytes.starts_with(unit.as_bytes()));
    unit.map_or(0, str::len)
}

/// Returns the length of a suffix of a quantity, with or without the `B` of bytes.
fn quantity_suffix(bytes: &[u8]) -> usize {
    const SUFFIXES: [&str; 15] =
        ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "n", "u", "m", "k", "M", "G", "T", "P", "E"];
    let suffix = SUFFIXES.into_iter().find(|suffix| bytes.starts_with(suffix.as_bytes()));
    let Some(suffix) = suffix.map(str::len) else { return 0 };
    let may_be_bytes = !matches!(bytes[0], b'n' | b'u' | b'm');
    suffix + usize::from(may_be_bytes && bytes.get(suffix) == Some(&b'B'))
}

#[cfg(test)]
mod tests;
