//! The results of two sets of policies as plain-text tables, side by side.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::report::{PolicyRow, ReplayReport};
use super::table::{MESSAGE, MOST_LISTED, columns, dropped_texts, notes, replayed};
use super::text::{bytes, clean, grouped};

const HEAD: [&str; 3] = ["POLICY", "AGAINST", "DIFFERENCE"];

/// Returns both results as text.
pub(super) fn render(report: &ReplayReport, against: &ReplayReport) -> String {
    let both = [report, against];
    let mut out = replayed(report);
    let differing = [namespaces(both), dropped(both)].into_iter().flatten();
    for table in [occurrences(both), etcd(both)].into_iter().chain(differing) {
        out.push('\n');
        out.push_str(&table);
    }
    let known: BTreeSet<_> = report.notes.iter().collect();
    out + &notes(report.notes.iter().chain(against.notes.iter().filter(|note| !known.contains(note))))
}

/// Returns the texts of both numbers, and of their difference.
fn side_by_side([policy, against]: [i64; 2], text: impl Fn(i64) -> String) -> [String; 3] {
    let difference = policy.saturating_sub(against);
    let plus = if difference > 0 { "+" } else { "" };
    [text(policy), text(against), format!("{plus}{}", text(difference))]
}

fn signed(number: i64) -> String {
    let minus = if number < 0 { "-" } else { "" };
    format!("{minus}{}", grouped(number.unsigned_abs()))
}

fn counted(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn occurrences(both: [&ReplayReport; 2]) -> String {
    let of = both.map(|report| &report.total.occurrences);
    let numbers = [
        ("received", of.map(|it| it.received)),
        ("admitted", of.map(|it| it.admitted)),
        ("compacted", of.map(|it| it.compacted)),
        ("aggregated", of.map(|it| it.aggregated)),
        ("filtered", of.map(|it| it.filtered)),
        ("throttled", of.map(|it| it.throttled)),
        ("muted", of.map(|it| it.muted)),
    ];
    table("OCCURRENCES", rows(&numbers))
}

fn etcd(both: [&ReplayReport; 2]) -> String {
    let of = both.map(|report| report.total.all_writes());
    let numbers = [
        ("without squelch", of.map(|it| it.etcd_without)),
        ("with squelch", of.map(|it| it.etcd_with)),
        ("by squelch", of.map(|it| it.flushes)),
        ("refused with 409", of.map(|it| it.already_exists)),
        ("refused with 403", of.map(|it| it.forbidden)),
        ("restored", of.map(|it| it.restored)),
        ("no policy", both.map(|report| report.total.ungoverned.etcd_with)),
    ];
    let saved = side_by_side(both.map(|report| report.total.bytes_saved), bytes);
    table("WRITES TO ETCD", rows(&numbers).chain([row("bytes saved", saved)]))
}

fn table(title: &str, rows: impl Iterator<Item = Vec<String>>) -> String {
    columns(&[title, HEAD[0], HEAD[1], HEAD[2]], &rows.collect::<Vec<_>>(), 1)
}

fn rows(numbers: &[(&'static str, [u64; 2])]) -> impl Iterator<Item = Vec<String>> {
    numbers.iter().map(|(name, both)| row(name, side_by_side(both.map(counted), signed)))
}

fn row(name: &str, texts: [String; 3]) -> Vec<String> {
    [name.to_owned()].into_iter().chain(texts).collect()
}

/// The namespaces with different numbers of saved writes, the largest difference first.
fn namespaces(both: [&ReplayReport; 2]) -> Option<String> {
    let mut by_namespace = BTreeMap::<&str, [i64; 2]>::new();
    for (at, report) in both.into_iter().enumerate() {
        for PolicyRow { namespace, writes, .. } in &report.policies {
            let saved = counted(writes.etcd_without) - counted(writes.etcd_with);
            by_namespace.entry(namespace).or_default()[at] += saved;
        }
    }
    let rows = by_namespace.into_iter().map(|(name, both)| ([name.to_owned()], both));
    differing(["SAVED WRITES"], rows.collect())
}

/// The combinations of which a different number of occurrences is dropped, the largest difference first.
fn dropped(both: [&ReplayReport; 2]) -> Option<String> {
    // `None`: the side does not list the combination.
    let mut by_texts = BTreeMap::<[String; 5], [Option<i64>; 2]>::new();
    // The dropped occurrences of each namespace that a side does not list.
    let mut unlisted = [(); 2].map(|()| BTreeMap::<String, i64>::new());
    for (at, report) in both.into_iter().enumerate() {
        for row in &report.policies {
            *unlisted[at].entry(clean(&row.namespace, MESSAGE)).or_default() +=
                counted(row.occurrences.dropped());
        }
        for row in report.dropped.iter().chain(&report.more_dropped) {
            let texts = dropped_texts(row);
            *unlisted[at].entry(texts[0].clone()).or_default() -= counted(row.count);
            *by_texts.entry(texts).or_default()[at].get_or_insert(0) += counted(row.count);
        }
    }
    // The engine does not list all combinations of a busy namespace. The number of one that it does not list is unknown.
    let is_known = |(texts, numbers): &([String; 5], [Option<i64>; 2])| {
        let mut sides = unlisted.iter().zip(numbers);
        sides.all(|(unlisted, number)| {
            number.is_some() || unlisted.get(&texts[0]).is_none_or(|left| *left == 0)
        })
    };
    let (known, unknown): (Vec<_>, Vec<_>) = by_texts.into_iter().partition(is_known);
    let rows =
        known.into_iter().map(|(texts, numbers)| (texts, numbers.map(Option::unwrap_or_default))).collect();
    let table = differing(["DROPPED", "REASON", "KIND", "COMPONENT", "BY"], rows);
    if unknown.is_empty() {
        return table;
    }
    let more = format!("({} not compared: only one side lists them)\n", unknown.len());
    Some(table.unwrap_or_default() + &more)
}

fn differing<const N: usize>(head: [&str; N], mut rows: Vec<([String; N], [i64; 2])>) -> Option<String> {
    rows.retain(|(_, [policy, against])| policy != against);
    rows.sort_by_key(|(_, [policy, against])| Reverse(policy.abs_diff(*against)));
    let more = rows.len().saturating_sub(MOST_LISTED);
    rows.truncate(MOST_LISTED);
    if rows.is_empty() {
        return None;
    }
    let lines: Vec<Vec<String>> = { rows.into_iter() }
        .map(|(texts, numbers)| texts.into_iter().chain(side_by_side(numbers, signed)).collect())
        .collect();
    let more = if more > 0 { format!("({more} more differ; -o json has more)\n") } else { String::new() };
    Some(columns(&[&head[..], &HEAD].concat(), &lines, N) + &more)
}
