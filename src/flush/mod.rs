//! Flushing: carries out the flush tasks of the engine on the API server.
//!
//! The engine decides what is due, what to write, and what a result means for a series. This module calls the API
//! server and interprets its answers.

mod call;
#[cfg(any(test, fuzzing))]
mod checks;
mod event;
#[cfg(fuzzing)]
pub mod fuzzing;
mod pause;
mod queue;
mod refusal;
mod stored;
#[cfg(test)]
mod tests;
mod valid;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

pub use event::StoredTime;
pub use queue::FlushLimits;
pub use writer::Writer;

use queue::FlushQueue;

/// The time that flushes in flight get at the end. Then they are released, and the next flush of the Event reads what
/// was written.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Flushes until `stop`.
pub async fn run(writer: Arc<Writer>, limits: FlushLimits, stop: CancellationToken) {
    let mut queue = FlushQueue::new(writer, limits);
    stop.run_until_cancelled(queue.flush_until(|_| false)).await;
    queue.end(END_TIMEOUT).await;
}

/// Flushes what this phase of the shutdown has pending, for at most `timeout`. Returns whether nothing is pending any
/// more.
pub async fn flush_all(writer: Arc<Writer>, limits: FlushLimits, timeout: Duration) -> bool {
    let mut queue = FlushQueue::new(writer, limits);
    let is_done =
        tokio::time::timeout(timeout, queue.flush_until(|engine| engine.unflushed() == 0)).await.is_ok();
    queue.end(Duration::ZERO).await;
    is_done
}
