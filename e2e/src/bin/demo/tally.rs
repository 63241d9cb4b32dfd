//! The counts of a storm, taken outside of squelch.

use std::collections::BTreeMap;
use std::time::Instant;

use e2e::emitters::Report;
use e2e::events;
use e2e::storm::{SOURCES, Source};
use e2e::writes::Write;
use k8s_openapi::api::core::v1::Event;
use serde::Serialize;

use crate::samples;

/// Allowed writes of an Event beyond log2 of its count and the first: one when its series closes, and one for the
/// value 3 of events.k8s.io, which is always admitted (it may be a recorder's refresh).
const SPARE_WRITES: u32 = 2;

/// The observations of a storm.
pub(crate) struct Seen {
    /// The reports of the emitters, in the order of [`SOURCES`].
    pub(crate) reported: Vec<Report>,
    /// The stored Events at the end.
    pub(crate) stored: Vec<Event>,
    /// All writes in etcd.
    pub(crate) writes: Vec<Write>,
    /// The requests for Events, counted by the API server.
    pub(crate) requests: usize,
    /// The start of the storm.
    pub(crate) began: Instant,
}

/// The numbers of one storm.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Tally {
    pub(crate) namespace: &'static str,
    pub(crate) sources: Vec<Share>,
    /// Requests counted by the API server minus those of the emitters.
    pub(crate) squelch_requests: usize,
    /// Answers to the emitters' requests: HTTP status to number.
    pub(crate) answers: BTreeMap<u16, usize>,
    /// Event writes in etcd since the start, one sum for each [`samples::STEP`].
    pub(crate) etcd_writes_over_time: Vec<usize>,
    /// Events with more writes than promised, with both numbers.
    #[serde(skip)]
    pub(crate) written_too_often: Vec<String>,
}

/// The numbers of one source.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Share {
    pub(crate) title: &'static str,
    pub(crate) recorder: &'static str,
    pub(crate) reports_every_occurrence: bool,
    /// Occurrences passed to the recorder.
    pub(crate) emitted: i64,
    /// Occurrences that the recorder reported to the API server.
    pub(crate) reported: i64,
    pub(crate) requests: usize,
    pub(crate) error_lines: usize,
    pub(crate) etcd_writes: usize,
    pub(crate) stored: usize,
    pub(crate) sum_of_counts: i64,
}

impl Share {
    fn of(source: &Source, reported: &Report, seen: &Seen) -> Self {
        let its = |event: &Event| event.reason.as_deref() == Some(source.reason);
        let stored: Vec<&Event> = seen.stored.iter().filter(|event| its(event)).collect();
        Self {
            title: source.title,
            recorder: source.recorder,
            reports_every_occurrence: source.reports_every_occurrence,
            emitted: reported.summary.as_ref().map_or(0, |summary| summary.occurrences),
            reported: reported.sent(),
            requests: reported.calls.len(),
            error_lines: reported.error_lines().len(),
            etcd_writes: seen.writes.iter().filter(|write| its(&write.event)).count(),
            stored: stored.len(),
            sum_of_counts: stored.into_iter().map(events::value).sum(),
        }
    }
}

impl Tally {
    pub(crate) fn of(namespace: &'static str, seen: &Seen) -> Self {
        let shares =
            SOURCES.iter().zip(&seen.reported).map(|(source, reported)| Share::of(source, reported, seen));
        let mut answers = BTreeMap::new();
        for call in seen.reported.iter().flat_map(|report| &report.calls) {
            *answers.entry(call.status).or_default() += 1;
        }
        let clients: usize = answers.values().sum();
        Self {
            namespace,
            sources: shares.collect(),
            squelch_requests: seen.requests.saturating_sub(clients),
            answers,
            etcd_writes_over_time: samples::sums(seen.writes.iter().map(|write| write.at - seen.began)),
            written_too_often: seen
                .stored
                .iter()
                .filter_map(|event| too_often(event, &seen.writes))
                .collect(),
        }
    }

    pub(crate) fn emitted(&self) -> i64 {
        self.sources.iter().map(|share| share.emitted).sum()
    }

    pub(crate) fn reported(&self) -> i64 {
        self.sources.iter().map(|share| share.reported).sum()
    }

    pub(crate) fn requests(&self) -> usize {
        self.sources.iter().map(|share| share.requests).sum()
    }

    /// The number of successful requests.
    pub(crate) fn accepted(&self) -> usize {
        self.answers.iter().filter(|(status, _)| (200..300).contains(*status)).map(|(_, number)| number).sum()
    }

    /// The number of requests with this status.
    pub(crate) fn answered(&self, status: u16) -> usize {
        self.answers.get(&status).copied().unwrap_or_default()
    }

    pub(crate) fn error_lines(&self) -> usize {
        self.sources.iter().map(|share| share.error_lines).sum()
    }

    pub(crate) fn etcd_writes(&self) -> usize {
        self.sources.iter().map(|share| share.etcd_writes).sum()
    }

    pub(crate) fn stored(&self) -> usize {
        self.sources.iter().map(|share| share.stored).sum()
    }

    pub(crate) fn sum_of_counts(&self) -> i64 {
        self.sources.iter().map(|share| share.sum_of_counts).sum()
    }
}

fn too_often(event: &Event, writes: &[Write]) -> Option<String> {
    let written = writes.iter().filter(|write| write.event.metadata.uid == event.metadata.uid).count();
    let count = events::value(event);
    let allowed = count.ilog2() + 1 + SPARE_WRITES;
    (written > allowed as usize)
        .then(|| format!("{} has the count {count} and {written} writes", events::name(event)))
}
