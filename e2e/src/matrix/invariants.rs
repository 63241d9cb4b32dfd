//! The invariants at the end, per column.
//!
//! Where a column allows a difference, the bound is a counted number.

use std::collections::BTreeMap;

use anyhow::{Result, bail, ensure};

use crate::policy::Counters;

use super::evidence::Evidence;
use super::{Client, Column, Row};

/// Checks all invariants of the cell.
///
/// # Errors
/// The violated invariants with their numbers.
pub(super) fn check(evidence: &Evidence) -> Result<()> {
    let invariants: [fn(&Evidence) -> Result<()>; 8] = [
        received_is_the_sum,
        metrics_agree_with_the_status,
        no_occurrence_was_lost,
        received_is_what_was_sent,
        stored_matches_the_counters,
        each_series_and_group_is_stored,
        clients_reported_everything,
        clients_logged_no_unexpected_error,
    ];
    let broken: Vec<_> =
        invariants.iter().filter_map(|invariant| invariant(evidence).err()).map(|e| e.to_string()).collect();
    if broken.is_empty() {
        return Ok(());
    }
    bail!("{}", broken.join("\n    "))
}

/// On a busy machine, decisions take more than half a second.
pub(super) fn failed_open_often(it: &Evidence) -> bool {
    it.status.failed_open > it.status.received / 10
}

fn received_is_the_sum(it: &Evidence) -> Result<()> {
    ensure!(it.status.are_conserved(), "the counters do not add up: {:?}", it.status);
    Ok(())
}

/// The status persists across restarts, metrics cover one process.
fn metrics_agree_with_the_status(it: &Evidence) -> Result<()> {
    let (status, before) = (&it.status, &it.status_before);
    let this_life = Counters {
        received: status.received - before.received,
        admitted: status.admitted - before.admitted,
        compacted: status.compacted - before.compacted,
        aggregated: status.aggregated - before.aggregated,
        filtered: status.filtered - before.filtered,
        throttled: status.throttled - before.throttled,
        muted: status.muted - before.muted,
        failed_open: status.failed_open - before.failed_open,
        recovered: status.recovered - before.recovered,
        dropped_warnings: status.dropped_warnings - before.dropped_warnings,
    };
    ensure!(this_life == it.metrics, "the status has {this_life:?}, the metrics {:?}", it.metrics);
    Ok(())
}

fn no_occurrence_was_lost(it: &Evidence) -> Result<()> {
    ensure!(it.lost == 0, "{} occurrences were lost", it.lost);
    Ok(())
}

/// Every reported occurrence is reviewed, except for known losses.
fn received_is_what_was_sent(it: &Evidence) -> Result<()> {
    let (sent, received) = (it.sent.total(), it.status.received);
    // The clients' summaries rely on every answer of a starting API server.
    let reckoned = it.sent.reckoned;
    let agree = sent == reckoned || it.column == Column::ApiServer && sent < reckoned;
    ensure!(agree, "{reckoned} by the clients' summaries, {sent} by their calls");
    let unseen = it.reviews.cut_before as i64;
    let (least, most) = match it.column {
        Column::Quiet => (sent - it.undecided, sent),
        // One CREATE is one occurrence, and no other write reports it again.
        Column::Faults if it.cell.client == Client::Creates => (sent - unseen - it.undecided, sent - unseen),
        // An absolute count includes the occurrence of the previous review.
        Column::Faults => (sent - unseen - it.undecided, sent),
        // Without a running squelch there are no reviews.
        Column::Restarts => (1, sent),
        Column::ApiServer => (sent - it.undecided, sent + it.sent.doubtful),
    };
    within("received", received, least, most)
}

/// Stored = admitted + compacted + aggregated + recovered.
fn stored_matches_the_counters(it: &Evidence) -> Result<()> {
    let stored = it.stored.total();
    let Counters { admitted, compacted, aggregated, failed_open, recovered, .. } = it.status;
    let expected = admitted + compacted + aggregated + failed_open + recovered;
    let absolute = it.cell.client.counts_absolutely();
    let reported_again = if absolute { it.sent.reported_again(&it.stored).values().sum() } else { 0 };
    let past_squelch = (it.reviews.cut_before + it.reviews.suppressed_in_vain) as i64 + it.undecided;
    // A write that bypassed squelch may report suppressed occurrences of its name again.
    let most_twice = if past_squelch == 0 { 0 } else { past_squelch + (reported_again - recovered).max(0) };
    let (least, most) = match it.column {
        Column::Quiet | Column::Faults => (expected, expected + most_twice),
        // Conservation holds per process, and unreviewed writes are stored as well: everything except dropped
        // occurrences is stored, and at most the suppressed occurrences of a name are stored twice.
        Column::Restarts => {
            let all = it.sent.total() - it.status.dropped();
            (all, all + reported_again)
        }
        Column::ApiServer => (expected - it.sent.doubtful, expected + it.sent.doubtful + most_twice),
    };
    within("stored", stored, least, most)
}

/// Checks each series and group, not only the sum.
fn each_series_and_group_is_stored(it: &Evidence) -> Result<()> {
    if it.cell.client.counts_absolutely() {
        each_name_has_its_count(it)?;
    }
    // A bypassing write is stored although suppressed: the stored counts then have bounds only.
    let exact = it.column == Column::Quiet && it.undecided == 0
        || it.column == Column::Restarts && it.cell.client == Client::Creates
        || it.cell.row == Row::Series && it.cell.client.counts_absolutely() && it.column != Column::ApiServer;
    if !exact {
        return Ok(());
    }
    if it.column == Column::Quiet {
        let (summaries, aggregated) = (it.stored.summaries, it.status.aggregated);
        ensure!(summaries == aggregated, "summaries show {summaries} of {aggregated} aggregated");
    }
    match it.cell.row {
        // The summary of a kind refers to one of its objects: only the sum belongs to each object.
        Row::ByKind => Ok(()),
        _ if it.cell.client.counts_absolutely() && it.cell.row.drops() => Ok(()),
        _ => each_object_has_its_count(it),
    }
}

/// An absolute count corrects itself: a stored name has the count that was reported under it.
fn each_name_has_its_count(it: &Evidence) -> Result<()> {
    let mut wrong = BTreeMap::new();
    for (name, value) in &it.stored.names {
        let sent = it.sent.names.get(name).copied().unwrap_or_default();
        let doubtful = if it.column == Column::ApiServer { it.sent.doubtful } else { 0 };
        // Outside of a live series, the next write can count a bypassing write a second time.
        let past_squelch =
            if it.cell.row == Row::Series { 0 } else { it.reviews.cut_before as i64 + it.undecided };
        if *value < sent - doubtful || *value > sent + doubtful + past_squelch {
            wrong.insert(name, (value, sent));
        }
    }
    ensure!(wrong.is_empty(), "stored, sent under these names: {wrong:?}");
    Ok(())
}

fn each_object_has_its_count(it: &Evidence) -> Result<()> {
    let mut wrong = BTreeMap::new();
    // Occurrences merged under a name are recovered if the client reports them again after the group has closed.
    let reported_again = it.sent.reported_again(&it.stored);
    for (object, sent) in it.sent.objects() {
        let of = |counts: &BTreeMap<String, i64>| counts.get(&object).copied().unwrap_or_default();
        let (stored, dropped, again) = (of(&it.stored.objects), of(&it.sent.dropped), of(&reported_again));
        if stored != sent - dropped + again {
            wrong.insert(object, (stored, sent, dropped, again));
        }
    }
    ensure!(wrong.is_empty(), "stored, sent, dropped, reported again of these objects: {wrong:?}");
    Ok(())
}

/// Every occurrence is reported, except for those that a recorder drops by its own rules.
fn clients_reported_everything(it: &Evidence) -> Result<()> {
    let untold = it.sent.occurrences - it.sent.total();
    let failed = it.sent.failed + it.sent.doubtful;
    match it.cell.client {
        // After the second occurrence it reports every 30 minutes.
        Client::New => Ok(()),
        // Reported again with the next one, or retried.
        Client::Legacy => within("untold", untold, 0, failed),
        Client::Creates => within("untold", untold, it.sent.failed, failed),
        // One occurrence per failed call. After an unreviewed write the next value seems not to rise, and is refused;
        // without faults none is.
        Client::Kube if it.column == Column::Quiet => within("untold", untold, 0, failed),
        Client::Kube => within("untold", untold, 0, failed + it.sent.refused_updates),
    }
}

fn clients_logged_no_unexpected_error(it: &Evidence) -> Result<()> {
    if it.column != Column::Quiet {
        return Ok(());
    }
    let allowed = match it.cell.client {
        Client::New => it.sent.refused_with_series,
        // kube logs nothing; its caller gets each refused CREATE as an error.
        Client::Kube => it.sent.refused,
        Client::Legacy | Client::Creates => 0,
    };
    let lines = &it.sent.error_lines;
    ensure!(lines.len() <= allowed, "{} error lines, {allowed} allowed: {lines:?}", lines.len());
    Ok(())
}

fn within(what: &str, value: i64, least: i64, most: i64) -> Result<()> {
    ensure!((least..=most).contains(&value), "{what} {value} is not within {least} and {most}");
    Ok(())
}

#[cfg(test)]
mod tests;
