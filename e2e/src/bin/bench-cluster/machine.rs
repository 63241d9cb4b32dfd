//! When, where and of what; and who else was at work.

use std::process::Command;

use jiff::Timestamp;

use crate::cell::Cell;

/// More than this part of the processors taken by others, and a run says little.
const BUSY: f64 = 0.05;

/// A line above the tables of these cells.
pub(crate) fn line(cells: &[Cell]) -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("a processor without a name", |(_, model)| model.trim());
    let linux = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let linux = linux.trim().split('-').next().unwrap_or_default().to_owned();
    let commit = Command::new("git").args(["describe", "--always", "--dirty"]).output();
    let commit =
        commit.map(|told| String::from_utf8_lossy(&told.stdout).trim().to_owned()).unwrap_or_default();
    let date = Timestamp::now().strftime("%Y-%m-%d").to_string();
    let cores = cores();
    format!(
        "{date}, {model}, {cores:.0} cores, Linux {linux}, profile `quick`, commit {commit}{}.\n",
        circumstances(cells, cores)
    )
}

fn cores() -> f64 {
    std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64)
}

/// How long etcd's disk took, and how much of the processors others had.
fn circumstances(cells: &[Cell], cores: f64) -> String {
    let sum = |figure: fn(&Cell) -> f64| cells.iter().map(figure).sum::<f64>();
    let time = sum(|cell| cell.seconds) * cores;
    if time == 0.0 {
        return String::new();
    }
    let fsync = sum(|cell| cell.stored.fsync_seconds) * 1000.0 / sum(|cell| cell.stored.fsyncs).max(1.0);
    let others = sum(|cell| cell.spent.machine - cell.spent.together() - cell.spent.generator) / time;
    let stolen = sum(|cell| cell.spent.stolen) / time;
    let generator = sum(|cell| cell.spent.generator) / time;
    let mark = if others + stolen > BUSY { "**" } else { "" };
    format!(
        "; an fsync of etcd took {fsync:.2} ms; of the processors the load itself took {:.0} %, {mark}others {:.0} %, the \
         host {:.0} %{mark}",
        generator * 100.0,
        others * 100.0,
        stolen * 100.0
    )
}
