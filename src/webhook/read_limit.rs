//! A limit on the bytes read from a connection before it is authenticated.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Maximum bytes of a TLS handshake. An API server's ClientHello takes less than 2 KiB, its certificates a few KiB.
pub(super) const MAX_HANDSHAKE: usize = 16 << 10;

/// Maximum bytes read from an unauthenticated HTTP/1.1 connection: the longest head that the server accepts, and the body
/// of a request without the token.
pub(super) const MAX_UNAUTHENTICATED_HTTP1: usize = 64 << 10;

/// Maximum bytes read from an unauthenticated HTTP/2 connection. The API server sends the token within the first KiB.
/// hyper keeps an incomplete frame in memory.
pub(super) const MAX_UNAUTHENTICATED_HTTP2: usize = 4 << 10;

/// Maximum bytes of one read. An API server's request head is shorter. It also bounds the HTTP/2 frames that hyper handles
/// before it calls the service.
const MAX_READ: usize = 1 << 10;

/// A stream with a read limit until `lifted`. It is pending after each read of at most [`MAX_READ`] bytes, so that other
/// tasks run: hyper's HTTP/2 server calls the service only once a read is pending.
pub(super) struct ReadLimited<S> {
    stream: S,
    left: usize,
    lifted: Arc<AtomicBool>,
    has_read: bool,
}

impl<S> ReadLimited<S> {
    /// Fails reads beyond `limit` bytes until `lifted`.
    pub(super) fn new(stream: S, limit: usize, lifted: Arc<AtomicBool>) -> Self {
        Self { stream, left: limit, lifted, has_read: false }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ReadLimited<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.lifted.load(Ordering::Relaxed) {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        if std::mem::take(&mut self.has_read) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.left == 0 {
            return Poll::Ready(Err(io::Error::other(
                "read limit of an unauthenticated connection exceeded",
            )));
        }
        let mut buffer = [0; MAX_READ];
        let length = MAX_READ.min(self.left).min(buf.remaining());
        let mut part = ReadBuf::new(&mut buffer[..length]);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut part))?;
        buf.put_slice(part.filled());
        self.left -= part.filled().len();
        self.has_read = true;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ReadLimited<S> {
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
    use tokio::io::AsyncReadExt as _;

    fn limited(bytes: &[u8], limit: usize) -> (ReadLimited<&[u8]>, Arc<AtomicBool>) {
        let lifted = Arc::new(AtomicBool::new(false));
        (ReadLimited::new(bytes, limit, Arc::clone(&lifted)), lifted)
    }

    #[tokio::test]
    async fn other_tasks_run_between_two_reads() {
        let bytes = vec![1; 3 * MAX_READ];
        let (mut stream, lifted) = limited(&bytes, 10 * MAX_READ);
        let mut read = vec![0; 8 * MAX_READ];
        assert_eq!(stream.read(&mut read).now_or_never().unwrap().unwrap(), MAX_READ);
        assert!(stream.read(&mut read).now_or_never().is_none());
        assert_eq!(stream.read(&mut read).now_or_never().unwrap().unwrap(), MAX_READ);
        lifted.store(true, Ordering::Relaxed);
        assert_eq!(stream.read(&mut read).now_or_never().unwrap().unwrap(), MAX_READ);
    }

    #[tokio::test]
    async fn a_read_above_the_limit_fails_until_the_limit_is_lifted() {
        let bytes = vec![1; 4_000];
        let (mut stream, lifted) = limited(&bytes, 3_000);
        let mut read = Vec::new();
        assert!(stream.read_to_end(&mut read).await.is_err());
        assert_eq!(read.len(), 3_000);
        lifted.store(true, Ordering::Relaxed);
        assert_eq!(stream.read_to_end(&mut read).await.unwrap(), 1_000);
    }

    #[tokio::test]
    async fn a_stream_below_its_limit_is_read_to_its_end() {
        let (mut stream, _) = limited(&[1; 3_000], 3_001);
        assert_eq!(stream.read_to_end(&mut Vec::new()).await.unwrap(), 3_000);
    }
}
