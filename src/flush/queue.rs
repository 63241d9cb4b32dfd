//! The queue of flush tasks: bounded, with one rate limit, and with pauses for all namespaces and for each one.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use squelch_engine::{Engine, FlushTask, Moment};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::MissedTickBehavior;

use super::pause::Pauses;
use super::writer::{FlushOutcome, TakenTask, Writer};
use crate::clock;

/// How often the engine is asked for due tasks. A flush is due after seconds, which is much longer.
const TICK: Duration = Duration::from_millis(100);

/// The limits of flushing.
#[derive(Clone, Copy, Debug)]
pub struct FlushLimits {
    /// Maximum flushes per second, each one read and at most one write.
    pub qps: NonZeroU32,
    /// Maximum flushes in flight.
    pub in_flight: usize,
    /// The longest pause after failures, unless the API server asks for one.
    pub longest_pause: Duration,
    /// The longest pause that the API server can ask for.
    pub longest_asked: Duration,
}

impl FlushLimits {
    /// The limits of normal operation, with `--flush-qps`. Eight in flight reach 80 per second at 100 ms each; a
    /// slower API server should get fewer.
    pub fn usual(qps: NonZeroU32) -> Self {
        Self { qps, in_flight: 8, longest_pause: Duration::from_secs(30), longest_asked: Duration::MAX }
    }

    /// The limits of the shutdown, with `--shutdown-flush-qps`. Pauses are short because the time is limited.
    pub fn at_shutdown(qps: NonZeroU32) -> Self {
        let longest = Duration::from_secs(1);
        Self { qps, in_flight: 32, longest_pause: longest, longest_asked: longest }
    }

    /// Maximum tasks taken from the engine: those in flight, and enough for two ticks. With more, the engine could
    /// not choose which are due next; with fewer, the queue would run dry before the next tick.
    ///
    /// A task names a series, not an amount: it writes everything that was merged until it runs. The engine issues
    /// one task per series at a time. So this bounds the queue, and no occurrence is lost or written twice.
    fn bound(self) -> usize {
        let two_ticks = self.qps.get() as usize * 2 * TICK.as_millis() as usize / 1000;
        self.in_flight + two_ticks
    }

    /// Maximum of `places` that one namespace takes. Its flushes may all last until the deadline; the flushes of
    /// other namespaces go on.
    fn of_one_namespace(places: usize) -> usize {
        places - places / 4
    }

    /// Maximum tasks of all namespaces whose flushes fail.
    fn failing(self) -> usize {
        self.in_flight.div_ceil(4)
    }
}

type FlushLimiter = RateLimiter<NotKeyed, InMemoryState, ProcessClock, NoOpMiddleware<Duration>>;

/// The tasks that wait, and those in flight.
pub(super) struct FlushQueue {
    writer: Arc<Writer>,
    limits: FlushLimits,
    limiter: FlushLimiter,
    pauses: Pauses,
    waiting: VecDeque<TakenTask>,
    running: JoinSet<FlushOutcome>,
    /// The namespace of each entry of `running`.
    in_flight: HashMap<Id, Arc<str>>,
}

impl FlushQueue {
    pub(super) fn new(writer: Arc<Writer>, limits: FlushLimits) -> Self {
        Self {
            writer,
            limits,
            limiter: RateLimiter::direct_with_clock(Quota::per_second(limits.qps), ProcessClock),
            pauses: Pauses::new(limits.longest_pause),
            waiting: VecDeque::new(),
            running: JoinSet::new(),
            in_flight: HashMap::new(),
        }
    }

    /// Flushes what is due until a tick at which `done` is true. It may be dropped and called again.
    pub(super) async fn flush_until(&mut self, done: impl Fn(&Engine) -> bool) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let next = self.next_startable();
            tokio::select! {
                _ = ticks.tick() => {
                    if done(&self.writer.engine) {
                        return;
                    }
                    self.take_tasks();
                }
                Some(outcome) = self.running.join_next_with_id() => self.finished(outcome),
                () = wait_for_slot(&self.limiter, &self.pauses), if next.is_some() => self.start(next.unwrap_or_default()),
            }
        }
    }

    /// Releases the waiting tasks, and after `patience` those in flight.
    pub(super) async fn end(mut self, patience: Duration) {
        self.waiting.clear();
        let last = async { while self.running.join_next().await.is_some() {} };
        if tokio::time::timeout(patience, last).await.is_err() {
            self.running.shutdown().await;
        }
    }

    fn take_tasks(&mut self) {
        let capacity = self.limits.bound().saturating_sub(self.waiting.len() + self.running.len());
        if capacity > 0 {
            let now = clock::now();
            let limit = |namespace: &Arc<str>, tasks: &[FlushTask]| self.limit(namespace, tasks, now);
            let tasks = self.writer.engine.tick_with_limits(now, capacity, limit);
            self.waiting.extend(tasks.into_iter().map(|task| self.writer.take(task)));
        }
    }

    /// Returns how many more tasks the queue takes of this namespace, in addition to the `tasks` just issued.
    fn limit(&self, namespace: &Arc<str>, tasks: &[FlushTask], now: Moment) -> usize {
        let of_waiting = self.waiting.iter().map(|waiting| &waiting.task.namespace);
        let of_queue = of_waiting.chain(self.in_flight.values());
        let taken = || of_queue.clone().chain(tasks.iter().map(|task| &task.namespace));
        let own = taken().filter(|other| *other == namespace).count();
        if !self.pauses.is_failing(namespace) {
            return FlushLimits::of_one_namespace(self.limits.bound()).saturating_sub(own);
        }
        // After its pause, one flush at a time shows whether they still fail.
        let failing = taken().filter(|other| self.pauses.is_failing(other)).count();
        let may_try = own == 0 && failing < self.limits.failing() && !self.pauses.is_paused(namespace, now);
        usize::from(may_try)
    }

    /// Returns the position of the next task that may start. Tasks of namespaces whose flushes succeed come first.
    fn next_startable(&self) -> Option<usize> {
        let in_flight = if self.pauses.several_fail() { 1 } else { self.limits.in_flight };
        if self.running.len() >= in_flight {
            return None;
        }
        let may_start = |waiting: &TakenTask| {
            let of_namespace = self.in_flight.values().filter(|other| **other == waiting.task.namespace);
            of_namespace.count() < FlushLimits::of_one_namespace(self.limits.in_flight)
        };
        let fails = |waiting: &TakenTask| self.pauses.is_failing(&waiting.task.namespace);
        let healthy = self.waiting.iter().position(|waiting| !fails(waiting) && may_start(waiting));
        healthy.or_else(|| self.waiting.iter().position(may_start))
    }

    fn start(&mut self, next: usize) {
        if let Some(taken) = self.waiting.remove(next) {
            let (writer, namespace) = (self.writer.clone(), taken.task.namespace.clone());
            let task = self.running.spawn(async move { writer.flush(taken).await });
            self.in_flight.insert(task.id(), namespace);
        }
    }

    fn finished(&mut self, outcome: Result<(Id, FlushOutcome), JoinError>) {
        let id = outcome.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        // A flush that panicked has released its task.
        let (Some(namespace), Ok((_, outcome))) = (self.in_flight.remove(&id), outcome) else { return };
        match outcome.refusal.filter(|refusal| refusal.is_overload()) {
            None => self.pauses.answered(&namespace),
            Some(refusal) => {
                let asked = refusal.retry_after().map(|asked| asked.min(self.limits.longest_asked));
                self.pauses.failed(&namespace, asked, clock::now());
                if self.pauses.is_failing(&namespace) {
                    // Dropping a task releases it: its place is free for other namespaces.
                    self.waiting.retain(|waiting| waiting.task.namespace != namespace);
                }
            }
        }
        if let Some(taken) = outcome.retry {
            self.waiting.push_front(taken);
        }
    }
}

/// Waits until the pause is over and the rate limit allows one more flush.
async fn wait_for_slot(limiter: &FlushLimiter, pauses: &Pauses) {
    loop {
        let left = pauses.left(clock::now());
        let wait = match left {
            Duration::ZERO => match limiter.check() {
                Ok(()) => return,
                Err(not_yet) => not_yet.wait_time_from(ProcessClock.now()),
            },
            left => left,
        };
        tokio::time::sleep(wait).await;
    }
}

/// The process clock, for the limiter.
#[derive(Clone)]
struct ProcessClock;

impl Clock for ProcessClock {
    type Instant = Duration;

    fn now(&self) -> Duration {
        clock::now().since(Moment::default())
    }
}
