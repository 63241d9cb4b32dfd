//! Loads one server for a time.

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

/// Connections: as many idle ones as the API server keeps.
pub const CONNECTIONS: u64 = 25;

/// Time after which an answer counts as failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// The pace of reviews.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Reviews per second, independent of the answers.
    Rate(u64),
    /// The next review after each answer.
    Closed,
}

/// The parameters of a run.
pub struct Load<'a> {
    /// The server.
    pub target: &'a Target,
    /// The process id of the server.
    pub server: u32,
    /// The pace.
    pub pace: Pace,
    /// The duration.
    pub duration: Duration,
    /// The maximum number of reviews.
    pub at_most: u64,
    /// The number of threads; they share the connections.
    pub threads: u64,
    /// Processors of the threads. Default: all.
    pub cores: Option<&'a Cores>,
    /// Creates the review of a number.
    pub review: &'a (dyn Fn(u64) -> Bytes + Sync),
    /// The number of the first.
    pub first: u64,
}

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// Duration in seconds.
    pub seconds: f64,
    /// Number of sent reviews; their numbers are consecutive.
    pub sent: u64,
    /// Reviews that were answered within the duration.
    pub in_time: u64,
    /// All answers.
    pub answers: Answers,
    /// Latency of all sent reviews, from the intended send time to the read answer.
    pub latency: Latency,
    /// Delay of the caller itself: lateness although a connection was free.
    pub delay: Latency,
    /// Processor seconds of the server.
    pub server_seconds: f64,
    /// Processor seconds of the caller.
    pub caller_seconds: f64,
    /// Resident memory of the server afterwards, in MiB.
    pub resident_mib: f64,
    /// The first error.
    pub failure: Option<String>,
}

/// Loads one server.
///
/// # Errors
/// If the server is unreachable or exits.
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
        (joined.collect::<Result<Vec<ShareOutcome>>>(), before, began)
    });
    // Until the last answer, even a late one: every sent review has a cost.
    let after = Usage::of(load.server)?;
    let elapsed = Duration::from_nanos(clock::now() - began);
    Ok(sum(load, &shares?, (before?, after), elapsed))
}

fn sum(
    load: &Load<'_>,
    shares: &[ShareOutcome],
    (before, after): (Usage, Usage),
    elapsed: Duration,
) -> Outcome {
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

/// The share of one thread.
struct Share<'l> {
    load: &'l Load<'l>,
    share: u64,
    /// Number of reviews taken by all threads.
    taken: &'l AtomicU64,
}

impl Share<'_> {
    /// Dials, waits for the other threads, and sends.
    fn run(&self, dialled: &Barrier, measured: &Barrier) -> Result<ShareOutcome> {
        let prepared = self.prepare();
        // A thread that could not dial must not block the others.
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

    async fn ask(&self, mut idle: Vec<Caller>) -> Result<ShareOutcome> {
        let began = clock::thread_time();
        let start = clock::now();
        let end = start + u64::try_from(self.load.duration.as_nanos())?;
        let mut due = Due::new(self, start, end);
        let mut outcome = ShareOutcome::new();
        let mut alarm = Alarm::new()?;
        let mut asking = FuturesUnordered::new();
        loop {
            let now = clock::now();
            // The API server also prefers the most recently used connection.
            while !idle.is_empty()
                && let Some((number, intended)) = due.take(now)
                && let Some(caller) = idle.pop()
            {
                asking.push(ask(caller, intended, (self.load.review)(number)));
                outcome.sent += 1;
                if due.waited_for_time {
                    outcome.delay.record(intended, now);
                }
            }
            due.waited_for_time = !idle.is_empty();
            // Without a free connection the due time is irrelevant.
            let next = due.next(now).filter(|_| due.waited_for_time);
            tokio::select! {
                biased;
                Some(asked) = asking.next(), if !asking.is_empty() => idle.extend(outcome.take(asked, end)),
                rung = alarm.wait_until(next.unwrap_or(end)), if next.is_some() => rung?,
                () = stay_awake(), if self.load.pace == Pace::Closed && !asking.is_empty() => {}
                else => break,
            }
        }
        outcome.thread_seconds = (clock::thread_time() - began) as f64 / 1e9;
        Ok(outcome)
    }
}

/// Yields and polls again. A sleeping caller is woken in the server's processor time, which would add to the cost of
/// a slow server.
async fn stay_awake() {
    std::thread::yield_now();
    tokio::task::yield_now().await;
}

/// The next review and its due time.
struct Due<'s> {
    share: &'s Share<'s>,
    schedule: Option<Schedule>,
    /// Number of past due times of the thread.
    over: u64,
    end: u64,
    /// Time since which no review has waited for a connection.
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

    /// The due time of the next review; `None` after the last one, or in a closed loop.
    fn next(&self, now: u64) -> Option<u64> {
        let is_there = self.share.taken.load(Ordering::Relaxed) < self.share.load.at_most;
        let intended = self.schedule.map_or(now, |schedule| schedule.intended(self.over));
        (is_there && now < self.end && intended < self.end).then_some(intended)
    }

    /// Takes the number of the next due review, with its intended send time.
    fn take(&mut self, now: u64) -> Option<(u64, u64)> {
        let intended = self.next(now).filter(|intended| *intended <= now)?;
        let at_most = self.share.load.at_most;
        let next = |taken| (taken < at_most).then_some(taken + 1);
        let number = self.share.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        self.over += 1;
        Some((self.share.load.first + number, intended))
    }
}

/// A review with its answer or error.
struct Asked {
    caller: Caller,
    intended: u64,
    answer: Result<Bytes>,
}

async fn ask(mut caller: Caller, intended: u64, review: Bytes) -> Asked {
    let answer = caller.ask(review).await;
    Asked { caller, intended, answer }
}

/// The result of one thread.
struct ShareOutcome {
    sent: u64,
    in_time: u64,
    answers: Answers,
    latency: Latency,
    delay: Latency,
    thread_seconds: f64,
    failure: Option<String>,
}

impl ShareOutcome {
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

    /// Records an answer; returns the connection if it is reusable.
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

/// Processor time to write one of these reviews, in nanoseconds.
pub fn writing(reviews: &Reviews) -> f64 {
    const NUMBER: u64 = 100_000;
    let began = clock::thread_time();
    for turn in 0..NUMBER {
        std::hint::black_box(reviews.repeat(turn));
    }
    (clock::thread_time() - began) as f64 / NUMBER as f64
}
