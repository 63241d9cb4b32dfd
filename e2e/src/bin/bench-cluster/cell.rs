//! One measurement: a load under a setting.

use std::collections::BTreeMap;

use e2e::bench::gauges::{Spent, Stored, Usage};
use e2e::policy::Counters;
use serde::Serialize;

use crate::setting::Setting;
use crate::work::{BATCH, EventApi, Pace, Work};

/// The kind, rate and duration of the writes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Load {
    pub(crate) work: Work,
    pub(crate) api: EventApi,
    pub(crate) pace: Pace,
    pub(crate) seconds: u64,
}

impl Load {
    /// The title in tables.
    pub(crate) fn title(&self) -> String {
        let work = match self.work {
            Work::Creates => "creates that all pass",
            Work::Unmatched => "creates that no policy matches",
            Work::HotLoop => "hot-loop patches",
            Work::Batches => &format!("hot-loop patches of {BATCH} occurrences"),
            Work::Storm => "the storm of kubernetes#141022",
        };
        let api = match self.api {
            EventApi::Core => "",
            EventApi::New => " through events.k8s.io",
        };
        let pace = match self.pace {
            Pace::Closed => "as fast as possible".to_owned(),
            Pace::PerSecond(rate) => format!("{rate}/s"),
            Pace::Recorded => "at its own rate".to_owned(),
        };
        format!("{work}{api}, {pace}")
    }
}

/// The result of a measurement.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Cell {
    pub(crate) load: Load,
    pub(crate) setting: Setting,
    pub(crate) round: usize,
    /// Measured time in seconds.
    pub(crate) seconds: f64,
    /// Answered Event writes, with any status.
    pub(crate) writes: usize,
    /// Number by HTTP status (200: any success; 0: no answer).
    pub(crate) statuses: BTreeMap<u16, usize>,
    /// Latency of Event writes and of Lease renewals in milliseconds: p50, p99.
    pub(crate) event_ms: [f64; 2],
    pub(crate) lease_ms: [f64; 2],
    pub(crate) lease_writes: usize,
    pub(crate) spent: Spent,
    pub(crate) stored: Stored,
    /// etcd puts from the end of the measurement until squelch had flushed and exited.
    pub(crate) puts_later: f64,
    /// Occurrences counted by squelch's policy, and the difference from the expected counts.
    pub(crate) counters: Option<Counters>,
    pub(crate) unaccounted: Option<String>,
}

impl Cell {
    pub(crate) fn usage(&self) -> Usage {
        Usage { seconds: self.seconds, spent: self.spent, stored: self.stored }
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.writes as f64 / self.seconds
    }

    /// Processor time per write, in microseconds.
    pub(crate) fn per_write(&self, seconds: f64) -> f64 {
        seconds * 1e6 / self.writes.max(1) as f64
    }

    /// Processor time of the cluster per write, in microseconds.
    pub(crate) fn cpu(&self) -> f64 {
        self.per_write(self.spent.together())
    }

    /// etcd puts per Event write, including all of squelch's own writes, without the Leases.
    pub(crate) fn puts(&self) -> f64 {
        (self.stored.puts + self.puts_later - self.lease_writes as f64).max(0.0) / self.writes.max(1) as f64
    }

    /// Bytes of etcd's write-ahead log per write.
    pub(crate) fn wal_bytes(&self) -> f64 {
        self.stored.wal_bytes / self.writes.max(1) as f64
    }
}
