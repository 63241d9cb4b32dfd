//! The HTTPS server around the router: sockets, TLS, the life of a connection.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use super::caller::{Connection, Watched};
use super::guests::Guest;
use super::router::Router;
use crate::accept::{Acceptor, Dismiss};

/// Dials that wait to be accepted: when the webhook stalls, the API server opens a connection for each write that
/// waits. (The kernel cuts it to `net.core.somaxconn`, 4096 by default.)
const BACKLOG: u32 = 4_000;

/// Streams of one HTTP/2 connection that were reset before they were accepted: as many as writes wait when the webhook
/// has stalled.
const MAX_RESETS: usize = 4_000;

/// Binds `address`, with room for as many waiting dials as the API server may make.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restart must not wait for the connections of the process before it.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// The two stages of an end. The second implies the first.
#[derive(Clone, Debug, Default)]
pub struct Stages {
    /// Connections are still accepted and reviews answered, but every answer closes its connection, and idle
    /// connections are closed: the API server dials anew, and reaches whoever the Service names by then.
    pub closing: CancellationToken,
    /// Nothing is accepted any more; reviews in flight are answered.
    pub stop: CancellationToken,
}

/// Bounds of connections.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Open connections; beyond that the oldest that has not proved itself makes room, else dials wait.
    pub connections: usize,
    /// For the TLS handshake.
    pub handshake: Duration,
    /// From the accept until the first whole request head with an accepted token. A connection that brings none is
    /// cut, whatever else it does.
    pub proof: Duration,
    /// A connection without a request is closed after this: longer than the API server's 90 s, so that it is the
    /// API server who closes.
    pub idle: Duration,
    /// A connection ends after this, so that dials and certificates are exercised.
    pub age: Duration,
    /// For the answers in flight when a connection or the server ends.
    pub last_words: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4_000,
            handshake: Duration::from_secs(10),
            proof: Duration::from_secs(10),
            idle: Duration::from_secs(120),
            age: Duration::from_secs(240),
            last_words: Duration::from_secs(5),
        }
    }
}

/// Serves `router` on `listener` until [`Stages::stop`], then until the answers in flight are given (at most
/// [`Limits::last_words`]). Errors of single connections are logged, never returned.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    router: Router,
    stages: Stages,
    limits: Limits,
) {
    let mut acceptor = Acceptor::new(listener, limits.connections, Dismiss::Unkept);
    let tls = TlsAcceptor::from(tls);
    let server = Arc::new(Server { tls, router, stages, limits, told_of_refusal: AtomicBool::new(false) });
    let mut connections = JoinSet::new();
    // Aborted at the end, with the set.
    let mut watching = JoinSet::new();
    let router = server.router.clone();
    watching.spawn(async move { router.watch_for_stalls().await });
    loop {
        let (stream, place) = tokio::select! {
            () = server.stages.stop.cancelled() => break,
            accepted = acceptor.accept() => accepted,
        };
        let (server, guest) = (Arc::clone(&server), Guest::new(place.connection()));
        connections.spawn(async move {
            server.attend(stream, guest).await;
            drop(place);
        });
        // Those that ended are let go here: at most as many wait for it as may be open.
        while connections.try_join_next().is_some() {}
    }
    drop(acceptor);
    let all_ended = async { while connections.join_next().await.is_some() {} };
    if timeout(limits.last_words, all_ended).await.is_err() {
        tracing::warn!("connections that did not end in time are cut");
    }
}

struct Server {
    tls: TlsAcceptor,
    router: Router,
    stages: Stages,
    limits: Limits,
    /// One that was refused was told of in the log.
    told_of_refusal: AtomicBool,
}

/// How a connection ends that does not end by itself.
enum End {
    /// Answers in flight are given, and the caller is told.
    Gracefully,
    /// At once: it never was the API server's.
    Cut,
}

impl Server {
    /// One connection from handshake to end.
    async fn attend(self: Arc<Self>, stream: TcpStream, guest: Guest) {
        let guest = Arc::new(guest);
        // An answer is one small write that somebody waits for.
        if let Err(error) = stream.set_nodelay(true) {
            return tracing::debug!(%error, "a connection was gone before it began");
        }
        // Nothing is made for a connection before it says something, and each stage is a memory of its own: thousands
        // that are only open shall take little.
        let shaken = async {
            stream.readable().await?;
            Box::pin(self.tls.accept(stream)).await
        };
        let stream = tokio::select! {
            done = timeout(self.limits.handshake, shaken) => match done {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => return self.not_shaken(&error),
                Err(_late) => return tracing::debug!("a TLS handshake did not end in time"),
            },
            () = guest.dismissed() => return,
            () = self.stages.stop.cancelled() => return,
        };
        Box::pin(self.converse(stream, guest)).await;
    }

    /// HTTP from the first request to the end of the connection.
    async fn converse(self: Arc<Self>, stream: TlsStream<TcpStream>, guest: Arc<Guest>) {
        let builder = builder(&self.limits);
        let shared = self.router.connection();
        let stream = Watched::new(stream, Arc::clone(&shared));
        let service = service_fn({
            let (server, guest) = (Arc::clone(&self), Arc::clone(&guest));
            move |request| Arc::clone(&server).answer(request, Arc::clone(&guest), Arc::clone(&shared))
        });
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
        // All that may end a connection is looked at when it stirs, not with each of the reviews.
        let mut ends = FuturesUnordered::from_iter([self.end(&guest)]);
        let end = tokio::select! {
            biased;
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(error, "a connection broke off");
                }
                return;
            }
            Some(end) = ends.next() => end,
        };
        if let End::Gracefully = end {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                _ended = timeout(self.limits.last_words, connection) => {}
                () = guest.dismissed() => {}
            }
        }
    }

    /// A handshake failed, perhaps because squelch wants no such caller.
    fn not_shaken(&self, error: &io::Error) {
        let refused =
            error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()).is_some_and(|error| {
                matches!(error, rustls::Error::NoCertificatesPresented | rustls::Error::InvalidCertificate(_))
            });
        if !refused {
            return tracing::debug!(%error, "a TLS handshake failed");
        }
        self.router.refused_handshake();
        if self.told_of_refusal.swap(true, Ordering::Relaxed) {
            tracing::debug!(%error, "a caller without an accepted certificate is refused");
        } else {
            tracing::warn!(%error, "a caller is refused by --client-ca or --client-subject; further ones are only counted");
        }
    }

    /// When and how the connection has to end.
    async fn end(&self, guest: &Guest) -> End {
        let closing = async {
            tokio::select! {
                () = self.stages.closing.cancelled() => {}
                () = self.router.retired() => {}
            }
            // One that has just been dialled gets its answer first: a client repeats a request only if it was
            // not the first of its connection.
            guest.answered().await;
        };
        let stranger = async {
            sleep(self.limits.proof).await;
            if guest.has_proved() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = closing => End::Gracefully,
            () = guest.leaves() => End::Gracefully,
            () = self.stages.stop.cancelled() => End::Gracefully,
            () = sleep(self.limits.age) => End::Gracefully,
            () = stranger => End::Cut,
            () = guest.dismissed() => End::Cut,
        }
    }

    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        guest: Arc<Guest>,
        connection: Arc<Connection>,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        let proved = self.router.accepts(&request);
        if proved {
            guest.prove();
        } else {
            guest.count_unauthenticated();
        }
        // HTTP/2 has no such header: it is told by GOAWAY, see `end`.
        let tells_by_header = request.version() <= Version::HTTP_11;
        let proof = self.router.proves(&request);
        let mut response = self.router.route_from(&connection, request).await;
        let last = proof || !self.router.decides();
        // A stranger gets one answer a connection. So does a proof, and whoever asks one that does not decide: the
        // next has to dial anew.
        if tells_by_header && (self.stages.closing.is_cancelled() || !proved || last) {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        // A graceful end takes time, which only a caller with the token gets.
        if proved && last {
            guest.take_leave();
        }
        guest.answer();
        Ok(response)
    }
}

/// HTTP/1.1 and HTTP/2, with buffers small enough for thousands of strangers.
fn builder(limits: &Limits) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    // hyper's header timeout also runs while a connection is idle; slow heads of strangers end by `Limits::proof`.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(limits.idle).max_buf_size(64 << 10);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(256)
        // After a stall all resets of its time arrive at once. hyper would end the connection at the 21st, and with it the
        // reviews whose callers still wait.
        .max_pending_accept_reset_streams(MAX_RESETS)
        .initial_stream_window_size(256 << 10)
        .initial_connection_window_size(1 << 20)
        .max_header_list_size(16 << 10);
    builder
}

#[cfg(test)]
mod tests;
