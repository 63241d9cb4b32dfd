//! The text at the end of a recording.

use std::fmt::Write as _;
use std::time::Duration;

use super::recording::RecordingCounts;
use crate::replay::text::{grouped, plural, span};

/// What no recording contains.
const NOT_SHOWN: &str = "A watch does not show:
  - writes that the API server refused or that changed nothing, and dry runs
  - writes that squelch suppressed: record without policies, or with `mode: Observe`
  - the user of a write: `match.users` matches nothing in the replay
";

/// Returns the summary. `events` says which Events were recorded, `file` where to.
pub(super) fn summary(counts: &RecordingCounts, events: &str, file: &str) -> String {
    let writes = counts.creates + counts.updates;
    let mut text = format!(
        "Recorded {} in {} from {events} to {file}: {}, {}.\n",
        plural(writes, "write", "writes"),
        span(counts.time),
        plural(counts.creates, "create", "creates"),
        plural(counts.updates, "update", "updates"),
    );
    let core = writes - counts.through_new_api;
    let _ = writeln!(
        text,
        "Their API: {} v1, {} events.k8s.io{}. Events at the beginning: {}.",
        grouped(core),
        grouped(counts.through_new_api),
        if counts.of_assumed_api == 0 {
            String::new()
        } else {
            format!(" ({} by their fields, as managedFields lack it)", grouped(counts.of_assumed_api))
        },
        grouped(counts.at_beginning),
    );
    text += &gaps(counts);
    if counts.without_previous > 0 {
        let updates = plural(counts.without_previous, "update is", "updates are");
        let _ = writeln!(
            text,
            "{updates} left out: squelch remembers 256 MiB of Events, and the one before was older. \
             Record fewer namespaces."
        );
    }
    if counts.by_squelch > 0 {
        let are = plural(counts.by_squelch, "write is", "writes are");
        let _ = writeln!(
            text,
            "{are} by squelch (field manager): it suppressed writes meanwhile, which the recording contains only as \
             counts."
        );
    }
    if writes == 0 {
        text +=
            "The trace is empty, and `squelch replay` refuses it: record for longer, or more namespaces.\n";
    }
    text + NOT_SHOWN
}

fn gaps(counts: &RecordingCounts) -> String {
    let mut text = match counts.gaps {
        0 => "Gaps: none.\n".to_owned(),
        gaps => format!(
            "Gaps: {}, {} in all, which no watch can show any more, as the API server discards old versions. Lists then \
             showed {} with {}; other writes in the gaps are lost.\n",
            grouped(gaps),
            span(counts.gap_time),
            plural(counts.gap_writes, "write", "writes"),
            plural(counts.gap_occurrences.unsigned_abs(), "occurrence", "occurrences"),
        ),
    };
    if counts.reopened > 0 {
        let _ = writeln!(
            text,
            "The watch was opened again {}, after {} in all. Nothing is lost there, but the writes in this time have a \
             later `at`.",
            plural(counts.reopened, "time", "times"),
            span(counts.reopening),
        );
    }
    if counts.missing_at_end > Duration::ZERO {
        let _ = writeln!(text, "The last {} are missing: there was no watch.", span(counts.missing_at_end));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complete_recording_says_what_a_watch_does_not_show() {
        let counts = RecordingCounts {
            time: Duration::from_secs(600),
            at_beginning: 5_211,
            creates: 400,
            updates: 834,
            through_new_api: 3,
            ..RecordingCounts::default()
        };
        let text = summary(&counts, "all namespaces", "trace.jsonl");
        let expected = "\
Recorded 1,234 writes in 10m0s from all namespaces to trace.jsonl: 400 creates, 834 updates.
Their API: 1,231 v1, 3 events.k8s.io. Events at the beginning: 5,211.
Gaps: none.
A watch does not show:
";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.ends_with(NOT_SHOWN));
    }

    #[test]
    fn whatever_is_missing_is_said() {
        let counts = RecordingCounts {
            of_assumed_api: 2,
            by_squelch: 1,
            without_previous: 4,
            gaps: 2,
            gap_time: Duration::from_millis(14_200),
            gap_writes: 31,
            gap_occurrences: 241,
            reopened: 1,
            reopening: Duration::from_secs(3),
            missing_at_end: Duration::from_secs(61),
            ..RecordingCounts::default()
        };
        let text = summary(&counts, "shop", "standard output");
        for part in [
            "Recorded 0 writes in 0.000s from shop to standard output: 0 creates, 0 updates.",
            "(2 by their fields, as managedFields lack it)",
            "Gaps: 2, 14.200s in all, which no watch can show",
            "Lists then showed 31 writes with 241 occurrences; other writes in the gaps are lost.",
            "opened again 1 time, after 3.000s in all.",
            "The last 1m1s are missing",
            "4 updates are left out",
            "1 write is by squelch",
            "The trace is empty",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }
}
