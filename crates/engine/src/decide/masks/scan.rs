//! Finds the parts of a message that masks replace.
//!
//! The cost is linear: each attempt reads a bounded number of bytes besides the word at which it begins, and a word
//! without a match is skipped as a whole. Most text is not even split into words: a mask matches only near a digit, a `:`
//! or the object's name.

use std::net::Ipv6Addr;

use memchr::memchr_iter;

use super::bytes::{
    CLASSES, DIGIT, DURATION, GENERATED, HEX, LOWER_HEX, QUANTITY, UPPER_HEX, WORD, is, is_word, leading,
};
use super::{MAX_MASKED, Mask, Masks};

/// Maximum length of a duration or quantity, in bytes. Go's longest duration has 25.
const MAX_AMOUNT: usize = 40;

/// Length of a UUID, in bytes. No other part without a name begins farther before the word of its first digit or `:`.
const UUID: usize = 36;

/// Maximum length of an IPv6 address as text, in bytes.
const MAX_IPV6: usize = 45;

/// Minimum length of an object's name that is masked. Shorter ones are too likely to be words.
const MIN_NAME: usize = 3;

/// Maximum length of an object's name that is masked: that of a DNS subdomain.
const MAX_NAME: usize = 253;

/// A scan of one message.
pub(super) struct Scan<'m> {
    masks: Masks,
    bytes: &'m [u8],
    /// Name of the regarding object; empty if it is not masked.
    name: &'m [u8],
    /// Position of the first digit or `:` in the name.
    digit_of_name: Option<usize>,
    /// Position of the next name that begins a word; behind the end if there is none. A name with a digit or `:` is known
    /// only once that is at `next_digit`.
    next_name: usize,
    /// Position of the next digit or `:`; behind the end if there is none.
    next_digit: usize,
    /// The first position at which a part with that digit can begin.
    near_digit: usize,
    /// End of the last masked hash; 0 if there is none.
    last_hash: usize,
}

/// A word, or an empty one at a separator.
pub(super) struct Word {
    pub(super) length: usize,
    /// The classes that all its bytes have.
    all: u8,
    /// The classes that any of its bytes has.
    any: u8,
}

impl Word {
    fn is_all(&self, class: u8) -> bool {
        self.all & class != 0
    }

    fn has_digit(&self) -> bool {
        self.any & DIGIT != 0
    }
}

/// Whether a part can have this byte before the word of its first digit or `:`.
fn may_precede_digit(byte: u8) -> bool {
    is(byte, HEX) || matches!(byte, b'-' | b'[')
}

/// Returns the position of the first digit or `:`.
fn digit_or_colon(bytes: &[u8]) -> Option<usize> {
    let is_either = |byte: &u8| byte.wrapping_sub(b'0') <= b':' - b'0';
    // Without a branch for each byte, and of a known length, whole blocks are compared at once.
    let (blocks, _) = bytes.as_chunks::<32>();
    let has_one = |block: &[u8; 32]| block.iter().fold(0, |any, byte| any | u8::from(is_either(byte))) != 0;
    let at = 32 * blocks.iter().position(has_one).unwrap_or(blocks.len());
    bytes[at..].iter().position(is_either).map(|found| at + found)
}

impl<'m> Scan<'m> {
    pub(super) fn new(masks: Masks, bytes: &'m [u8], name: &'m [u8]) -> Self {
        let is_masked = masks.contains(Mask::ObjectNames) && (MIN_NAME..=MAX_NAME).contains(&name.len());
        let name = if is_masked { name } else { &[] };
        let digit_of_name = digit_or_colon(name);
        let mut scan = Self {
            masks,
            bytes,
            name,
            digit_of_name,
            next_name: 0,
            next_digit: 0,
            near_digit: 0,
            last_hash: 0,
        };
        scan.find_name(0);
        scan.find_digit(0);
        scan
    }

    /// Returns the first position from here on, the begin or end of a word, at which a mask may match. It is behind the
    /// end if there is none.
    pub(super) fn next_candidate(&mut self, at: usize) -> usize {
        if self.next_name < at {
            self.find_name(at);
        }
        if self.next_digit < at {
            self.find_digit(at);
        }
        // A part of a generated name that follows a hash needs no digit.
        let follows_hash = self.last_hash > 0 && at <= self.last_hash + 1;
        if follows_hash { at } else { self.near_digit.max(at).min(self.next_name) }
    }

    /// Finds the next name without a digit or `:`. `find_digit` finds the others.
    fn find_name(&mut self, at: usize) {
        self.next_name = usize::MAX;
        let (Some(first), None) = (self.name.first(), self.digit_of_name) else { return };
        let bytes = &self.bytes[..self.bytes.len().min(MAX_MASKED + MAX_NAME)];
        let begins = bytes.get(at..).into_iter().flat_map(|rest| memchr_iter(*first, rest));
        self.next_name =
            begins.map(|found| at + found).find(|begin| self.is_name(*begin)).unwrap_or(usize::MAX);
    }

    /// Whether the name begins here, and a word with it.
    fn is_name(&self, at: usize) -> bool {
        !self.is_in_word(at) && self.bytes[at..].starts_with(self.name)
    }

    fn find_digit(&mut self, at: usize) {
        (self.next_digit, self.near_digit) = (usize::MAX, usize::MAX);
        let Some(found) = digit_or_colon(&self.bytes[at..]) else { return };
        let digit = at + found;
        let before = |end: usize, belongs: fn(u8) -> bool| {
            let first = self.bytes[at..end].iter().rposition(|byte| !belongs(*byte));
            first.map_or(at, |last| at + last + 1)
        };
        let word = before(digit, is_word);
        // A UUID whose first groups have no digit, or the `[` of an address, begins before that word.
        let near = before(word, may_precede_digit).max(digit.saturating_sub(UUID));
        let near = (near..word).find(|near| !self.is_in_word(*near)).unwrap_or(word);
        (self.next_digit, self.near_digit) = (digit, near);
        let name = self.digit_of_name.and_then(|offset| digit.checked_sub(offset));
        if let Some(begin) = name.filter(|begin| *begin >= at && self.is_name(*begin)) {
            self.next_name = begin;
        }
    }

    /// Whether the byte continues a word.
    fn is_in_word(&self, at: usize) -> bool {
        at > 0 && is_word(self.bytes[at - 1]) && is_word(self.bytes[at])
    }

    /// Returns the word that begins here.
    pub(super) fn word(&self, at: usize) -> Word {
        let mut word = Word { length: 0, all: u8::MAX, any: 0 };
        for byte in &self.bytes[at..] {
            let classes = CLASSES[usize::from(*byte)];
            if classes & WORD == 0 {
                break;
            }
            word.length += 1;
            word.all &= classes;
            word.any |= classes;
        }
        word
    }

    /// Returns the mask that matches at a separator, and its end.
    pub(super) fn find_at_separator(&self, at: usize) -> Option<(Mask, usize)> {
        let end = match self.bytes[at] {
            _ if !self.masks.contains(Mask::Ips) => None,
            b'[' => self.ipv6_in_brackets(at),
            b':' => self.ipv6(at),
            _ => None,
        };
        Some((Mask::Ips, end?))
    }

    /// Returns the first mask that matches at a word, and its end.
    pub(super) fn find(&mut self, at: usize, word: &Word) -> Option<(Mask, usize)> {
        let may_be_name = at == self.next_name;
        // Most words have no digit, and are of no kind.
        if !word.has_digit() && !may_be_name && !word.is_all(HEX | GENERATED) {
            return None;
        }
        let possible = self.possible(at, word, may_be_name);
        let found = possible.iter().find_map(|mask| Some((mask, self.end_of(mask, at, word)?)));
        if let Some((Mask::Hashes, end)) = found {
            self.last_hash = end;
        }
        found
    }

    /// Returns the end of a part that this mask replaces at a word. Inlined into `find`, it would compute for each word what
    /// any mask needs: 8 % more instructions for all masks.
    #[inline(never)]
    fn end_of(&self, mask: Mask, at: usize, word: &Word) -> Option<usize> {
        let end_of_word = at + word.length;
        match mask {
            Mask::ObjectNames => self.object_name(at),
            Mask::Uuids => self.uuid(at),
            Mask::Ips if self.bytes.get(end_of_word) == Some(&b'.') => self.ipv4(at),
            Mask::Ips => self.ipv6(at),
            Mask::Durations => self.amounts(at, duration_unit, true),
            Mask::Quantities => self.amounts(at, quantity_suffix, false),
            Mask::Hashes => self.is_hash(at, word).then_some(end_of_word),
            Mask::Numbers => self.number(at),
        }
    }

    /// Returns the masks that may match at a word, by its length and classes.
    fn possible(&self, at: usize, word: &Word, may_be_name: bool) -> Masks {
        let one = |mask: Mask, may_match: bool| if may_match { mask.bit() } else { 0 };
        let next = self.bytes.get(at + word.length);
        let is_ipv4 = word.length <= 3 && word.is_all(DIGIT) && next == Some(&b'.');
        let is_ipv6 = word.length <= 4 && word.is_all(HEX) && next == Some(&b':');
        let begins_with_digit = is(self.bytes[at], DIGIT);
        let possible = one(Mask::ObjectNames, may_be_name)
            | one(Mask::Uuids, word.length == 8 && word.is_all(HEX))
            | one(Mask::Ips, is_ipv4 || is_ipv6)
            | one(Mask::Durations, begins_with_digit && word.is_all(DURATION))
            | one(Mask::Quantities, begins_with_digit && word.is_all(QUANTITY))
            | one(Mask::Hashes, word.length >= 5 && word.is_all(LOWER_HEX | UPPER_HEX | GENERATED))
            | one(Mask::Numbers, word.is_all(DIGIT));
        Masks(possible & self.masks.0)
    }

    /// Returns `end` if no word continues there.
    fn ending(&self, end: usize) -> Option<usize> {
        (!self.bytes.get(end).is_some_and(|byte| is_word(*byte))).then_some(end)
    }

    /// The object's name, and up to two generated suffixes: `web`, `web-7d4b9c6f5d`, `web-7d4b9c6f5d-x2x4q`.
    fn object_name(&self, at: usize) -> Option<usize> {
        let mut end = at + self.name.len();
        for _ in 0..2 {
            let suffix = self.bytes.get(end).filter(|byte| **byte == b'-').map(|_| &self.bytes[end + 1..]);
            let length = suffix.map_or(0, |suffix| {
                let length = leading(suffix, is_word);
                let suffix = &suffix[..length];
                let is_number = length <= 10 && suffix.iter().all(u8::is_ascii_digit);
                let is_random =
                    matches!(length, 5 | 8..=10) && suffix.iter().all(|byte| is(*byte, GENERATED));
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
        let text: &[u8; UUID] = self.bytes.get(at..)?.first_chunk()?;
        [8, 13, 18, 23].into_iter().all(|dash| text[dash] == b'-').then_some(())?;
        let digits =
            [&text[..8], &text[9..13], &text[14..18], &text[19..23], &text[24..]].into_iter().flatten();
        let (all, any) = digits.fold((u8::MAX, 0), |(all, any), byte| {
            (all & CLASSES[usize::from(*byte)], any | CLASSES[usize::from(*byte)])
        });
        (all & HEX != 0 && any & DIGIT != 0).then_some(())?;
        self.ending(at + UUID)
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
        (next != Some(&b'<')).then_some(())?;
        let is_before_space = next.is_none_or(u8::is_ascii_whitespace);
        let trimmed = run.strip_suffix(b":").or_else(|| run.strip_suffix(b".")).filter(|_| is_before_space);
        let is_address = |text: &[u8]| {
            let may_be = (3..=MAX_IPV6).contains(&text.len())
                && text.iter().filter(|byte| **byte == b':').count() >= 2;
            may_be && str::from_utf8(text).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok())
        };
        let address = [Some(run), trimmed].into_iter().flatten().find(|text| is_address(text))?;
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

    /// Whether the word is a hexadecimal hash, or a part of a generated name.
    fn is_hash(&self, at: usize, word: &Word) -> bool {
        let is_mixed = word.has_digit() && !word.is_all(DIGIT);
        let is_hexadecimal = word.length >= 7 && is_mixed && word.is_all(LOWER_HEX | UPPER_HEX);
        let is_template = (8..=10).contains(&word.length) && is_mixed && word.is_all(GENERATED);
        let follows_hash = self.last_hash > 0 && self.last_hash + 1 == at;
        let is_suffix = word.length == 5
            && word.is_all(GENERATED)
            && self.bytes[..at].ends_with(b"-")
            && (is_mixed || follows_hash);
        is_hexadecimal || is_template || is_suffix
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
