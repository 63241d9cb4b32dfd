//! The server of the plain HTTP port: one request a connection.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::Admin;
use crate::accept::{Acceptor, Connection, Dismiss};

/// For the head of the request.
const HEAD: Duration = Duration::from_secs(5);

/// For the whole connection: a caller that does not take its answer must not keep a place. Prometheus waits for 10 s
/// unless configured otherwise.
const DEADLINE: Duration = Duration::from_secs(15);

/// Serves `admin` on `listener` until `stop`; connections are cut then. At most `places` connections are open. Errors of
/// single connections are logged.
///
/// A probe cannot be starved: every connection is accepted, and where the places are taken the oldest one without a
/// request ends. With 256 places and 10,000 new connections a second a caller has 25 ms from its connection to its
/// request; the kubelet of the node takes less than one. A request that has come is answered before a dismissal is
/// noticed, and connections with a request end only where there is none without.
pub async fn serve(listener: TcpListener, admin: Admin, places: usize, stop: CancellationToken) {
    let mut acceptor = Acceptor::new(listener, places, Dismiss::All);
    let mut connections = JoinSet::new();
    loop {
        let (stream, place) = tokio::select! {
            () = stop.cancelled() => return,
            accepted = acceptor.accept() => accepted,
        };
        let admin = admin.clone();
        connections.spawn(async move {
            let connection = place.connection();
            tokio::select! {
                biased;
                _ = timeout(DEADLINE, attend(stream, admin, &connection)) => {}
                () = connection.dismissed() => {}
            }
            drop(place);
        });
        // The results of ended tasks are dropped here: they are at most as many as places.
        while connections.try_join_next().is_some() {}
    }
}

async fn attend(stream: TcpStream, admin: Admin, connection: &Arc<Connection>) {
    // A silent connection takes no buffers.
    if !matches!(timeout(HEAD, stream.readable()).await, Ok(Ok(()))) {
        return;
    }
    let service = service_fn(|request| {
        connection.keep();
        let admin = admin.clone();
        async move { Ok::<_, Infallible>(admin.route(&request).await) }
    });
    let served = http1::Builder::new()
        .keep_alive(false)
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(16 << 10)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = served.await {
        tracing::debug!(%error, "a connection to the admin port broke off");
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

    async fn start(places: usize) -> Served {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let task = tokio::spawn(serve(listener, admin(), places, stop.clone()));
        Served { address, stop, task }
    }

    async fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // Nothing asks for the end of the connection.
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
    async fn it_serves_one_request_a_connection_until_it_is_stopped() {
        let served = start(8).await;
        let answer = get(served.address, "/livez").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("ok\n"), "{answer}");
        assert!(answer.contains("connection: close"), "{answer}");
        assert!(get(served.address, "/metrics").await.contains("squelch_build_info"));
        let mut silent = TcpStream::connect(served.address).await.unwrap();
        served.stop.cancel();
        timeout(Duration::from_secs(20), served.task).await.expect("it ends").unwrap();
        assert_eq!(silent.read(&mut [0]).await.unwrap_or(0), 0, "open connections are cut");
    }

    #[tokio::test]
    async fn silent_connections_leave_liveness_answered_within_a_second() {
        let places = Descriptors::raise().admin_connections();
        let served = start(places).await;
        let mut silent = Vec::new();
        for number in [200, 1_000] {
            while silent.len() < number {
                silent.push(TcpStream::connect(served.address).await.unwrap());
            }
            is_alive(served.address, Duration::from_secs(1)).await;
        }
    }

    #[tokio::test]
    async fn heads_that_never_end_leave_liveness_answered_within_a_second() {
        let served = start(16).await;
        let mut slow = Vec::new();
        for _ in 0..200 {
            let mut stream = TcpStream::connect(served.address).await.unwrap();
            // It may have been dismissed by then.
            let _ = stream.write_all(b"GET /livez HTTP/1.1\r\nHost: ").await;
            slow.push(stream);
        }
        is_alive(served.address, Duration::from_secs(1)).await;
    }

    /// The kubelet waits for five seconds.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_flood_of_connections_leaves_liveness_answered() {
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
