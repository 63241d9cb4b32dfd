//! Paying what is owed: orders of the engine, carried out on the API server.
//!
//! This part holds no rules: what is due, what to write and what a write has changed is the engine's to say.

mod event;
mod writer;

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::engine::{Engine, Order};

pub use writer::Writer;

/// How often the engine is asked what is due. Debts are due in seconds: this is far below.
const TICK: Duration = Duration::from_millis(100);

/// Orders carried out at the same time: enough to keep `--flush-qps` busy at 100 ms a call.
const IN_FLIGHT: usize = 8;
/// The same while shutting down, when `--shutdown-flush-qps` is the limit (DESIGN 3.2).
const IN_FLIGHT_AT_SHUTDOWN: usize = 32;

/// Orders that wait at most. The engine keeps what it has not handed out, so this bounds memory and loses
/// nothing; a second's worth at `--shutdown-flush-qps` keeps the writers busy between two ticks.
const WAITING: usize = 512;

/// Pays until `stop`, at most `qps` orders a second.
pub async fn run(engine: Arc<Engine>, writer: Arc<Writer>, qps: NonZeroU32, stop: CancellationToken) {
    let mut paying = Paying::new(writer, qps, IN_FLIGHT, stop.clone());
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            _ = ticks.tick() => drop(paying.hand_out(&engine)),
            Some(_) = paying.tasks.join_next() => {}
        }
    }
    // Those that wait are given back, those that are under way are finished: each order must be answered.
    while paying.tasks.join_next().await.is_some() {}
}

/// What a drain came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Its time was over first.
    pub timed_out: bool,
    /// Series that still need payment.
    pub unpaid_series: usize,
    /// What they owe, in occurrences: lost, if this was the last drain.
    pub lost_occurrences: u64,
}

/// How much a drain pays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Every series that needs payment is paid once. The webhook still folds what would lower a stored count:
    /// while a storm of that goes on there is always something owed.
    EachPaidOnce,
    /// Nothing is owed.
    AllPaid,
}

/// Pays what is owed, at most `qps` orders a second, for at most `timeout`.
pub async fn drain(
    engine: Arc<Engine>,
    writer: Arc<Writer>,
    qps: NonZeroU32,
    until: Until,
    timeout: Duration,
) -> Drained {
    let mut paying = Paying::new(writer, qps, IN_FLIGHT_AT_SHUTDOWN, CancellationToken::new());
    let enough_paid = async {
        let mut ticks = tokio::time::interval(TICK);
        let mut once = Once::default();
        while engine.unpaid() > 0 {
            ticks.tick().await;
            let room = paying.room();
            let orders = paying.hand_out(&engine);
            while let Some(answered) = paying.tasks.try_join_next() {
                once.answered(answered.ok());
            }
            if once.is_over(&orders, room) && until == Until::EachPaidOnce {
                break;
            }
        }
        while paying.tasks.join_next().await.is_some() {}
    };
    let timed_out = tokio::time::timeout(timeout, enough_paid).await.is_err();
    paying.tasks.abort_all();
    Drained { timed_out, unpaid_series: engine.unpaid(), lost_occurrences: engine.gauges().owed }
}

/// The Event that an order is about.
type Target = (Arc<str>, Box<str>);

/// Which series were paid once since a drain began, and which are still to be.
#[derive(Default)]
struct Once {
    paid: HashSet<Target>,
    pending: HashSet<Target>,
}

impl Once {
    fn answered(&mut self, paid: Option<Answered>) {
        if let Some(Answered { target, paid: true }) = paid {
            self.pending.remove(&target);
            self.paid.insert(target);
        }
    }

    /// Takes note of the orders of one tick, which had room for so many. True if there is nobody left who was not
    /// paid once.
    fn is_over(&mut self, orders: &[Target], room: usize) -> bool {
        self.pending.extend(orders.iter().filter(|target| !self.paid.contains(*target)).cloned());
        orders.len() < room && self.pending.is_empty()
    }
}

/// What became of an order.
struct Answered {
    target: Target,
    /// It is done with; otherwise it was postponed.
    paid: bool,
}

/// Orders on their way to the API server.
struct Paying {
    writer: Arc<Writer>,
    limit: Arc<DefaultDirectRateLimiter>,
    in_flight: Arc<Semaphore>,
    stop: CancellationToken,
    tasks: JoinSet<Answered>,
}

impl Paying {
    fn new(writer: Arc<Writer>, qps: NonZeroU32, in_flight: usize, stop: CancellationToken) -> Self {
        Self {
            writer,
            limit: Arc::new(RateLimiter::direct(Quota::per_second(qps))),
            in_flight: Arc::new(Semaphore::new(in_flight)),
            stop,
            tasks: JoinSet::new(),
        }
    }

    /// How many more orders may wait.
    fn room(&self) -> usize {
        WAITING.saturating_sub(self.tasks.len())
    }

    /// Takes as many due orders as may wait, and tells which.
    fn hand_out(&mut self, engine: &Engine) -> Vec<Target> {
        let room = self.room();
        if room == 0 {
            return Vec::new();
        }
        let orders = engine.tick(clock::now(), room);
        let target = |order: &Order| (order.namespace.clone(), order.name.clone());
        let targets = orders.iter().map(target).collect();
        for order in orders {
            self.tasks.spawn(self.pay(target(&order), order));
        }
        targets
    }

    fn pay(&self, target: Target, order: Order) -> impl Future<Output = Answered> + use<> {
        let (writer, limit, in_flight) = (self.writer.clone(), self.limit.clone(), self.in_flight.clone());
        let stop = self.stop.clone();
        async move {
            let turn = async {
                let permit = in_flight.acquire().await;
                limit.until_ready().await;
                permit
            };
            let paid = match stop.run_until_cancelled(turn).await {
                Some(_permit) => writer.pay(&order).await,
                None => {
                    writer.give_back(&order);
                    false
                }
            };
            Answered { target, paid }
        }
    }
}
