//! Globs: `*` stands for any text, `?` for any one character, everything else for itself.
//!
//! Tenants write both the glob and the text, so the cost of one match has a bound. A text is cut at [`MOST_BYTES`]. What
//! stands before the first and behind the last wildcard of a glob is compared. The part between them moves a set of
//! positions in the text, one bit each: each byte of the glob costs the same few instructions, whatever the text, and
//! nothing is ever tried twice. [`Glob::weight`] is the measure of that cost.
//!
//! A compiled glob is its text and two numbers. An automaton for a whole list of globs (crates `regex`, `globset`) was
//! measured and has no such bound: each byte of a hostile text leads to a new state of the lazy DFA, and 32 globs of
//! 128 characters took 7 to 9 ms for one text of 256 bytes. A complete DFA is exponential in the number of wildcards.

use wide::u8x16;

use crate::api;

/// Globs with wildcards read at most this many bytes of a text, cut at a character boundary. Names and reasons that an
/// API server checks are shorter; core/v1 leaves some fields unbounded.
pub(super) const MOST_BYTES: usize = 256;

/// The bits of one word of a set of positions.
const WORD: usize = 64;

const WORDS: usize = MOST_BYTES / WORD;

/// Padding behind the text: a byte that occurs in no UTF-8 text.
const PADDING: u8 = 0xff;

/// A compiled glob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Glob {
    /// `*`.
    Any,
    /// No `*` and no `?`.
    Literal(Box<str>),
    /// Text and one `*` at its end: by far the most frequent pattern.
    Prefix(Box<str>),
    /// Any other text with wildcards.
    Pattern(Pattern),
}

/// A glob in three parts: a prefix without wildcards, the part from the first to the last wildcard, and a suffix without
/// wildcards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    text: Box<str>,
    /// Where the first wildcard begins and the last one ends, in bytes of `text`.
    wild: (u16, u16),
    /// The least and the greatest number of bytes of a text that it matches.
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
            // A character has at most 4 bytes.
            let longest = if any > 0 { MOST_BYTES } else { shortest + 3 * single };
            let small = |number: usize| u16::try_from(number).expect("it has at most 128 characters");
            Self::Pattern(Pattern {
                text: text.into(),
                wild: (small(first), small(last + 1)),
                lengths: (small(shortest), small(longest)),
            })
        }
    }

    /// Whether the glob covers all of `text`; one with wildcards, all of its first [`MOST_BYTES`].
    pub(super) fn matches(&self, text: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Literal(literal) => **literal == *text,
            Self::Prefix(prefix) => cut(text).starts_with(&**prefix),
            Self::Pattern(pattern) => pattern.matches(cut(text)),
        }
    }

    /// Whether this glob surely covers every text that `other` covers. It may say no where it does.
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

    /// The most that one match costs: with two or more wildcards [`api::SEVERAL_WILDCARDS`] and 1 for each character
    /// from the first of them to the last, else 1 and 1 more for every [`api::CHARACTERS_OF_WEIGHT_1`] characters. A unit takes less
    /// than 10 ns.
    pub(super) fn weight(&self) -> usize {
        let compared = match self {
            Self::Any => 0,
            Self::Literal(text) | Self::Prefix(text) => text.chars().count(),
            Self::Pattern(pattern) if pattern.middle().len() > 1 => {
                return api::SEVERAL_WILDCARDS + pattern.middle().len();
            }
            Self::Pattern(pattern) => pattern.text.len(),
        };
        1 + compared / api::CHARACTERS_OF_WEIGHT_1
    }
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MOST_BYTES)]
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
        // The shortest text has room for both, so they do not overlap.
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

/// The positions in a text at which the part of a glob that was read so far can end.
struct Positions {
    text: [[u8; WORD]; WORDS],
    length: usize,
    /// How many words of the text are in use.
    words: usize,
    /// Bit `i` is the position before byte `i`. The last word is for the end of the longest text.
    reached: [u64; WORDS + 1],
    /// Which bytes are the first of a character and which are not.
    characters: [Characters; WORDS],
}

#[derive(Clone, Copy, Default)]
struct Characters {
    first: u64,
    other: u64,
}

impl Positions {
    /// The beginning of a text of at most [`MOST_BYTES`].
    fn of(text: &str) -> Self {
        let mut padded = [[PADDING; WORD]; WORDS];
        padded.as_flattened_mut()[..text.len()].copy_from_slice(text.as_bytes());
        let words = text.len().div_ceil(WORD);
        let mut reached = [0; WORDS + 1];
        reached[0] = 1;
        let characters = [Characters::default(); WORDS];
        Self { text: padded, length: text.len(), words, reached, characters }
    }

    /// Whether `glob` covers the whole text.
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

    /// Moves each position behind the next byte if that byte is among those of `passing`; drops it otherwise. Returns
    /// whether one is left.
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

    /// Moves each position behind the next character.
    fn pass_character(&mut self) -> bool {
        let alive = self.pass(|at, of| of.characters[at].first);
        // Behind the first byte of a longer character, adding the run of its other bytes carries the position over
        // them to the next character.
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

    /// Adds every position behind the first one.
    fn pass_any(&mut self) -> bool {
        let mut found = false;
        for reached in &mut self.reached[..=self.words] {
            *reached = if found { u64::MAX } else { *reached | reached.wrapping_neg() };
            found |= *reached != 0;
        }
        found
    }
}

/// Which bytes of `word` are this byte, one bit each.
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
mod tests {
    use proptest::prelude::*;
    use squelch_engine::testing::cases;

    use super::*;

    fn matches(glob: &str, text: &str) -> bool {
        Glob::compile(glob).matches(text)
    }

    /// Says the same in the plainest way.
    fn naive(glob: &[char], text: &[char]) -> bool {
        let mut reached = vec![false; text.len() + 1];
        reached[0] = true;
        for wanted in glob {
            let before = reached.clone();
            for end in 0..=text.len() {
                reached[end] = match wanted {
                    '*' => before[..=end].contains(&true),
                    '?' => end > 0 && before[end - 1],
                    _ => end > 0 && before[end - 1] && text[end - 1] == *wanted,
                };
            }
        }
        reached[text.len()]
    }

    /// What the naive model says of a glob and a text of any length.
    fn expected(glob: &str, text: &str) -> bool {
        let read = if glob.contains(['*', '?']) {
            let mut read = String::new();
            for next in text.chars() {
                if read.len() + next.len_utf8() > 256 {
                    break;
                }
                read.push(next);
            }
            read
        } else {
            text.to_owned()
        };
        naive(&glob.chars().collect::<Vec<_>>(), &read.chars().collect::<Vec<_>>())
    }

    #[test]
    fn globs_cover_the_whole_text() {
        for (glob, text, expected) in [
            ("*", "", true),
            ("**", "BackOff", true),
            ("Failed*", "FailedScheduling", true),
            ("Failed*", "Failed", true),
            ("Failed*", "NotFailed", false),
            ("*Off", "BackOff", true),
            ("*Off", "BackOffs", false),
            ("B?ckOff", "BackOff", true),
            ("Back?", "Back", false),
            ("Back?", "Backup", false),
            ("BackOff", "BackOff", true),
            ("BackOff", "backoff", false),
            ("", "", true),
            ("", "apps", false),
            ("?", "ö", true),
            ("?", "", false),
            ("??", "ö", false),
            ("*?*", "", false),
            ("a*b*c", "aXbXc", true),
            ("a*b*c", "aXcXb", false),
            ("ab*ba", "aba", false),
            ("*\0*", "a", false),
        ] {
            assert_eq!(matches(glob, text), expected, "{glob:?} on {text:?}");
        }
    }

    #[test]
    fn a_glob_with_wildcards_reads_256_bytes_and_an_exact_text_all() {
        let (text, long) = ("x".repeat(256), "x".repeat(257));
        assert!(matches("*x?x*", &text) && matches("x*x", &text));
        assert!(matches("*x", &format!("{text}y")), "the 257th byte is not read");
        assert!(!matches("*y", &format!("{text}y")));
        assert!(matches(&long, &long) && !matches(&long, &format!("{long}x")));
        // The cut is before the character that does not fit.
        let umlauts = format!("x{}", "ä".repeat(1_000_000));
        assert!(matches(&format!("*{}", "ä".repeat(127)), &umlauts));
        assert!(matches("x?*?ä", &umlauts));
        let users = format!("system:serviceaccount:{}:?*", "n".repeat(63));
        assert!(matches(&users, &format!("system:serviceaccount:{}:{}", "n".repeat(63), "d".repeat(253))));
    }

    #[test]
    fn a_weight_grows_with_what_is_compared() {
        let exact = ["x".repeat(63), "x".repeat(64), "x".repeat(511)];
        for (glob, weight) in [
            (&*exact[0], 1),
            (&exact[1], 2),
            (&exact[2], 8),
            ("*", 1),
            ("BackOff", 1),
            ("Failed*", 1),
            ("*Off", 1),
            ("Back*Off", 1),
            ("B?ckOff", 1),
            ("system:serviceaccount:*:?x", 8 + 3),
            ("*Failed*", 8 + 8),
            ("*ä*", 8 + 4),
        ] {
            assert_eq!(Glob::compile(glob).weight(), weight, "{glob}");
        }
    }

    #[test]
    fn a_compiled_glob_takes_little_more_than_its_text() {
        assert!(size_of::<Glob>() <= 32, "{}", size_of::<Glob>());
    }

    proptest! {
        #![proptest_config(cases(4000))]

        #[test]
        fn a_glob_matches_what_the_naive_model_matches(glob in "[abö☃*?]{0,10}", text in "[abö☃]{0,12}") {
            prop_assert_eq!(matches(&glob, &text), expected(&glob, &text), "{:?} on {:?}", glob, text);
        }

        #[test]
        fn a_glob_matches_what_the_naive_model_matches_in_long_texts(
            glob in prop::collection::vec(prop_oneof!["a{1,70}", "[*]", "[?]", "b", "ö{1,40}", "[ab🦀]{1,9}"], 1..9),
            text in prop::collection::vec(prop_oneof!["a{20,130}", "b", "ö{20,130}", "[ab🦀]{1,9}"], 1..6),
        ) {
            let (glob, text) = (glob.concat(), text.concat());
            prop_assert_eq!(matches(&glob, &text), expected(&glob, &text), "{:?} on {:?}", glob, text);
        }

        /// Texts that were made from the glob, so that many match.
        #[test]
        fn a_glob_matches_what_it_was_filled_from(
            parts in prop::collection::vec(("[aö]{0,12}", prop_oneof![Just("*"), Just("?")], "[abö☃]{0,40}"), 1..9),
            spoiled in prop::option::of(0usize..300),
        ) {
            let (mut glob, mut text) = (String::new(), String::new());
            for (exact, wildcard, filled) in &parts {
                glob.push_str(exact);
                glob.push_str(wildcard);
                text.push_str(exact);
                text.extend(filled.chars().take(if *wildcard == "*" { 40 } else { 1 }));
            }
            if let Some(at) = spoiled.filter(|at| *at < text.len()) {
                text.insert(text.floor_char_boundary(at), 'b');
            }
            prop_assert_eq!(matches(&glob, &text), expected(&glob, &text), "{:?} on {:?}", glob, text);
        }
    }
}
