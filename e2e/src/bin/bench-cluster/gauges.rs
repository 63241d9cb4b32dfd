//! Counters of the machine and of etcd before and after a cell.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use e2e::Cluster;
use e2e::squelch::Admin;
use serde::Serialize;

/// Linux counts processor time in hundredths of a second.
const TICK: Duration = Duration::from_millis(10);

/// Processor time in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Spent {
    pub(crate) api_server: f64,
    pub(crate) etcd: f64,
    /// squelch, or the webhook in Go.
    pub(crate) webhook: f64,
    /// Of the load generator, which competes for the processors.
    pub(crate) generator: f64,
    /// Of all processes of this machine, and the time stolen by its host.
    pub(crate) machine: f64,
    pub(crate) stolen: f64,
}

impl Spent {
    /// Processor time of the cluster for the writes.
    pub(crate) fn together(&self) -> f64 {
        self.api_server + self.etcd + self.webhook
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            api_server: self.api_server - before.api_server,
            etcd: self.etcd - before.etcd,
            webhook: self.webhook - before.webhook,
            generator: self.generator - before.generator,
            machine: self.machine - before.machine,
            stolen: self.stolen - before.stolen,
        }
    }
}

/// Writes of etcd.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Stored {
    pub(crate) puts: f64,
    pub(crate) proposals: f64,
    pub(crate) wal_bytes: f64,
    pub(crate) fsyncs: f64,
    pub(crate) fsync_seconds: f64,
}

impl Stored {
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            puts: self.puts - before.puts,
            proposals: self.proposals - before.proposals,
            wal_bytes: self.wal_bytes - before.wal_bytes,
            fsyncs: self.fsyncs - before.fsyncs,
            fsync_seconds: self.fsync_seconds - before.fsync_seconds,
        }
    }
}

/// All gauges at one moment.
pub(crate) struct Reading {
    at: Instant,
    spent: Spent,
    stored: Stored,
}

impl Reading {
    /// Time, processor time and etcd writes since `before`.
    pub(crate) fn since(&self, before: &Self) -> (Duration, Spent, Stored) {
        (self.at - before.at, self.spent.since(&before.spent), self.stored.since(&before.stored))
    }
}

/// Sources of the gauges.
pub(crate) struct Gauges {
    etcd: Admin,
    api_server: u32,
    etcd_process: u32,
}

impl Gauges {
    /// The sources of this cluster.
    pub(crate) fn of(cluster: &Cluster, etcd_metrics: &str) -> Result<Self> {
        let etcd = Admin::at(etcd_metrics.trim_end_matches("/metrics").to_owned())?;
        let [api_server, etcd_process] = ["kube-apiserver", "etcd"].map(|name| cluster.process_of(name));
        Ok(Self { etcd, api_server: api_server?, etcd_process: etcd_process? })
    }

    /// Reads the gauges.
    pub(crate) async fn read(&self, webhook: Option<u32>) -> Result<Reading> {
        let stored = self.stored().await?;
        let own = std::process::id();
        let (machine, stolen) = machine(&std::fs::read_to_string("/proc/stat")?);
        let spent = Spent {
            api_server: process(self.api_server)?,
            etcd: process(self.etcd_process)?,
            webhook: webhook.map_or(Ok(0.0), process)?,
            generator: process(own)?,
            machine,
            stolen,
        };
        Ok(Reading { at: Instant::now(), spent, stored })
    }

    /// Writes of etcd.
    pub(crate) async fn stored(&self) -> Result<Stored> {
        let samples = self.etcd.metrics().await?;
        let read = |name| {
            anyhow::ensure!(samples.count(name, &[]) > 0, "etcd has no metric {name}");
            Ok(samples.sum(name, &[]))
        };
        Ok(Stored {
            puts: read("etcd_mvcc_put_total")?,
            proposals: read("etcd_server_proposals_committed_total")?,
            wal_bytes: read("etcd_disk_wal_write_bytes_total")?,
            fsyncs: read("etcd_disk_wal_fsync_duration_seconds_count")?,
            fsync_seconds: read("etcd_disk_wal_fsync_duration_seconds_sum")?,
        })
    }
}

fn process(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
    time_of(&text).context(path)
}

/// User and system time of /proc/PID/stat, after the last ")": a process may have any name.
fn time_of(stat: &str) -> Option<f64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let [user, system] = [fields.next()?, fields.next()?].map(|field| field.parse::<u32>().ok());
    Some((TICK * (user? + system?)).as_secs_f64())
}

/// Busy and stolen time of all processors, from /proc/stat.
fn machine(stat: &str) -> (f64, f64) {
    let line = stat.lines().next().unwrap_or_default();
    let ticks: Vec<f64> = line.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    let at = |index: usize| ticks.get(index).copied().unwrap_or_default() * TICK.as_secs_f64();
    // user, nice, system, (idle, iowait), irq, softirq, steal
    ([0, 1, 2, 5, 6].map(at).iter().sum(), at(7))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_parsed_after_any_process_name() {
        let stat = "42 (a) b (c)) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 7 8 20 0 11 0 1234 1 1 1";
        assert_eq!(time_of(stat).map(|seconds| (seconds * 100.0).round() as i64), Some(300));
        assert_eq!(time_of("42 (a) S 1"), None);
    }

    #[test]
    fn idle_and_iowait_time_is_not_busy_time() {
        let (busy, stolen) = machine("cpu  100 10 50 9000 800 5 15 30 0 0\ncpu0 1 2 3\n");
        assert_eq!(((busy * 100.0).round() as i64, (stolen * 100.0).round() as i64), (180, 30));
    }
}
