//! What has to hold after the two storms.

use serde::Serialize;

use crate::report::number;
use crate::stage::Accounts;
use crate::tally::Tally;

/// One promise, and whether it was kept.
#[derive(Debug, Serialize)]
pub(crate) struct Check {
    /// Whether it was.
    pub(crate) ok: bool,
    /// What was promised.
    pub(crate) what: String,
    /// What was seen.
    pub(crate) seen: String,
}

/// Every check, in the order of the table.
pub(crate) fn all(without: &Tally, with: &Tally, accounts: &Accounts) -> Vec<Check> {
    let mut checks = of_events(without, with);
    checks.extend(of_accounts(with, accounts));
    checks
}

/// What is stored, and what the emitters saw.
fn of_events(without: &Tally, with: &Tally) -> Vec<Check> {
    vec![
        recorders_told_all([without, with]),
        equal(
            "without a policy every request that succeeds is a write",
            ("requests", without.taken() as i64),
            ("writes", without.etcd_writes() as i64),
        ),
        equal(
            "without a policy the stored counts are what the API server was told",
            ("told", without.told()),
            ("stored", without.sum_of_counts()),
        ),
        equal("with a policy they are too", ("told", with.told()), ("stored", with.sum_of_counts())),
        equal(
            "both namespaces show the same Events",
            ("without", without.stored() as i64),
            ("with", with.stored() as i64),
        ),
        Check {
            what: "with a policy no Event is written more often than log2(count) + 3 times".to_owned(),
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

/// What squelch says that it did.
fn of_accounts(with: &Tally, accounts: &Accounts) -> Vec<Check> {
    let status = &accounts.status;
    vec![
        equal(
            "the policy's status counts what the API server was told",
            ("told", with.told()),
            ("received", status.received),
        ),
        equal("so do the metrics", ("told", with.told()), ("received", accounts.received_in_metrics)),
        equal(
            "and what Prometheus has scraped of them",
            ("told", with.told()),
            ("received", accounts.received_in_prometheus),
        ),
        Check {
            what: "every query of the dashboard has data".to_owned(),
            ok: accounts.without_data.is_empty(),
            seen: match accounts.without_data.first() {
                None => format!("{} of {} queries", accounts.queries, accounts.queries),
                Some(first) => first.clone(),
            },
        },
        equal(
            "received = admitted + compacted + aggregated + filtered + throttled + failedOpen",
            ("received", status.received),
            ("sum", if status.are_conserved() { status.received } else { -1 }),
        ),
        equal(
            "what is stored is what was admitted and compacted",
            ("stored", with.sum_of_counts()),
            ("sum", status.admitted + status.compacted + status.aggregated + status.recovered),
        ),
        equal(
            "nothing was let through undecided, is still owed, or was lost",
            ("failedOpen", status.failed_open),
            ("owed and lost", accounts.unpaid),
        )
        .and(status.failed_open == 0),
    ]
}

impl Check {
    fn and(self, also: bool) -> Self {
        Self { ok: self.ok && also, ..self }
    }
}

fn equal(what: &str, left: (&str, i64), right: (&str, i64)) -> Check {
    Check {
        what: what.to_owned(),
        ok: left.1 == right.1,
        seen: format!("{} {}, {} {}", left.0, number(left.1), right.0, number(right.1)),
    }
}

/// Recorders that are meant to tell of everything did: nothing was dropped before it reached the API server.
fn recorders_told_all(storms: [&Tally; 2]) -> Check {
    let short = storms.iter().flat_map(|storm| &storm.sources).find(|s| s.tells_all && s.told != s.emitted);
    Check {
        what: "the legacy recorder and kube-rs told the API server of everything".to_owned(),
        ok: short.is_none(),
        seen: short.map_or_else(
            || "nothing was dropped on the way".to_owned(),
            |share| format!("{}: {} of {}", share.title, number(share.told), number(share.emitted)),
        ),
    }
}
