//! Short texts by position, sixteen per allocation.
//!
//! A separate string takes 16 bytes for its pointer, 8 for the allocator and up to 15 for rounding. Here it
//! takes 5 bytes and its length, which saves 19 MiB for the names of a million Events. Adding or removing one
//! copies its pack of sixteen: some hundred bytes.

use crate::store::segments::Segments;
use crate::text::truncate;

/// Number of texts per allocation.
const PACK: u32 = 16;

/// Texts by position.
#[derive(Default)]
pub(crate) struct Strings {
    packs: Segments<Pack, 4, 2>,
    len: u32,
}

#[derive(Default)]
struct Pack {
    text: Box<str>,
    /// End offset of each text. Missing texts end where the last one does.
    ends: [u16; PACK as usize],
}

impl Strings {
    pub(crate) fn get(&self, at: u32) -> Option<&str> {
        (at < self.len).then(|| self.packs[at / PACK].get(at % PACK))
    }

    /// Appends a text, truncated to [`MAX_TEXT`].
    pub(crate) fn push(&mut self, text: &str) {
        let at = self.len;
        if at / PACK == self.packs.len() {
            self.packs.push(Pack::default());
        }
        self.len += 1;
        self.packs[at / PACK].set(at % PACK, truncate(text, MAX_TEXT));
    }

    /// Removes a text; the last one takes its position.
    pub(crate) fn swap_remove(&mut self, at: u32) {
        let last = self.len - 1;
        let text = self.packs[last / PACK].get(last % PACK).to_owned();
        if at != last {
            self.packs[at / PACK].set(at % PACK, &text);
        }
        self.packs[last / PACK].set(last % PACK, "");
        self.len = last;
        if last.is_multiple_of(PACK) {
            self.packs.pop();
        }
    }
}

impl Pack {
    fn get(&self, at: u32) -> &str {
        &self.text[self.start(at)..self.end(at)]
    }

    fn set(&mut self, at: u32, text: &str) {
        let (start, end) = (self.start(at), self.end(at));
        self.text = [&self.text[..start], text, &self.text[end..]].concat().into_boxed_str();
        let shifted = |before: u16| usize::from(before) - end + start + text.len();
        for end in &mut self.ends[at as usize..] {
            *end = u16::try_from(shifted(*end)).expect("16 texts of 1,024 bytes");
        }
    }

    fn start(&self, at: u32) -> usize {
        at.checked_sub(1).map_or(0, |before| self.end(before))
    }

    fn end(&self, at: u32) -> usize {
        usize::from(self.ends[at as usize])
    }
}

/// Maximum length of a text. core/v1 stores an Event under any name that is a path segment, and older recorders of client-go
/// append 17 bytes to the name of the object, which has up to 253.
pub(crate) const MAX_TEXT: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn strings_behave_like_a_vec_of_strings(steps in prop::collection::vec((0u8..5, 0u32..80, "[a-zü]{0,40}"), 0..200)) {
            let mut strings = Strings::default();
            let mut model: Vec<String> = Vec::new();
            for (step, at, text) in steps {
                if step < 3 {
                    strings.push(&text);
                    model.push(text);
                } else if (at as usize) < model.len() {
                    strings.swap_remove(at);
                    model.swap_remove(at as usize);
                }
                let all: Vec<&str> = (0..).map_while(|at| strings.get(at)).collect();
                prop_assert_eq!(&all, &model);
                prop_assert_eq!(strings.packs.len(), strings.len.div_ceil(PACK));
                let text: usize = (0..strings.packs.len()).map(|at| strings.packs[at].text.len()).sum();
                prop_assert_eq!(text, model.iter().map(String::len).sum::<usize>());
            }
        }
    }

    #[test]
    fn long_texts_are_truncated() {
        let mut strings = Strings::default();
        (0..20).for_each(|_| strings.push(&"ü".repeat(100_000)));
        assert_eq!(strings.get(19).map(str::len), Some(MAX_TEXT));
    }
}
