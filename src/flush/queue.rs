//! The way of orders to the writers: a bounded queue, one limit, one pause.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use squelch_engine::{Engine, Moment};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::pause::Pause;
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
}

type Limiter = RateLimiter<NotKeyed, InMemoryState, ProcessClock, NoOpMiddleware<Duration>>;

/// Orders that wait for their turn, and those that have it.
pub(super) struct Queue {
    writer: Arc<Writer>,
    limits: Limits,
    limiter: Limiter,
    pause: Pause,
    waiting: VecDeque<Unanswered>,
    looking: JoinSet<Looked>,
}

impl Queue {
    pub(super) fn new(writer: Arc<Writer>, limits: Limits) -> Self {
        Self {
            writer,
            limits,
            limiter: RateLimiter::direct_with_clock(Quota::per_second(limits.qps), ProcessClock),
            pause: Pause::new(limits.longest_pause),
            waiting: VecDeque::new(),
            looking: JoinSet::new(),
        }
    }

    /// Pays what is due, until `done` says so at a tick. May be dropped and called again.
    pub(super) async fn pay_until(&mut self, done: impl Fn(&Engine) -> bool) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let may_begin = !self.waiting.is_empty() && self.looking.len() < self.limits.in_flight;
            tokio::select! {
                _ = ticks.tick() => {
                    if done(&self.writer.engine) {
                        return;
                    }
                    self.take_orders();
                }
                Some(looked) = self.looking.join_next() => {
                    // One that panicked has given its order back.
                    if let Ok(looked) = looked {
                        self.ended(looked);
                    }
                }
                () = turn(&self.limiter, &self.pause), if may_begin => self.begin(),
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
            let orders = self.writer.engine.tick(clock::now(), room);
            self.waiting.extend(orders.into_iter().map(|order| self.writer.take(order)));
        }
    }

    fn begin(&mut self) {
        if let Some(unanswered) = self.waiting.pop_front() {
            let writer = self.writer.clone();
            self.looking.spawn(async move { writer.look(unanswered).await });
        }
    }

    fn ended(&mut self, looked: Looked) {
        match looked.refusal.filter(|refusal| refusal.is_strain()) {
            None => self.pause.answered(),
            Some(refusal) => {
                let asked = refusal.asked().map(|asked| asked.min(self.limits.longest_asked));
                self.pause.strained(asked, clock::now());
            }
        }
        if let Some(unanswered) = looked.again {
            self.waiting.push_front(unanswered);
        }
    }
}

/// Waits until one more look may begin.
async fn turn(limiter: &Limiter, pause: &Pause) {
    loop {
        let left = pause.left(clock::now());
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
