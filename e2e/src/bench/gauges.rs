//! Counters of the machine and of etcd before and after a measurement.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::Cluster;
use crate::cluster::given;
use crate::squelch::Admin;

/// Linux counts processor time in hundredths of a second.
const TICK: Duration = Duration::from_millis(10);

/// Processor time in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spent {
    /// Of the API server.
    pub api_server: f64,
    /// Of each etcd.
    pub etcd: f64,
    /// squelch, or the webhook in Go.
    pub webhook: f64,
    /// Of the load generator, which competes for the processors.
    pub generator: f64,
    /// Of all processes of this machine, and the time stolen by its host.
    pub machine: f64,
    /// The stolen time alone.
    pub stolen: f64,
}

impl Spent {
    /// Processor time of the cluster for the writes.
    #[must_use]
    pub fn together(&self) -> f64 {
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

/// Writes of each etcd.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Stored {
    /// Written keys.
    pub puts: f64,
    /// Committed proposals.
    pub proposals: f64,
    /// Bytes of the write-ahead log.
    pub wal_bytes: f64,
    /// Calls of fsync.
    pub fsyncs: f64,
    /// Their time.
    pub fsync_seconds: f64,
}

impl Stored {
    /// What was written since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            puts: self.puts - before.puts,
            proposals: self.proposals - before.proposals,
            wal_bytes: self.wal_bytes - before.wal_bytes,
            fsyncs: self.fsyncs - before.fsyncs,
            fsync_seconds: self.fsync_seconds - before.fsync_seconds,
        }
    }
}

/// What a measurement used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Usage {
    /// Its time.
    pub seconds: f64,
    /// Processor time.
    pub spent: Spent,
    /// Writes of etcd.
    pub stored: Stored,
}

/// All gauges at one moment.
pub struct Reading {
    at: Instant,
    spent: Spent,
    stored: Stored,
}

impl Reading {
    /// What was used since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Usage {
        Usage {
            seconds: (self.at - before.at).as_secs_f64(),
            spent: self.spent.since(&before.spent),
            stored: self.stored.since(&before.stored),
        }
    }
}

/// Sources of the gauges.
pub struct Gauges {
    api_server: u32,
    /// Metrics and process of each etcd.
    etcds: Vec<(Admin, u32)>,
}

impl Gauges {
    /// The sources of this cluster.
    ///
    /// # Errors
    /// If a component does not run, or if there is no cluster.
    pub fn of(cluster: &Cluster) -> Result<Self> {
        let etcd = |name: &str, url: &Path| {
            let url = url.display().to_string().trim_end_matches("/metrics").to_owned();
            Ok::<_, anyhow::Error>((Admin::at(url)?, cluster.process_of(name)?))
        };
        let mut etcds = vec![etcd("etcd", &given("SQUELCH_ETCD_METRICS_URL")?)?];
        // A cluster with one etcd does not have this variable.
        if let Ok(url) = given("SQUELCH_EVENTS_ETCD_METRICS_URL") {
            etcds.push(etcd("etcd-events", &url)?);
        }
        Ok(Self { api_server: cluster.process_of("kube-apiserver")?, etcds })
    }

    /// Reads the gauges. `webhook` is its process.
    ///
    /// # Errors
    /// If a process has ended.
    pub async fn read(&self, webhook: Option<u32>) -> Result<Reading> {
        let stored = self.stored().await?;
        let own = std::process::id();
        let etcd = self.etcds.iter().map(|(_, pid)| process(*pid)).sum::<Result<f64>>()?;
        let (machine, stolen) = machine(&std::fs::read_to_string("/proc/stat")?);
        let spent = Spent {
            api_server: process(self.api_server)?,
            etcd,
            webhook: webhook.map_or(Ok(0.0), process)?,
            generator: process(own)?,
            machine,
            stolen,
        };
        Ok(Reading { at: Instant::now(), spent, stored })
    }

    /// Writes of each etcd.
    ///
    /// # Errors
    /// If its metrics cannot be read.
    pub async fn stored(&self) -> Result<Stored> {
        let mut all = Vec::new();
        for (etcd, _) in &self.etcds {
            all.push(etcd.metrics().await?);
        }
        let read = |name| {
            anyhow::ensure!(all.iter().all(|it| it.count(name, &[]) > 0), "etcd has no metric {name}");
            Ok(all.iter().map(|it| it.sum(name, &[])).sum())
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
