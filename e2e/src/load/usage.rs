//! What a process has taken, as the kernel counts it.

use std::fs;

use anyhow::{Context, Result};

/// Processor time and memory of a process.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Seconds on a processor since it began, of the threads that are there.
    pub cpu_seconds: f64,
    /// What is resident, in MiB.
    pub resident_mib: f64,
}

impl Usage {
    /// Of the process of this number, now.
    ///
    /// # Errors
    /// That it is not there.
    pub fn of(process: u32) -> Result<Self> {
        let folder = format!("/proc/{process}");
        let status = fs::read_to_string(format!("{folder}/status"))?;
        let resident_kib = number_after(&status, "VmRSS:").context("a process without memory")?;
        let mut nanoseconds = 0.0;
        for thread in fs::read_dir(format!("{folder}/task"))? {
            // To the nanosecond, where `stat` knows hundredths of a second. A thread may have ended meanwhile.
            let told = fs::read_to_string(thread?.path().join("schedstat")).unwrap_or_default();
            nanoseconds += number_after(&told, "").unwrap_or_default();
        }
        Ok(Self { cpu_seconds: nanoseconds / 1e9, resident_mib: resident_kib / 1024.0 })
    }
}

/// The number behind the line's beginning.
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
    fn a_busy_process_takes_time_and_memory() {
        // Not this one: its other tests' threads end, and what they took is gone with them.
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
    fn numbers_are_found() {
        assert_eq!(number_after("Name:\tx\nVmRSS:\t  2048 kB\n", "VmRSS:"), Some(2048.0));
        assert_eq!(number_after("17 4 2\n", ""), Some(17.0));
        assert_eq!(number_after("Name:\tx\n", "VmRSS:"), None);
    }
}
