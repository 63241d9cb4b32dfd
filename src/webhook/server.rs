//! The HTTPS server around the router: sockets, TLS, and the life of a connection.

mod http;
mod limits;

use std::convert::Infallible;
use std::future::ready;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, Version};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::cancellation::{ReviewConnection, WatchedStream};
use super::connection::ClientConnection;
use super::read_limit::{MAX_HANDSHAKE, MAX_UNAUTHENTICATED_HTTP1, MAX_UNAUTHENTICATED_HTTP2, ReadLimited};
use super::router::{Prepared, Router, unavailable};
use crate::accept::{Acceptor, Eviction, InFlight};
use http::builder;

pub use limits::{ConnectionLimits, Stages};

/// Maximum dials that wait to be accepted: while the webhook stalls, the API server opens a connection for each waiting
/// write. (The kernel caps it at `net.core.somaxconn`, 4096 by default.)
const BACKLOG: u32 = 4_000;

/// A bound port that refuses connections until it [listens](Self::listen).
pub struct ReservedPort(TcpSocket);

impl ReservedPort {
    /// Accepts connections from now on, with a backlog for the dials of a stalled API server.
    pub fn listen(self) -> io::Result<TcpListener> {
        self.0.listen(BACKLOG)
    }
}

/// Binds `address`.
pub fn bind(address: SocketAddr) -> io::Result<ReservedPort> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restart must not wait for connections of the previous process.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(ReservedPort(socket))
}

/// Serves `router` on `listener` until [`Stages::stop`], then waits up to [`ConnectionLimits::shutdown_grace`] for responses in
/// flight. Errors of single connections are logged, not returned.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    router: Router,
    stages: Stages,
    limits: ConnectionLimits,
) {
    let mut acceptor = Acceptor::new(listener, limits.connections, Eviction::Unprotected);
    let tls = TlsAcceptor::from(tls);
    let server =
        Arc::new(Server { tls, router, stages, limits, has_logged_rejection: AtomicBool::new(false) });
    let mut connections = JoinSet::new();
    // Dropping the set aborts the task.
    let mut watching = JoinSet::new();
    let router = server.router.clone();
    watching.spawn(async move { router.watch_for_stalls().await });
    loop {
        let (stream, slot) = tokio::select! {
            () = server.stages.stop.cancelled() => break,
            accepted = acceptor.accept() => accepted,
        };
        let (server, client) = (Arc::clone(&server), ClientConnection::new(slot.connection()));
        connections.spawn(async move {
            server.handle_connection(stream, client).await;
            drop(slot);
        });
        // Drops the results of ended tasks, at most one for each slot.
        while connections.try_join_next().is_some() {}
    }
    drop(acceptor);
    let all_ended = async { while connections.join_next().await.is_some() {} };
    if timeout(limits.shutdown_grace, all_ended).await.is_err() {
        tracing::warn!("connections did not end within the shutdown grace period, closing them");
    }
}

struct Server {
    tls: TlsAcceptor,
    router: Router,
    stages: Stages,
    limits: ConnectionLimits,
    /// The first rejected client certificate is logged as a warning.
    has_logged_rejection: AtomicBool,
}

/// How the server ends a connection.
enum CloseMode {
    /// After the responses in flight, by `Connection: close` or GOAWAY.
    Graceful,
    /// At once.
    Cut,
}

impl Server {
    /// Serves one connection from the handshake to its end.
    async fn handle_connection(self: Arc<Self>, stream: TcpStream, client: ClientConnection) {
        let client = Arc::new(client);
        // A response is one small write, and the client waits for it.
        if let Err(error) = stream.set_nodelay(true) {
            return tracing::debug!(%error, "connection closed before the handshake");
        }
        // Waits for the first bytes before it allocates, and boxes each stage, so that thousands of silent connections take
        // little memory.
        let handshake = async {
            stream.readable().await?;
            let is_complete = Arc::<AtomicBool>::default();
            let limited = ReadLimited::new(stream, MAX_HANDSHAKE, Arc::clone(&is_complete));
            let stream = Box::pin(self.tls.accept(limited)).await?;
            is_complete.store(true, Ordering::Relaxed);
            Ok(stream)
        };
        let stream = tokio::select! {
            done = timeout(self.limits.handshake, handshake) => match done {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => return self.handshake_failed(&error),
                Err(_late) => return tracing::debug!("TLS handshake timed out"),
            },
            () = client.evicted() => return,
            () = self.stages.stop.cancelled() => return,
        };
        Box::pin(self.serve_http(stream, client)).await;
    }

    /// Serves HTTP from the first request to the end of the connection.
    async fn serve_http(
        self: Arc<Self>,
        stream: TlsStream<ReadLimited<TcpStream>>,
        client: Arc<ClientConnection>,
    ) {
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let (builder, max_unauthenticated) = if is_http2 {
            (builder(&self.limits).http2_only(), MAX_UNAUTHENTICATED_HTTP2)
        } else {
            (builder(&self.limits).http1_only(), MAX_UNAUTHENTICATED_HTTP1)
        };
        let reviews = self.router.connection();
        let stream = ReadLimited::new(stream, max_unauthenticated, client.authentication());
        let stream = WatchedStream::new(stream, Arc::clone(&reviews));
        let service = service_fn({
            let (server, client) = (Arc::clone(&self), Arc::clone(&client));
            move |request| Arc::clone(&server).begin_request(request, &client, &reviews)
        });
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
        // In a set of its own, this future is polled only when it wakes, not with every review.
        let mut ends = FuturesUnordered::from_iter([self.end(&client, is_http2)]);
        let end = tokio::select! {
            biased;
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(error, "connection failed");
                }
                return;
            }
            Some(end) = ends.next() => end,
        };
        if let CloseMode::Graceful = end {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                _ended = timeout(self.limits.shutdown_grace, connection) => {}
                () = client.evicted() => {}
            }
        }
    }

    /// Logs a failed handshake, and counts it if the client's certificate was rejected.
    fn handshake_failed(&self, error: &io::Error) {
        let is_rejected =
            error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()).is_some_and(|error| {
                matches!(error, rustls::Error::NoCertificatesPresented | rustls::Error::InvalidCertificate(_))
            });
        if !is_rejected {
            return tracing::debug!(%error, "TLS handshake failed");
        }
        self.router.tls_handshake_failure();
        if self.has_logged_rejection.swap(true, Ordering::Relaxed) {
            tracing::debug!(%error, "client certificate rejected");
        } else {
            tracing::warn!(%error, "client certificate rejected by --client-ca-file or --client-subject, counting further ones without a log message");
        }
    }

    /// Waits until the server must end the connection.
    async fn end(&self, client: &ClientConnection, is_http2: bool) -> CloseMode {
        let closing = async {
            tokio::select! {
                () = self.stages.closing.cancelled() => {}
                () = self.router.deactivated() => {}
            }
            // A new connection gets one response first: clients do not retry the first request of a connection.
            client.first_response().await;
        };
        let authentication_timeout = async {
            sleep(self.limits.authentication).await;
            if client.is_authenticated() {
                std::future::pending::<()>().await;
            }
        };
        let aged = async {
            sleep(self.limits.age).await;
            if !is_http2 {
                // The client's next review may be on its way, and it does not retry a POST. So the next response is the last
                // one. The client closes an idle connection itself.
                client.retire();
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = closing => CloseMode::Graceful,
            () = client.closed() => CloseMode::Graceful,
            () = self.stages.stop.cancelled() => CloseMode::Graceful,
            () = aged => CloseMode::Graceful,
            () = authentication_timeout => CloseMode::Cut,
            () = client.evicted() => CloseMode::Cut,
        }
    }

    /// Authenticates a request and acquires its permits before its response is polled: hyper accepts many requests of an
    /// HTTP/2 connection before it polls the first response.
    fn begin_request(
        self: Arc<Self>,
        request: Request<Incoming>,
        client: &Arc<ClientConnection>,
        connection: &Arc<ReviewConnection>,
    ) -> Answering {
        let caller = self.router.caller(&request);
        if caller.is_authenticated() {
            client.authenticate();
        } else if !client.may_request() {
            return Box::pin(ready(Ok(unavailable().map(Full::new))));
        }
        let head = RequestHead {
            is_authenticated: caller.is_authenticated(),
            is_probe: caller.is_probe(),
            is_http1: request.version() <= Version::HTTP_11,
            _in_flight: client.request(),
        };
        let prepared = self.router.prepare(caller, connection, request);
        Box::pin(self.answer(head, prepared, Arc::clone(client)))
    }

    async fn answer(
        self: Arc<Self>,
        head: RequestHead,
        prepared: Prepared<Incoming>,
        client: Arc<ClientConnection>,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        let mut response = self.router.answer(prepared).await;
        // The next probe must dial, and the next review may reach the active replica.
        let is_last = head.is_probe || client.is_retired() || !self.router.is_active();
        // HTTP/2 has no such header: `end` sends GOAWAY.
        if head.is_http1 && (self.stages.closing.is_cancelled() || !head.is_authenticated || is_last) {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        // A graceful shutdown takes time, so an unauthenticated client does not get one.
        if head.is_authenticated && is_last {
            client.close();
        }
        client.responded();
        Ok(response)
    }
}

/// The response to one request.
type Answering = Pin<Box<dyn Future<Output = Result<Response<Full<Bytes>>, Infallible>> + Send>>;

/// The properties of a request head.
struct RequestHead {
    is_authenticated: bool,
    is_probe: bool,
    is_http1: bool,
    _in_flight: InFlight,
}

#[cfg(test)]
mod tests;
