//! One measurement.

use std::collections::BTreeSet;

use e2e::bench::gauges::Usage;
use e2e::oracle::{Counting, Write};
use e2e::policy::Counters;
use serde::Serialize;

use crate::setting::Setting;

/// The HTTP status of EventRateLimit.
const TOO_MANY_REQUESTS: u16 = 429;

/// What the API server was asked, what it stored, and what that took.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) setting: Setting,
    /// Seconds until the last rollout was complete.
    pub(crate) rollouts_seconds: f64,
    /// Until the last Event write.
    pub(crate) used: Usage,
    pub(crate) evidence: Evidence,
}

/// What the audit log and the stored Events say.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Evidence {
    /// Requests of emitters to write an Event.
    pub(crate) requests: usize,
    /// Event writes in etcd: by emitters, and by squelch.
    pub(crate) stored_writes: usize,
    pub(crate) account: Account,
    /// Latency of the emitters' Event writes and of Lease renewals in milliseconds: p50, p99.
    pub(crate) event_ms: [f64; 2],
    pub(crate) lease_ms: [f64; 2],
}

/// Occurrences, by the audit log and the stored Events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Account {
    /// That the emitters reported.
    pub(crate) reported: i64,
    /// In the counts of the stored Events.
    pub(crate) stored: i64,
    /// That squelch's policy reports as dropped.
    pub(crate) dropped: i64,
    /// In refused writes of which nobody has a record.
    pub(crate) lost: i64,
}

impl Account {
    /// `recovered` occurrences of the stored ones were reported before.
    pub(crate) fn of(writes: &[Write], squelch: &str, stored: i64, counters: Counters) -> Self {
        let reported = Counting::Own.occurrences(&asked(writes, squelch));
        let dropped = counters.dropped();
        Self { reported, stored, dropped, lost: reported + counters.recovered - stored - dropped }
    }
}

/// The writes of the emitters. A refusal by EventRateLimit is one by admission.
fn asked(writes: &[Write], squelch: &str) -> Vec<Write> {
    let own = writes.iter().filter(|write| write.user != squelch);
    own.map(|write| Write {
        is_reviewed: write.is_reviewed || write.code == TOO_MANY_REQUESTS,
        ..write.clone()
    })
    .collect()
}

/// The number of Event writes that reached etcd.
pub(crate) fn stored_writes(writes: &[Write]) -> usize {
    let versions = writes.iter().filter(|write| write.succeeded()).map(|write| &write.version);
    versions.collect::<BTreeSet<_>>().len()
}

impl Row {
    /// For progress.
    pub(crate) fn line(&self) -> String {
        let Self { setting, rollouts_seconds, evidence, .. } = self;
        let Evidence { requests, stored_writes, account, event_ms, .. } = evidence;
        format!(
            "{}: {rollouts_seconds:.0} s, {requests} requests, {stored_writes} stored; {account:?}; p50 {:.1} ms, p99 {:.1} ms",
            setting.title(),
            event_ms[0],
            event_ms[1]
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(user: &str, name: &str, count: i64, code: u16, version: &str) -> Write {
        Write {
            user: user.into(),
            verb: if count == 1 { "create" } else { "patch" }.into(),
            namespace: "shop".into(),
            name: name.into(),
            sent_count: Some(count),
            code,
            version: version.into(),
            ..Write::default()
        }
    }

    #[test]
    fn a_limited_write_is_lost_unless_a_later_one_has_its_count() {
        let writes = [
            write("a", "x", 1, 201, "1"),
            write("a", "x", 2, 429, ""),
            write("a", "x", 3, 200, "2"),
            write("b", "y", 1, 429, ""),
        ];
        let account = Account::of(&writes, "squelch", 3, Counters::default());
        assert_eq!(account, Account { reported: 4, stored: 3, dropped: 0, lost: 1 });
    }

    #[test]
    fn writes_of_squelch_report_nothing_and_one_version_is_stored_once() {
        let writes = [
            write("a", "x", 1, 201, "1"),
            write("squelch", "x", 5, 200, "2"),
            write("squelch", "x", 5, 200, "2"),
            write("a", "z", 2, 404, ""),
        ];
        assert_eq!(Account::of(&writes, "squelch", 1, Counters::default()).reported, 1);
        assert_eq!(stored_writes(&writes), 2);
    }
}
