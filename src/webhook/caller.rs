//! Whether the caller of a review still waits for its answer. The API server gives up after the webhook's
//! `timeoutSeconds` and stores the write: a decision made after that would merge an occurrence that is stored as well.
//!
//! - HTTP/1.1: the caller closes its connection. hyper reads on behind a whole request before it polls the service, so
//!   [`Watched`] sees the end of the connection before the review is decided.
//! - HTTP/2: the caller resets the stream. hyper reads all frames that have arrived before it spawns the stream, and
//!   looks for a reset once the service is pending, see [`look_for_reset`].
//! - After a stall of the process an end may still be on its way through buffers: nothing is decided until no review
//!   from before its end can be waiting, see [`Stalls`].

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

/// How long the API server waits for an answer: `timeoutSeconds` of the webhook configuration.
const TIMEOUT: Duration = Duration::from_secs(1);

/// A review is decided within half of the timeout, so that its answer has the other half to arrive.
const DEADLINE: Duration = Duration::from_millis(500);

/// A pause between two beats of this length or longer is a stall of the process.
const STALL: Duration = Duration::from_millis(500);

const BEAT: Duration = Duration::from_millis(100);

/// The stalls of the process: SIGSTOP, a frozen cgroup, a machine without processor time.
#[derive(Debug, Default)]
pub(super) struct Stalls {
    /// Nanoseconds of the last beat; 0 while nothing beats.
    beat: AtomicU64,
    /// Nanoseconds until which reviews from before the end of the last stall may arrive.
    until: AtomicU64,
}

impl Stalls {
    /// Beats by `clock` until dropped.
    pub(super) async fn watch(&self, clock: &Clock) {
        scopeguard::defer! { self.beat.store(0, Ordering::Release) }
        loop {
            if let Some(stalled) = self.beat(clock.now()) {
                tracing::warn!(?stalled, "process stalled; letting writes through undecided for a second");
            }
            sleep(BEAT).await;
        }
    }

    /// Notes that the process runs. Returns the length of the stall that has just ended.
    pub(super) fn beat(&self, now: Moment) -> Option<Duration> {
        let stalled = self.since_beat(nanoseconds(now)).filter(|pause| *pause >= STALL);
        if stalled.is_some() {
            // Before the beat: a review that reads the new beat also reads this.
            self.until.store(nanoseconds(now.plus(TIMEOUT)), Ordering::Release);
        }
        self.beat.store(nanoseconds(now).max(1), Ordering::Release);
        stalled
    }

    /// Whether a review that is to be decided at `now` may have waited for the end of a stall. It may be the first to run
    /// after that, before the next beat.
    fn may_delay(&self, now: Moment) -> bool {
        let now = nanoseconds(now);
        let stalls = self.since_beat(now).is_some_and(|pause| pause >= STALL);
        stalls || now < self.until.load(Ordering::Acquire)
    }

    fn since_beat(&self, now: u64) -> Option<Duration> {
        let beat = self.beat.load(Ordering::Acquire);
        (beat != 0).then(|| Duration::from_nanos(now.saturating_sub(beat)))
    }
}

fn nanoseconds(moment: Moment) -> u64 {
    u64::try_from(moment.since(Moment::default()).as_nanos()).unwrap_or(u64::MAX)
}

/// What the reviews of one connection share.
#[derive(Debug, Default)]
pub(super) struct Connection {
    stalls: Arc<Stalls>,
    has_ended: AtomicBool,
}

impl Connection {
    pub(super) fn new(stalls: Arc<Stalls>) -> Self {
        Self { stalls, has_ended: AtomicBool::new(false) }
    }

    /// The caller of a review whose head was read at `began`.
    pub(super) fn caller(self: &Arc<Self>, began: Moment) -> Caller {
        Caller { connection: Arc::clone(self), began, has_given_up: false }
    }
}

/// The caller of one review.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    connection: Arc<Connection>,
    began: Moment,
    has_given_up: bool,
}

impl Caller {
    /// Whether the caller waits at `now`, and for long enough to get the answer.
    pub(super) fn waits(&self, now: Moment) -> bool {
        !self.has_given_up
            && !self.connection.has_ended.load(Ordering::Acquire)
            && now.since(self.began) < DEADLINE
            && !self.connection.stalls.may_delay(now)
    }

    /// Notes that hyper dropped the review: the caller ended its stream or connection.
    pub(super) fn give_up(&mut self) {
        self.has_given_up = true;
    }
}

/// Pending once: hyper looks for a reset of an HTTP/2 stream only while its service is pending, and drops the service
/// of one that was reset.
pub(super) async fn look_for_reset() {
    let mut looked = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut looked, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// A stream that reports its end to the reviews of its connection one poll before hyper sees it: hyper drops reviews of
/// an ended connection unpolled, and nothing would count them or remember what their clients reported.
pub(super) struct Watched<S> {
    stream: S,
    connection: Arc<Connection>,
    end: Option<io::Result<()>>,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, connection: Arc<Connection>) -> Self {
        Self { stream, connection, end: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
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

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
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
    fn a_review_has_half_of_the_timeout() {
        let caller = Arc::new(Connection::default()).caller(at(1_000));
        assert!(caller.waits(at(1_000)) && caller.waits(at(1_499)) && !caller.waits(at(1_500)));
    }

    #[test]
    fn nothing_is_decided_for_a_second_after_a_stall() {
        let stalls = Arc::new(Stalls::default());
        let connection = Arc::new(Connection::new(Arc::clone(&stalls)));
        let waits = |now: u64| connection.caller(at(now)).waits(at(now));
        assert!(waits(9_000), "nothing beats yet");
        assert_eq!(stalls.beat(at(10_000)), None);
        assert_eq!(stalls.beat(at(10_100)), None);
        assert!(waits(10_599));
        assert!(!waits(10_600), "a review runs before the next beat");
        assert_eq!(stalls.beat(at(11_600)), Some(Duration::from_millis(1_500)));
        for now in [11_700, 12_100, 12_500] {
            assert_eq!(stalls.beat(at(now)), None);
            assert!(!waits(now));
        }
        assert!(waits(12_600));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stall_ends_with_the_watch() {
        let stalls = Stalls::default();
        let clock = Clock::default();
        assert!(stalls.watch(&clock).now_or_never().is_none());
        let mut watch = Box::pin(stalls.watch(&clock));
        assert!(futures::poll!(&mut watch).is_pending());
        tokio::time::advance(2 * STALL).await;
        assert!(stalls.may_delay(clock.now()));
        assert!(futures::poll!(&mut watch).is_pending());
        assert!(stalls.may_delay(clock.now()), "the stall is over, and reviews may still wait");
        drop(watch);
        tokio::time::advance(TIMEOUT).await;
        assert!(!stalls.may_delay(clock.now()), "nothing beats any more");
    }

    #[tokio::test]
    async fn an_end_is_known_one_poll_before_it_is_read() {
        let (mut there, here) = tokio::io::duplex(64);
        let connection = Arc::new(Connection::default());
        let mut watched = Watched::new(here, Arc::clone(&connection));
        let caller = connection.caller(at(0));
        there.write_all(b"review").await.unwrap();
        there.shutdown().await.unwrap();
        let mut read = [0; 64];
        assert_eq!(watched.read(&mut read).await.unwrap(), 6);
        assert!(caller.waits(at(0)));
        assert!(watched.read(&mut read).now_or_never().is_none());
        assert!(!caller.waits(at(0)));
        assert_eq!(watched.read(&mut read).await.unwrap(), 0);
        assert_eq!(watched.read(&mut read).await.unwrap(), 0, "it stays");
    }
}
