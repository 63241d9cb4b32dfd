//! What is known of a cell when all is over, by whom.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Event;

use crate::emitters::{Call, Told};
use crate::events;
use crate::policy::Counters;
use crate::proxy::Tally;

use super::{Cell, Column};

/// The annotation of squelch's own Events that stand for many.
const SUMMARY: &str = "squelch.dev/summary";

/// All that is known of a cell.
pub(super) struct Evidence {
    pub(super) cell: Cell,
    pub(super) column: Column,
    pub(super) sent: Sent,
    pub(super) stored: Stored,
    /// What the policy's status tells.
    pub(super) status: Counters,
    /// The status when the squelch that runs now began.
    pub(super) status_before: Counters,
    /// What the metrics of the squelch that runs now tell.
    pub(super) metrics: Counters,
    /// Occurrences that squelch gave up.
    pub(super) lost: i64,
    /// What the proxy knows of the reviews; nothing, if there is none.
    pub(super) reviews: Tally,
    /// Reviews that the API server gave up although the proxy did nothing: the machine was too slow. They may have
    /// been of any cell.
    pub(super) late: i64,
}

/// What the clients know.
#[derive(Clone, Debug, Default)]
pub(super) struct Sent {
    /// What happened.
    pub(super) occurrences: i64,
    /// What the API server was told of, by the clients' own reckoning.
    pub(super) reckoned: i64,
    /// The highest count under each name that came as far as admission.
    pub(super) names: BTreeMap<String, i64>,
    /// Occurrences that came with a refusal, and are stored under no name or another: by the name they came under.
    pub(super) withheld: BTreeMap<String, i64>,
    /// Those of them that are stored nowhere, by object.
    pub(super) dropped: BTreeMap<String, i64>,
    /// Occurrences of calls without an answer, or with one that tells of no decision: they may have come as far
    /// as admission.
    pub(super) doubtful: i64,
    /// Calls that certainly did not, and that should have.
    pub(super) failed: i64,
    /// Refused CREATEs with a `series`: client-go's new recorder logs an error for each.
    pub(super) refused_with_series: usize,
    /// UPDATEs that were refused as those of a client that holds back are: kube's Recorder repeats their value.
    pub(super) refused_updates: i64,
    /// All refusals of squelch's.
    pub(super) refused: usize,
    /// What the client libraries logged as errors.
    pub(super) error_lines: Vec<String>,
}

/// What etcd has.
#[derive(Clone, Debug, Default)]
pub(super) struct Stored {
    /// The value of each Event that a client made.
    pub(super) names: BTreeMap<String, i64>,
    /// The value of squelch's summaries together.
    pub(super) summaries: i64,
    /// All values, by object.
    pub(super) objects: BTreeMap<String, i64>,
}

impl Sent {
    pub(super) fn of(all: &[Told]) -> Self {
        let mut sent = Self::default();
        for told in all {
            sent.reckoned += told.sent();
            sent.occurrences += told.summary.as_ref().map_or(0, |summary| summary.occurrences);
            sent.error_lines.extend(told.error_lines().iter().map(|line| line.message.clone()));
            for call in &told.calls {
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
            // An Event that is not there: the client comes again with a CREATE.
            404 => return,
            // Nobody listens; or an API server that has just begun knows no rights yet.
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

    /// What came as far as admission.
    pub(super) fn total(&self) -> i64 {
        self.names.values().sum()
    }

    /// What was held back under names that are stored after all: a client's absolute count has told it again, or
    /// may have. By object.
    pub(super) fn told_again(&self, stored: &Stored) -> BTreeMap<String, i64> {
        let mut objects = BTreeMap::new();
        for (name, held) in &self.withheld {
            if stored.names.contains_key(name) {
                *objects.entry(object_of(name).to_owned()).or_default() += held;
            }
        }
        objects
    }

    /// By object.
    pub(super) fn objects(&self) -> BTreeMap<String, i64> {
        let mut objects = BTreeMap::new();
        for (name, value) in &self.names {
            *objects.entry(object_of(name).to_owned()).or_default() += value;
        }
        objects
    }
}

/// Every client here names its Events after the object, a dot and hex digits.
fn object_of(event: &str) -> &str {
    event.rsplit_once('.').map_or(event, |(object, _)| object)
}

impl Stored {
    pub(super) fn of(all: &[Event]) -> Self {
        let mut stored = Self::default();
        for event in all {
            let value = events::value(event);
            *stored.objects.entry(events::object(event).to_owned()).or_default() += value;
            let annotations = event.metadata.annotations.as_ref();
            if annotations.is_some_and(|annotations| annotations.contains_key(SUMMARY)) {
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
