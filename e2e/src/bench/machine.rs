//! The environment of a run, and other load on the machine.

use std::process::Command;

use jiff::Timestamp;

use super::gauges::Usage;

/// Share of the processors taken by other processes above which a run is not meaningful.
const BUSY: f64 = 0.05;

/// The line above the tables of these measurements.
#[must_use]
pub fn line(used: &[Usage]) -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown processor", |(_, model)| model.trim());
    let linux = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let linux = linux.trim().split('-').next().unwrap_or_default().to_owned();
    let commit = Command::new("git").args(["describe", "--always", "--dirty"]).output();
    let commit =
        commit.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    let date = Timestamp::now().strftime("%Y-%m-%d").to_string();
    let cores = cores();
    format!(
        "{date}, {model}, {cores:.0} cores, Linux {linux}, profile `quick`, commit {commit}{}.\n",
        circumstances(used, cores)
    )
}

fn cores() -> f64 {
    std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64)
}

/// Duration of etcd's fsyncs, and the share of the processors that others used.
fn circumstances(used: &[Usage], cores: f64) -> String {
    let sum = |figure: fn(&Usage) -> f64| used.iter().map(figure).sum::<f64>();
    let time = sum(|used| used.seconds) * cores;
    if time == 0.0 {
        return String::new();
    }
    let fsync = sum(|used| used.stored.fsync_seconds) * 1000.0 / sum(|used| used.stored.fsyncs).max(1.0);
    let others = sum(|used| used.spent.machine - used.spent.together() - used.spent.generator) / time;
    let stolen = sum(|used| used.spent.stolen) / time;
    let generator = sum(|used| used.spent.generator) / time;
    let mark = if others + stolen > BUSY { "**" } else { "" };
    format!(
        "; etcd fsync {fsync:.2} ms; processor shares: load generator {:.0} %, {mark}other processes {:.0} %, \
         hypervisor {:.0} %{mark}",
        generator * 100.0,
        others * 100.0,
        stolen * 100.0
    )
}
