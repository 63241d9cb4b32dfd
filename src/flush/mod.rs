//! Paying what is owed: orders of the engine, carried out on the API server.
//!
//! This part holds no rules of the debts: what is due, what to write and what a write has changed is the engine's to
//! say. It knows how to ask an API server, and what its answers mean.

mod call;
#[cfg(any(test, fuzzing))]
mod checks;
mod event;
#[cfg(test)]
mod fixtures;
#[cfg(fuzzing)]
pub mod fuzzing;
mod pause;
mod queue;
mod refusal;
#[cfg(test)]
mod scenarios;
mod stored;
mod valid;
#[cfg(test)]
mod validation;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

pub use queue::Limits;
pub use writer::Writer;

use queue::Queue;

/// Those under way when the end comes may take this long; then they are given back, and whoever takes them next reads
/// what became of them.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// Pays until `stop`.
pub async fn run(writer: Arc<Writer>, limits: Limits, stop: CancellationToken) {
    let mut queue = Queue::new(writer, limits);
    stop.run_until_cancelled(queue.pay_until(|_| false)).await;
    queue.end(LAST_ANSWERS).await;
}

/// Pays what this phase of draining asks for, for at most `timeout`. True if all of it was paid.
pub async fn drain(writer: Arc<Writer>, limits: Limits, timeout: Duration) -> bool {
    let mut queue = Queue::new(writer, limits);
    let paid = tokio::time::timeout(timeout, queue.pay_until(|engine| engine.unflushed() == 0)).await.is_ok();
    queue.end(Duration::ZERO).await;
    paid
}
