//! Memory of the tables at capacity, and which entries are evicted for new ones.
//!
//! A million series live in ten thousand namespaces, a hundred thousand of them have merged occurrences, and a
//! million more names are remembered. Then one namespace writes another million keys: no other namespace may lose a
//! series or a name. Exits with an error if more than [`MOST_MIB`] is resident.
//!
//! The last line is JSON, for docs/benchmarks/results.md.

#![expect(clippy::print_stdout, reason = "a program that reports")]

use std::process::ExitCode;

use mimalloc::MiMalloc;
use squelch_engine::{Disposition, Engine, Verdict};

#[allow(dead_code, reason = "other programs need more of it")]
mod load;

use load::Load;

/// The allocator of `squelch`.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The promised maximum of resident memory, code included.
const MOST_MIB: f64 = 320.0;

const SERIES: usize = 1_000_000;
/// Every tenth series has merged occurrences.
const MERGING: usize = SERIES / 10;
/// Names of each of these series: in total as many names as series.
const NAMES_EACH: usize = 10;
/// New keys of one namespace.
const CHURN: usize = 1_000_000;

fn main() -> ExitCode {
    let load = Load::new(SERIES);
    let empty = report("empty", load.engine());
    for turn in 0..SERIES {
        expect(&load.decide(&load.create(turn, 0)), Disposition::Admitted, 1);
    }
    let opened = report("1,000,000 series live", load.engine());
    for turn in 0..MERGING {
        for name in 1..=NAMES_EACH {
            expect(&load.decide(&load.create(turn * 10, name)), Disposition::Compacted, 1);
        }
    }
    let full = report("100,000 have merged occurrences, 1,000,000 more names", load.engine());

    let churning = load.namespaces() - 1;
    for number in 0..CHURN {
        load.decide(&load.invented(churning, number));
    }
    let churned = report("1,000,000 more keys from one namespace", load.engine());
    let lost = lost_by_others(&load, churning);
    println!("lost by other namespaces: {} series, {} names", lost.series, lost.names);

    let each = |bytes: f64| bytes / SERIES as f64;
    println!(
        r#"{{"resident_mib": {:.1}, "peak_mib": {:.1}, "after_churn_mib": {:.1}, "bytes_per_series_with_its_name": {:.1}, "bytes_per_name_and_tenth_of_content": {:.1}}}"#,
        full.mib(),
        churned.peak_kib / 1024.0,
        churned.mib(),
        each((opened.kib - empty.kib) * 1024.0),
        each((full.kib - opened.kib) * 1024.0),
    );
    verdict(&[full.mib(), churned.mib()], &lost)
}

fn expect(verdict: &Verdict, disposition: Disposition, occurrences: i64) {
    assert_eq!((verdict.disposition, verdict.occurrences), (Some(disposition), occurrences));
}

/// Resident memory of this process by `man 5 proc` (`VmRSS` and `VmHWM`), in KiB.
struct Resident {
    kib: f64,
    peak_kib: f64,
}

impl Resident {
    fn now() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").expect("Linux has /proc");
        let of = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
            number.expect("man 5 proc: VmRSS and VmHWM are numbers")
        };
        Self { kib: of("VmRSS:"), peak_kib: of("VmHWM:") }
    }

    fn mib(&self) -> f64 {
        self.kib / 1024.0
    }
}

fn report(what: &str, engine: &Engine) -> Resident {
    let (resident, gauges) = (Resident::now(), engine.gauges());
    let (mib, peak) = (resident.mib(), resident.peak_kib / 1024.0);
    println!("{mib:7.1} MiB (peak {peak:7.1})  {what}: {} series, {} names", gauges.series, gauges.names);
    resident
}

#[derive(Default)]
struct Lost {
    series: usize,
    names: usize,
}

/// Reports everything once more under the known names: a remembered name carries no occurrence, and a live series
/// merges the write.
fn lost_by_others(load: &Load, churning: usize) -> Lost {
    let mut lost = Lost::default();
    for turn in (0..SERIES).filter(|turn| load.namespace_of(*turn) != churning) {
        let names = if turn % 10 == 0 { NAMES_EACH } else { 0 };
        for name in 0..=names {
            let verdict = load.decide(&load.create(turn, name));
            lost.names += usize::from(verdict.occurrences > 0);
            lost.series += usize::from(verdict.stage.as_str() != "series");
        }
    }
    lost
}

fn verdict(mib: &[f64], lost: &Lost) -> ExitCode {
    if let Some(much) = mib.iter().find(|mib| **mib > MOST_MIB) {
        println!("error: {much:.1} MiB are resident, the maximum is {MOST_MIB}");
        return ExitCode::FAILURE;
    }
    if lost.series + lost.names > 0 {
        println!("error: new keys of one namespace evicted entries of others");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
