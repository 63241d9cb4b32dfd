//! The checks after the two storms.

use serde::Serialize;

use crate::report::number;
use crate::stage::ReportedCounters;
use crate::tally::Tally;

/// A check and its result.
#[derive(Debug, Serialize)]
pub(crate) struct Check {
    /// Whether it passed.
    pub(crate) ok: bool,
    /// The checked property.
    pub(crate) what: String,
    /// The observed values.
    pub(crate) seen: String,
}

/// All checks, in the order of the table.
pub(crate) fn all(without: &Tally, with: &Tally, counters: &ReportedCounters) -> Vec<Check> {
    let mut checks = of_events(without, with);
    checks.extend(of_reported_counters(with, counters));
    checks
}

/// Checks of stored Events and of the emitters' reports.
fn of_events(without: &Tally, with: &Tally) -> Vec<Check> {
    vec![
        recorders_reported_all([without, with]),
        equal(
            "without a policy every successful request is a write",
            ("requests", without.accepted() as i64),
            ("writes", without.etcd_writes() as i64),
        ),
        equal(
            "without a policy the stored counts match the reported occurrences",
            ("reported", without.reported()),
            ("stored", without.sum_of_counts()),
        ),
        equal("with a policy as well", ("reported", with.reported()), ("stored", with.sum_of_counts())),
        equal(
            "both namespaces show the same Events",
            ("without", without.stored() as i64),
            ("with", with.stored() as i64),
        ),
        Check {
            what: "with a policy each Event has at most log2(count) + 3 writes".to_owned(),
            ok: with.written_too_often.is_empty(),
            seen: with.written_too_often.first().cloned().unwrap_or_else(|| {
                format!("{} Events in {} writes", number(with.stored()), number(with.etcd_writes()))
            }),
        },
        equal(
            "no emitter logged an error",
            ("without", without.error_lines() as i64),
            ("with", with.error_lines() as i64),
        )
        .and(without.error_lines() == 0),
    ]
}

/// Checks of squelch's own counters.
fn of_reported_counters(with: &Tally, counters: &ReportedCounters) -> Vec<Check> {
    let status = &counters.status;
    vec![
        equal(
            "status.counters.received matches the reported occurrences",
            ("reported", with.reported()),
            ("received", status.received),
        ),
        equal(
            "the metrics do as well",
            ("reported", with.reported()),
            ("received", counters.received_in_metrics),
        ),
        equal(
            "and the metrics in Prometheus",
            ("reported", with.reported()),
            ("received", counters.received_in_prometheus),
        ),
        Check {
            what: "every query of the dashboard has data".to_owned(),
            ok: counters.without_data.is_empty(),
            seen: match counters.without_data.first() {
                None => format!("{} of {} queries", counters.queries, counters.queries),
                Some(first) => first.clone(),
            },
        },
        equal(
            "received = admitted + compacted + aggregated + filtered + throttled + muted + failedOpen",
            ("received", status.received),
            ("sum", if status.are_conserved() { status.received } else { -1 }),
        ),
        equal(
            "stored counts = admitted + compacted",
            ("stored", with.sum_of_counts()),
            ("sum", status.admitted + status.compacted + status.aggregated + status.recovered),
        ),
        equal(
            "nothing failed open, is pending, or was lost",
            ("failedOpen", status.failed_open),
            ("pending and lost", counters.pending_and_lost),
        )
        .and(status.failed_open == 0),
    ]
}

impl Check {
    pub(crate) fn and(self, also: bool) -> Self {
        Self { ok: self.ok && also, ..self }
    }
}

pub(crate) fn equal(what: &str, left: (&str, i64), right: (&str, i64)) -> Check {
    Check {
        what: what.to_owned(),
        ok: left.1 == right.1,
        seen: format!("{} {}, {} {}", left.0, number(left.1), right.0, number(right.1)),
    }
}

/// Recorders without limits reported every occurrence: nothing was dropped before the API server.
fn recorders_reported_all(storms: [&Tally; 2]) -> Check {
    let short = storms
        .iter()
        .flat_map(|storm| &storm.sources)
        .find(|s| s.reports_every_occurrence && s.reported != s.emitted);
    Check {
        what: "the legacy recorder and kube-rs reported every occurrence".to_owned(),
        ok: short.is_none(),
        seen: short.map_or_else(
            || "nothing was dropped by a recorder".to_owned(),
            |share| format!("{}: {} of {}", share.title, number(share.reported), number(share.emitted)),
        ),
    }
}
