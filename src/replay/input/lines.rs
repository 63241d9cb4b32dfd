//! Lines of an input, numbered, none longer than memory should hold.

use std::io::{self, BufRead, Read};

use super::Wrong;

/// As long as the body of a review may be.
const LONGEST: usize = 40 << 20;

/// A line that is held does not keep more than this for the next.
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

    /// The next line that is not blank, with its number from 1.
    pub(super) fn next(&mut self) -> io::Result<Option<(u64, Result<&str, Wrong>)>> {
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
                let wrong = Wrong::new(format!("longer than {} MiB", self.longest >> 20));
                return Ok(Some((self.number, Err(wrong))));
            }
            if !self.buffer.trim_ascii().is_empty() {
                break;
            }
        }
        let text = str::from_utf8(self.buffer.trim_ascii_end());
        let text = text
            .map_err(|error| Wrong { column: Some(error.valid_up_to() + 1), reason: "not UTF-8".to_owned() });
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
    fn blank_lines_are_counted_and_long_ones_passed_over() {
        let found = lines(b"a\r\n\n  \nb\n123456789abc\n12345678\nc");
        let good = |number, text: &str| (number, Ok(text.to_owned()));
        let long = (5, Err("longer than 0 MiB".to_owned()));
        assert_eq!(found, [good(1, "a"), good(4, "b"), long, good(6, "12345678"), good(7, "c")]);
    }

    #[test]
    fn a_line_that_is_no_text_is_one_line() {
        let found = lines(b"a\n\xff\nb");
        assert_eq!(found[1], (2, Err("not UTF-8".to_owned())));
        assert_eq!(found[2].0, 3);
    }
}
