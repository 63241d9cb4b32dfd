//! Many lines at a time: to read one needs no other, so that all processors read, and one replays them in order.

use std::io::{self, BufRead};
use std::ops::Range;
use std::thread;

use super::Wrong;
use super::lines::Lines;

/// So many lines are read ahead: enough that to start threads is nothing beside it.
const LINES: usize = 2048;

/// And no more bytes, but for the last line: what is read ahead is held in memory.
const BYTES: usize = 8 << 20;

/// More threads would wait for the one that replays.
const THREADS: usize = 4;

/// Lines, and their numbers from 1.
#[derive(Default)]
pub(super) struct Batch {
    text: String,
    lines: Vec<(u64, Result<Range<usize>, Wrong>)>,
}

impl Batch {
    /// Takes the next lines in place of those it had. On an error it has those before it.
    pub(super) fn fill<R: BufRead>(&mut self, lines: &mut Lines<R>) -> io::Result<()> {
        self.text.clear();
        self.text.shrink_to(BYTES);
        self.lines.clear();
        while self.lines.len() < LINES && self.text.len() < BYTES {
            let Some((number, line)) = lines.next()? else { break };
            let begin = self.text.len();
            let line = line.map(|line| {
                self.text.push_str(line);
                begin..self.text.len()
            });
            self.lines.push((number, line));
        }
        Ok(())
    }

    /// What `read` makes of each line, in their order, with their numbers. None: the input is at its end.
    pub(super) fn read<'a, T: Send>(
        &'a mut self,
        read: impl Fn(&'a str) -> Result<T, Wrong> + Sync,
    ) -> Vec<(u64, Result<T, Wrong>)> {
        let (text, read) = (&*self.text, &read);
        let parts = thread::available_parallelism().map_or(1, |threads| threads.get().min(THREADS));
        let part = self.lines.len().div_ceil(parts).max(1);
        let read_part = move |lines: &mut [(u64, Result<Range<usize>, Wrong>)]| {
            let taken = lines.iter_mut().map(|(number, line)| (*number, std::mem::replace(line, Ok(0..0))));
            taken.map(|(number, line)| (number, line.and_then(|line| read(&text[line])))).collect::<Vec<_>>()
        };
        let mut parts = self.lines.chunks_mut(part);
        thread::scope(|scope| {
            let first = parts.next();
            let others: Vec<_> = parts.map(|part| scope.spawn(move || read_part(part))).collect();
            let mut all = first.map(read_part).unwrap_or_default();
            for other in others {
                match other.join() {
                    Ok(part) => all.extend(part),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            all
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_read_once_and_in_its_order() {
        let input: String = (0..3 * LINES + 7).map(|number| format!("{number}\n\n")).collect();
        let mut lines = Lines::new((input + "\u{fffd}").into_bytes().leak() as &[u8]);
        let (mut batch, mut found) = (Batch::default(), Vec::new());
        loop {
            batch.fill(&mut lines).unwrap();
            let part =
                batch.read(|line| line.parse::<usize>().map_err(|error| Wrong::new(error.to_string())));
            if part.is_empty() {
                break;
            }
            assert!(part.len() <= LINES);
            found.extend(part.into_iter().map(|(number, read)| (number, read.ok())));
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
            lengths.push(batch.read(|line| Ok(line.len())).len());
        }
        assert_eq!(lengths, [3, 3, 2]);
    }
}
