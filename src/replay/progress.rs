//! A progress bar on standard error, if that is a terminal.

use std::io::Read;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// The progress of a replay.
#[derive(Clone, Debug)]
pub(super) struct Progress(ProgressBar);

impl Default for Progress {
    fn default() -> Self {
        Self(ProgressBar::no_length())
    }
}

impl Progress {
    /// Shows how much of the reader's `length` bytes was read; `None` if the length is unknown.
    pub(super) fn reading<R: Read>(&self, reader: R, length: Option<u64>) -> impl Read + use<R> {
        if let Some(length) = length {
            self.0.set_length(length);
            self.0.set_style(style("{wide_bar} {bytes}/{total_bytes} {eta}"));
        } else {
            self.0.set_style(style("{spinner} {bytes} read, {bytes_per_sec}"));
            self.0.enable_steady_tick(Duration::from_millis(100));
        }
        self.0.wrap_read(reader)
    }

    /// Shows how many of this many writes are decided.
    pub(super) fn expanding(&self, writes: u64) {
        self.0.disable_steady_tick();
        self.0.reset();
        self.0.set_length(writes);
        self.0.set_style(style("{wide_bar} {human_pos}/{human_len} occurrences {eta}"));
    }

    /// This many writes are decided.
    pub(super) fn at(&self, writes: u64) {
        self.0.set_position(writes);
    }

    /// Removes the bar.
    pub(super) fn finish(&self) {
        self.0.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("templates are constants that a test covers")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_template_is_valid() {
        let progress = Progress::default();
        for length in [None, Some(3)] {
            let mut read = String::new();
            progress.reading(&b"abc"[..], length).read_to_string(&mut read).unwrap();
            assert_eq!(read, "abc");
        }
        progress.expanding(10);
        progress.at(10);
        progress.finish();
    }
}
