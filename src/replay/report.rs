//! The report of a replay. `-o json` prints this structure.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use squelch_engine::{Counters, Disposition, Dropped, Mode, Moment, ScopeCounters};

use super::input::InputStats;
use super::options::{Format, Options};
use super::simulation::Finished;
use super::tally::{MESSAGE, Summary, Writes};
use super::text::{NAME, clean};
use super::{name, notes};

/// Maximum entries of the dropped Events; the others are counted.
const MOST_DROPPED: usize = 100;

/// Maximum summaries; the others are counted.
const MOST_SUMMARIES: usize = 1_000;

/// The result of a replay.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplayReport {
    /// The version of this structure. It rises with each incompatible change.
    pub schema_version: u32,
    /// The input.
    pub input: Input,
    /// One row per policy and namespace, ordered by namespace and policy.
    pub policies: Vec<PolicyRow>,
    /// The sum of the rows, and the writes that no policy governs.
    pub total: Total,
    /// Writes that passed uncounted, by reason: own, no-policy, edit, dry-run.
    pub passed: BTreeMap<&'static str, u64>,
    /// Dropped occurrences by their attributes, the highest count first.
    pub dropped: Vec<DroppedRow>,
    /// Dropped occurrences that `dropped` does not list.
    pub dropped_not_listed: u64,
    /// The rows of dropped occurrences beyond `dropped` that the engine lists.
    #[serde(skip)]
    pub(super) more_dropped: Vec<DroppedRow>,
    /// Summaries that would be written, the highest count first.
    pub summaries: Vec<Summary>,
    /// Summaries that `summaries` does not list.
    pub summaries_not_listed: u64,
    /// Notes on the accuracy of the result.
    pub notes: Vec<String>,
    /// The result of the policies of `--against`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<Box<Self>>,
}

/// The input of a replay.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Input {
    /// The file.
    pub file: String,
    /// list, trace or audit.
    pub format: &'static str,
    /// Lines, or items of a List.
    pub entries: u64,
    /// Decided writes.
    pub writes: u64,
    /// Entries that `--skip-bad` skipped.
    pub bad: u64,
    /// Entries that are no Event write, or that cannot be reconstructed, by reason.
    pub left_out: BTreeMap<&'static str, u64>,
    /// The time of the first write, in seconds.
    pub from: f64,
    /// The time of the last write, in seconds.
    pub to: f64,
}

/// Occurrences by disposition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Occurrences {
    /// The sum of the dispositions.
    pub received: u64,
    /// Admitted to be stored.
    pub admitted: u64,
    /// Merged into a series.
    pub compacted: u64,
    /// Merged into a summary.
    pub aggregated: u64,
    /// Dropped by the spam filter.
    pub filtered: u64,
    /// Dropped by the budget.
    pub throttled: u64,
    /// Dropped because they match `mute`.
    pub muted: u64,
    /// Admitted without a decision.
    pub failed_open: u64,
    /// Reported again by a client's absolute count.
    pub recovered: u64,
    /// Warnings among the dropped ones.
    pub dropped_warnings: u64,
}

impl Occurrences {
    /// The occurrences that are in no stored Event.
    pub(crate) fn dropped(&self) -> u64 {
        self.filtered + self.throttled + self.muted
    }
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
            muted: counters.of(Disposition::Muted),
            failed_open: counters.of(Disposition::FailedOpen),
            recovered: counters.recovered,
            dropped_warnings: counters.dropped_warnings,
        }
    }
}

/// One policy in one namespace.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyRow {
    /// The namespace.
    pub namespace: String,
    /// The policy.
    pub policy: String,
    /// Enforce or Observe.
    pub mode: &'static str,
    /// Occurrences by disposition.
    pub occurrences: Occurrences,
    /// Numbers of writes.
    pub writes: Writes,
    /// JSON bytes that the policy saves.
    pub bytes_saved: i64,
}

/// Dropped occurrences with the same attributes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DroppedRow {
    /// The namespace.
    pub namespace: String,
    /// The policy that dropped them.
    pub policy: String,
    /// The reason of the Events.
    pub reason: String,
    /// The kind of the regarding object.
    pub kind: String,
    /// The reporting component.
    pub component: String,
    /// filtered, throttled or muted.
    pub disposition: &'static str,
    /// The number of occurrences.
    pub count: u64,
}

/// The sum of all rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Total {
    /// Occurrences by disposition. Ungoverned writes have none.
    pub occurrences: Occurrences,
    /// Numbers of writes that a policy governs.
    pub writes: Writes,
    /// JSON bytes that the policies save.
    pub bytes_saved: i64,
    /// Numbers of writes that no policy governs.
    pub ungoverned: Writes,
}

impl Total {
    /// The sum of the writes, governed or not.
    pub(crate) fn all_writes(&self) -> Writes {
        let mut all = self.writes;
        all.add(&self.ungoverned);
        all
    }
}

impl ReplayReport {
    pub(super) fn new(finished: &Finished, stats: &InputStats, options: &Options) -> Self {
        let scopes = finished.engine.counters();
        let rows = rows(&scopes, finished);
        let mut total = Total { ungoverned: finished.tally.ungoverned, ..Total::default() };
        let mut counters = Counters::default();
        scopes.iter().for_each(|scope| counters.add(&scope.counters));
        total.occurrences = Occurrences::from(&counters);
        rows.iter().for_each(|row| total.writes.add(&row.writes));
        total.bytes_saved = saved(&total.writes);
        let mut dropped = dropped(&scopes);
        let more_dropped = dropped.split_off(dropped.len().min(MOST_DROPPED));
        let summaries = finished.tally.summaries();
        let listed: u64 = dropped.iter().map(|row| row.count).sum();
        Self {
            schema_version: 1,
            notes: notes::notes(finished, stats, options, &rows),
            input: input(finished, stats, options, &total),
            policies: rows,
            passed: finished.tally.passed.clone(),
            dropped_not_listed: total.occurrences.dropped() - listed,
            dropped,
            more_dropped,
            summaries_not_listed: summaries.len().saturating_sub(MOST_SUMMARIES) as u64,
            summaries: summaries.into_iter().take(MOST_SUMMARIES).cloned().collect(),
            total,
            against: None,
        }
    }

    /// The time between the first and the last write.
    pub(crate) fn span(&self) -> Duration {
        Duration::try_from_secs_f64(self.input.to - self.input.from).unwrap_or_default()
    }
}

fn rows(scopes: &[ScopeCounters], finished: &Finished) -> Vec<PolicyRow> {
    let mut rows: Vec<PolicyRow> = scopes
        .iter()
        .map(|scope| {
            let writes = finished.tally.writes(&scope.namespace, &scope.policy);
            PolicyRow {
                namespace: clean(&scope.namespace, 63),
                policy: clean(&scope.policy.display, NAME),
                mode: match scope.mode {
                    Mode::Enforce => "Enforce",
                    Mode::Observe => "Observe",
                },
                occurrences: Occurrences::from(&scope.counters),
                bytes_saved: saved(&writes),
                writes,
            }
        })
        .collect();
    rows.sort_by(|a, b| (&a.namespace, &a.policy, a.mode).cmp(&(&b.namespace, &b.policy, b.mode)));
    rows
}

/// Returns the dropped Events that the engine lists, the highest count first.
fn dropped(scopes: &[ScopeCounters]) -> Vec<DroppedRow> {
    let of = |scope: &ScopeCounters| {
        let row = |dropped: &Dropped| DroppedRow {
            namespace: clean(&scope.namespace, 63),
            policy: clean(&scope.policy.display, NAME),
            reason: clean(dropped.reason(), MESSAGE),
            kind: clean(dropped.kind(), MESSAGE),
            component: clean(dropped.component(), MESSAGE),
            disposition: dropped.disposition.as_str(),
            count: dropped.count,
        };
        scope.dropped.entries.iter().map(row).collect::<Vec<_>>()
    };
    let mut dropped: Vec<DroppedRow> = scopes.iter().flat_map(of).collect();
    let texts = |row: &DroppedRow| {
        [&row.namespace, &row.policy, &row.reason, &row.kind, &row.component].map(String::clone)
    };
    dropped.sort_by_cached_key(|row| (std::cmp::Reverse(row.count), texts(row), row.disposition));
    dropped
}

fn saved(writes: &Writes) -> i64 {
    i64::try_from(i128::from(writes.bytes_without) - i128::from(writes.bytes_with)).unwrap_or(i64::MAX)
}

fn input(finished: &Finished, stats: &InputStats, options: &Options, total: &Total) -> Input {
    let seconds = |moment: Option<Moment>| moment.unwrap_or_default().since(Moment::default()).as_secs_f64();
    Input {
        file: name(&options.input),
        format: stats.format.map_or("", Format::as_str),
        entries: stats.entries,
        writes: total.writes.received + total.ungoverned.received,
        bad: stats.bad,
        left_out: stats.left_out.iter().map(|(reason, count)| (reason.as_str(), *count)).collect(),
        from: seconds(finished.tally.first),
        to: seconds(finished.tally.last),
    }
}
