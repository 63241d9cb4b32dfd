//! Strings: where they end, and their escapes.

use wide::u8x16;

use super::{Malformed, Reader};

impl<'a> Reader<'a> {
    /// Reads the next value if it is a string without escapes, or else returns `None`.
    #[inline]
    pub(super) fn plain(&mut self) -> Option<&'a str> {
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
    pub(super) fn unescaped(&mut self, expected: &'static str) -> Result<String, Malformed> {
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
    pub(super) fn skip_string(&mut self) -> Result<(), Malformed> {
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
