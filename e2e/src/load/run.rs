//! One server is asked for a while.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::try_join_all;
use futures::stream::FuturesUnordered;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::answers::Answers;
use super::caller::{Caller, Target};
use super::clock::{self, Alarm};
use super::cores::Cores;
use super::latency::Latency;
use super::reviews::Reviews;
use super::schedule::Schedule;
use super::usage::Usage;

/// As many idle ones as the API server keeps.
pub const CONNECTIONS: u64 = 25;

/// Whoever has not answered by then will not.
const PATIENCE: Duration = Duration::from_secs(20);

/// When reviews are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// So many a second, whatever becomes of them.
    Rate(u64),
    /// The next whenever one is answered.
    Closed,
}

/// What is asked.
pub struct Load<'a> {
    /// Whom.
    pub target: &'a Target,
    /// The process that answers.
    pub server: u32,
    /// How fast.
    pub pace: Pace,
    /// How long.
    pub duration: Duration,
    /// After how many reviews at the latest.
    pub at_most: u64,
    /// By how many threads, each with its share of the connections.
    pub threads: u64,
    /// Where those threads stay; everywhere, if nothing is said.
    pub cores: Option<&'a Cores>,
    /// Writes the review of a number.
    pub review: &'a (dyn Fn(u64) -> Bytes + Sync),
    /// The number of the first.
    pub first: u64,
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    /// How long it was asked, in seconds.
    pub seconds: f64,
    /// How many reviews were sent: the numbers from the first on, and no other.
    pub sent: u64,
    /// Those that were answered within the time.
    pub in_time: u64,
    /// What they were answered, in time or not.
    pub answers: Answers,
    /// From when a review was meant to be sent until its answer was read; of all that were sent.
    pub latency: Latency,
    /// How much later than meant a review was sent although a connection was free: the caller's own doing.
    pub delay: Latency,
    /// Processor seconds of the server.
    pub server_seconds: f64,
    /// Processor seconds of the caller.
    pub caller_seconds: f64,
    /// What the server holds in memory afterwards, in MiB.
    pub resident_mib: f64,
    /// Why the first that failed did.
    pub failure: Option<String>,
}

/// Asks one server for a while.
///
/// # Errors
/// That it cannot be reached, or went away.
pub fn run(load: &Load<'_>) -> Result<Outcome> {
    let [dialled, measured] = [(); 2].map(|()| Barrier::new(load.threads as usize + 1));
    let taken = AtomicU64::new(0);
    let (shares, before, began) = std::thread::scope(|scope| {
        let start = |share| {
            let (dialled, measured, taken) = (&dialled, &measured, &taken);
            scope.spawn(move || Share { load, share, taken }.run(dialled, measured))
        };
        let threads: Vec<_> = (0..load.threads).map(start).collect();
        dialled.wait();
        let before = Usage::of(load.server);
        let began = clock::now();
        measured.wait();
        let joined =
            threads.into_iter().map(|thread| thread.join().ok().context("a thread panicked").flatten());
        (joined.collect::<Result<Vec<Told>>>(), before, began)
    });
    // Until the last answer, also where that came late: all that were sent cost something.
    let after = Usage::of(load.server)?;
    let elapsed = Duration::from_nanos(clock::now() - began);
    Ok(sum(load, &shares?, (before?, after), elapsed))
}

fn sum(load: &Load<'_>, shares: &[Told], (before, after): (Usage, Usage), elapsed: Duration) -> Outcome {
    let mut outcome = Outcome {
        seconds: elapsed.min(load.duration).as_secs_f64(),
        sent: 0,
        in_time: 0,
        answers: Answers::default(),
        latency: Latency::new(),
        delay: Latency::new(),
        server_seconds: after.cpu_seconds - before.cpu_seconds,
        caller_seconds: 0.0,
        resident_mib: after.resident_mib,
        failure: None,
    };
    for share in shares {
        outcome.sent += share.sent;
        outcome.in_time += share.in_time;
        outcome.answers += share.answers;
        outcome.latency.add(&share.latency);
        outcome.delay.add(&share.delay);
        outcome.caller_seconds += share.thread_seconds;
        outcome.failure = outcome.failure.or_else(|| share.failure.clone());
    }
    outcome
}

/// One thread's part.
struct Share<'l> {
    load: &'l Load<'l>,
    share: u64,
    /// How many reviews were taken by all threads.
    taken: &'l AtomicU64,
}

impl Share<'_> {
    /// Dials, waits for the others, and asks.
    fn run(&self, dialled: &Barrier, measured: &Barrier) -> Result<Told> {
        let prepared = self.prepare();
        // Whoever could not dial keeps nobody waiting.
        dialled.wait();
        measured.wait();
        let (runtime, callers) = prepared?;
        let asked = async { timeout(self.load.duration + PATIENCE, self.ask(callers)).await };
        runtime.block_on(asked).context("answers did not come")?
    }

    fn prepare(&self) -> Result<(Runtime, Vec<Caller>)> {
        if let Some(cores) = self.load.cores {
            cores.keep_caller()?;
        }
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let connections = (self.share..CONNECTIONS).step_by(self.load.threads as usize);
        let dials = try_join_all(connections.map(|_| Caller::dial(self.load.target)));
        let callers = runtime.block_on(dials)?;
        Ok((runtime, callers))
    }

    async fn ask(&self, mut idle: Vec<Caller>) -> Result<Told> {
        let began = clock::thread_time();
        let start = clock::now();
        let end = start + u64::try_from(self.load.duration.as_nanos())?;
        let mut due = Due::new(self, start, end);
        let mut told = Told::new();
        let mut alarm = Alarm::new()?;
        let mut asking = FuturesUnordered::new();
        loop {
            let now = clock::now();
            // The API server takes the connection that was used last, too.
            while !idle.is_empty()
                && let Some((number, intended)) = due.take(now)
                && let Some(caller) = idle.pop()
            {
                asking.push(ask(caller, intended, (self.load.review)(number)));
                told.sent += 1;
                if due.waited_for_time {
                    told.delay.record(intended, now);
                }
            }
            due.waited_for_time = !idle.is_empty();
            // Where no connection is free, time is no matter.
            let next = due.next(now).filter(|_| due.waited_for_time);
            tokio::select! {
                biased;
                Some(asked) = asking.next(), if !asking.is_empty() => idle.extend(told.take(asked, end)),
                rung = alarm.wait_until(next.unwrap_or(end)), if next.is_some() => rung?,
                () = stay_awake(), if self.load.pace == Pace::Closed && !asking.is_empty() => {}
                else => break,
            }
        }
        told.thread_seconds = (clock::thread_time() - began) as f64 / 1e9;
        Ok(told)
    }
}

/// Lets whoever waits for the processor have it, and asks the kernel again. A caller that sleeps between two answers is
/// woken by the server, in the server's time: the slower a server, the more of that, though it is not its work.
async fn stay_awake() {
    std::thread::yield_now();
    tokio::task::yield_now().await;
}

/// Which review is sent next, and when.
struct Due<'s> {
    share: &'s Share<'s>,
    schedule: Option<Schedule>,
    /// How many of the thread's own moments are over.
    over: u64,
    end: u64,
    /// No review has waited for a connection since.
    waited_for_time: bool,
}

impl<'s> Due<'s> {
    fn new(share: &'s Share<'s>, start: u64, end: u64) -> Self {
        let schedule = match share.load.pace {
            Pace::Rate(rate) => Some(Schedule::new(start, rate, (share.share, share.load.threads))),
            Pace::Closed => None,
        };
        Self { share, schedule, over: 0, end, waited_for_time: true }
    }

    /// When the next is meant to be sent; `None` where there is none, or no time.
    fn next(&self, now: u64) -> Option<u64> {
        let is_there = self.share.taken.load(Ordering::Relaxed) < self.share.load.at_most;
        let intended = self.schedule.map_or(now, |schedule| schedule.intended(self.over));
        (is_there && now < self.end && intended < self.end).then_some(intended)
    }

    /// The number of the next that is due, and when it was meant to be sent.
    fn take(&mut self, now: u64) -> Option<(u64, u64)> {
        let intended = self.next(now).filter(|intended| *intended <= now)?;
        let at_most = self.share.load.at_most;
        let next = |taken| (taken < at_most).then_some(taken + 1);
        let number = self.share.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        self.over += 1;
        Some((self.share.load.first + number, intended))
    }
}

/// A review that was answered, or not.
struct Asked {
    caller: Caller,
    intended: u64,
    answer: Result<Bytes>,
}

async fn ask(mut caller: Caller, intended: u64, review: Bytes) -> Asked {
    let answer = caller.ask(review).await;
    Asked { caller, intended, answer }
}

/// What one thread has to tell.
struct Told {
    sent: u64,
    in_time: u64,
    answers: Answers,
    latency: Latency,
    delay: Latency,
    thread_seconds: f64,
    failure: Option<String>,
}

impl Told {
    fn new() -> Self {
        Self {
            sent: 0,
            in_time: 0,
            answers: Answers::default(),
            latency: Latency::new(),
            delay: Latency::new(),
            thread_seconds: 0.0,
            failure: None,
        }
    }

    /// The connection, if it can be used again.
    fn take(&mut self, asked: Asked, end: u64) -> Option<Caller> {
        let now = clock::now();
        match asked.answer {
            Ok(body) => {
                self.latency.record(asked.intended, now);
                self.in_time += u64::from(now < end);
                self.answers.count(&body);
                Some(asked.caller)
            }
            Err(error) => {
                self.answers.failed += 1;
                self.failure.get_or_insert(format!("{error:#}"));
                None
            }
        }
    }
}

/// What it takes to write one of these reviews, in nanoseconds on a processor.
pub fn writing(reviews: &Reviews) -> f64 {
    const NUMBER: u64 = 100_000;
    let began = clock::thread_time();
    for turn in 0..NUMBER {
        std::hint::black_box(reviews.repeat(turn));
    }
    (clock::thread_time() - began) as f64 / NUMBER as f64
}
