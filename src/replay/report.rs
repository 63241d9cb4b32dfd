//! What a replay tells at its end; `-o json` prints it as it stands here.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::course::Finished;
use super::input::{LeftOut, Told};
use super::name;
use super::options::{Clients, Format, Options};
use super::tally::{Summary, Writes};
use super::text::{clean, plural};
use crate::engine::{Counters, Disposition, Mode, Moment};

/// The result of a replay.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// What was replayed.
    pub input: Input,
    /// One row per policy and namespace, in order of namespace and policy.
    pub policies: Vec<Row>,
    /// The sum of the rows, and of what no policy governs.
    pub total: Total,
    /// Writes that passed uncounted, by the reason: own, no-policy, edit, dry-run.
    pub passed: BTreeMap<&'static str, u64>,
    /// The summaries that would be written, those that count most first.
    pub summaries: Vec<Summary>,
    /// How many more there would be.
    pub summaries_not_listed: u64,
    /// What a reader should know of this result.
    pub notes: Vec<String>,
}

/// What was replayed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Input {
    /// The file.
    pub file: String,
    /// list, trace or audit.
    pub format: &'static str,
    /// Lines, or items of a List.
    pub entries: u64,
    /// Writes that were decided.
    pub writes: u64,
    /// Entries that were left out because they could not be read (`--skip-bad`).
    pub bad: u64,
    /// Entries that are no writes of Events, or that cannot be rebuilt, by the reason.
    pub left_out: BTreeMap<&'static str, u64>,
    /// The moment of the first write, in seconds.
    pub from: f64,
    /// The moment of the last write, in seconds.
    pub to: f64,
}

/// Occurrences by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Occurrences {
    /// The sum of the dispositions.
    pub received: u64,
    /// Went on to be stored.
    pub admitted: u64,
    /// Folded into a series.
    pub compacted: u64,
    /// Folded into a summary.
    pub aggregated: u64,
    /// Dropped by the spam filter.
    pub filtered: u64,
    /// Dropped by the budget.
    pub throttled: u64,
    /// Let through undecided.
    pub failed_open: u64,
    /// Told a second time by a client's absolute count.
    pub recovered: u64,
}

impl From<&Counters> for Occurrences {
    fn from(counters: &Counters) -> Self {
        Self {
            received: counters.received(),
            admitted: counters.of(Disposition::Admitted),
            compacted: counters.of(Disposition::Compacted),
            aggregated: counters.of(Disposition::Aggregated),
            filtered: counters.of(Disposition::Filtered),
            throttled: counters.of(Disposition::Throttled),
            failed_open: counters.of(Disposition::FailedOpen),
            recovered: counters.recovered,
        }
    }
}

/// One policy in one namespace.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// The namespace.
    pub namespace: String,
    /// The policy.
    pub policy: String,
    /// Enforce or Observe.
    pub mode: &'static str,
    /// In occurrences.
    pub occurrences: Occurrences,
    /// In writes.
    pub writes: Writes,
    /// Bytes that need not be written.
    pub bytes_saved: i64,
}

/// All rows together.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Total {
    /// In occurrences; what no policy governs has none.
    pub occurrences: Occurrences,
    /// In writes, of all policies.
    pub writes: Writes,
    /// Bytes that need not be written.
    pub bytes_saved: i64,
    /// In writes, of what no policy governs.
    pub ungoverned: Writes,
}

impl Report {
    pub(super) fn new(finished: &Finished, told: &Told, options: &Options) -> Self {
        let rows = rows(finished);
        let mut total = Total { ungoverned: finished.tally.ungoverned, ..Total::default() };
        let mut counters = Counters::default();
        finished.engine.accounts().iter().for_each(|account| counters.add(&account.counters));
        total.occurrences = Occurrences::from(&counters);
        rows.iter().for_each(|row| total.writes.add(&row.writes));
        total.bytes_saved = saved(&total.writes);
        Self {
            notes: notes(finished, told, options, &rows),
            input: input(finished, told, options, &total),
            policies: rows,
            passed: finished.tally.passed.clone(),
            summaries: finished.tally.summaries(),
            summaries_not_listed: finished.tally.more_summaries,
            total,
        }
    }
}

fn rows(finished: &Finished) -> Vec<Row> {
    let accounts = finished.engine.accounts();
    let mut rows: Vec<Row> = accounts
        .iter()
        .map(|account| {
            let writes = finished.tally.writes(&account.namespace, &account.policy);
            Row {
                namespace: clean(&account.namespace, 63),
                policy: account.policy.display.to_string(),
                mode: match account.mode {
                    Mode::Enforce => "Enforce",
                    Mode::Observe => "Observe",
                },
                occurrences: Occurrences::from(&account.counters),
                bytes_saved: saved(&writes),
                writes,
            }
        })
        .collect();
    rows.sort_by(|a, b| (&a.namespace, &a.policy, a.mode).cmp(&(&b.namespace, &b.policy, b.mode)));
    rows
}

fn saved(writes: &Writes) -> i64 {
    i64::try_from(i128::from(writes.bytes_without) - i128::from(writes.bytes_with)).unwrap_or(i64::MAX)
}

fn input(finished: &Finished, told: &Told, options: &Options, total: &Total) -> Input {
    let seconds = |moment: Option<Moment>| moment.unwrap_or_default().since(Moment::default()).as_secs_f64();
    Input {
        file: name(&options.input),
        format: told.format.map_or("", Format::as_str),
        entries: told.entries,
        writes: total.writes.received + total.ungoverned.received,
        bad: told.bad,
        left_out: told.left_out.iter().map(|(reason, count)| (reason.as_str(), *count)).collect(),
        from: seconds(finished.tally.first),
        to: seconds(finished.tally.last),
    }
}

impl Report {
    /// How long the replayed writes took.
    pub(super) fn span(&self) -> Duration {
        Duration::try_from_secs_f64(self.input.to - self.input.from).unwrap_or_default()
    }
}

fn notes(finished: &Finished, told: &Told, options: &Options, rows: &[Row]) -> Vec<String> {
    let mut notes = Vec::new();
    if told.format == Some(Format::List) {
        notes.extend(of_a_list(finished, told));
    }
    if told.bad > 0 {
        let entries =
            plural(told.bad, "entry that could not be read was", "entries that could not be read were");
        notes.push(format!("{entries} left out"));
    }
    let left_out =
        |writes: bool| told.left_out.iter().filter(move |(reason, _)| reason.is_a_write() == writes);
    for (reason, count) in left_out(true).chain(left_out(false)) {
        notes.push(format!(
            "left out: {}, {}",
            plural(*count, "entry", "entries"),
            LeftOut::sentence(*reason)
        ));
    }
    notes.extend(of_clients(told, options, rows));
    notes.extend(of_policies(finished, options, rows));
    notes
}

fn of_a_list(finished: &Finished, told: &Told) -> Vec<String> {
    let mut notes = vec![
        "each Event of the List was unfolded into its occurrences, spread evenly from its first to its last time, \
         each a write of its own: a List does not tell when they really came, nor what was dropped before"
            .to_owned(),
    ];
    if told.bundled > 0 {
        let many = plural(told.bundled, "occurrence has", "occurrences have");
        notes.push(format!(
            "{many} no write of their own: an Event is unfolded into a million writes at most"
        ));
    }
    let naming = finished.policies.that_name_users();
    if !naming.is_empty() {
        notes.push(format!(
            "a List does not tell who wrote: the users that {} name match nobody",
            naming.join(", ")
        ));
    }
    notes
}

fn of_clients(told: &Told, options: &Options, rows: &[Row]) -> Option<String> {
    let recorded = told.format != Some(Format::List) && options.clients == Clients::Recorded;
    let folded = rows.iter().any(|row| row.mode == "Enforce" && row.occurrences.compacted > 0);
    (recorded && folded).then(|| {
        "the clients wrote without these policies, and every oldObject shows what they had stored: squelch's own \
         writes come out too few. --clients adapted lets them write as they would have"
            .to_owned()
    })
}

fn of_policies(finished: &Finished, options: &Options, rows: &[Row]) -> Vec<String> {
    let mut notes = Vec::new();
    let idle: Vec<&str> =
        rows.iter().filter(|row| row.writes.received == 0).map(|row| row.policy.as_str()).collect();
    let without = finished.tally.passed.get("no-policy").copied().unwrap_or_default();
    if !idle.is_empty() && without > 0 && !options.all_namespaces {
        let govern = if idle.len() == 1 { "governs" } else { "govern" };
        notes.push(format!(
            "{} {govern} no write of this input; --all-namespaces tries each policy in every namespace",
            idle.join(", ")
        ));
    }
    if rows.iter().any(|row| row.mode == "Observe") {
        notes.push(
            "mode Observe lets everything through; --as-enforced shows what the same policy does in mode Enforce"
                .to_owned(),
        );
    }
    notes
}
