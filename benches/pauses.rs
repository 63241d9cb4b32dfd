//! How long a write can be made to wait, with a million series in one namespace and in ten thousand.
//!
//! A write waits while another one of its namespace is decided, and while the engine sees to the namespace
//! ([`Engine::tick`], [`Engine::revise`]). What is measured is the longest single call of each, through everything
//! that happens to a large table: it grows, is full, its policy changes, it pays, all of it is over at once, its
//! policy is deleted. A tick holds several locks one after the other, so no lock is held longer than it takes.
//!
//! The clock is the thread's own time on a processor: what else runs on the machine does not count. What the kernel
//! and the virtual machine below take while a call runs does, so beside each figure stands the floor: the longest
//! of as many calls that only read the clock. Ends with an error where the longest of three runs' best is above
//! [`MOST`]: a pause of the program's own comes every time.
//!
//! The last line is JSON, for those that keep the figures.

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

/// That of `squelch`.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// What squelch promises: no pause on the request path is longer.
const MOST: Duration = Duration::from_millis(1);

const REVISE: &str = "revise";
const SERIES: usize = 1_000_000;
/// What a kernel does once in a while can fall into one run's longest call, but hardly into that of each.
const RUNS: usize = 3;
/// How many orders the writer takes at a time, as `squelch run` does.
const ROOM: usize = 512;

fn main() -> ExitCode {
    let mut worst = Duration::ZERO;
    let mut figures = Vec::new();
    for (namespaces, per_namespace) in [("one namespace", SERIES), ("10,000 namespaces", 100)] {
        let runs: Vec<Longest> = (0..RUNS).map(|_| life(per_namespace)).collect();
        println!(
            "a million series in {namespaces}: longest call (of as many that do nothing), best of {RUNS} runs"
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
        println!("error: a write would wait for {worst:?}, {MOST:?} may be");
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

/// Everything that happens to a million series.
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
            longest.time("decide, folding", || load.decide_at(&write, moment(now)));
        }
    }
    for number in 0..SERIES / 4 {
        let write = load.invented(0, number);
        longest.time("decide, making room", || load.decide_at(&write, moment(now)));
    }
    now += Duration::from_secs(10);
    let hasty = [load.hasty()];
    longest.time("revise, a changed policy", || load.engine().revise(&hasty, moment(now)));
    pay(&load, &mut longest, "tick, paying and seeing to a changed policy", &mut now, 400);
    now += Duration::from_secs(3600);
    pay(&load, &mut longest, "tick, closing all as idle", &mut now, usize::MAX);

    for turn in 0..SERIES {
        let write = load.create(turn, 20);
        longest.time("decide, growing again", || load.decide_at(&write, moment(now)));
    }
    longest.time("revise, a deleted policy", || load.engine().revise(&[], moment(now)));
    pay(&load, &mut longest, "tick, forgetting a deleted policy", &mut now, usize::MAX);
    longest.time("gauges", || load.engine().gauges());
    longest
}

/// Ticks and pays until no series is left, or so many times.
fn pay(load: &Load, longest: &mut Longest, what: &'static str, now: &mut Duration, at_most: usize) {
    for _ in 0..at_most {
        *now += Duration::from_millis(100);
        let orders = longest.time(what, || load.engine().tick(moment(*now), ROOM));
        for order in &orders {
            longest.time("plan and settle", || settle(load, order, moment(*now)));
        }
        if load.engine().gauges().series == 0 {
            return;
        }
    }
}

fn settle(load: &Load, order: &FlushTask, now: Moment) {
    if let FlushPlan::Write { value, .. } | FlushPlan::Create { value, .. } =
        load.engine().plan(order, Some(StoredEvent::with_count(1)), now)
    {
        load.engine().ack(order, value, now);
    }
}

fn moment(since_epoch: Duration) -> Moment {
    Moment::from_epoch(since_epoch)
}
