//! Skipping values that are not needed. They are still checked.

use super::nesting::Nesting;
use super::{Malformed, Reader};

impl<'a> Reader<'a> {
    /// Skips any value.
    #[inline]
    pub(in crate::webhook::review) fn skip(&mut self) -> Result<(), Malformed> {
        match self.peek() {
            Some(b'{' | b'[') => self.skip_nested(),
            first => self.skip_flat(first),
        }
    }

    /// Skips a value without nested values that begins with `first`.
    #[inline(always)]
    pub(super) fn skip_flat(&mut self, first: Option<u8>) -> Result<(), Malformed> {
        match first {
            Some(b'"') => self.skip_string(),
            Some(b't') => self.word("true"),
            Some(b'f') => self.word("false"),
            Some(b'n') => self.word("null"),
            _ => self.number(),
        }
    }

    pub(super) fn skip_nested(&mut self) -> Result<(), Malformed> {
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
    fn skip_key(&mut self) -> Result<(), Malformed> {
        if self.peek() != Some(b'"') {
            return Err(self.malformed("a key"));
        }
        self.skip_string()?;
        self.expect(b':', "a colon")
    }
}
