//! The tables of a group in Markdown that is readable on a terminal.

use std::collections::BTreeMap;

use e2e::figures::{grouped, median, table};

use crate::cell::Cell;
use crate::figures::{Paired, spread};
use crate::groups::Group;
use crate::setting::Setting;
use crate::verdicts::{Verdict, paired};

/// Settings in the order of the tables.
const SETTINGS: [Setting; 7] = [
    Setting::None,
    Setting::Go,
    Setting::Limiter,
    Setting::Observe,
    Setting::Enforce,
    Setting::Export,
    Setting::ExportAway,
];

/// The section of a group.
pub(crate) fn section(group: Group, cells: &[Cell], verdicts: &[Verdict]) -> String {
    let mut tables = vec![promises(verdicts)];
    let mut titles: Vec<String> = Vec::new();
    for title in cells.iter().map(|cell| cell.load.title()) {
        if !titles.contains(&title) {
            titles.push(title);
        }
    }
    for title in titles {
        let of_load: Vec<&Cell> = cells.iter().filter(|cell| cell.load.title() == title).collect();
        tables.push(measured(&title, &of_load));
    }
    if !matches!(group, Group::Minute | Group::Storm | Group::Limiter | Group::Export) {
        tables.push(pairs(cells));
    }
    tables.join("\n")
}

fn promises(verdicts: &[Verdict]) -> String {
    let rows = verdicts.iter().map(|verdict| {
        let kept = if verdict.kept { "yes" } else { "**no**" };
        vec![verdict.what.clone(), verdict.wanted.clone(), verdict.measured.clone(), kept.to_owned()]
    });
    table(&["", "required", "measured", "kept"], &rows.collect::<Vec<_>>())
}

/// A table of medians over the rounds.
fn measured(title: &str, cells: &[&Cell]) -> String {
    let rows = SETTINGS.into_iter().filter_map(|setting| {
        let cells: Vec<&&Cell> = cells.iter().filter(|cell| cell.setting == setting).collect();
        let middle = |figure: &dyn Fn(&Cell) -> f64| {
            median(&cells.iter().map(|cell| figure(cell)).collect::<Vec<_>>())
        };
        (!cells.is_empty()).then(|| {
            let wal = middle(&Cell::wal_bytes);
            vec![
                setting.title().to_owned(),
                number(middle(&Cell::per_second)),
                format!("{:.1}, {:.1}", middle(&|cell| cell.event_ms[0]), middle(&|cell| cell.event_ms[1])),
                format!("{:.1}, {:.1}", middle(&|cell| cell.lease_ms[0]), middle(&|cell| cell.lease_ms[1])),
                number(middle(&|cell| cell.per_write(cell.spent.api_server))),
                number(middle(&|cell| cell.per_write(cell.spent.etcd))),
                number(middle(&|cell| cell.per_write(cell.spent.webhook))),
                number(middle(&Cell::cpu)),
                format!("{:.1} %", middle(&Cell::puts) * 100.0),
                number(wal),
                answers(&cells),
            ]
        })
    });
    let head = [
        title,
        "writes/s",
        "Events: p50, p99 ms",
        "Leases: p50, p99 ms",
        "API server, µs",
        "etcd, µs",
        "webhook, µs",
        "together, µs",
        "etcd writes",
        "WAL, bytes",
        "answers",
    ];
    table(&head, &rows.collect::<Vec<_>>())
}

/// Answers by status over all rounds, in percent.
fn answers(cells: &[&&Cell]) -> String {
    let mut sum: BTreeMap<u16, usize> = BTreeMap::new();
    for (status, times) in cells.iter().flat_map(|cell| &cell.statuses) {
        *sum.entry(*status).or_default() += times;
    }
    let all: usize = sum.values().sum();
    let shown = sum.iter().map(|(status, times)| {
        let word = match status {
            0 => "none".to_owned(),
            200 => "2xx".to_owned(),
            other => other.to_string(),
        };
        format!("{word}: {:.1} %", *times as f64 * 100.0 / all.max(1) as f64)
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// Each setting paired with the two measurements without a webhook around it: minimum, median, maximum over the
/// rounds.
fn pairs(cells: &[Cell]) -> String {
    let ratio = |paired: &Paired| format_spread(&paired.ratios, |value| format!("{value:.2}"));
    let difference = |paired: &Paired| format_spread(&paired.differences, |value| format!("{value:+.2}"));
    let rows = [Setting::Go, Setting::Observe, Setting::Enforce].into_iter().filter_map(|setting| {
        Some(vec![
            setting.title().to_owned(),
            ratio(&paired(cells, setting, Cell::per_second)?),
            ratio(&paired(cells, setting, Cell::cpu)?),
            difference(&paired(cells, setting, |cell| cell.event_ms[0])?),
            difference(&paired(cells, setting, |cell| cell.event_ms[1])?),
            difference(&paired(cells, setting, |cell| cell.lease_ms[1])?),
        ])
    });
    let mut rows: Vec<_> = rows.collect();
    let noise = |figure: &dyn Fn(&Cell) -> f64, relative: bool| {
        let noise = paired(cells, Setting::Enforce, figure).map_or(0.0, |paired| paired.noise);
        let of: Vec<f64> = cells.iter().filter(|cell| cell.setting == Setting::None).map(figure).collect();
        format!("{:.2}", if relative { noise / median(&of) } else { noise })
    };
    rows.push(vec![
        "noise: no webhook against itself".to_owned(),
        noise(&Cell::per_second, true),
        noise(&Cell::cpu, true),
        noise(&|cell| cell.event_ms[0], false),
        noise(&|cell| cell.event_ms[1], false),
        noise(&|cell| cell.lease_ms[1], false),
    ]);
    let head = [
        "paired with no webhook: minimum, median, maximum",
        "writes/s, ÷",
        "processor time per write, ÷",
        "Events: p50, +ms",
        "p99, +ms",
        "Leases: p99, ms more",
    ];
    table(&head, &rows)
}

fn format_spread(values: &[f64], format: impl Fn(f64) -> String) -> String {
    spread(values).map(format).join(", ")
}

/// A whole number with thousands separators; small numbers have one decimal.
fn number(value: f64) -> String {
    if value < 10.0 { format!("{value:.1}") } else { grouped(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_numbers_have_more_digits() {
        assert_eq!(
            [0.04, 9.94, 10.4, 1234.5, 1_234_567.0].map(number),
            ["0.0", "9.9", "10", "1,234", "1,234,567"]
        );
    }
}
