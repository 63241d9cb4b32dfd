//! A JSON reader that borrows from the text, member by member.
//!
//! Most bytes of a review are not needed. The reader skips them in one step, but still checks them: invalid JSON (RFC 8259)
//! is an error anywhere. The steps for each string are `inline(always)`, because a call would double their time.

use std::borrow::Cow;

use wide::u8x16;

/// The reason why a text is malformed. It is boxed so that the results without an error fit into registers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} expected at line {} column {}", .0.expected, .0.line, .0.column)]
pub struct Malformed(Box<ErrorLocation>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ErrorLocation {
    expected: &'static str,
    line: usize,
    column: usize,
}

/// A type that can be read from JSON.
pub(super) trait Read<'a>: Default {
    /// Reads the next value and replaces `self` by it. `another` is a value that it may equal.
    fn read(&mut self, another: Option<&Self>, reader: &mut Reader<'a>) -> Result<(), Malformed>;
}

/// An object that is read member by member.
pub(super) trait Members<'a>: Default {
    /// Reads or skips the value of the member `key`. It may equal that of `another`.
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

/// The block of a new reader. No text is that long.
const NO_BLOCK: usize = usize::MAX - 63;

/// A position in a text.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// The start of the last scanned block of 64 bytes.
    block: usize,
    /// The ends of strings in the block, see [`ends`].
    ends: u64,
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0, block: NO_BLOCK, ends: 0 }
    }

    /// Returns the error that something other than `expected` is at the current position.
    #[cold]
    pub(super) fn malformed(&self, expected: &'static str) -> Malformed {
        let before = &self.text.as_bytes()[..self.at];
        let line = before.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
        let lines = before.iter().filter(|byte| **byte == b'\n').count();
        Malformed(Box::new(ErrorLocation { expected, line: lines + 1, column: line.len() + 1 }))
    }

    /// Reads an object into an empty `object`. The last of duplicate members wins. Returns false for null.
    pub(super) fn object<T: Members<'a>>(
        &mut self,
        object: &mut T,
        another: Option<&T>,
    ) -> Result<bool, Malformed> {
        if self.null()? {
            return Ok(false);
        }
        self.expect(b'{', "an object or null")?;
        if self.take_if(b'}') {
            return Ok(true);
        }
        loop {
            if let Some(key) = self.plain() {
                self.expect(b':', "a colon")?;
                object.member(another, key, self)?;
            } else {
                let key = self.unescaped("a key")?;
                self.expect(b':', "a colon")?;
                object.member(another, &key, self)?;
            }
            if !self.take_if(b',') {
                self.expect(b'}', "a comma or the end of the object")?;
                return Ok(true);
            }
        }
    }

    /// Reads a string, borrowed unless it has escapes. Null reads as an empty string.
    pub(super) fn text(&mut self) -> Result<Cow<'a, str>, Malformed> {
        if let Some(text) = self.plain() {
            return Ok(Cow::Borrowed(text));
        }
        if self.null()? { Ok(Cow::Borrowed("")) } else { self.unescaped("a string or null").map(Cow::Owned) }
    }

    /// Reads a boolean; `None` for null.
    pub(super) fn bool_or_null(&mut self) -> Result<Option<bool>, Malformed> {
        let (word, truth) = match self.peek() {
            Some(b't') => ("true", Some(true)),
            Some(b'f') => ("false", Some(false)),
            Some(b'n') => ("null", None),
            _ => return Err(self.malformed("true, false or null")),
        };
        self.word(word)?;
        Ok(truth)
    }

    /// Reads any value and returns its JSON text.
    pub(super) fn raw(&mut self) -> Result<&'a str, Malformed> {
        self.peek();
        let start = self.at;
        self.skip()?;
        Ok(&self.text[start..self.at])
    }

    /// Takes `value` if it is the next text and ends a member. `value` is valid JSON: a value, or a value and further
    /// members.
    #[inline]
    pub(super) fn take_exact(&mut self, value: &str) -> bool {
        self.peek();
        let rest = &self.text.as_bytes()[self.at..];
        // The same digits may begin a longer number.
        let takes = !value.is_empty()
            && rest.starts_with(value.as_bytes())
            && matches!(rest.get(value.len()), Some(b',' | b'}'));
        self.at += if takes { value.len() } else { 0 };
        takes
    }

    /// Skips any value.
    #[inline]
    pub(super) fn skip(&mut self) -> Result<(), Malformed> {
        match self.peek() {
            Some(b'{' | b'[') => self.skip_nested(),
            first => self.skip_flat(first),
        }
    }

    /// Skips a value without nested values that begins with `first`.
    #[inline(always)]
    fn skip_flat(&mut self, first: Option<u8>) -> Result<(), Malformed> {
        match first {
            Some(b'"') => self.skip_string(),
            Some(b't') => self.word("true"),
            Some(b'f') => self.word("false"),
            Some(b'n') => self.word("null"),
            _ => self.number(),
        }
    }

    fn skip_nested(&mut self) -> Result<(), Malformed> {
        let mut open = Nesting::default();
        loop {
            match self.peek() {
                Some(b'{') => {
                    self.at += 1;
                    if !self.take_if(b'}') {
                        open.push(true);
                        self.skip_key()?;
                        continue;
                    }
                }
                Some(b'[') => {
                    self.at += 1;
                    if !self.take_if(b']') {
                        open.push(false);
                        continue;
                    }
                }
                first => self.skip_flat(first)?,
            }
            // After a value its container continues, or ends too.
            loop {
                let Some(in_object) = open.innermost() else { return Ok(()) };
                match self.peek() {
                    Some(b',') => {
                        self.at += 1;
                        if in_object {
                            self.skip_key()?;
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

    /// Skips whitespace and returns the next byte without taking it.
    #[inline(always)]
    fn peek(&mut self) -> Option<u8> {
        match self.current() {
            Some(byte) if byte > b' ' => Some(byte),
            _ => self.skip_whitespace(),
        }
    }

    /// Cold, because the API server sends no whitespace.
    #[cold]
    fn skip_whitespace(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.current() {
            self.at += 1;
        }
        self.current()
    }

    /// Takes `byte` if it is next.
    #[inline(always)]
    fn take_if(&mut self, byte: u8) -> bool {
        let follows = self.peek() == Some(byte);
        self.at += usize::from(follows);
        follows
    }

    #[inline(always)]
    fn expect(&mut self, byte: u8, expected: &'static str) -> Result<(), Malformed> {
        if self.take_if(byte) { Ok(()) } else { Err(self.malformed(expected)) }
    }

    /// Takes a null if it is next.
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
        self.at += usize::from(self.current() == Some(b'-'));
        if self.current() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits("a value")?;
        }
        if self.current() == Some(b'.') {
            self.at += 1;
            self.digits("a digit")?;
        }
        if let Some(b'e' | b'E') = self.current() {
            self.at += 1;
            self.at += usize::from(matches!(self.current(), Some(b'+' | b'-')));
            self.digits("a digit")?;
        }
        Ok(())
    }

    fn digits(&mut self, expected: &'static str) -> Result<(), Malformed> {
        let start = self.at;
        while self.current().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at > start { Ok(()) } else { Err(self.malformed(expected)) }
    }

    #[inline(always)]
    fn current(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    #[inline(always)]
    fn skip_key(&mut self) -> Result<(), Malformed> {
        if self.peek() != Some(b'"') {
            return Err(self.malformed("a key"));
        }
        self.skip_string()?;
        self.expect(b':', "a colon")
    }

    /// Reads the next value if it is a string without escapes, or else returns `None`.
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

    /// Reads the next string with its escapes resolved. Fails for a lone surrogate.
    #[cold]
    fn unescaped(&mut self, expected: &'static str) -> Result<String, Malformed> {
        if self.peek() != Some(b'"') {
            return Err(self.malformed(expected));
        }
        let start = self.at;
        self.skip_string()?;
        serde_json::from_str(&self.text[start..self.at])
            .map_err(|_| self.malformed("a string without lone surrogates"))
    }

    /// Skips the string that begins at the current position.
    #[inline(always)]
    fn skip_string(&mut self) -> Result<(), Malformed> {
        self.at = self.end_of_plain(self.at + 1);
        if self.current() == Some(b'"') {
            self.at += 1;
            return Ok(());
        }
        self.skip_rest_of_string()
    }

    #[cold]
    fn skip_rest_of_string(&mut self) -> Result<(), Malformed> {
        loop {
            match self.current() {
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

    /// Returns the position of the next quote, backslash or control character, or else the end of the text.
    #[inline(always)]
    fn end_of_plain(&mut self, from: usize) -> usize {
        let into = from.wrapping_sub(self.block);
        let left = if into < 64 { self.ends >> into } else { 0 };
        if left == 0 { self.scan_blocks(from) } else { from + left.trailing_zeros() as usize }
    }

    /// Scans further blocks for [`Self::end_of_plain`].
    #[inline(never)]
    fn scan_blocks(&mut self, from: usize) -> usize {
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

/// Returns a bit for each of 64 bytes that is a quote, a backslash or a control character.
fn ends(bytes: &[u8; 64]) -> u64 {
    let (quarters, _) = bytes.as_chunks();
    quarters.iter().rev().fold(0, |ends, quarter| {
        let quarter = u8x16::new(*quarter);
        let is = |byte| quarter.simd_eq(u8x16::splat(byte));
        let ending = is(b'"') | is(b'\\') | quarter.simd_lt(u8x16::splat(b' '));
        ends << 16 | u64::from(ending.to_bitmask())
    })
}

/// [`ends`] of the last, shorter block. The missing bytes count as ends.
#[cold]
fn ends_of_last(bytes: &[u8]) -> u64 {
    let mut block = [0; 64];
    block[..bytes.len()].copy_from_slice(bytes);
    ends(&block)
}

/// A stack of open objects (1) and arrays (0), one bit each, of unlimited depth.
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

    /// Returns the value that fills `text`, without the whitespace around it.
    fn skipped(text: &str) -> Option<&str> {
        let mut reader = Reader::new(text);
        let value = reader.raw().ok()?;
        reader.peek().is_none().then_some(value)
    }

    /// [`skipped`] by serde_json.
    fn expected(text: &str) -> Option<&str> {
        serde_json::from_str::<&RawValue>(text).ok().map(RawValue::get)
    }

    #[test]
    fn the_reader_and_serde_accept_the_same_json() {
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
            assert_eq!(skipped(text), expected(text), "{text}");
        }
    }

    #[test]
    fn nesting_depth_is_unlimited() {
        for depth in [1, 63, 64, 65, 127, 128, 129, 1_000, 100_000] {
            let (opening, closing): (Vec<_>, Vec<_>) =
                (0..depth).map(|at| if at % 3 == 0 { (r#"{"a":"#, "}") } else { ("[", "]") }).unzip();
            let closing: String = closing.into_iter().rev().collect();
            let text = format!("{}1{closing}", opening.concat());
            assert_eq!(skipped(&text), Some(&*text), "{depth}");
            let wrong = if depth % 3 == 1 { "}]" } else { "]}" };
            assert_eq!(
                skipped(&format!("{}1{}", opening.concat(), closing.replacen(['}', ']'], wrong, 1))),
                None
            );
        }
    }

    #[test]
    fn an_error_has_the_expected_text_and_its_position() {
        let message = |text: &str| skip_error(text).to_string();
        assert_eq!(message("{\n \"a\": [1,\n  x]}"), "a value expected at line 3 column 3");
        assert_eq!(message(r#"{"a":1"#), "a comma or the end of the object expected at line 1 column 7");
        assert_eq!(message("\"a"), "the rest of a string expected at line 1 column 3");
        assert_eq!(message(r#"{"é"1}"#), "a colon expected at line 1 column 6");
    }

    fn skip_error(text: &str) -> Malformed {
        Reader::new(text).skip().unwrap_err()
    }

    #[test]
    fn a_string_of_any_length_is_read_at_any_offset() {
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
                assert!(matches!(read, Cow::Borrowed(_)) && reader.take_if(b','));
            }
        }
    }

    #[test]
    fn a_value_is_taken_only_as_a_complete_member() {
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
            assert_eq!(reader.take_exact(value), taken, "{text} {value}");
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
        fn the_reader_and_serde_agree_on_damaged_json(text in json(), at in any::<prop::sample::Index>(), with in any::<String>()) {
            prop_assert_eq!(skipped(&text), Some(&*text));
            let mut places = text.char_indices().map(|(place, _)| place);
            let place = places.nth(at.index(text.chars().count())).unwrap_or_default();
            for broken in [
                text[..place].to_owned(),
                format!("{}{with}{}", &text[..place], &text[place..]),
                text.chars().enumerate().filter(|(number, _)| *number != place).map(|(_, each)| each).collect(),
            ] {
                prop_assert_eq!(skipped(&broken), expected(&broken), "{}", broken);
            }
        }

        #[test]
        fn the_reader_and_serde_agree_on_text_of_json_characters(text in r#"[\[\]{}",:\\ 0-9eE+.tfnu-]{0,24}"#) {
            prop_assert_eq!(skipped(&text), expected(&text), "{}", text);
        }
    }
}
