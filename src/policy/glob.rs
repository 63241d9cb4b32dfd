//! Globs: `*` matches any text, `?` any one character, and any other character itself.
//!
//! Tenants write both the glob and the text, so the cost of a match is bounded. A text is truncated to [`MAX_BYTES`]. The
//! parts before the first and after the last wildcard are compared as strings. The part between them is matched without
//! backtracking: a set of positions in the text, one bit each, advances with each byte of the glob. Each byte costs the
//! same few instructions for every text. [`Glob::weight`] measures the cost.
//!
//! A compiled glob consists of its text and two pairs of numbers. An automaton for a whole list of globs (crates `regex`,
//! `globset`) has no such bound: each byte of a hostile text leads to a new state of the lazy DFA. In a measurement, 32
//! globs of 128 characters took 7 to 9 ms for one text of 256 bytes. A complete DFA is exponential in the number of
//! wildcards.

mod condition;

use std::fmt;

use wide::u8x16;

use crate::api;

/// Maximum number of bytes of a text that a glob with wildcards reads; the text is truncated at a character boundary. The
/// API server limits names and reasons to fewer bytes, and does not limit some fields of core/v1 Events.
pub(super) const MAX_BYTES: usize = 256;

/// Bits per word of a set of positions.
const WORD: usize = 64;

const WORDS: usize = MAX_BYTES / WORD;

/// Padding after the text, a byte that does not occur in UTF-8.
const PADDING: u8 = 0xff;

/// A compiled glob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Glob {
    /// `*`.
    Any,
    /// A text without wildcards.
    Literal(Box<str>),
    /// A text with one `*` at its end, the most frequent pattern.
    Prefix(Box<str>),
    /// Any other text with wildcards.
    Pattern(Pattern),
}

/// A glob in three parts: a prefix without wildcards, the part from the first to the last wildcard, and a suffix without
/// wildcards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    text: Box<str>,
    /// Start of the first wildcard and end of the last one, in bytes of `text`.
    wild: (u16, u16),
    /// Minimum and maximum number of bytes of a matching text.
    lengths: (u16, u16),
}

impl Glob {
    /// Compiles a glob that [`api::check_glob`] has checked.
    pub(super) fn compile(text: &str) -> Self {
        let wild = |character| matches!(character, '*' | '?');
        let (Some(first), Some(last)) = (text.find(wild), text.rfind(wild)) else {
            return Self::Literal(text.into());
        };
        if text.bytes().all(|byte| byte == b'*') {
            Self::Any
        } else if text.find('*') == Some(text.len() - 1) && first == last {
            Self::Prefix(text[..first].into())
        } else {
            let count = |wanted| text.bytes().filter(|byte| *byte == wanted).count();
            let (any, single) = (count(b'*'), count(b'?'));
            let shortest = text.len() - any;
            // A character matched by `?` has up to 4 bytes.
            let longest = if any > 0 { MAX_BYTES } else { shortest + 3 * single };
            let small = |number: usize| u16::try_from(number).expect("it has at most 128 characters");
            Self::Pattern(Pattern {
                text: text.into(),
                wild: (small(first), small(last + 1)),
                lengths: (small(shortest), small(longest)),
            })
        }
    }

    /// Whether the glob matches `text`. A glob with wildcards matches its first [`MAX_BYTES`].
    pub(super) fn matches(&self, text: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Literal(literal) => **literal == *text,
            Self::Prefix(prefix) => cut(text).starts_with(&**prefix),
            Self::Pattern(pattern) => pattern.matches(cut(text)),
        }
    }

    /// Whether this glob is known to match every text that `other` matches. It can return false although it does.
    pub(super) fn includes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, _) => true,
            (_, Self::Literal(text)) => self.matches(text),
            (Self::Prefix(prefix), Self::Prefix(text)) => text.starts_with(&**prefix),
            (Self::Prefix(prefix), Self::Pattern(pattern)) => {
                pattern.text[..pattern.wild.0.into()].starts_with(&**prefix)
            }
            _ => self == other,
        }
    }

    /// Maximum cost of one match. With two or more wildcards it is [`api::MULTI_WILDCARD_WEIGHT`] plus 1 for each character
    /// from the first wildcard to the last, otherwise 1 plus 1 for each [`api::CHARACTERS_PER_WEIGHT`] characters. A unit
    /// takes less than 10 ns.
    pub(super) fn weight(&self) -> usize {
        let compared = match self {
            Self::Any => 0,
            Self::Literal(text) | Self::Prefix(text) => text.chars().count(),
            Self::Pattern(pattern) if pattern.middle().len() > 1 => {
                return api::MULTI_WILDCARD_WEIGHT + pattern.middle().len();
            }
            Self::Pattern(pattern) => pattern.text.len(),
        };
        1 + compared / api::CHARACTERS_PER_WEIGHT
    }
}

/// The glob as in the spec. Several `*` of a glob without other characters are one.
impl fmt::Display for Glob {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => formatter.write_str("*"),
            Self::Literal(text) => formatter.write_str(text),
            Self::Prefix(text) => write!(formatter, "{text}*"),
            Self::Pattern(pattern) => formatter.write_str(&pattern.text),
        }
    }
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_BYTES)]
}

impl Pattern {
    fn matches(&self, text: &str) -> bool {
        let (shortest, longest) = self.lengths;
        let (first, end) = (usize::from(self.wild.0), usize::from(self.wild.1));
        let (prefix, suffix) = (&self.text[..first], &self.text[end..]);
        if !(shortest.into()..=longest.into()).contains(&text.len())
            || !text.starts_with(prefix)
            || !text.ends_with(suffix)
        {
            return false;
        }
        // They do not overlap: the minimum length includes both.
        let between = &text[first..text.len() - suffix.len()];
        match self.middle() {
            "*" => true,
            "?" => between.chars().nth(1).is_none(),
            middle => Positions::of(between).end_at(middle),
        }
    }

    fn middle(&self) -> &str {
        &self.text[self.wild.0.into()..self.wild.1.into()]
    }
}

/// The positions in a text at which the processed part of a glob can end.
struct Positions {
    text: [[u8; WORD]; WORDS],
    length: usize,
    /// Number of words used by the text.
    words: usize,
    /// Bit `i` is the position before byte `i`. The last word is for the end of a text of [`MAX_BYTES`].
    reached: [u64; WORDS + 1],
    /// The first and the other bytes of characters.
    characters: [Characters; WORDS],
}

#[derive(Clone, Copy, Default)]
struct Characters {
    first: u64,
    other: u64,
}

impl Positions {
    /// The set with the start of a text of at most [`MAX_BYTES`].
    fn of(text: &str) -> Self {
        let mut padded = [[PADDING; WORD]; WORDS];
        padded.as_flattened_mut()[..text.len()].copy_from_slice(text.as_bytes());
        let words = text.len().div_ceil(WORD);
        let mut reached = [0; WORDS + 1];
        reached[0] = 1;
        let characters = [Characters::default(); WORDS];
        Self { text: padded, length: text.len(), words, reached, characters }
    }

    /// Whether `glob` matches the whole text.
    fn end_at(mut self, glob: &str) -> bool {
        if glob.contains('?') {
            self.find_characters();
        }
        for byte in glob.bytes() {
            let alive = match byte {
                b'*' => self.pass_any(),
                b'?' => self.pass_character(),
                _ => self.pass(|at, of| equal(&of.text[at], byte)),
            };
            if !alive {
                return false;
            }
        }
        self.reached[self.length / WORD] & (1 << (self.length % WORD)) != 0
    }

    fn find_characters(&mut self) {
        for (text, characters) in self.text[..self.words].iter().zip(&mut self.characters) {
            let other = bits(text, |part| (part & u8x16::splat(0xc0)).simd_eq(u8x16::splat(0x80)));
            *characters = Characters { first: !(other | equal(text, PADDING)), other };
        }
    }

    /// Advances each position over the next byte if the byte is in `passing`, and removes it otherwise. Returns whether a
    /// position is left.
    #[inline]
    fn pass(&mut self, passing: impl Fn(usize, &Self) -> u64) -> bool {
        let (mut carry, mut any) = (0, 0);
        for at in 0..self.words {
            let passed = self.reached[at] & passing(at, self);
            self.reached[at] = (passed << 1) | carry;
            carry = passed >> (WORD - 1);
            any |= self.reached[at];
        }
        self.reached[self.words] = carry;
        any | carry != 0
    }

    /// Advances each position over the next character.
    fn pass_character(&mut self) -> bool {
        let alive = self.pass(|at, of| of.characters[at].first);
        // After the first byte of a multi-byte character, the addition of its other bytes carries the position over them
        // to the next character.
        let mut carry = false;
        for at in 0..self.words {
            let other = self.characters[at].other;
            let (sum, over) = self.reached[at].overflowing_add(other);
            let (sum, over_again) = sum.overflowing_add(carry.into());
            self.reached[at] = sum & !other;
            carry = over | over_again;
        }
        self.reached[self.words] |= u64::from(carry);
        alive
    }

    /// Adds all positions after the first one.
    fn pass_any(&mut self) -> bool {
        let mut found = false;
        for reached in &mut self.reached[..=self.words] {
            *reached = if found { u64::MAX } else { *reached | reached.wrapping_neg() };
            found |= *reached != 0;
        }
        found
    }
}

/// Returns a bit for each byte of `word` that is equal to `byte`.
#[inline]
fn equal(word: &[u8; WORD], byte: u8) -> u64 {
    bits(word, |part| part.simd_eq(u8x16::splat(byte)))
}

#[inline]
fn bits(word: &[u8; WORD], is: impl Fn(u8x16) -> u8x16) -> u64 {
    let (parts, _) = word.as_chunks::<16>();
    parts.iter().rev().fold(0, |bits, part| (bits << 16) | u64::from(is(u8x16::new(*part)).to_bitmask()))
}

#[cfg(test)]
mod tests;
