//! JSON read member by member, out of a text that stays where it is.
//!
//! Every review passes here, most of whose bytes nobody asks for. So what is not asked for is passed over in one go,
//! though not unlooked at: what is no JSON (RFC 8259) is an error, wherever it stands. What is done for each string is
//! `inline(always)`: a call takes as long as it does.

use std::borrow::Cow;

use wide::u8x16;

/// Why a text could not be read. (In a box: most that is returned is no error, and goes through registers.)
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} expected at line {} column {}", .0.wanted, .0.line, .0.column)]
pub struct Malformed(Box<Place>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    wanted: &'static str,
    line: usize,
    column: usize,
}

/// What can be read.
pub(super) trait Read<'a>: Default {
    /// Reads the value that comes next, in the place of what was there before. It may be like `another`.
    fn read(&mut self, another: Option<&Self>, reader: &mut Reader<'a>) -> Result<(), Malformed>;
}

/// An object that is told its members one by one.
pub(super) trait Members<'a>: Default {
    /// Reads the value of this member, which may be like that of `another`. It has to be read, or passed over.
    fn member(&mut self, another: Option<&Self>, key: &str, reader: &mut Reader<'a>)
    -> Result<(), Malformed>;
}

/// Reads the whole of `text`.
pub(super) fn read<'a, T: Read<'a>>(text: &'a str) -> Result<T, Malformed> {
    let (mut value, mut reader) = (T::default(), Reader::new(text));
    value.read(None, &mut reader)?;
    match reader.peek() {
        None => Ok(value),
        Some(_) => Err(reader.malformed("the end")),
    }
}

/// The block of a reader that has not looked yet: no text goes so far.
const NOWHERE: usize = usize::MAX - 63;

/// A place in a text.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// Where strings end in the 64 bytes from this place on, see [`ends`].
    block: usize,
    ends: u64,
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0, block: NOWHERE, ends: 0 }
    }

    /// Here something else stands than was `wanted`.
    #[cold]
    pub(super) fn malformed(&self, wanted: &'static str) -> Malformed {
        let before = &self.text.as_bytes()[..self.at];
        let line = before.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
        let lines = before.iter().filter(|byte| **byte == b'\n').count();
        Malformed(Box::new(Place { wanted, line: lines + 1, column: line.len() + 1 }))
    }

    /// An object, member by member, into one that is empty; of a member that comes twice the last holds. Null is an
    /// empty object: false.
    pub(super) fn object<T: Members<'a>>(
        &mut self,
        object: &mut T,
        another: Option<&T>,
    ) -> Result<bool, Malformed> {
        if self.null()? {
            return Ok(false);
        }
        self.take(b'{', "an object or null")?;
        if self.follows(b'}') {
            return Ok(true);
        }
        loop {
            if let Some(key) = self.plain() {
                self.take(b':', "a colon")?;
                object.member(another, key, self)?;
            } else {
                let key = self.spelled("a key")?;
                self.take(b':', "a colon")?;
                object.member(another, &key, self)?;
            }
            if !self.follows(b',') {
                self.take(b'}', "a comma or the end of the object")?;
                return Ok(true);
            }
        }
    }

    /// A string, borrowed unless it holds escapes; null is an empty one.
    pub(super) fn text(&mut self) -> Result<Cow<'a, str>, Malformed> {
        if let Some(text) = self.plain() {
            return Ok(Cow::Borrowed(text));
        }
        if self.null()? { Ok(Cow::Borrowed("")) } else { self.spelled("a string or null").map(Cow::Owned) }
    }

    /// True or false; `None` for null.
    pub(super) fn truth(&mut self) -> Result<Option<bool>, Malformed> {
        let (word, truth) = match self.peek() {
            Some(b't') => ("true", Some(true)),
            Some(b'f') => ("false", Some(false)),
            Some(b'n') => ("null", None),
            _ => return Err(self.malformed("true, false or null")),
        };
        self.word(word)?;
        Ok(truth)
    }

    /// Any value, as it is spelled.
    pub(super) fn raw(&mut self) -> Result<&'a str, Malformed> {
        self.peek();
        let start = self.at;
        self.pass()?;
        Ok(&self.text[start..self.at])
    }

    /// Takes the value of a member that is spelled like this, which is JSON, if it comes next. (Or such a value and some
    /// members more.)
    #[inline]
    pub(super) fn takes(&mut self, value: &str) -> bool {
        self.peek();
        let rest = &self.text.as_bytes()[self.at..];
        // The same digits may begin another number.
        let takes = !value.is_empty()
            && rest.starts_with(value.as_bytes())
            && matches!(rest.get(value.len()), Some(b',' | b'}'));
        self.at += if takes { value.len() } else { 0 };
        takes
    }

    /// Passes over any value.
    #[inline]
    pub(super) fn pass(&mut self) -> Result<(), Malformed> {
        match self.peek() {
            Some(b'{' | b'[') => self.pass_nested(),
            first => self.pass_flat(first),
        }
    }

    /// Passes over a value that holds no other, and begins with this byte.
    #[inline(always)]
    fn pass_flat(&mut self, first: Option<u8>) -> Result<(), Malformed> {
        match first {
            Some(b'"') => self.pass_string(),
            Some(b't') => self.word("true"),
            Some(b'f') => self.word("false"),
            Some(b'n') => self.word("null"),
            _ => self.number(),
        }
    }

    fn pass_nested(&mut self) -> Result<(), Malformed> {
        let mut open = Nesting::default();
        loop {
            match self.peek() {
                Some(b'{') => {
                    self.at += 1;
                    if !self.follows(b'}') {
                        open.push(true);
                        self.pass_key()?;
                        continue;
                    }
                }
                Some(b'[') => {
                    self.at += 1;
                    if !self.follows(b']') {
                        open.push(false);
                        continue;
                    }
                }
                first => self.pass_flat(first)?,
            }
            // A value has ended: what it stands in goes on, or ends too.
            loop {
                let Some(in_object) = open.innermost() else { return Ok(()) };
                match self.peek() {
                    Some(b',') => {
                        self.at += 1;
                        if in_object {
                            self.pass_key()?;
                        }
                        break;
                    }
                    Some(b'}') if in_object => {}
                    Some(b']') if !in_object => {}
                    _ if in_object => return Err(self.malformed("a comma or the end of the object")),
                    _ => return Err(self.malformed("a comma or the end of the array")),
                }
                self.at += 1;
                open.pop();
            }
        }
    }

    /// The next byte that is not blank, which is not taken.
    #[inline(always)]
    fn peek(&mut self) -> Option<u8> {
        match self.here() {
            Some(byte) if byte > b' ' => Some(byte),
            _ => self.past_blanks(),
        }
    }

    /// The API server sends none.
    #[cold]
    fn past_blanks(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.here() {
            self.at += 1;
        }
        self.here()
    }

    /// Takes `byte`, if it comes next.
    #[inline(always)]
    fn follows(&mut self, byte: u8) -> bool {
        let follows = self.peek() == Some(byte);
        self.at += usize::from(follows);
        follows
    }

    #[inline(always)]
    fn take(&mut self, byte: u8, wanted: &'static str) -> Result<(), Malformed> {
        if self.follows(byte) { Ok(()) } else { Err(self.malformed(wanted)) }
    }

    /// Takes a null, if it comes next.
    #[inline]
    fn null(&mut self) -> Result<bool, Malformed> {
        if self.peek() == Some(b'n') { self.word("null").map(|()| true) } else { Ok(false) }
    }

    fn word(&mut self, word: &'static str) -> Result<(), Malformed> {
        if !self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            return Err(self.malformed(word));
        }
        self.at += word.len();
        Ok(())
    }

    fn number(&mut self) -> Result<(), Malformed> {
        self.at += usize::from(self.here() == Some(b'-'));
        if self.here() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits("a value")?;
        }
        if self.here() == Some(b'.') {
            self.at += 1;
            self.digits("a digit")?;
        }
        if let Some(b'e' | b'E') = self.here() {
            self.at += 1;
            self.at += usize::from(matches!(self.here(), Some(b'+' | b'-')));
            self.digits("a digit")?;
        }
        Ok(())
    }

    fn digits(&mut self, wanted: &'static str) -> Result<(), Malformed> {
        let start = self.at;
        while self.here().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at > start { Ok(()) } else { Err(self.malformed(wanted)) }
    }

    #[inline(always)]
    fn here(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    #[inline(always)]
    fn pass_key(&mut self) -> Result<(), Malformed> {
        if self.peek() != Some(b'"') {
            return Err(self.malformed("a key"));
        }
        self.pass_string()?;
        self.take(b':', "a colon")
    }

    /// The string that comes next; `None` where none does, or it holds escapes.
    #[inline]
    fn plain(&mut self) -> Option<&'a str> {
        if self.peek() != Some(b'"') {
            return None;
        }
        let start = self.at + 1;
        let end = self.end_of_plain(start);
        if self.text.as_bytes().get(end) != Some(&b'"') {
            return None;
        }
        self.at = end + 1;
        Some(&self.text[start..end])
    }

    /// The string that comes next, its escapes resolved. Not each is text: half of a surrogate pair is none.
    #[cold]
    fn spelled(&mut self, wanted: &'static str) -> Result<String, Malformed> {
        if self.peek() != Some(b'"') {
            return Err(self.malformed(wanted));
        }
        let start = self.at;
        self.pass_string()?;
        serde_json::from_str(&self.text[start..self.at]).map_err(|_| self.malformed("text before this"))
    }

    /// Passes over the string that begins here.
    #[inline(always)]
    fn pass_string(&mut self) -> Result<(), Malformed> {
        self.at = self.end_of_plain(self.at + 1);
        if self.here() == Some(b'"') {
            self.at += 1;
            return Ok(());
        }
        self.pass_rest_of_string()
    }

    #[cold]
    fn pass_rest_of_string(&mut self) -> Result<(), Malformed> {
        loop {
            match self.here() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => self.escape()?,
                _ => return Err(self.malformed("the rest of a string")),
            }
            self.at = self.end_of_plain(self.at);
        }
    }

    /// Where a string that goes on from this place cannot simply go on, or else the end of the text.
    #[inline(always)]
    fn end_of_plain(&mut self, from: usize) -> usize {
        let into = from.wrapping_sub(self.block);
        let left = if into < 64 { self.ends >> into } else { 0 };
        if left == 0 { self.look(from) } else { from + left.trailing_zeros() as usize }
    }

    /// The same; nothing is known of this place, or nothing in its block ends a string from there on.
    #[inline(never)]
    fn look(&mut self, from: usize) -> usize {
        let bytes = self.text.as_bytes();
        let mut at = from;
        if at & !63 == self.block {
            at = self.block + 64;
        }
        while at < bytes.len() {
            self.block = at & !63;
            let block = &bytes[self.block..];
            self.ends = match block.first_chunk() {
                Some(whole) => ends(whole),
                None => ends_of_last(block),
            };
            let left = self.ends >> (at & 63);
            if left != 0 {
                return at + left.trailing_zeros() as usize;
            }
            at = self.block + 64;
        }
        bytes.len()
    }

    #[cold]
    fn escape(&mut self) -> Result<(), Malformed> {
        let escaped = &self.text.as_bytes()[self.at + 1..];
        match escaped {
            [b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] => self.at += 2,
            [b'u', a, b, c, d, ..] if [a, b, c, d].iter().all(|digit| digit.is_ascii_hexdigit()) => {
                self.at += 6;
            }
            _ => return Err(self.malformed("an escape")),
        }
        Ok(())
    }
}

/// Of 64 bytes, a bit for each at which a string cannot simply go on: a quote, a backslash, a control character.
fn ends(bytes: &[u8; 64]) -> u64 {
    let (quarters, _) = bytes.as_chunks();
    quarters.iter().rev().fold(0, |ends, quarter| {
        let quarter = u8x16::new(*quarter);
        let is = |byte| quarter.simd_eq(u8x16::splat(byte));
        let ending = is(b'"') | is(b'\\') | quarter.simd_lt(u8x16::splat(b' '));
        ends << 16 | u64::from(ending.to_bitmask())
    })
}

/// The same of fewer bytes, with which the text is at its end; what is missing ends every string.
#[cold]
fn ends_of_last(bytes: &[u8]) -> u64 {
    let mut block = [0; 64];
    block[..bytes.len()].copy_from_slice(bytes);
    ends(&block)
}

/// What is open, from the outermost in: a bit for each, 1 for an object. As deep as there is text.
#[derive(Default)]
struct Nesting {
    innermost: u64,
    depth: usize,
    outer: Vec<u64>,
}

impl Nesting {
    fn push(&mut self, object: bool) {
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.outer.push(self.innermost);
        }
        self.innermost = self.innermost << 1 | u64::from(object);
        self.depth += 1;
    }

    fn innermost(&self) -> Option<bool> {
        (self.depth > 0).then_some(self.innermost & 1 == 1)
    }

    fn pop(&mut self) {
        self.depth -= 1;
        self.innermost >>= 1;
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.innermost = self.outer.pop().unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    /// What is passed over as one value from the beginning of `text` to its end; the blanks around it left aside.
    fn passed(text: &str) -> Option<&str> {
        let mut reader = Reader::new(text);
        let value = reader.raw().ok()?;
        reader.peek().is_none().then_some(value)
    }

    /// The same in serde's eyes.
    fn expected(text: &str) -> Option<&str> {
        serde_json::from_str::<&RawValue>(text).ok().map(RawValue::get)
    }

    #[test]
    fn what_is_json_to_serde_is_json_here() {
        let texts = [
            "",
            " ",
            "0",
            "-0",
            "01",
            "-",
            "1.",
            ".5",
            "1.5e",
            "1e+",
            "1E-07",
            "+1",
            "1_0",
            "NaN",
            "-Infinity",
            "0x1",
            "true",
            "tru",
            "truex",
            "null",
            "nul",
            " \r\n\tfalse ",
            "\u{a0}1",
            "\u{feff}1",
            "1 2",
            "[]",
            "[ ]",
            "[,]",
            "[1,]",
            "[1 2]",
            "[1,2",
            "]",
            "{}",
            "{ }",
            "{,}",
            r#"{"a":1,}"#,
            r#"{"a"}"#,
            r#"{"a":}"#,
            r#"{a:1}"#,
            r#"{"a" : 1 , "b":[{"c":null}]}"#,
            r#"[{"a":1]}"#,
            r#"{"a":[1}"#,
            r#"{"a":1}}"#,
            r#"""#,
            r#""\""#,
            r#""\x""#,
            r#""\ud800""#,
            r#""\u12g4""#,
            r#""\u123"#,
            "\"a\u{1f}\"",
            "\"a\u{7f}\u{e9}\u{1f600}\"",
            "\"a\nb\"",
            "'a'",
            "//",
        ];
        for text in texts {
            assert_eq!(passed(text), expected(text), "{text}");
        }
    }

    #[test]
    fn it_goes_as_deep_as_the_text() {
        for depth in [1, 63, 64, 65, 127, 128, 129, 1_000, 100_000] {
            let (opening, closing): (Vec<_>, Vec<_>) =
                (0..depth).map(|at| if at % 3 == 0 { (r#"{"a":"#, "}") } else { ("[", "]") }).unzip();
            let closing: String = closing.into_iter().rev().collect();
            let text = format!("{}1{closing}", opening.concat());
            assert_eq!(passed(&text), Some(&*text), "{depth}");
            let wrong = if depth % 3 == 1 { "}]" } else { "]}" };
            assert_eq!(
                passed(&format!("{}1{}", opening.concat(), closing.replacen(['}', ']'], wrong, 1))),
                None
            );
        }
    }

    #[test]
    fn an_error_says_what_was_expected_and_where() {
        let told = |text: &str| passed_error(text).to_string();
        assert_eq!(told("{\n \"a\": [1,\n  x]}"), "a value expected at line 3 column 3");
        assert_eq!(told(r#"{"a":1"#), "a comma or the end of the object expected at line 1 column 7");
        assert_eq!(told("\"a"), "the rest of a string expected at line 1 column 3");
        assert_eq!(told(r#"{"é"1}"#), "a colon expected at line 1 column 6");
    }

    fn passed_error(text: &str) -> Malformed {
        Reader::new(text).pass().unwrap_err()
    }

    #[test]
    fn a_string_ends_where_it_ends_wherever_it_begins() {
        for before in 0..20 {
            for length in 0..40 {
                let text = format!(
                    "{}\"{}\",\"\"",
                    " ".repeat(before),
                    "é".repeat(length / 2) + &"x".repeat(length % 2)
                );
                let mut reader = Reader::new(&text);
                let read = reader.text().unwrap();
                assert_eq!(read, text[before + 1..text.len() - 4]);
                assert!(matches!(read, Cow::Borrowed(_)) && reader.follows(b','));
            }
        }
    }

    #[test]
    fn a_value_is_taken_where_the_same_one_stands_as_a_member() {
        for (text, value, taken) in [
            ("1,", "1", true),
            (" 1}", "1", true),
            ("12,", "1", false),
            ("1.5,", "1", false),
            ("1 ,", "1", false),
            ("1", "1", false),
            ("\"a\",", "\"a\"", true),
            ("\"ab\",", "\"a\"", false),
            ("{\"a\":1}}", "{\"a\":1}", true),
            ("null,", "null", true),
            (",", "", false),
        ] {
            let mut reader = Reader::new(text);
            assert_eq!(reader.takes(value), taken, "{text} {value}");
            let left = text.trim_start().strip_prefix(value).filter(|_| taken);
            assert_eq!(&text[reader.at..], left.unwrap_or(text.trim_start()), "{text} {value}");
        }
    }

    fn json() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just("null".to_owned()),
            any::<bool>().prop_map(|truth| truth.to_string()),
            any::<f64>().prop_map(|number| serde_json::json!(number).to_string()),
            any::<String>().prop_map(|text| serde_json::json!(text).to_string()),
        ];
        leaf.prop_recursive(6, 48, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6)
                    .prop_map(|items| format!("[{}]", items.join(", "))),
                prop::collection::vec((any::<String>(), inner), 0..6).prop_map(|members| {
                    let members =
                        members.iter().map(|(key, value)| format!("{} :{value}", serde_json::json!(key)));
                    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn serde_agrees_on_whatever_becomes_of_json(text in json(), at in any::<prop::sample::Index>(), with in any::<String>()) {
            prop_assert_eq!(passed(&text), Some(&*text));
            let mut places = text.char_indices().map(|(place, _)| place);
            let place = places.nth(at.index(text.chars().count())).unwrap_or_default();
            for broken in [
                text[..place].to_owned(),
                format!("{}{with}{}", &text[..place], &text[place..]),
                text.chars().enumerate().filter(|(number, _)| *number != place).map(|(_, each)| each).collect(),
            ] {
                prop_assert_eq!(passed(&broken), expected(&broken), "{}", broken);
            }
        }

        #[test]
        fn serde_agrees_on_what_looks_like_json(text in r#"[\[\]{}",:\\ 0-9eE+.tfnu-]{0,24}"#) {
            prop_assert_eq!(passed(&text), expected(&text), "{}", text);
        }
    }
}
