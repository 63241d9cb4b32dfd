//! The numbered lines of an input, with bounded length.

use std::io::{self, BufRead, Read};

use super::EntryError;

/// The longest line, in bytes: the limit of the body of a review.
const LONGEST: usize = 40 << 20;

/// The buffer that is kept between lines, in bytes.
const KEPT: usize = 1 << 20;

/// The lines of a reader.
pub(super) struct Lines<R> {
    reader: R,
    number: u64,
    buffer: Vec<u8>,
    longest: usize,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, number: 0, buffer: Vec::new(), longest: LONGEST }
    }

    /// Returns the next line that is not blank, with its number from 1.
    pub(super) fn next(&mut self) -> io::Result<Option<(u64, Result<&str, EntryError>)>> {
        loop {
            self.buffer.clear();
            self.buffer.shrink_to(KEPT);
            let room = self.longest as u64 + 1;
            if (&mut self.reader).take(room).read_until(b'\n', &mut self.buffer)? == 0 {
                return Ok(None);
            }
            self.number += 1;
            if self.buffer.len() > self.longest && self.buffer.last() != Some(&b'\n') {
                self.reader.skip_until(b'\n')?;
                let wrong = EntryError::new(format!("the line is longer than {} MiB", self.longest >> 20));
                return Ok(Some((self.number, Err(wrong))));
            }
            if !self.buffer.trim_ascii().is_empty() {
                break;
            }
        }
        let text = str::from_utf8(self.buffer.trim_ascii_end());
        let text = text.map_err(|error| EntryError {
            column: Some(error.valid_up_to() + 1),
            reason: "the line is not UTF-8".to_owned(),
        });
        Ok(Some((self.number, text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &[u8]) -> Vec<(u64, Result<String, String>)> {
        let mut lines = Lines { longest: 8, ..Lines::new(bytes) };
        let mut found = Vec::new();
        while let Some((number, line)) = lines.next().unwrap() {
            found.push((number, line.map(ToOwned::to_owned).map_err(|wrong| wrong.reason)));
        }
        found
    }

    #[test]
    fn blank_lines_are_counted_and_long_ones_skipped() {
        let found = lines(b"a\r\n\n  \nb\n123456789abc\n12345678\nc");
        let good = |number, text: &str| (number, Ok(text.to_owned()));
        let long = (5, Err("the line is longer than 0 MiB".to_owned()));
        assert_eq!(found, [good(1, "a"), good(4, "b"), long, good(6, "12345678"), good(7, "c")]);
    }

    #[test]
    fn a_line_that_is_not_utf8_is_one_line() {
        let found = lines(b"a\n\xff\nb");
        assert_eq!(found[1], (2, Err("the line is not UTF-8".to_owned())));
        assert_eq!(found[2].0, 3);
    }
}
