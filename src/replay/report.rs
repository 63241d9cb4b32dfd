//! What a replay tells at its end; `-o json` prints it as it stands here.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use squelch_engine::{Counters, Disposition, Dropped, Mode, Moment, ScopeCounters};

use super::course::Finished;
use super::input::Told;
use super::options::{Format, Options};
use super::tally::{MESSAGE, Summary, Writes};
use super::text::clean;
use super::{name, notes};

/// So much of what was dropped is listed by what it was; the rest is counted.
const MOST_DROPPED: usize = 100;

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
    /// What was dropped (filtered or throttled), by what it was, the most first.
    pub dropped: Vec<DroppedRow>,
    /// Dropped occurrences that are in no entry of the list.
    pub dropped_not_listed: u64,
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

/// Dropped occurrences that have all of this in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DroppedRow {
    /// The namespace.
    pub namespace: String,
    /// The policy that dropped them.
    pub policy: String,
    /// The reason of the Events.
    pub reason: String,
    /// The kind of what they are about.
    pub kind: String,
    /// Who reported.
    pub component: String,
    /// filtered or throttled.
    pub disposition: &'static str,
    /// How many.
    pub count: u64,
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
        let accounts = finished.engine.counters();
        let rows = rows(&accounts, finished);
        let mut total = Total { ungoverned: finished.tally.ungoverned, ..Total::default() };
        let mut counters = Counters::default();
        accounts.iter().for_each(|account| counters.add(&account.counters));
        total.occurrences = Occurrences::from(&counters);
        rows.iter().for_each(|row| total.writes.add(&row.writes));
        total.bytes_saved = saved(&total.writes);
        let dropped = dropped(&accounts);
        let listed: u64 = dropped.iter().map(|row| row.count).sum();
        Self {
            notes: notes::notes(finished, told, options, &rows),
            input: input(finished, told, options, &total),
            policies: rows,
            passed: finished.tally.passed.clone(),
            dropped_not_listed: total.occurrences.filtered + total.occurrences.throttled - listed,
            dropped,
            summaries: finished.tally.summaries(),
            summaries_not_listed: finished.tally.more_summaries,
            total,
        }
    }

    /// How long the replayed writes took.
    pub(super) fn span(&self) -> Duration {
        Duration::try_from_secs_f64(self.input.to - self.input.from).unwrap_or_default()
    }
}

fn rows(accounts: &[ScopeCounters], finished: &Finished) -> Vec<Row> {
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

/// What the engine holds of the dropped, the most first.
fn dropped(accounts: &[ScopeCounters]) -> Vec<DroppedRow> {
    let of = |account: &ScopeCounters| {
        let row = |dropped: &Dropped| DroppedRow {
            namespace: clean(&account.namespace, 63),
            policy: account.policy.display.to_string(),
            reason: clean(dropped.reason(), MESSAGE),
            kind: clean(dropped.kind(), MESSAGE),
            component: clean(dropped.component(), MESSAGE),
            disposition: dropped.disposition.as_str(),
            count: dropped.count,
        };
        account.dropped.entries.iter().map(row).collect::<Vec<_>>()
    };
    let mut dropped: Vec<DroppedRow> = accounts.iter().flat_map(of).collect();
    let texts = |row: &DroppedRow| {
        [&row.namespace, &row.policy, &row.reason, &row.kind, &row.component].map(String::clone)
    };
    dropped.sort_by_cached_key(|row| (std::cmp::Reverse(row.count), texts(row), row.disposition));
    dropped.truncate(MOST_DROPPED);
    dropped
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
