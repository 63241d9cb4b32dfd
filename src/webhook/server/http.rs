//! The HTTP protocol of a connection.

use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto::Builder;

use super::ConnectionLimits;

/// Maximum streams of one HTTP/2 connection that were reset before they were accepted: the number of writes that queue
/// up while the webhook stalls.
const MAX_RESETS: usize = 4_000;

/// Maximum bytes of an HTTP/1.1 request head. The API server passes on up to 8 KiB of a client's `baggage`.
const MAX_HEAD_HTTP1: usize = 16 << 10;

/// Maximum bytes of an HTTP/2 request head, 32 added for each field (RFC 9113, section 6.5.2). The API server's takes less
/// than 1 KiB.
const MAX_HEAD_HTTP2: u32 = 1_536;

/// HTTP/1.1 and HTTP/2, with buffers small enough for thousands of unauthenticated connections.
pub(super) fn builder(limits: &ConnectionLimits) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    // hyper's header timeout also runs while a connection is idle. `ConnectionLimits::authentication` ends slow heads.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(limits.idle).max_buf_size(MAX_HEAD_HTTP1);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(256)
        // After a stall all resets arrive at once. By default hyper would end the connection at the 21st, and with it the
        // reviews whose clients still wait.
        .max_pending_accept_reset_streams(MAX_RESETS)
        .initial_stream_window_size(256 << 10)
        .initial_connection_window_size(1 << 20)
        .max_header_list_size(MAX_HEAD_HTTP2);
    builder
}
