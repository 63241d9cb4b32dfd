//! Notes on the accuracy of a replay, as sentences.

use super::input::{InputStats, LeftOut};
use super::options::{ClientBehavior, Format, Options};
use super::report::PolicyRow;
use super::simulation::Finished;
use super::text::plural;

/// Returns the notes on a replay.
pub(super) fn notes(
    finished: &Finished,
    stats: &InputStats,
    options: &Options,
    rows: &[PolicyRow],
) -> Vec<String> {
    let mut notes = Vec::new();
    if stats.format == Some(Format::List) {
        notes.extend(of_a_list(finished, stats));
    }
    if stats.bad > 0 {
        let entries = plural(stats.bad, "unreadable entry was", "unreadable entries were");
        notes.push(format!("{entries} skipped"));
    }
    let left_out =
        |writes: bool| stats.left_out.iter().filter(move |(reason, _)| reason.is_write() == writes);
    for (reason, count) in left_out(true).chain(left_out(false)) {
        notes.push(format!(
            "not replayed: {} ({})",
            plural(*count, "entry", "entries"),
            LeftOut::description(*reason)
        ));
    }
    notes.extend(of_clients(stats, options, rows));
    notes.extend(of_policies(finished, options, rows));
    notes
}

fn of_a_list(finished: &Finished, stats: &InputStats) -> Vec<String> {
    let mut notes = vec![
        "each Event of the List was replayed as one write per occurrence, spread evenly from its first to its \
         last time; a List does not record the real times, nor what clients dropped"
            .to_owned(),
    ];
    if stats.bundled > 0 {
        let many = plural(stats.bundled, "occurrence has", "occurrences have");
        notes
            .push(format!("{many} no write of their own: one Event is replayed as at most 1,000,000 writes"));
    }
    let naming = finished.policies.naming_users();
    if !naming.is_empty() {
        notes.push(format!(
            "a List does not record the users of writes: the users clauses of {} match nothing",
            naming.join(", ")
        ));
    }
    notes
}

fn of_clients(stats: &InputStats, options: &Options, rows: &[PolicyRow]) -> Option<String> {
    let recorded = stats.format != Some(Format::List) && options.clients == ClientBehavior::Recorded;
    let compacted = rows.iter().any(|row| row.mode == "Enforce" && row.occurrences.compacted > 0);
    (recorded && compacted).then(|| {
        "the recorded clients ran without these policies, so each oldObject shows a higher count than squelch \
         would have stored, and BY SQUELCH is too low; --clients adapted corrects this"
            .to_owned()
    })
}

fn of_policies(finished: &Finished, options: &Options, rows: &[PolicyRow]) -> Vec<String> {
    let mut notes = Vec::new();
    let idle: Vec<&str> =
        rows.iter().filter(|row| row.writes.received == 0).map(|row| row.policy.as_str()).collect();
    let without = finished.tally.passed.get("no-policy").copied().unwrap_or_default();
    if !idle.is_empty() && without > 0 && !options.all_namespaces {
        let govern = if idle.len() == 1 { "governs" } else { "govern" };
        notes.push(format!(
            "{} {govern} no write of this input; --all-namespaces applies each policy in every namespace",
            idle.join(", ")
        ));
    }
    let over_limit = finished.policies.over_limit().into_iter().collect::<Vec<_>>();
    if !over_limit.is_empty() {
        notes.push(format!(
            "a limit of a namespace keeps these policies out of it, as in a cluster (docs/precedence.md): {}",
            over_limit.join(", ")
        ));
    }
    if rows.iter().any(|row| row.mode == "Observe") {
        notes.push(
            "mode Observe admits every write; --as-enforced replays the policies in mode Enforce".to_owned(),
        );
    }
    notes
}
