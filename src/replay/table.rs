//! The report as a plain-text table.

use std::fmt::Write as _;

use super::report::{DroppedRow, PolicyRow, ReplayReport};
use super::tally::{Summary, Writes};
use super::text::{bytes, clean, grouped, plural, span};

/// Maximum rows of a table; `-o json` has all of them.
const MOST_ROWS: usize = 100;
/// Maximum width of a note.
const WIDTH: usize = 110;
/// Maximum rows of the summaries and of the dropped Events.
pub(super) const MOST_LISTED: usize = 10;
/// Maximum characters of a text in a table.
pub(super) const MESSAGE: usize = 60;

/// Returns the report as text.
pub(super) fn render(report: &ReplayReport) -> String {
    let mut out = replayed(report) + "\n";
    out.push_str(&occurrences(report));
    out.push('\n');
    out.push_str(&etcd(report));
    if !report.dropped.is_empty() {
        out.push('\n');
        out.push_str(&dropped(report));
    }
    if !report.summaries.is_empty() {
        out.push('\n');
        out.push_str(&summaries(report));
    }
    out + &notes(&report.notes)
}

/// Returns the first line of a report.
pub(crate) fn replayed(report: &ReplayReport) -> String {
    let input = &report.input;
    format!(
        "Replayed {} over {} from {} ({}).\n",
        plural(input.writes, "write", "writes"),
        span(report.span()),
        clean(&input.file, 200),
        input.format,
    )
}

/// Returns the notes, each after an empty line.
pub(crate) fn notes<'n>(notes: impl IntoIterator<Item = &'n String>) -> String {
    notes.into_iter().map(|note| format!("\n{}", wrapped(&format!("note: {note}")))).collect()
}

fn shown(report: &ReplayReport) -> impl Iterator<Item = &PolicyRow> {
    report.policies.iter().take(MOST_ROWS)
}

fn not_shown(report: &ReplayReport) -> String {
    match report.policies.len().saturating_sub(MOST_ROWS) {
        0 => String::new(),
        more => format!("({} more; -o json has them all)\n", plural(more as u64, "row", "rows")),
    }
}

fn occurrences(report: &ReplayReport) -> String {
    let head = [
        "OCCURRENCES",
        "POLICY",
        "MODE",
        "RECEIVED",
        "ADMITTED",
        "COMPACTED",
        "AGGREGATED",
        "FILTERED",
        "THROTTLED",
        "MUTED",
    ];
    let cells = |namespace: &str, policy: &str, mode: &str, of: &super::report::Occurrences| {
        let numbers =
            [of.received, of.admitted, of.compacted, of.aggregated, of.filtered, of.throttled, of.muted];
        [namespace, policy, mode].map(ToOwned::to_owned).into_iter().chain(numbers.map(grouped)).collect()
    };
    let mut rows: Vec<Vec<String>> =
        shown(report).map(|row| cells(&row.namespace, &row.policy, row.mode, &row.occurrences)).collect();
    rows.push(cells("all", "", "", &report.total.occurrences));
    columns(&head, &rows, 3) + &not_shown(report)
}

fn etcd(report: &ReplayReport) -> String {
    let head = [
        "WRITES TO ETCD",
        "POLICY",
        "WITHOUT",
        "WITH",
        "BY SQUELCH",
        "409",
        "403",
        "RESTORED",
        "BYTES SAVED",
    ];
    let cells = |namespace: &str, policy: &str, of: &Writes, saved: i64| {
        let numbers =
            [of.etcd_without, of.etcd_with, of.flushes, of.already_exists, of.forbidden, of.restored];
        let texts = [namespace, policy].map(ToOwned::to_owned).into_iter().chain(numbers.map(grouped));
        texts.chain([bytes(saved)]).collect()
    };
    let mut rows: Vec<Vec<String>> =
        shown(report).map(|row| cells(&row.namespace, &row.policy, &row.writes, row.bytes_saved)).collect();
    let total = &report.total;
    if total.ungoverned.received > 0 {
        rows.push(cells("no policy", "", &total.ungoverned, 0));
    }
    rows.push(cells("all", "", &total.all_writes(), total.bytes_saved));
    columns(&head, &rows, 2)
}

fn dropped(report: &ReplayReport) -> String {
    let cells = |row: &DroppedRow| dropped_texts(row).into_iter().chain([grouped(row.count)]).collect();
    let rows: Vec<_> = report.dropped.iter().take(MOST_LISTED).map(cells).collect();
    let mut out = columns(&["TOP DROPPED", "REASON", "KIND", "COMPONENT", "BY", "COUNT"], &rows, 5);
    let unlisted = report.dropped.iter().skip(MOST_LISTED).map(|row| row.count).sum::<u64>();
    if unlisted + report.dropped_not_listed > 0 {
        let _ = writeln!(
            out,
            "({} more)",
            plural(unlisted + report.dropped_not_listed, "occurrence", "occurrences")
        );
    }
    out
}

/// Returns namespace, reason, kind, component and disposition.
pub(super) fn dropped_texts(row: &DroppedRow) -> [String; 5] {
    let DroppedRow { namespace, reason, kind, component, disposition, .. } = row;
    [namespace, reason, kind, component, *disposition].map(|text| clean(text, MESSAGE))
}

fn summaries(report: &ReplayReport) -> String {
    let cells = |summary: &Summary| {
        vec![
            summary.namespace.clone(),
            summary.name.clone(),
            grouped(summary.count.unsigned_abs()),
            clean(&summary.message, MESSAGE),
        ]
    };
    let rows: Vec<_> = report.summaries.iter().take(MOST_LISTED).map(cells).collect();
    let mut out = columns(&["SUMMARIES", "NAME", "COUNT", "MESSAGE"], &rows, 2);
    let more = report.summaries.len().saturating_sub(MOST_LISTED) as u64 + report.summaries_not_listed;
    if more > 0 {
        let _ = writeln!(out, "({} more)", plural(more, "summary", "summaries"));
    }
    out
}

/// Wraps the words to lines of at most [`WIDTH`] characters. Continuation lines are indented.
pub(crate) fn wrapped(text: &str) -> String {
    let (mut out, mut column) = (String::new(), 0);
    for word in text.split(' ') {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > WIDTH {
            out.push_str("\n  ");
            column = 2;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out + "\n"
}

/// Formats a table with two blanks between columns. The first `texts` columns and a MESSAGE column are aligned left,
/// the others right.
pub(crate) fn columns(head: &[&str], rows: &[Vec<String>], texts: usize) -> String {
    let head: Vec<String> = head.iter().map(|name| (*name).to_owned()).collect();
    let width = |at: usize| rows.iter().chain([&head]).map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let last_is_text = head.last().is_some_and(|name| name == "MESSAGE");
    let mut out = String::new();
    for row in [&head].into_iter().chain(rows) {
        let mut line = String::new();
        for (at, cell) in row.iter().enumerate() {
            let gap = if at == 0 { "" } else { "  " };
            let left = at < texts || (last_is_text && at == row.len() - 1);
            let padding = " ".repeat(widths[at] - cell.chars().count());
            let _ = if left {
                write!(line, "{gap}{cell}{padding}")
            } else {
                write!(line, "{gap}{padding}{cell}")
            };
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_wrapped_between_words() {
        let wrapped = wrapped(&"word ".repeat(50));
        let lines: Vec<&str> = wrapped.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|line| line.len() <= WIDTH));
        assert!(lines[1].starts_with("  word") && !lines[0].starts_with(' '));
        assert_eq!(wrapped.split_whitespace().count(), 50);
    }
}
