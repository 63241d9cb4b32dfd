//! The way of orders to the writers: a bounded queue, one limit, and the pauses of all namespaces and of each one.

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
use super::writer::{Looked, Unanswered, Writer};
use crate::clock;

/// How often the engine is asked what is due. Debts are due in seconds: this is far below.
const TICK: Duration = Duration::from_millis(100);

/// How fast debts are paid.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Looks at stored Events a second, each a read and at most one write.
    pub qps: NonZeroU32,
    /// How many are under way at the same time.
    pub in_flight: usize,
    /// What a pause lasts at most that the API server did not ask for.
    pub longest_pause: Duration,
    /// The same of one that it asked for.
    pub longest_asked: Duration,
}

impl Limits {
    /// While squelch folds: `--flush-qps`. Eight keep 80 a second busy at 100 ms a look; a slower API server is
    /// better left with fewer.
    pub fn usual(qps: NonZeroU32) -> Self {
        Self { qps, in_flight: 8, longest_pause: Duration::from_secs(30), longest_asked: Duration::MAX }
    }

    /// While squelch ends: `--shutdown-flush-qps`, and no pause that would eat up the time there is.
    pub fn at_shutdown(qps: NonZeroU32) -> Self {
        let longest = Duration::from_secs(1);
        Self { qps, in_flight: 32, longest_pause: longest, longest_asked: longest }
    }

    /// How many orders may be out of the engine's hands: those under way, and what two ticks can need. No more,
    /// because the engine knows better which are due next; no fewer, or writers would wait for a tick.
    ///
    /// An order names a series, not an amount: what is folded while it waits is in what it writes. And the engine
    /// gives one of each series until it is answered. So this bounds the queue without losing or doubling anything.
    fn bound(self) -> usize {
        let two_ticks = self.qps.get() as usize * 2 * TICK.as_millis() as usize / 1000;
        self.in_flight + two_ticks
    }

    /// How many of `places` one namespace may have. Its flushes may each take until the deadline: those of the other
    /// namespaces go on in the meantime.
    fn of_one_namespace(places: usize) -> usize {
        places - places / 4
    }

    /// How many flush tasks the namespaces whose flushes fail may have together.
    fn failing(self) -> usize {
        self.in_flight.div_ceil(4)
    }
}

type Limiter = RateLimiter<NotKeyed, InMemoryState, ProcessClock, NoOpMiddleware<Duration>>;

/// Orders that wait for their turn, and those that have it.
pub(super) struct Queue {
    writer: Arc<Writer>,
    limits: Limits,
    limiter: Limiter,
    pauses: Pauses,
    waiting: VecDeque<Unanswered>,
    looking: JoinSet<Looked>,
    /// The namespace of each task of `looking`.
    in_flight: HashMap<Id, Arc<str>>,
}

impl Queue {
    pub(super) fn new(writer: Arc<Writer>, limits: Limits) -> Self {
        Self {
            writer,
            limits,
            limiter: RateLimiter::direct_with_clock(Quota::per_second(limits.qps), ProcessClock),
            pauses: Pauses::new(limits.longest_pause),
            waiting: VecDeque::new(),
            looking: JoinSet::new(),
            in_flight: HashMap::new(),
        }
    }

    /// Pays what is due, until `done` says so at a tick. May be dropped and called again.
    pub(super) async fn pay_until(&mut self, done: impl Fn(&Engine) -> bool) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let next = self.next();
            tokio::select! {
                _ = ticks.tick() => {
                    if done(&self.writer.engine) {
                        return;
                    }
                    self.take_orders();
                }
                Some(looked) = self.looking.join_next_with_id() => self.ended(looked),
                () = turn(&self.limiter, &self.pauses), if next.is_some() => self.begin(next.unwrap_or_default()),
            }
        }
    }

    /// Gives back those that wait, and those that are still under way after `patience`.
    pub(super) async fn end(mut self, patience: Duration) {
        self.waiting.clear();
        let last = async { while self.looking.join_next().await.is_some() {} };
        if tokio::time::timeout(patience, last).await.is_err() {
            self.looking.shutdown().await;
        }
    }

    fn take_orders(&mut self) {
        let room = self.limits.bound().saturating_sub(self.waiting.len() + self.looking.len());
        if room > 0 {
            let now = clock::now();
            let limit = |namespace: &Arc<str>, orders: &[FlushTask]| self.limit(namespace, orders, now);
            let orders = self.writer.engine.tick_with_limits(now, room, limit);
            self.waiting.extend(orders.into_iter().map(|order| self.writer.take(order)));
        }
    }

    /// How many more orders the queue takes of this namespace, given the `orders` that the engine has just given.
    fn limit(&self, namespace: &Arc<str>, orders: &[FlushTask], now: Moment) -> usize {
        let of_waiting = self.waiting.iter().map(|waiting| &waiting.order.namespace);
        let of_queue = of_waiting.chain(self.in_flight.values());
        let taken = || of_queue.clone().chain(orders.iter().map(|order| &order.namespace));
        let its = taken().filter(|other| *other == namespace).count();
        if !self.pauses.is_failing(namespace) {
            return Limits::of_one_namespace(self.limits.bound()).saturating_sub(its);
        }
        // After its pause, one flush at a time shows whether they still fail.
        let failing = taken().filter(|other| self.pauses.is_failing(other)).count();
        let may_try = its == 0 && failing < self.limits.failing() && !self.pauses.is_paused(namespace, now);
        usize::from(may_try)
    }

    /// The position of the flush that may begin: first those of the namespaces whose flushes do not fail.
    fn next(&self) -> Option<usize> {
        let in_flight = if self.pauses.everybody_fails() { 1 } else { self.limits.in_flight };
        if self.looking.len() >= in_flight {
            return None;
        }
        let may_begin = |waiting: &Unanswered| {
            let of_namespace = self.in_flight.values().filter(|other| **other == waiting.order.namespace);
            of_namespace.count() < Limits::of_one_namespace(self.limits.in_flight)
        };
        let fails = |waiting: &Unanswered| self.pauses.is_failing(&waiting.order.namespace);
        let healthy = self.waiting.iter().position(|waiting| !fails(waiting) && may_begin(waiting));
        healthy.or_else(|| self.waiting.iter().position(may_begin))
    }

    fn begin(&mut self, next: usize) {
        if let Some(unanswered) = self.waiting.remove(next) {
            let (writer, namespace) = (self.writer.clone(), unanswered.order.namespace.clone());
            let task = self.looking.spawn(async move { writer.look(unanswered).await });
            self.in_flight.insert(task.id(), namespace);
        }
    }

    fn ended(&mut self, looked: Result<(Id, Looked), JoinError>) {
        let id = looked.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        // A task that panicked has given its order back.
        let (Some(namespace), Ok((_, looked))) = (self.in_flight.remove(&id), looked) else { return };
        match looked.refusal.filter(|refusal| refusal.is_strain()) {
            None => self.pauses.answered(&namespace),
            Some(refusal) => {
                let asked = refusal.asked().map(|asked| asked.min(self.limits.longest_asked));
                self.pauses.failed(&namespace, asked, clock::now());
                if self.pauses.is_failing(&namespace) {
                    // Dropped, they go back to the engine: they leave their places to other namespaces.
                    self.waiting.retain(|waiting| waiting.order.namespace != namespace);
                }
            }
        }
        if let Some(unanswered) = looked.again {
            self.waiting.push_front(unanswered);
        }
    }
}

/// Waits until one more look may begin.
async fn turn(limiter: &Limiter, pauses: &Pauses) {
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

/// The process's own clock, for the limiter.
#[derive(Clone)]
struct ProcessClock;

impl Clock for ProcessClock {
    type Instant = Duration;

    fn now(&self) -> Duration {
        clock::now().since(Moment::default())
    }
}
