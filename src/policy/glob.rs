//! Globs: `*` stands for any text, `?` for any one character, everything else for itself.
//!
//! Both sides are hostile: a tenant may write the policy and the Event. So matching takes time linear in the
//! text whatever the pattern (all partial matches advance together, one bit each), allocates nothing, and looks
//! at no more than [`MOST_BYTES`] of the text.

use std::ops::ControlFlow;

/// Of a longer text only this many bytes are looked at. Names and reasons that an API server checks are far
/// shorter; core/v1 leaves some fields unbounded.
pub(super) const MOST_BYTES: usize = 1024;

/// The most characters that a glob with `*` or `?` may have: one bit each, and one for the start.
pub(super) const MOST_CHARACTERS: usize = WORDS * 64 - 1;

const WORDS: usize = 8;

/// A compiled glob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Glob {
    /// `*`.
    Any,
    /// No `*` and no `?`.
    Literal(Box<str>),
    /// Text and one `*` at its end: by far the most frequent pattern.
    Prefix(Box<str>),
    /// Anything else.
    Pattern(Pattern),
}

/// States are numbered by how many characters of the pattern (stars not counted) are matched; bit `i` of a mask
/// is state `i`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    /// The state in which all is matched; its word is the last that is in use.
    last: usize,
    /// States that stay alive whatever comes: a `*` stands there.
    stars: [u64; WORDS],
    /// States that any character advances: a `?` comes next.
    any: [u64; WORDS],
    /// By character, in order: the states that it advances.
    characters: Box<[(char, [u64; WORDS])]>,
}

impl Glob {
    /// Compiles a glob; `None` if it has wildcards and more than [`MOST_CHARACTERS`].
    pub(super) fn compile(text: &str) -> Option<Self> {
        if !text.is_empty() && text.bytes().all(|byte| byte == b'*') {
            return Some(Self::Any);
        }
        match text.find(['*', '?']) {
            None => Some(Self::Literal(text.into())),
            Some(at) if at + 1 == text.len() && text.ends_with('*') => Some(Self::Prefix(text[..at].into())),
            Some(_) => Pattern::compile(text).map(Self::Pattern),
        }
    }

    /// Whether the glob covers all of `text` (of its first [`MOST_BYTES`]).
    pub(super) fn matches(&self, text: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Literal(literal) => **literal == *text,
            Self::Prefix(prefix) => text.starts_with(&**prefix),
            Self::Pattern(pattern) => pattern.matches(&text[..text.floor_char_boundary(MOST_BYTES)]),
        }
    }
}

impl Pattern {
    fn compile(text: &str) -> Option<Self> {
        let (mut last, mut stars, mut any) = (0, [0; WORDS], [0; WORDS]);
        let mut characters: Vec<(char, [u64; WORDS])> = Vec::new();
        for character in text.chars() {
            let (word, bit) = (last / 64, 1 << (last % 64));
            match character {
                '*' => {
                    stars[word] |= bit;
                    continue;
                }
                '?' => any[word] |= bit,
                _ => {
                    let place = characters.binary_search_by_key(&character, |(known, _)| *known);
                    let place = place.unwrap_or_else(|place| {
                        characters.insert(place, (character, [0; WORDS]));
                        place
                    });
                    characters[place].1[word] |= bit;
                }
            }
            last += 1;
            if last > MOST_CHARACTERS {
                return None;
            }
        }
        Some(Self { last, stars, any, characters: characters.into() })
    }

    fn matches(&self, text: &str) -> bool {
        let words = self.last / 64 + 1;
        let mut alive = [0; WORDS];
        alive[0] = 1;
        let end = text.chars().try_for_each(|character| {
            let known = self.characters.binary_search_by_key(&character, |(known, _)| *known);
            let advances = known.map_or(&[0; WORDS], |place| &self.characters[place].1);
            let (mut carry, mut any_alive) = (0, 0);
            for word in 0..words {
                let advancing = alive[word] & (advances[word] | self.any[word]);
                alive[word] = (advancing << 1) | carry | (alive[word] & self.stars[word]);
                carry = advancing >> 63;
                any_alive |= alive[word];
            }
            if any_alive == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        end.is_continue() && alive[self.last / 64] & (1 << (self.last % 64)) != 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(glob: &str, text: &str) -> bool {
        Glob::compile(glob).unwrap().matches(text)
    }

    /// Says the same in the plainest way.
    fn naive(glob: &[char], text: &[char]) -> bool {
        match (glob.split_first(), text.split_first()) {
            (None, _) => text.is_empty(),
            (Some(('*', rest)), None) => naive(rest, text),
            (Some(('*', rest)), Some((_, tail))) => naive(rest, text) || naive(glob, tail),
            (Some((wanted, rest)), Some((found, tail))) => {
                (*wanted == '?' || wanted == found) && naive(rest, tail)
            }
            (Some(_), None) => false,
        }
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
            ("BackOff", "BackOff", true),
            ("BackOff", "backoff", false),
            ("", "", true),
            ("", "apps", false),
            ("?", "ö", true),
            ("a*b*c", "aXbXc", true),
            ("a*b*c", "aXcXb", false),
        ] {
            assert_eq!(matches(glob, text), expected, "{glob:?} on {text:?}");
        }
    }

    #[test]
    fn the_longest_pattern_is_matched_and_a_longer_one_refused() {
        let longest = format!("{}?", "a".repeat(MOST_CHARACTERS - 1));
        assert!(matches(&longest, &"a".repeat(MOST_CHARACTERS)));
        assert!(!matches(&longest, &"a".repeat(MOST_CHARACTERS + 1)));
        assert_eq!(Glob::compile(&format!("{longest}?")), None);
        let users = format!("system:serviceaccount:{}:?*", "n".repeat(400));
        assert!(matches(&users, &format!("system:serviceaccount:{}:default", "n".repeat(400))));
    }

    #[test]
    fn a_text_without_end_is_looked_at_in_part() {
        let endless = "ä".repeat(1_000_000);
        assert!(matches("?*ä", &endless));
        assert!(!matches("?*b", &format!("{endless}b")));
        assert!(matches("ä*", &endless));
    }

    proptest! {
        #[test]
        fn agrees_with_the_naive_model(glob in "[abö*?]{0,10}", text in "[abö]{0,12}") {
            let (model, said): (Vec<_>, Vec<_>) = (glob.chars().collect(), text.chars().collect());
            prop_assert_eq!(matches(&glob, &text), naive(&model, &said), "{:?} on {:?}", glob, text);
        }

        #[test]
        fn agrees_across_words(
            parts in prop::collection::vec(prop_oneof!["a{20,70}", "[*]", "[?]", "b"], 1..5),
            text in prop::collection::vec(prop_oneof!["a{20,70}", "b"], 1..5),
        ) {
            let (glob, text) = (parts.concat(), text.concat());
            let (model, said): (Vec<_>, Vec<_>) = (glob.chars().collect(), text.chars().collect());
            prop_assert_eq!(matches(&glob, &text), naive(&model, &said), "{:?} on {:?}", glob, text);
        }
    }
}
