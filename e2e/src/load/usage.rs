//! Resource usage of a process, from /proc.

use std::fs;

use anyhow::{Context, Result};

/// Processor time and memory of a process.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Processor seconds of its live threads.
    pub cpu_seconds: f64,
    /// Resident memory, in MiB.
    pub resident_mib: f64,
}

impl Usage {
    /// The usage of a process.
    ///
    /// # Errors
    /// If the process does not exist.
    pub fn of(process: u32) -> Result<Self> {
        let folder = format!("/proc/{process}");
        let status = fs::read_to_string(format!("{folder}/status"))?;
        let resident_kib = number_after(&status, "VmRSS:").context("a process without memory")?;
        let mut nanoseconds = 0.0;
        for thread in fs::read_dir(format!("{folder}/task"))? {
            // schedstat has nanoseconds, stat has hundredths of a second. A thread may have exited.
            let schedstat = fs::read_to_string(thread?.path().join("schedstat")).unwrap_or_default();
            nanoseconds += number_after(&schedstat, "").unwrap_or_default();
        }
        Ok(Self { cpu_seconds: nanoseconds / 1e9, resident_mib: resident_kib / 1024.0 })
    }
}

/// The number after a line prefix.
fn number_after(text: &str, beginning: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(beginning))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_busy_process_uses_processor_time_and_memory() {
        // Not this process: the time of test threads that exit is lost.
        let mut busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let begin = Instant::now();
        let mut taken = Usage::of(busy.id()).unwrap();
        while taken.cpu_seconds < 0.05 && begin.elapsed() < Duration::from_secs(60) {
            std::thread::yield_now();
            taken = Usage::of(busy.id()).unwrap();
        }
        busy.kill().unwrap();
        busy.wait().unwrap();
        assert!(taken.cpu_seconds >= 0.05 && taken.resident_mib > 0.1, "{taken:?}");
    }

    #[test]
    fn numbers_are_parsed() {
        assert_eq!(number_after("Name:\tx\nVmRSS:\t  2048 kB\n", "VmRSS:"), Some(2048.0));
        assert_eq!(number_after("17 4 2\n", ""), Some(17.0));
        assert_eq!(number_after("Name:\tx\n", "VmRSS:"), None);
    }
}
