//! The evidence of a cell at the end, by source.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Event;

use crate::emitters::{Call, Report};
use crate::events;
use crate::policy::Counters;
use crate::proxy::ReviewCounts;

use super::{Cell, Column};

/// The annotation of squelch's summaries.
const SUMMARY: &str = "squelch.dev/summary";

/// The evidence of a cell.
pub(super) struct Evidence {
    pub(super) cell: Cell,
    pub(super) column: Column,
    pub(super) sent: Sent,
    pub(super) stored: Stored,
    /// The counters of the policy's status.
    pub(super) status: Counters,
    /// The counters when the current squelch started.
    pub(super) status_before: Counters,
    /// The counters in the metrics of the current squelch.
    pub(super) metrics: Counters,
    /// Lost occurrences.
    pub(super) lost: i64,
    /// The reviews that the proxy counted; empty without a proxy.
    pub(super) reviews: ReviewCounts,
    /// Writes that were admitted without a decision although the proxy injected no fault: the machine was too slow for an
    /// answer in time, or the Lease had expired. They may belong to any cell.
    pub(super) undecided: i64,
}

/// The reports of the clients.
#[derive(Clone, Debug, Default)]
pub(super) struct Sent {
    /// Occurrences passed to the recorders.
    pub(super) occurrences: i64,
    /// Reported occurrences, by the clients' own summaries.
    pub(super) reckoned: i64,
    /// The highest count per name that reached admission.
    pub(super) names: BTreeMap<String, i64>,
    /// Refused occurrences, by the name of the refused Event: stored under another name, or not at all.
    pub(super) withheld: BTreeMap<String, i64>,
    /// Refused occurrences that are not stored, by object.
    pub(super) dropped: BTreeMap<String, i64>,
    /// Occurrences of calls without a decision in the answer: they may have reached admission.
    pub(super) doubtful: i64,
    /// Calls that did not reach admission, although they should have.
    pub(super) failed: i64,
    /// Refused CREATEs with a `series`: client-go's new recorder logs an error for each.
    pub(super) refused_with_series: usize,
    /// UPDATEs refused because the count did not rise: kube's Recorder repeats their value.
    pub(super) refused_updates: i64,
    /// All refusals by squelch.
    pub(super) refused: usize,
    /// Errors that the client libraries logged.
    pub(super) error_lines: Vec<String>,
}

/// The stored Events.
#[derive(Clone, Debug, Default)]
pub(super) struct Stored {
    /// The count of each Event of a client.
    pub(super) names: BTreeMap<String, i64>,
    /// The sum of the counts of squelch's summaries.
    pub(super) summaries: i64,
    /// All counts, by object.
    pub(super) objects: BTreeMap<String, i64>,
}

impl Sent {
    pub(super) fn of(all: &[Report]) -> Self {
        let mut sent = Self::default();
        for report in all {
            sent.reckoned += report.sent();
            sent.occurrences += report.summary.as_ref().map_or(0, |summary| summary.occurrences);
            sent.error_lines.extend(report.error_lines().iter().map(|line| line.message.clone()));
            for call in &report.calls {
                sent.add(call);
            }
        }
        sent
    }

    fn add(&mut self, call: &Call) {
        let value = call.sent_series_count.or(call.sent_count).unwrap_or(1).max(1);
        let before = self.names.get(&call.name).copied().unwrap_or_default();
        let carried = (value - before).max(0);
        let by_squelch = call.error.contains("squelch: ");
        match call.status {
            200..300 | 409 | 422 => {}
            403 if by_squelch => {}
            // The Event does not exist: the client retries with a CREATE.
            404 => return,
            // The API server is down, or has just started without its authorizer.
            0 if call.error.contains("connection refused") => return self.failed += 1,
            400..500 => return self.failed += 1,
            _ => return self.doubtful += carried.max(1),
        }
        self.names.insert(call.name.clone(), value.max(before));
        if !by_squelch {
            return;
        }
        self.refused += 1;
        self.refused_with_series += usize::from(call.verb == "create" && call.sent_series_count.is_some());
        self.refused_updates += i64::from(call.verb == "patch" && call.status == 403);
        let says = |word: &str| call.error.contains(word);
        if says(" filtered") || says(" throttled") {
            *self.dropped.entry(object_of(&call.name).to_owned()).or_default() += carried;
        }
        if !says(" compacted") {
            *self.withheld.entry(call.name.clone()).or_default() += carried;
        }
    }

    /// The reported occurrences that reached admission.
    pub(super) fn total(&self) -> i64 {
        self.names.values().sum()
    }

    /// Suppressed occurrences of names that are stored: an absolute count reported them again, or may have. By
    /// object.
    pub(super) fn reported_again(&self, stored: &Stored) -> BTreeMap<String, i64> {
        let mut objects = BTreeMap::new();
        for (name, held) in &self.withheld {
            if stored.names.contains_key(name) {
                *objects.entry(object_of(name).to_owned()).or_default() += held;
            }
        }
        objects
    }

    /// The sum by object.
    pub(super) fn objects(&self) -> BTreeMap<String, i64> {
        let mut objects = BTreeMap::new();
        for (name, value) in &self.names {
            *objects.entry(object_of(name).to_owned()).or_default() += value;
        }
        objects
    }
}

/// The object's name: every client here names Events after the object, a dot and hex digits.
fn object_of(event: &str) -> &str {
    event.rsplit_once('.').map_or(event, |(object, _)| object)
}

impl Stored {
    pub(super) fn of(all: &[Event]) -> Self {
        let mut stored = Self::default();
        for event in all {
            let value = events::value(event);
            *stored.objects.entry(events::object(event).to_owned()).or_default() += value;
            if event.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(SUMMARY)) {
                stored.summaries += value;
            } else {
                stored.names.insert(events::name(event).to_owned(), value);
            }
        }
        stored
    }

    pub(super) fn total(&self) -> i64 {
        self.summaries + self.names.values().sum::<i64>()
    }
}
