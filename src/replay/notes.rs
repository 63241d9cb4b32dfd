//! What a reader should know of a result: sentences.

use super::course::Finished;
use super::input::{LeftOut, Told};
use super::options::{Clients, Format, Options};
use super::report::Row;
use super::text::plural;

/// The notes on a replay.
pub(super) fn notes(finished: &Finished, told: &Told, options: &Options, rows: &[Row]) -> Vec<String> {
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
