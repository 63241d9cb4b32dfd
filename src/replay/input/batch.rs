//! Batches of lines: several threads parse the lines of a batch, and one replays them in order.

use std::io::{self, BufRead};
use std::ops::Range;
use std::thread;

use super::EntryError;
use super::lines::Lines;

/// Maximum lines of a batch: enough to make the start of the threads cheap.
const LINES: usize = 2048;

/// Maximum bytes of a batch, apart from its last line: bounds the memory.
const BYTES: usize = 8 << 20;

/// More threads would wait for the one that replays.
const THREADS: usize = 4;

/// A batch of lines.
#[derive(Default)]
pub(super) struct Batch {
    text: String,
    lines: Vec<NumberedLine>,
}

/// A line of a batch.
pub(super) struct NumberedLine {
    /// Its number, from 1.
    pub(super) number: u64,
    place: Result<Range<usize>, EntryError>,
}

impl Batch {
    /// Replaces the lines by the next ones; none are left at the end of the input. After an error it has the lines
    /// before it.
    pub(super) fn fill<R: BufRead>(&mut self, lines: &mut Lines<R>) -> io::Result<()> {
        self.text.clear();
        self.text.shrink_to(BYTES);
        self.lines.clear();
        while self.lines.len() < LINES && self.text.len() < BYTES {
            let Some((number, line)) = lines.next()? else { break };
            let begin = self.text.len();
            let place = line.map(|line| {
                self.text.push_str(line);
                begin..self.text.len()
            });
            self.lines.push(NumberedLine { number, place });
        }
        Ok(())
    }

    pub(super) fn lines(&self) -> &[NumberedLine] {
        &self.lines
    }

    /// Returns the text of one of its lines.
    pub(super) fn text(&self, line: &NumberedLine) -> Result<&str, EntryError> {
        line.place.clone().map(|place| &self.text[place])
    }
}

/// Maps the items on several threads. The results have the order of the items.
pub(super) fn in_parts<'i, I: Sync, T: Send>(items: &'i [I], map: impl Fn(&'i I) -> T + Sync) -> Vec<T> {
    let parts = thread::available_parallelism().map_or(1, |threads| threads.get().min(THREADS));
    let mut parts = items.chunks(items.len().div_ceil(parts).max(1));
    let map_part = |part: &'i [I]| part.iter().map(&map).collect::<Vec<_>>();
    thread::scope(|scope| {
        let first = parts.next();
        let others: Vec<_> = parts.map(|part| scope.spawn(move || map_part(part))).collect();
        let mut all = first.map(map_part).unwrap_or_default();
        for other in others {
            match other.join() {
                Ok(part) => all.extend(part),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_read_once_and_in_order() {
        let input: String = (0..3 * LINES + 7).map(|number| format!("{number}\n\n")).collect();
        let mut lines = Lines::new((input + "\u{fffd}").into_bytes().leak() as &[u8]);
        let (mut batch, mut found) = (Batch::default(), Vec::new());
        loop {
            batch.fill(&mut lines).unwrap();
            let read = |line: &NumberedLine| (line.number, batch.text(line).unwrap().parse::<usize>().ok());
            let part = in_parts(batch.lines(), read);
            if part.is_empty() {
                break;
            }
            assert!(part.len() <= LINES);
            found.extend(part);
        }
        let expected = (0..3 * LINES + 7).map(|number| (2 * number as u64 + 1, Some(number)));
        let last = (6 * LINES as u64 + 15, None);
        assert_eq!(found, expected.chain([last]).collect::<Vec<_>>());
    }

    #[test]
    fn long_lines_make_small_batches() {
        let input = format!("{}\n", "x".repeat(3 << 20)).repeat(8);
        let (mut lines, mut batch) = (Lines::new(input.as_bytes()), Batch::default());
        let mut lengths = Vec::new();
        while lengths.iter().sum::<usize>() < 8 {
            batch.fill(&mut lines).unwrap();
            lengths.push(batch.lines().len());
        }
        assert_eq!(lengths, [3, 3, 2]);
    }
}
