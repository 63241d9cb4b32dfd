//! Paying what is owed: orders of the engine, carried out on the API server.
//!
//! This part holds no rules: what is due, what to write and what a write has changed is the engine's to say.

mod event;
mod writer;

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
/// The same while shutting down, when `--shutdown-flush-qps` is the limit.
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
            _ = ticks.tick() => paying.hand_out(&engine),
            Some(_) = paying.tasks.join_next() => {}
        }
    }
    // Those that wait are given back, those that are under way are finished: each order must be answered.
    while paying.tasks.join_next().await.is_some() {}
}

/// Pays what this phase of draining asks for, at most `qps` orders a second, for at most `timeout`. True if all of
/// it was paid.
pub async fn drain(engine: &Engine, writer: Arc<Writer>, qps: NonZeroU32, timeout: Duration) -> bool {
    let mut paying = Paying::new(writer, qps, IN_FLIGHT_AT_SHUTDOWN, CancellationToken::new());
    let all_paid = async {
        let mut ticks = tokio::time::interval(TICK);
        while engine.unpaid() > 0 {
            ticks.tick().await;
            paying.hand_out(engine);
            while paying.tasks.try_join_next().is_some() {}
        }
    };
    let paid = tokio::time::timeout(timeout, all_paid).await.is_ok();
    // Those that are still under way are given back by being dropped.
    paying.tasks.shutdown().await;
    paid
}

/// Orders on their way to the API server.
struct Paying {
    writer: Arc<Writer>,
    limit: Arc<DefaultDirectRateLimiter>,
    in_flight: Arc<Semaphore>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
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

    /// Takes as many due orders as may wait.
    fn hand_out(&mut self, engine: &Engine) {
        let room = WAITING.saturating_sub(self.tasks.len());
        if room == 0 {
            return;
        }
        for order in engine.tick(clock::now(), room) {
            self.tasks.spawn(self.pay(order));
        }
    }

    fn pay(&self, order: Order) -> impl Future<Output = ()> + use<> {
        let (writer, limit, in_flight) = (self.writer.clone(), self.limit.clone(), self.in_flight.clone());
        let stop = self.stop.clone();
        async move {
            let turn = async {
                let permit = in_flight.acquire().await;
                limit.until_ready().await;
                permit
            };
            match stop.run_until_cancelled(turn).await {
                Some(_permit) => writer.pay(&order).await,
                None => writer.give_back(&order),
            }
        }
    }
}
