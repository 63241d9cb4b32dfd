//! A trace of a million writes takes seconds and little memory. It is streamed into the command, without a file.

#![expect(clippy::unwrap_used, reason = "a test, also in the functions around it")]

#[path = "replay/storm.rs"]
#[allow(dead_code, reason = "the test of equality needs more of it than this one")]
mod storm;

use std::io::{BufWriter, Read as _, Write as _};
use std::process::{Command, Stdio};

use serde_json::Value;

use storm::Storm;

const WRITES: usize = 1_000_000;

/// Maximum processor time: six times the time on an idle machine, because shared processors are slower. Work that grows
/// faster than the number of writes takes longer.
const MOST_SECONDS: f64 = 60.0;
/// Maximum memory: the engine with a million remembered names, and the Events of a million names.
const MOST_KIB: u64 = 512 << 10;

#[test]
fn a_million_writes_replay_within_the_time_and_memory_limits() {
    let folder = std::env::temp_dir().join(format!("squelch-million-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let policies = folder.join("policies.yaml");
    std::fs::write(&policies, include_str!("replay/policies.yaml")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_squelch"));
    command.args(["replay", "-o", "json", "--policy"]).arg(&policies).arg("--decisions");
    command.arg(folder.join("decisions")).arg("-").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let process = format!("/proc/{}", child.id());

    // A storm of 4,000 clients for an hour, because repeated lines would be an easy trace.
    let mut input = BufWriter::with_capacity(1 << 16, child.stdin.take().unwrap());
    for write in Storm::new(11, 4_000, 300).take(WRITES) {
        writeln!(input, "{}", write.line()).unwrap();
    }
    input.flush().unwrap();
    let peak = kibibytes(&std::fs::read_to_string(format!("{process}/status")).unwrap(), "VmHWM:");
    drop(input);
    let mut report = String::new();
    child.stdout.take().unwrap().read_to_string(&mut report).unwrap();
    // The process has finished its output but was not waited for: /proc still has its usage.
    let seconds = processor_seconds(&std::fs::read_to_string(format!("{process}/stat")).unwrap());
    assert!(child.wait().unwrap().success());

    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["input"]["writes"], WRITES);
    let decisions = std::fs::read(folder.join("decisions")).unwrap();
    assert_eq!(decisions.iter().filter(|byte| **byte == b'\n').count(), WRITES);
    std::fs::remove_dir_all(&folder).unwrap();
    println!("{WRITES} writes: {seconds:.1} s of the processor, {} MiB", peak >> 10);
    assert!(seconds < MOST_SECONDS, "{seconds} s");
    assert!(peak < MOST_KIB, "{peak} KiB");
}

fn kibibytes(status: &str, field: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// utime and stime, in hundredths of a second: fields 14 and 15 of proc(5), counted after the name.
fn processor_seconds(stat: &str) -> f64 {
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<f64>().unwrap();
    (ticks(11) + ticks(12)) / 100.0
}
