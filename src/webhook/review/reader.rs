//! A JSON reader that borrows from the text, member by member.
//!
//! Most bytes of a review are not needed. The reader skips them in one step, but still checks them: invalid JSON (RFC 8259)
//! is an error anywhere. The steps for each string are `inline(always)`, because a call would double their time.

mod nesting;
mod skip;
mod strings;

use std::borrow::Cow;

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
    /// The ends of strings in the block, see [`strings::ends`].
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

    #[inline(always)]
    fn current(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }
}

#[cfg(test)]
mod tests;
