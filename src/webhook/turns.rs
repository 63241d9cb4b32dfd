//! Long reviews, a few at a time and beside all others: whoever writes long Events waits for those who do, and nobody
//! else does.

use std::num::NonZero;
use std::sync::Arc;
use std::thread::{self, available_parallelism};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// A longer review takes half a millisecond and more to read (300 MB/s: `just bench`, a whole review), in which a worker of
/// the runtime looks at no socket.
pub(super) const LONG: usize = 128 << 10;

/// So many long reviews are read at a time for each processor: those that wait for others are not to wait longer than
/// the API server does, and those that are read are not to keep each other from the processors.
const AT_A_TIME: usize = 2;

/// Who hands out turns.
#[derive(Debug)]
pub(super) struct Turns(Arc<Semaphore>);

/// Leave to read a long review, until it is dropped.
pub(super) type Turn = OwnedSemaphorePermit;

impl Turns {
    pub(super) fn new() -> Self {
        Self::of(AT_A_TIME * available_parallelism().map_or(1, NonZero::get))
    }

    pub(super) fn of(turns: usize) -> Self {
        Self(Arc::new(Semaphore::new(turns)))
    }

    /// The turn of a review of `length` bytes. Long ones wait for it, in the order in which they came; `None`: a short
    /// one needs none.
    pub(super) async fn next(&self, length: usize) -> Option<Turn> {
        if length <= LONG {
            return None;
        }
        // It is never closed; if it were, there would be nothing to wait for.
        self.0.clone().acquire_owned().await.ok()
    }
}

/// What `read` gives on a thread of its own; `None` where there can be no thread, or it panicked. The turn lasts as long
/// as that thread, whether anybody still waits for it or not.
pub(super) async fn apart<T: Send + 'static>(
    turn: Turn,
    read: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (given, awaited) = oneshot::channel();
    let reading = move || {
        // A caller who is gone does not mind.
        let _ = given.send(read());
        drop(turn);
    };
    if let Err(error) = thread::Builder::new().name("long-review".to_owned()).spawn(reading) {
        tracing::warn!(%error, "there is no thread for a long review; its write is let through");
        return None;
    }
    awaited.await.ok()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::time::Duration;

    use super::*;
    use futures::FutureExt as _;

    #[test]
    fn long_ones_wait_for_each_other_and_short_ones_for_nobody() {
        let turns = Turns::of(1);
        let first = turns.next(LONG + 1).now_or_never();
        assert!(matches!(first, Some(Some(_))));
        assert!(turns.next(LONG + 1).now_or_never().is_none());
        assert!(matches!(turns.next(LONG).now_or_never(), Some(None)));
        drop(first);
        assert!(turns.next(LONG + 1).now_or_never().is_some());
    }

    async fn turn(turns: &Turns) -> Turn {
        turns.next(LONG + 1).await.unwrap()
    }

    #[tokio::test]
    async fn others_go_on_meanwhile() {
        let turns = Turns::new();
        let (answered, others) = channel();
        let _other = tokio::spawn(async move { answered.send(3) });
        // Read by the only thread that runs others, it would wait for them without end.
        let read = apart(turn(&turns).await, move || others.recv_timeout(Duration::from_secs(60)));
        assert_eq!(read.await, Some(Ok::<_, RecvTimeoutError>(3)));
    }

    #[tokio::test]
    async fn a_turn_lasts_as_long_as_its_thread() {
        let turns = Turns::of(1);
        let (end, ended) = channel::<()>();
        let mut read = Box::pin(apart(turn(&turns).await, move || ended.recv()));
        assert!(read.as_mut().now_or_never().is_none());
        drop(read);
        assert!(turns.next(LONG + 1).now_or_never().is_none(), "its caller is gone, and it still reads");
        drop(end);
        drop(turn(&turns).await);
    }

    #[tokio::test]
    async fn a_panic_gives_nothing() {
        let turns = Turns::of(1);
        assert_eq!(apart(turn(&turns).await, || -> u8 { panic!("as meant by this test") }).await, None);
        drop(turn(&turns).await);
    }
}
