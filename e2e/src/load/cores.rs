//! Which processors a server and its caller have, so that neither stands in the other's way.

use std::fs;

use anyhow::Result;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The processors of the machine, parted.
#[derive(Clone, Copy, Debug)]
pub struct Cores {
    all: CpuSet,
    caller: CpuSet,
    server: CpuSet,
}

impl Cores {
    /// Half of those that this process may use for each side; where there is one only, both have it.
    ///
    /// # Errors
    /// That the kernel does not tell them.
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

    /// How many threads of a caller have a processor each.
    pub fn callers(&self) -> u64 {
        u64::from(self.caller.count())
    }

    /// Keeps this thread to the caller's side.
    pub(super) fn keep_caller(&self) -> Result<()> {
        Ok(sched_setaffinity(None, &self.caller)?)
    }

    /// Keeps the threads that a process has to the server's side.
    ///
    /// # Errors
    /// That it is not there.
    pub fn confine(&self, process: u32) -> Result<()> {
        bind(process, &self.server)
    }

    /// Lets them go everywhere again.
    ///
    /// # Errors
    /// That it is not there.
    pub fn release(&self, process: u32) -> Result<()> {
        bind(process, &self.all)
    }
}

/// Of the threads of a process; one that begins meanwhile has the processors of the one that began it.
fn bind(process: u32, cores: &CpuSet) -> Result<()> {
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        let number = thread?.file_name().to_string_lossy().parse().ok().and_then(Pid::from_raw);
        // It may have ended meanwhile.
        let _ = sched_setaffinity(number, cores);
    }
    Ok(())
}
