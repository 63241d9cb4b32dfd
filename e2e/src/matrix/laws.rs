//! What has to hold when all is over, for each column.
//!
//! Where a column allows for a difference, its bound is a number that somebody has counted, never a guess.

use std::collections::BTreeMap;

use anyhow::{Result, bail, ensure};

use crate::policy::Counters;

use super::evidence::Evidence;
use super::{Client, Column, Row};

/// Every law that the cell is under.
///
/// # Errors
/// Those that do not hold, each with its numbers.
pub(super) fn check(evidence: &Evidence) -> Result<()> {
    let laws: [fn(&Evidence) -> Result<()>; 8] = [
        received_is_the_sum,
        metrics_agree_with_the_status,
        nothing_was_given_up,
        received_is_what_was_sent,
        stored_is_what_the_law_says,
        each_series_and_group_is_stored,
        clients_kept_nothing_to_themselves,
        clients_complained_of_nothing,
    ];
    let broken: Vec<_> = laws.iter().filter_map(|law| law(evidence).err()).map(|e| e.to_string()).collect();
    if broken.is_empty() {
        return Ok(());
    }
    bail!("{}", broken.join("\n    "))
}

fn received_is_the_sum(it: &Evidence) -> Result<()> {
    ensure!(it.status.are_conserved(), "the counters do not add up: {:?}", it.status);
    ensure!(it.status.failed_open == 0, "{} occurrences failed open", it.status.failed_open);
    Ok(())
}

/// The status is kept over restarts, metrics are of one life.
fn metrics_agree_with_the_status(it: &Evidence) -> Result<()> {
    let (status, before) = (&it.status, &it.status_before);
    let this_life = Counters {
        received: status.received - before.received,
        admitted: status.admitted - before.admitted,
        compacted: status.compacted - before.compacted,
        aggregated: status.aggregated - before.aggregated,
        filtered: status.filtered - before.filtered,
        throttled: status.throttled - before.throttled,
        failed_open: status.failed_open - before.failed_open,
        recovered: status.recovered - before.recovered,
    };
    ensure!(this_life == it.metrics, "the status tells {this_life:?} and the metrics {:?}", it.metrics);
    Ok(())
}

fn nothing_was_given_up(it: &Evidence) -> Result<()> {
    ensure!(it.lost == 0, "{} occurrences were given up as lost", it.lost);
    Ok(())
}

/// The API server asks squelch about everything that clients tell it, but for what is known not to have come.
fn received_is_what_was_sent(it: &Evidence) -> Result<()> {
    let (sent, received) = (it.sent.total(), it.status.received);
    // The clients' own reckoning takes an API server that has just begun at its word.
    let reckoned = it.sent.reckoned;
    let agree = sent == reckoned || it.column == Column::ApiServer && sent < reckoned;
    ensure!(agree, "the clients say {reckoned} and their calls {sent}");
    let unseen = it.reviews.cut_before as i64;
    let (least, most) = match it.column {
        Column::Quiet => (sent - it.late, sent),
        // One CREATE is one occurrence, and none tells of another.
        Column::Faults if it.cell.client == Client::Creates => (sent - unseen - it.late, sent - unseen),
        // An absolute count tells again what the review before it would have told.
        Column::Faults => (sent - unseen - it.late, sent),
        // While no squelch runs nobody is asked.
        Column::Restarts => (1, sent),
        Column::ApiServer => (sent - it.late, sent + it.sent.doubtful),
    };
    within("received", received, least, most)
}

/// Stored is what was admitted, compacted, aggregated and recovered.
fn stored_is_what_the_law_says(it: &Evidence) -> Result<()> {
    let stored = it.stored.total();
    let Counters { admitted, compacted, aggregated, recovered, .. } = it.status;
    let law = admitted + compacted + aggregated + recovered;
    let absolute = it.cell.client.counts_absolutely();
    let told_again = if absolute { it.sent.told_again(&it.stored).values().sum() } else { 0 };
    let (least, most) = match it.column {
        Column::Quiet if it.late == 0 => (law, law),
        Column::Quiet | Column::Faults => {
            let past_squelch = (it.reviews.cut_before + it.reviews.held_back_in_vain) as i64 + it.late;
            // A write past squelch may tell again what was held back under its name before it.
            let told_again = if past_squelch == 0 { 0 } else { (told_again - recovered).max(0) };
            (law, law + past_squelch + told_again)
        }
        // The law is per life, and what nobody was asked about is stored as well: everything but what was dropped
        // is there, and at most what was held back under a name is there twice.
        Column::Restarts => {
            let all = it.sent.total() - it.status.filtered - it.status.throttled;
            (all, all + told_again)
        }
        Column::ApiServer => (law - it.sent.doubtful, law + it.sent.doubtful + it.late),
    };
    within("stored", stored, least, most)
}

/// Not only the sum: each series and each group.
fn each_series_and_group_is_stored(it: &Evidence) -> Result<()> {
    if it.cell.client.counts_absolutely() {
        each_name_shows_its_count(it)?;
    }
    // Past squelch means stored although held back: what is stored then has a bound, and no single value.
    let exact = it.column == Column::Quiet && it.late == 0
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
        // The summary of a kind stands with one of its objects: only the sum is each object's own.
        Row::ByKind => Ok(()),
        _ if it.cell.client.counts_absolutely() && it.cell.row.drops() => Ok(()),
        _ => each_object_shows_its_count(it),
    }
}

/// An absolute count heals itself: whatever went wrong, a name that is stored shows all that was told under it.
fn each_name_shows_its_count(it: &Evidence) -> Result<()> {
    let mut wrong = BTreeMap::new();
    for (name, value) in &it.stored.names {
        let sent = it.sent.names.get(name).copied().unwrap_or_default();
        let doubtful = if it.column == Column::ApiServer { it.sent.doubtful } else { 0 };
        // Outside of a series that squelch keeps, a write past it can be counted a second time by the next one.
        let past_squelch =
            if it.cell.row == Row::Series { 0 } else { it.reviews.cut_before as i64 + it.late };
        if *value < sent - doubtful || *value > sent + doubtful + past_squelch {
            wrong.insert(name, (value, sent));
        }
    }
    ensure!(wrong.is_empty(), "stored, sent under these names: {wrong:?}");
    Ok(())
}

fn each_object_shows_its_count(it: &Evidence) -> Result<()> {
    let mut wrong = BTreeMap::new();
    // What was merged under a name, and whose client tells of it again once the group has ended, is recovered.
    let told_again = it.sent.told_again(&it.stored);
    for (object, sent) in it.sent.objects() {
        let of = |counts: &BTreeMap<String, i64>| counts.get(&object).copied().unwrap_or_default();
        let (stored, dropped, again) = (of(&it.stored.objects), of(&it.sent.dropped), of(&told_again));
        if stored != sent - dropped + again {
            wrong.insert(object, (stored, sent, dropped, again));
        }
    }
    ensure!(wrong.is_empty(), "stored, sent, dropped, told again of these objects: {wrong:?}");
    Ok(())
}

/// What happened is told, except where a recorder keeps it back by its own rules.
fn clients_kept_nothing_to_themselves(it: &Evidence) -> Result<()> {
    let untold = it.sent.occurrences - it.sent.total();
    let failed = it.sent.failed + it.sent.doubtful;
    match it.cell.client {
        // Beyond the second occurrence it tells every 30 minutes.
        Client::New => Ok(()),
        // Told again with the next one, or retried until it is told.
        Client::Legacy => within("untold", untold, 0, failed),
        Client::Creates => within("untold", untold, it.sent.failed, failed),
        // One occurrence for each call that failed. A review that squelch did not see makes the next value seem one of
        // a client that holds back, and that is refused; in peace none is.
        Client::Kube if it.column == Column::Quiet => within("untold", untold, 0, failed),
        Client::Kube => within("untold", untold, 0, failed + it.sent.refused_updates),
    }
}

fn clients_complained_of_nothing(it: &Evidence) -> Result<()> {
    if it.column != Column::Quiet {
        return Ok(());
    }
    let allowed = match it.cell.client {
        Client::New => it.sent.refused_with_series,
        // kube logs nothing; its caller hears of each refused CREATE.
        Client::Kube => it.sent.refused,
        Client::Legacy | Client::Creates => 0,
    };
    let lines = &it.sent.error_lines;
    ensure!(lines.len() <= allowed, "{} error lines and {allowed} allowed: {lines:?}", lines.len());
    Ok(())
}

fn within(what: &str, value: i64, least: i64, most: i64) -> Result<()> {
    ensure!((least..=most).contains(&value), "{what} {value} is not within {least} and {most}");
    Ok(())
}

#[cfg(test)]
mod tests;
