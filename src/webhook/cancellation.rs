//! Detects reviews whose client no longer waits for the response. After the webhook's `timeoutSeconds` the API server
//! stores the write without it; a later decision would count the same occurrence as merged.
//!
//! - HTTP/1.1: the client closes its connection. hyper reads beyond a complete request before it polls the service, so
//!   [`WatchedStream`] sees the end of the connection before the review is decided.
//! - HTTP/2: the client resets the stream. hyper reads all frames that have arrived before it spawns the stream, and
//!   checks for a reset while the service is pending, see [`poll_for_reset`].
//! - After a stall of the process such an end may still be in a buffer. Reviews that may have waited during a stall are
//!   not decided, see [`Stalls`].

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use squelch_engine::Moment;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::sleep;

use crate::clock::Clock;

/// The `timeoutSeconds` of the webhook configuration.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum time until a review is decided. The response has the other half of [`TIMEOUT`] to arrive.
const DEADLINE: Duration = Duration::from_millis(500);

/// A pause between two heartbeats of this length or longer is a stall.
const STALL: Duration = Duration::from_millis(500);

const HEARTBEAT: Duration = Duration::from_millis(100);

/// Stalls of the process: SIGSTOP, a frozen cgroup, a machine without processor time.
#[derive(Debug, Default)]
pub(super) struct Stalls {
    /// Nanoseconds of the last heartbeat; 0 while nothing watches.
    last_heartbeat: AtomicU64,
    /// Nanoseconds until which reviews from before the end of the last stall may arrive.
    until: AtomicU64,
}

impl Stalls {
    /// Watches for stalls by `clock` until dropped.
    pub(super) async fn watch(&self, clock: &Clock) {
        scopeguard::defer! { self.last_heartbeat.store(0, Ordering::Release) }
        loop {
            if let Some(stalled) = self.heartbeat(clock.now()) {
                tracing::warn!(
                    ?stalled,
                    "process stalled, admitting writes without a decision for one second"
                );
            }
            sleep(HEARTBEAT).await;
        }
    }

    /// Records that the process runs. Returns the length of the stall that has just ended.
    pub(super) fn heartbeat(&self, now: Moment) -> Option<Duration> {
        let stalled = self.since_heartbeat(nanoseconds(now)).filter(|pause| *pause >= STALL);
        if stalled.is_some() {
            // Stored before the heartbeat: a review that reads the new heartbeat also reads this.
            self.until.store(nanoseconds(now.plus(TIMEOUT)), Ordering::Release);
        }
        self.last_heartbeat.store(nanoseconds(now).max(1), Ordering::Release);
        stalled
    }

    /// Whether a review to decide at `now` may have waited during a stall. It may run before the first heartbeat after
    /// the stall.
    fn may_delay(&self, now: Moment) -> bool {
        let now = nanoseconds(now);
        let is_stalled = self.since_heartbeat(now).is_some_and(|pause| pause >= STALL);
        is_stalled || now < self.until.load(Ordering::Acquire)
    }

    fn since_heartbeat(&self, now: u64) -> Option<Duration> {
        let last = self.last_heartbeat.load(Ordering::Acquire);
        (last != 0).then(|| Duration::from_nanos(now.saturating_sub(last)))
    }
}

fn nanoseconds(moment: Moment) -> u64 {
    u64::try_from(moment.since(Moment::default()).as_nanos()).unwrap_or(u64::MAX)
}

/// The state that the reviews of one connection share.
#[derive(Debug, Default)]
pub(super) struct ReviewConnection {
    stalls: Arc<Stalls>,
    has_ended: AtomicBool,
}

impl ReviewConnection {
    pub(super) fn new(stalls: Arc<Stalls>) -> Self {
        Self { stalls, has_ended: AtomicBool::new(false) }
    }

    /// Returns the client of a review whose head was read at `began`.
    pub(super) fn client(self: &Arc<Self>, began: Moment) -> ReviewClient {
        ReviewClient { connection: Arc::clone(self), began, is_cancelled: false }
    }
}

/// The client of one review.
#[derive(Clone, Debug)]
pub(super) struct ReviewClient {
    connection: Arc<ReviewConnection>,
    began: Moment,
    is_cancelled: bool,
}

impl ReviewClient {
    /// Whether the client still waits at `now`, and long enough to receive the response.
    pub(super) fn is_waiting(&self, now: Moment) -> bool {
        !self.is_cancelled
            && !self.connection.has_ended.load(Ordering::Acquire)
            && now.since(self.began) < DEADLINE
            && !self.connection.stalls.may_delay(now)
    }

    /// Records that hyper dropped the review: the client ended its stream or connection.
    pub(super) fn cancel(&mut self) {
        self.is_cancelled = true;
    }
}

/// Is pending once. hyper checks for a reset of an HTTP/2 stream only while its service is pending, and drops the service
/// of a reset stream.
pub(super) async fn poll_for_reset() {
    let mut has_polled = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut has_polled, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// A stream that reports its end to the reviews of its connection one poll before hyper sees it. hyper drops the reviews
/// of an ended connection without polling them, and their occurrences would not be counted.
pub(super) struct WatchedStream<S> {
    stream: S,
    connection: Arc<ReviewConnection>,
    end: Option<io::Result<()>>,
}

impl<S> WatchedStream<S> {
    pub(super) fn new(stream: S, connection: Arc<ReviewConnection>) -> Self {
        Self { stream, connection, end: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(end) = self.end.take() {
            return Poll::Ready(end);
        }
        let filled = buf.filled().len();
        let Poll::Ready(read) = Pin::new(&mut self.stream).poll_read(cx, buf) else { return Poll::Pending };
        let has_ended = read.is_err() || (buf.filled().len() == filled && buf.remaining() > 0);
        if !has_ended || self.connection.has_ended.swap(true, Ordering::Release) {
            return Poll::Ready(read);
        }
        self.end = Some(read);
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WatchedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    fn at(milliseconds: u64) -> Moment {
        Moment::from_epoch(Duration::from_millis(milliseconds))
    }

    #[test]
    fn a_review_is_decided_within_half_of_the_timeout() {
        let client = Arc::new(ReviewConnection::default()).client(at(1_000));
        assert!(
            client.is_waiting(at(1_000)) && client.is_waiting(at(1_499)) && !client.is_waiting(at(1_500))
        );
    }

    #[test]
    fn no_review_is_decided_within_a_second_after_a_stall() {
        let stalls = Arc::new(Stalls::default());
        let connection = Arc::new(ReviewConnection::new(Arc::clone(&stalls)));
        let is_waiting = |now: u64| connection.client(at(now)).is_waiting(at(now));
        assert!(is_waiting(9_000), "no heartbeat yet");
        assert_eq!(stalls.heartbeat(at(10_000)), None);
        assert_eq!(stalls.heartbeat(at(10_100)), None);
        assert!(is_waiting(10_599));
        assert!(!is_waiting(10_600), "a review runs before the next heartbeat");
        assert_eq!(stalls.heartbeat(at(11_600)), Some(Duration::from_millis(1_500)));
        for now in [11_700, 12_100, 12_500] {
            assert_eq!(stalls.heartbeat(at(now)), None);
            assert!(!is_waiting(now));
        }
        assert!(is_waiting(12_600));
    }

    #[tokio::test(start_paused = true)]
    async fn no_stall_is_reported_after_the_watch_ends() {
        let stalls = Stalls::default();
        let clock = Clock::default();
        assert!(stalls.watch(&clock).now_or_never().is_none());
        let mut watch = Box::pin(stalls.watch(&clock));
        assert!(futures::poll!(&mut watch).is_pending());
        tokio::time::advance(2 * STALL).await;
        assert!(stalls.may_delay(clock.now()));
        assert!(futures::poll!(&mut watch).is_pending());
        assert!(stalls.may_delay(clock.now()), "reviews may still wait after the stall");
        drop(watch);
        tokio::time::advance(TIMEOUT).await;
        assert!(!stalls.may_delay(clock.now()), "no heartbeats after the watch ended");
    }

    #[tokio::test]
    async fn the_end_of_a_stream_is_reported_one_poll_before_it_is_read() {
        let (mut client_end, server_end) = tokio::io::duplex(64);
        let connection = Arc::new(ReviewConnection::default());
        let mut watched = WatchedStream::new(server_end, Arc::clone(&connection));
        let client = connection.client(at(0));
        client_end.write_all(b"review").await.unwrap();
        client_end.shutdown().await.unwrap();
        let mut read = [0; 64];
        assert_eq!(watched.read(&mut read).await.unwrap(), 6);
        assert!(client.is_waiting(at(0)));
        assert!(watched.read(&mut read).now_or_never().is_none());
        assert!(!client.is_waiting(at(0)));
        assert_eq!(watched.read(&mut read).await.unwrap(), 0);
        assert_eq!(watched.read(&mut read).await.unwrap(), 0, "the end repeats");
    }
}
