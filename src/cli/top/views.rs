//! The three views and the details as tables. Pure.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::{DroppedBy, EventType, PolicyCounters, ReportedDrops};
use crate::replay::text::grouped;

use super::grid::{Grid, GridCell, GridColumn, GridRow, numbers, texts, words};
use super::rows::{NamespaceLine, PolicyLine, full_name};
use super::snapshot::{Offender, TopModel, TopOrder};

/// A view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TopView {
    /// One row for each report.
    Namespaces,
    /// One row for each policy.
    Policies,
    /// One row for each entry of `dropped` of the reports.
    Offenders,
}

impl TopView {
    /// All of them.
    pub(super) const ALL: [Self; 3] = [Self::Namespaces, Self::Policies, Self::Offenders];

    /// Its title.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Namespaces => "Namespaces",
            Self::Policies => "Policies",
            Self::Offenders => "Offenders",
        }
    }

    /// Its table, with at most `limit` rows.
    pub(super) fn grid(self, model: &TopModel, order: TopOrder, limit: usize, now: Timestamp) -> Grid {
        match self {
            Self::Namespaces => namespaces(model, order, limit, now),
            Self::Policies => policies(model, order, limit),
            Self::Offenders => offenders(model, limit, now),
        }
    }

    /// What is shown instead of an empty table.
    pub(super) fn empty(self) -> &'static str {
        match self {
            Self::Namespaces => "no report: squelch has suppressed nothing here",
            Self::Policies => "no policy: squelch suppresses nothing without one",
            Self::Offenders => "no entry: squelch has dropped nothing here",
        }
    }
}

const NAMESPACES: &[GridColumn] = &[
    texts("NAMESPACE", "NAMESPACE", 16),
    numbers("SUPPRESSED", "SUPPR"),
    numbers("DROPPED", "DROP"),
    numbers("WARNINGS", "WARN"),
    numbers("RATE/S", "RATE"),
    numbers("AGE", "AGE"),
    texts("TOP POLICY", "POLICY", 12),
];

fn namespaces(model: &TopModel, order: TopOrder, limit: usize, now: Timestamp) -> Grid {
    let all = model.namespaces(order, now);
    let row = |row: &&NamespaceLine| GridRow {
        key: row.namespace.clone(),
        cells: vec![
            GridCell::text(&row.namespace),
            number(row.suppressed),
            number(row.dropped_occurrences),
            number(row.dropped_warnings),
            GridCell::text(row.rate(now).map_or_else(|| "-".to_owned(), per_second)),
            age(row.last_updated.as_ref(), now),
            GridCell::text(row.top_policy()),
        ],
        is_alarming: row.dropped_warnings > 0,
    };
    Grid { columns: NAMESPACES.to_vec(), rows: all.iter().take(limit).map(row).collect(), total: all.len() }
}

const POLICIES: &[GridColumn] = &[
    texts("POLICY", "POLICY", 14),
    words("MODE", "MODE"),
    words("ACCEPTED", "ACC"),
    words("EFFECTIVE", "EFF"),
];

/// The columns of [`dispositions`].
const DISPOSITIONS: &[GridColumn] = &[
    numbers("RECEIVED", "RECV"),
    numbers("ADMITTED", "ADMIT"),
    numbers("COMPACTED", "COMP"),
    numbers("AGGREGATED", "AGGR"),
    numbers("FILTERED", "FILT"),
    numbers("THROTTLED", "THROT"),
    numbers("MUTED", "MUTED"),
    numbers("WARNINGS", "WARN"),
];

fn policies(model: &TopModel, order: TopOrder, limit: usize) -> Grid {
    let all = model.policies(order);
    let row = |row: &&PolicyLine| {
        let texts = [
            GridCell::text(row.full_name()),
            GridCell::text(&row.mode),
            condition(&row.accepted),
            condition(&row.effective),
        ];
        GridRow {
            key: row.full_name(),
            cells: texts.into_iter().chain(dispositions(&row.counters)).collect(),
            is_alarming: row.effective != "True" || row.counters.dropped_warnings > 0,
        }
    };
    let columns = [POLICIES, DISPOSITIONS].concat();
    Grid { columns, rows: all.iter().take(limit).map(row).collect(), total: all.len() }
}

fn offenders(model: &TopModel, limit: usize, now: Timestamp) -> Grid {
    let (shown, total) = model.offenders(limit);
    let rows = shown.iter().map(|offender| {
        let mut cells = drops(offender.drops, now);
        cells.insert(1, GridCell::text(offender.namespace));
        let is_alarming = offender.drops.event_type == EventType::Warning;
        GridRow { key: offender_key(offender), cells, is_alarming }
    });
    let mut columns = DROPS.to_vec();
    columns.insert(1, texts("NAMESPACE", "NAMESPACE", 9));
    Grid { columns, rows: rows.collect(), total }
}

/// Returns all that identifies an entry. The first line is the namespace.
fn offender_key(Offender { namespace, drops }: &Offender<'_>) -> String {
    let ReportedDrops { policy_kind, policy_name, event_type, reason, kind, component, .. } = drops;
    let event_type = match event_type {
        EventType::Normal => "Normal",
        EventType::Warning => "Warning",
    };
    let texts: [&str; 8] =
        [namespace, policy_kind, policy_name, event_type, reason, kind, component, by(drops).0];
    texts.join("\n")
}

/// Count, type, reason, kind, component, disposition, time of the last occurrence, object.
fn drops(drops: &ReportedDrops, now: Timestamp) -> Vec<GridCell> {
    let event_type = match drops.event_type {
        EventType::Normal => GridCell::with_short("Normal", "Norm"),
        EventType::Warning => GridCell::with_short("Warning", "Warn"),
    };
    let (disposition, short) = by(drops);
    vec![
        number(drops.count),
        event_type,
        GridCell::text(&drops.reason),
        GridCell::text(&drops.kind),
        GridCell::text(&drops.component),
        GridCell::with_short(disposition, short),
        age(Some(&drops.last_observed_time), now),
        GridCell::text(&drops.example_object),
    ]
}

fn by(drops: &ReportedDrops) -> (&'static str, &'static str) {
    match drops.disposition {
        DroppedBy::Filtered => ("filtered", "filt"),
        DroppedBy::Throttled => ("throttled", "throt"),
        DroppedBy::Muted => ("muted", "muted"),
    }
}

/// The columns of [`drops`].
const DROPS: &[GridColumn] = &[
    numbers("COUNT", "COUNT"),
    words("TYPE", "TYPE"),
    texts("REASON", "REASON", 12),
    texts("KIND", "KIND", 6),
    texts("COMPONENT", "COMPONENT", 9),
    words("DISPOSITION", "BY"),
    numbers("LAST", "LAST"),
    texts("OBJECT", "OBJECT", 9),
];

/// The details of a namespace, in lines of this width.
pub(super) fn namespace_details(row: &NamespaceLine, now: Timestamp, width: usize) -> Vec<String> {
    let share = |name: &str, counters: &PolicyCounters| GridRow {
        key: name.to_owned(),
        cells: [GridCell::text(name)].into_iter().chain(dispositions(counters)).collect(),
        is_alarming: false,
    };
    let listed = row.policies.iter().map(|policy| {
        let namespace = (policy.policy_kind == "EventPolicy").then_some(row.namespace.as_str());
        share(&full_name(namespace, &policy.policy_name), &policy.counters)
    });
    let others = row.other_policies.iter().map(|counters| share("other policies", counters));
    let shares: Vec<GridRow> = listed.chain(others).collect();
    let dropped = row.dropped.iter().map(|entry| {
        let mut cells = drops(entry, now);
        cells.push(GridCell::text(&entry.example_message));
        GridRow { key: String::new(), cells, is_alarming: false }
    });
    let mut lines = vec![
        format!("Namespace {}", row.namespace),
        format!(
            "suppressed {}, dropped {}, Warnings {}, rate {}, report {} old",
            grouped(row.suppressed.unsigned_abs()),
            grouped(row.dropped_occurrences.unsigned_abs()),
            grouped(row.dropped_warnings.unsigned_abs()),
            row.rate(now).map_or_else(|| "unknown".to_owned(), |rate| per_second(rate) + "/s"),
            elapsed(row.last_updated.as_ref(), now),
        ),
    ];
    let of_shares = [&[texts("POLICY", "POLICY", 20)], DISPOSITIONS].concat();
    let of_drops = [DROPS, &[texts("MESSAGE", "MESSAGE", 12)]].concat();
    for (columns, rows) in [(of_shares, shares), (of_drops, dropped.collect())] {
        let table = Grid { columns, total: rows.len(), rows }.lines(width);
        lines.extend([String::new(), table.head]);
        lines.extend(table.rows);
    }
    lines
}

/// The details of a policy, in lines of this width.
pub(super) fn policy_details(row: &PolicyLine, now: Timestamp, width: usize) -> Vec<String> {
    let mut lines = vec![
        format!("{} {}", row.kind, row.full_name()),
        format!("mode {}, status written {} ago", row.mode, elapsed(row.last_updated.as_ref(), now)),
        format!("Accepted {}, Effective {} ({})", row.accepted, row.effective, row.reason),
    ];
    lines.extend(wrapped(&row.message, width));
    lines.push(String::new());
    let counters = &row.counters;
    let numbers = [
        ("received", counters.received),
        ("admitted", counters.admitted),
        ("compacted", counters.compacted),
        ("aggregated", counters.aggregated),
        ("filtered", counters.filtered),
        ("throttled", counters.throttled),
        ("muted", counters.muted),
        ("failedOpen", counters.failed_open),
        ("recovered", counters.recovered),
        ("droppedWarnings", counters.dropped_warnings),
    ];
    lines.extend(numbers.map(|(name, number)| format!("{name:<15} {:>15}", grouped(number.unsigned_abs()))));
    lines
}

/// The counters of a policy, as the columns name them.
fn dispositions(counters: &PolicyCounters) -> [GridCell; 8] {
    [
        counters.received,
        counters.admitted,
        counters.compacted,
        counters.aggregated,
        counters.filtered,
        counters.throttled,
        counters.muted,
        counters.dropped_warnings,
    ]
    .map(number)
}

fn condition(status: &str) -> GridCell {
    let short = match status {
        "True" => "yes",
        "False" => "no",
        _ => "?",
    };
    GridCell::with_short(status, short)
}

fn number(number: i64) -> GridCell {
    let number = number.unsigned_abs();
    GridCell::with_short(grouped(number), rounded(number))
}

/// Formats a number in at most five characters, such as `12.3k`.
fn rounded(number: u64) -> String {
    if number < 10_000 {
        return number.to_string();
    }
    let mut scaled = number as f64;
    for unit in ["", "k", "M", "G", "T", "P"] {
        if scaled < 999.5 {
            let digits = if scaled < 9.995 {
                2
            } else if scaled < 99.95 {
                1
            } else {
                0
            };
            return format!("{scaled:.digits$}{unit}");
        }
        scaled /= 1_000.0;
    }
    format!("{scaled:.0}E")
}

fn per_second(rate: f64) -> String {
    if rate < 99.95 { format!("{rate:.1}") } else { grouped(rate.round() as u64) }
}

fn age(time: Option<&Time>, now: Timestamp) -> GridCell {
    GridCell::text(elapsed(time, now))
}

/// Formats the time since `time` in one unit, such as `42s`.
fn elapsed(time: Option<&Time>, now: Timestamp) -> String {
    let Some(Time(time)) = time else { return "-".to_owned() };
    let seconds = now.duration_since(*time).as_secs().max(0);
    match seconds {
        0..=119 => format!("{seconds}s"),
        120..=7_199 => format!("{}m", seconds / 60),
        7_200..=172_799 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Splits a text between words into lines of at most this number of characters. Longer words are lines of their own.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_number_has_at_most_five_characters() {
        let numbers = [0, 9_999, 12_345, 99_960, 999_400, 999_600, 1_234_567, 45_600_000, i64::MAX as u64];
        let expected = ["0", "9999", "12.3k", "100k", "999k", "1.00M", "1.23M", "45.6M", "9E"];
        assert_eq!(numbers.map(rounded), expected);
    }

    #[test]
    fn ages_and_rates_are_short() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let ages = [-5, 0, 119, 120, 7_199, 7_200, 172_800];
        let since =
            |seconds: i64| elapsed(Some(&Time(Timestamp::from_second(1_000_000 - seconds).unwrap())), now);
        assert_eq!(ages.map(since), ["0s", "0s", "119s", "2m", "119m", "2h", "2d"]);
        assert_eq!(elapsed(None, now), "-");
        assert_eq!(
            [0.04, 3.25, 99.9, 99.96, 12_345.6].map(per_second),
            ["0.0", "3.2", "99.9", "100", "12,346"]
        );
    }

    #[test]
    fn a_message_is_wrapped_between_words() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("incomprehensible", 7), ["incomprehensible"]);
        assert!(wrapped("", 7).is_empty());
    }
}
