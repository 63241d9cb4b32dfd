//! The server of the plain HTTP port. Each connection serves one request.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::Admin;
use crate::accept::{Acceptor, Connection, Eviction};

/// Timeout of the request head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout of a connection, so that a client that does not read its response releases its slot. Prometheus waits for 10 s
/// by default.
const DEADLINE: Duration = Duration::from_secs(15);

/// Time that every connection has for its request before an eviction takes effect. New connections wait in the backlog.
const MIN_LIFETIME: Duration = Duration::from_millis(25);

/// Serves `admin` on `listener` until `stop`, then cuts its connections. At most `slots` connections are open. Errors of
/// single connections are logged.
///
/// Other clients cannot starve a probe. Every connection is accepted, and at capacity the oldest connection without a
/// request is evicted. However many connections arrive at once, a client has [`MIN_LIFETIME`] to send its request. With 256
/// slots that is enough for 10,000 new connections a second. The kubelet of the node takes less than one millisecond. A
/// request that has arrived is answered before an eviction takes effect.
pub async fn serve(listener: TcpListener, admin: Admin, slots: usize, stop: CancellationToken) {
    let mut acceptor = Acceptor::new(listener, slots, Eviction::Any);
    let mut connections = JoinSet::new();
    loop {
        let (stream, slot) = tokio::select! {
            () = stop.cancelled() => return,
            accepted = acceptor.accept() => accepted,
        };
        let admin = admin.clone();
        connections.spawn(async move {
            let connection = slot.connection();
            tokio::select! {
                biased;
                _ = timeout(DEADLINE, serve_connection(stream, admin, &connection)) => {}
                _ = async { tokio::join!(connection.evicted(), sleep(MIN_LIFETIME)) } => {}
            }
            drop(slot);
        });
        // Drops the results of ended tasks, at most one for each slot.
        while connections.try_join_next().is_some() {}
    }
}

async fn serve_connection(stream: TcpStream, admin: Admin, connection: &Arc<Connection>) {
    // A silent connection gets no buffers.
    if !matches!(timeout(HEAD_TIMEOUT, stream.readable()).await, Ok(Ok(()))) {
        return;
    }
    let service = service_fn(|request| {
        connection.protect();
        let admin = admin.clone();
        async move { Ok::<_, Infallible>(admin.route(&request).await) }
    });
    let served = http1::Builder::new()
        .keep_alive(false)
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(16 << 10)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = served.await {
        tracing::debug!(%error, "connection to the admin port failed");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::net::SocketAddr;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::super::tests::admin;
    use super::*;
    use crate::descriptors::Descriptors;

    struct Served {
        address: SocketAddr,
        stop: CancellationToken,
        task: tokio::task::JoinHandle<()>,
    }

    async fn start(slots: usize) -> Served {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let task = tokio::spawn(serve(listener, admin(), slots, stop.clone()));
        Served { address, stop, task }
    }

    async fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // No `Connection: close`.
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    async fn is_alive(address: SocketAddr, within: Duration) {
        let answer = timeout(within, get(address, "/livez")).await.expect("liveness is answered in time");
        assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("ok\n"), "{answer}");
    }

    #[tokio::test]
    async fn each_connection_serves_one_request_until_the_server_stops() {
        let served = start(8).await;
        let answer = get(served.address, "/livez").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("ok\n"), "{answer}");
        assert!(answer.contains("connection: close"), "{answer}");
        assert!(get(served.address, "/metrics").await.contains("squelch_build_info"));
        let mut silent = TcpStream::connect(served.address).await.unwrap();
        served.stop.cancel();
        timeout(Duration::from_secs(20), served.task).await.expect("the server ends").unwrap();
        assert_eq!(silent.read(&mut [0]).await.unwrap_or(0), 0, "open connections are cut");
    }

    #[tokio::test]
    async fn liveness_is_answered_within_a_second_beside_silent_connections() {
        let slots = Descriptors::raise().admin_connections();
        let served = start(slots).await;
        let mut silent = Vec::new();
        for number in [200, 1_000] {
            while silent.len() < number {
                silent.push(TcpStream::connect(served.address).await.unwrap());
            }
            is_alive(served.address, Duration::from_secs(1)).await;
        }
    }

    #[tokio::test]
    async fn liveness_is_answered_within_a_second_beside_unfinished_heads() {
        let served = start(16).await;
        let mut slow = Vec::new();
        for _ in 0..200 {
            let mut stream = TcpStream::connect(served.address).await.unwrap();
            // Fails if the connection is evicted.
            let _ = stream.write_all(b"GET /livez HTTP/1.1\r\nHost: ").await;
            slow.push(stream);
        }
        is_alive(served.address, Duration::from_secs(1)).await;
    }

    /// The paused time stands still while the server accepts the burst.
    #[tokio::test(start_paused = true)]
    async fn a_burst_of_connections_leaves_time_to_send_a_request() {
        let served = start(16).await;
        let mut probe = TcpStream::connect(served.address).await.unwrap();
        let mut burst = Vec::new();
        // Less than the backlog.
        for _ in 0..100 {
            burst.push(std::net::TcpStream::connect(served.address).unwrap());
        }
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        probe.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        probe.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("ok\n"), "{answer}");
    }

    /// The kubelet waits for five seconds.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn liveness_is_answered_during_a_flood_of_connections() {
        let served = start(256).await;
        let address = served.address;
        let flood = tokio::spawn(async move {
            let mut open = VecDeque::new();
            loop {
                open.extend(TcpStream::connect(address).await);
                if open.len() > 400 {
                    open.pop_front();
                }
            }
        });
        for _ in 0..20 {
            is_alive(address, Duration::from_secs(5)).await;
        }
        assert!(!flood.is_finished());
        flood.abort();
    }
}
