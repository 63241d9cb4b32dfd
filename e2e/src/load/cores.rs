//! Processors for a server and its caller, so that they do not compete.

use std::fs;

use anyhow::Result;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The processors of the machine in two sets.
#[derive(Clone, Copy, Debug)]
pub struct Cores {
    all: CpuSet,
    caller: CpuSet,
    server: CpuSet,
}

impl Cores {
    /// Splits the processors of this process in halves. With a single processor, both sides share it.
    ///
    /// # Errors
    /// If the affinity cannot be read.
    pub fn part() -> Result<Self> {
        let all = sched_getaffinity(None)?;
        let half = all.count() / 2;
        let (mut caller, mut server) = (CpuSet::new(), CpuSet::new());
        let usable = (0..CpuSet::MAX_CPU).filter(|core| all.is_set(*core));
        for (number, core) in (0..).zip(usable) {
            if number < half { caller.set(core) } else { server.set(core) }
        }
        if half == 0 {
            caller = all;
        }
        Ok(Self { all, caller, server })
    }

    /// Number of caller threads with a processor each.
    pub fn callers(&self) -> u64 {
        u64::from(self.caller.count())
    }

    /// Pins this thread to the caller's processors.
    pub(super) fn keep_caller(&self) -> Result<()> {
        Ok(sched_setaffinity(None, &self.caller)?)
    }

    /// Pins the threads of a process to the server's processors.
    ///
    /// # Errors
    /// If the process does not exist.
    pub fn confine(&self, process: u32) -> Result<()> {
        bind(process, &self.server)
    }

    /// Removes the pinning.
    ///
    /// # Errors
    /// If the process does not exist.
    pub fn release(&self, process: u32) -> Result<()> {
        bind(process, &self.all)
    }
}

/// Pins all threads of a process; new threads inherit the affinity of their creator.
fn bind(process: u32, cores: &CpuSet) -> Result<()> {
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        let number = thread?.file_name().to_string_lossy().parse().ok().and_then(Pid::from_raw);
        // The thread may have exited.
        let _ = sched_setaffinity(number, cores);
    }
    Ok(())
}
