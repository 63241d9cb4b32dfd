//! The progress of a recording on standard error, if that is a terminal.

use std::io::{self, Write as _};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::recording::Recording;
use crate::clock;
use crate::replay::text::{clean, plural};

/// Maximum characters of a namespace: a DNS label.
const NAMESPACE: usize = 63;

/// A line that changes in place.
#[derive(Debug)]
pub(super) struct RecordProgress(ProgressBar);

impl RecordProgress {
    /// Shows nothing if `is_hidden`, or if standard error is no terminal.
    pub(super) fn new(is_hidden: bool) -> Self {
        let bar = if is_hidden { ProgressBar::hidden() } else { ProgressBar::no_length() };
        bar.set_style(style());
        if !bar.is_hidden() {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Self(bar)
    }

    /// Shows the counts.
    pub(super) fn show(&self, recording: &Recording) {
        if self.0.is_hidden() {
            return;
        }
        let counts = recording.counts(clock::now());
        self.0.set_position(counts.creates + counts.updates);
        let (gaps, namespace) =
            (plural(counts.gaps, "gap", "gaps"), clean(recording.last_namespace(), NAMESPACE));
        self.0.set_message(format!("{gaps}, the last write in {namespace}"));
    }

    /// Prints a line on standard error.
    pub(super) fn say(&self, line: &str) {
        // The recording continues if nobody reads it.
        let _ = self.0.suspend(|| writeln!(io::stderr(), "{line}"));
    }

    /// Removes the line.
    pub(super) fn finish(&self) {
        self.0.finish_and_clear();
    }
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{spinner} {elapsed} {human_pos} writes, {per_sec}, {msg}")
        .expect("a constant that a test covers")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_is_valid() {
        let progress = RecordProgress::new(true);
        progress.show(&Recording::default());
        progress.finish();
    }
}
