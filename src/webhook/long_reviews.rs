//! A concurrency limit for long reviews, each decoded on a thread of its own. Long reviews wait only for each other, and
//! short reviews do not wait.

use std::num::NonZero;
use std::sync::Arc;
use std::thread::{self, available_parallelism};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::clock;
use crate::log_limit::LogLimit;

static SPAWN_FAILURES: LogLimit = LogLimit::new();

/// Reviews above this length, in bytes, are long: decoding one blocks a worker of the runtime for more than half a
/// millisecond (300 MB/s: `just bench`, a whole review).
pub(super) const LONG: usize = 128 << 10;

/// Long reviews decoded at a time for each processor. More would slow each other down; fewer would let a queued review
/// time out in the API server.
const PER_PROCESSOR: usize = 2;

/// The queue of long reviews.
#[derive(Debug)]
pub(super) struct LongReviews(Arc<Semaphore>);

/// The permission to decode one long review, until dropped.
pub(super) type LongReviewPermit = OwnedSemaphorePermit;

impl LongReviews {
    pub(super) fn new() -> Self {
        Self::with_permits(PER_PROCESSOR * available_parallelism().map_or(1, NonZero::get))
    }

    pub(super) fn with_permits(permits: usize) -> Self {
        Self(Arc::new(Semaphore::new(permits)))
    }

    /// Waits for the permit of a review of `length` bytes, first in, first out. Returns `None` at once for a short
    /// review.
    pub(super) async fn acquire(&self, length: usize) -> Option<LongReviewPermit> {
        if length <= LONG {
            return None;
        }
        // The semaphore is never closed.
        self.0.clone().acquire_owned().await.ok()
    }
}

/// Runs `read` on a thread of its own. Returns `None` if the thread cannot be started, or if it panics. The thread keeps
/// `permit` until it ends, even if the returned future is dropped.
pub(super) async fn on_own_thread<T: Send + 'static>(
    permit: LongReviewPermit,
    read: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = oneshot::channel();
    let reading = move || {
        // Fails if the client has gone.
        let _ = sender.send(read());
        drop(permit);
    };
    if let Err(error) = thread::Builder::new().name("long-review".to_owned()).spawn(reading) {
        if let Some(suppressed) = SPAWN_FAILURES.permit(clock::now()) {
            tracing::warn!(%error, suppressed, "no thread for a long review, admitting its write without a decision");
        }
        return None;
    }
    receiver.await.ok()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::time::Duration;

    use super::*;
    use futures::FutureExt as _;

    #[test]
    fn long_reviews_wait_for_each_other_and_short_reviews_do_not_wait() {
        let long_reviews = LongReviews::with_permits(1);
        let first = long_reviews.acquire(LONG + 1).now_or_never();
        assert!(matches!(first, Some(Some(_))));
        assert!(long_reviews.acquire(LONG + 1).now_or_never().is_none());
        assert!(matches!(long_reviews.acquire(LONG).now_or_never(), Some(None)));
        drop(first);
        assert!(long_reviews.acquire(LONG + 1).now_or_never().is_some());
    }

    async fn permit(long_reviews: &LongReviews) -> LongReviewPermit {
        long_reviews.acquire(LONG + 1).await.unwrap()
    }

    #[tokio::test]
    async fn other_tasks_run_while_a_long_review_is_decoded() {
        let long_reviews = LongReviews::new();
        let (sender, receiver) = channel();
        let _other = tokio::spawn(async move { sender.send(3) });
        // On the runtime's only thread this would block the task that it waits for.
        let read = on_own_thread(permit(&long_reviews).await, move || {
            receiver.recv_timeout(Duration::from_secs(60))
        });
        assert_eq!(read.await, Some(Ok::<_, RecvTimeoutError>(3)));
    }

    #[tokio::test]
    async fn a_permit_is_held_until_its_thread_ends() {
        let long_reviews = LongReviews::with_permits(1);
        let (end, ended) = channel::<()>();
        let mut read = Box::pin(on_own_thread(permit(&long_reviews).await, move || ended.recv()));
        assert!(read.as_mut().now_or_never().is_none());
        drop(read);
        assert!(
            long_reviews.acquire(LONG + 1).now_or_never().is_none(),
            "the thread runs on after its client has gone"
        );
        drop(end);
        drop(permit(&long_reviews).await);
    }

    #[tokio::test]
    async fn a_panic_returns_none_and_releases_the_permit() {
        let long_reviews = LongReviews::with_permits(1);
        let result =
            on_own_thread(permit(&long_reviews).await, || -> u8 { panic!("expected by this test") }).await;
        assert_eq!(result, None);
        drop(permit(&long_reviews).await);
    }
}
