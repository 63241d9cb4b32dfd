//! The longest pause of a write, with a million series in one namespace and in ten thousand.
//!
//! A write waits while another write of its namespace is decided, and while the engine maintains the namespace
//! ([`Engine::tick`], [`Engine::revise`]). The benchmark measures the longest single call of each through the whole
//! life of a large table: growth, capacity, a changed policy, flushes, idle series, a deleted policy. A tick holds
//! several locks one after the other, so no lock is held longer than the call.
//!
//! The clock is the processor time of the thread: other processes do not count. Time of the kernel and of the
//! hypervisor within a call does count. So each figure has a floor beside it: the longest of as many calls that only
//! read the clock. Exits with an error if the best of three runs is above [`MOST`]: a pause of the program itself
//! occurs in every run.
//!
//! The last line is JSON, for docs/benchmarks/results.md.

#![expect(clippy::print_stdout, reason = "a program that reports")]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use mimalloc::MiMalloc;
use rustix::time::{ClockId, clock_gettime};
use squelch_engine::{FlushPlan, FlushTask, Moment, StoredEvent};

#[allow(dead_code, reason = "other programs need more of it")]
mod load;

use load::Load;

/// The allocator of `squelch`.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The promised maximum pause on the request path.
const MOST: Duration = Duration::from_millis(1);

const REVISE: &str = "revise";
const SERIES: usize = 1_000_000;
/// Rare kernel work can hit the longest call of one run, but hardly that of every run.
const RUNS: usize = 3;
/// Flush tasks per tick, as in `squelch run`.
const ROOM: usize = 512;

fn main() -> ExitCode {
    let mut worst = Duration::ZERO;
    let mut figures = Vec::new();
    for (namespaces, per_namespace) in [("one namespace", SERIES), ("10,000 namespaces", 100)] {
        let runs: Vec<Longest> = (0..RUNS).map(|_| life(per_namespace)).collect();
        println!(
            "a million series in {namespaces}: longest call (floor in parentheses), best of {RUNS} runs"
        );
        for what in runs[0].0.keys() {
            let of = |pick: fn(&Calls) -> Duration| runs.iter().map(|run| pick(&run.0[what])).min();
            let (longest, floor) = (of(|calls| calls.longest), of(|calls| calls.floor));
            let (longest, floor) = (longest.unwrap_or_default(), floor.unwrap_or_default());
            let calls = runs[0].0[what].number;
            println!("{longest:>12.1?} ({floor:>9.1?})  {what}, {calls} calls");
            figures.push(format!(r#""{what}, {namespaces}": {:.1}"#, longest.as_secs_f64() * 1e6));
            if !what.starts_with(REVISE) {
                worst = worst.max(longest);
            }
        }
    }
    println!("{{{}}}", figures.join(", "));
    if worst > MOST {
        println!("error: a write can wait for {worst:?}, the maximum is {MOST:?}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// The longest call of each kind.
#[derive(Default)]
struct Longest(BTreeMap<&'static str, Calls>);

#[derive(Default)]
struct Calls {
    longest: Duration,
    floor: Duration,
    number: u64,
}

impl Longest {
    fn time<T>(&mut self, what: &'static str, call: impl FnOnce() -> T) -> T {
        let calls = self.0.entry(what).or_default();
        let began = processor_time();
        calls.floor = calls.floor.max(processor_time() - began);
        let began = processor_time();
        let answer = call();
        calls.longest = calls.longest.max(processor_time() - began);
        calls.number += 1;
        answer
    }
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// The whole life of a million series.
fn life(per_namespace: usize) -> Longest {
    let mut longest = Longest::default();
    let load = Load::in_namespaces(SERIES, per_namespace, SERIES);
    let mut now = Duration::from_secs(60);

    for turn in 0..SERIES {
        let write = load.create(turn, 0);
        longest.time("decide, growing", || load.decide_at(&write, moment(now)));
    }
    for turn in (0..SERIES).step_by(10) {
        for name in 1..=10 {
            let write = load.create(turn, name);
            longest.time("decide, merging", || load.decide_at(&write, moment(now)));
        }
    }
    for number in 0..SERIES / 4 {
        let write = load.invented(0, number);
        longest.time("decide, with eviction", || load.decide_at(&write, moment(now)));
    }
    now += Duration::from_secs(10);
    let hasty = [load.hasty()];
    longest.time("revise, a changed policy", || load.engine().revise(&hasty, moment(now)));
    flush(&load, &mut longest, "tick, flushing and applying a changed policy", &mut now, 400);
    now += Duration::from_secs(3600);
    flush(&load, &mut longest, "tick, closing idle series", &mut now, usize::MAX);

    for turn in 0..SERIES {
        let write = load.create(turn, 20);
        longest.time("decide, growing again", || load.decide_at(&write, moment(now)));
    }
    longest.time("revise, a deleted policy", || load.engine().revise(&[], moment(now)));
    flush(&load, &mut longest, "tick, removing a deleted policy", &mut now, usize::MAX);
    longest.time("gauges", || load.engine().gauges());
    longest
}

/// Ticks and flushes until no series is left, or the maximum number of ticks is reached.
fn flush(load: &Load, longest: &mut Longest, what: &'static str, now: &mut Duration, at_most: usize) {
    for _ in 0..at_most {
        *now += Duration::from_millis(100);
        let tasks = longest.time(what, || load.engine().tick(moment(*now), ROOM));
        for task in &tasks {
            longest.time("plan and ack", || ack(load, task, moment(*now)));
        }
        if load.engine().gauges().series == 0 {
            return;
        }
    }
}

fn ack(load: &Load, task: &FlushTask, now: Moment) {
    if let FlushPlan::Write { value, .. } | FlushPlan::Create { value, .. } =
        load.engine().plan(task, Some(StoredEvent::with_count(1)), now)
    {
        load.engine().ack(task, value, now);
    }
}

fn moment(since_epoch: Duration) -> Moment {
    Moment::from_epoch(since_epoch)
}
