//! One measurement: a load under a setting.

use std::collections::BTreeMap;

use e2e::policy::Counters;
use serde::Serialize;

use crate::gauges::{Spent, Stored};
use crate::setting::Setting;
use crate::work::{Pace, Through, Work};

/// What is written, how fast, how long.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Load {
    pub(crate) work: Work,
    pub(crate) through: Through,
    pub(crate) pace: Pace,
    pub(crate) seconds: u64,
}

impl Load {
    /// For tables.
    pub(crate) fn title(&self) -> String {
        let work = match self.work {
            Work::Creates => "creates that all pass",
            Work::HotLoop => "hot-loop patches",
            Work::Storm => "the storm of kubernetes#141022",
        };
        let through = match self.through {
            Through::Core => "",
            Through::New => " through events.k8s.io",
        };
        let pace = match self.pace {
            Pace::Closed => "as fast as they are answered".to_owned(),
            Pace::PerSecond(rate) => format!("{rate} a second"),
            Pace::Recorded => "at its own rate".to_owned(),
        };
        format!("{work}{through}, {pace}")
    }
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Cell {
    pub(crate) load: Load,
    pub(crate) setting: Setting,
    pub(crate) round: usize,
    /// How long it was measured.
    pub(crate) seconds: f64,
    /// Event writes that were answered, whatever the answer.
    pub(crate) writes: usize,
    /// By HTTP status (200: any success; 0: no answer).
    pub(crate) statuses: BTreeMap<u16, usize>,
    /// Milliseconds of Event writes and of the Leases meanwhile: p50, p99.
    pub(crate) event_ms: [f64; 2],
    pub(crate) lease_ms: [f64; 2],
    pub(crate) lease_writes: usize,
    pub(crate) spent: Spent,
    pub(crate) stored: Stored,
    /// Puts from the end of the measurement until squelch had paid and ended.
    pub(crate) puts_later: f64,
    /// What squelch's policy counted, and what is wrong with it.
    pub(crate) counters: Option<Counters>,
    pub(crate) unaccounted: Option<String>,
}

impl Cell {
    pub(crate) fn per_second(&self) -> f64 {
        self.writes as f64 / self.seconds
    }

    /// Microseconds of processor time.
    pub(crate) fn per_write(&self, seconds: f64) -> f64 {
        seconds * 1e6 / self.writes.max(1) as f64
    }

    /// What the cluster spent on each write, in microseconds.
    pub(crate) fn cpu(&self) -> f64 {
        self.per_write(self.spent.together())
    }

    /// What reached etcd, squelch's own writes of every kind among it, for each write of an Event; the Leases are not.
    pub(crate) fn puts(&self) -> f64 {
        (self.stored.puts + self.puts_later - self.lease_writes as f64).max(0.0) / self.writes.max(1) as f64
    }

    /// Bytes of etcd's log for each write.
    pub(crate) fn wal_bytes(&self) -> f64 {
        self.stored.wal_bytes / self.writes.max(1) as f64
    }
}
