//! Clients of the plain HTTP port.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

use crate::server::{Server, runtime};

/// Requests `/metrics` and does not read the response.
async fn unread_metrics(admin: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(2_304).unwrap();
    let mut stream = socket.connect(admin).await.unwrap();
    // Fails if the connection is cut.
    let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: squelch\r\n\r\n").await;
    stream
}

/// Whether a probe is answered within two seconds if it sends its request `pause` after it connects.
async fn is_alive(admin: SocketAddr, pause: Duration) -> bool {
    let answered = timeout(Duration::from_secs(2), async {
        let mut stream = TcpStream::connect(admin).await?;
        sleep(pause).await;
        stream.write_all(b"GET /livez HTTP/1.1\r\nHost: squelch\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer.starts_with("HTTP/1.1 200 OK"))
    });
    matches!(answered.await, Ok(Ok(true)))
}

/// Opens about 2,000 silent connections a second until `stop`.
fn open_silent_connections(admin: SocketAddr, stop: &AtomicBool) {
    let mut silent = VecDeque::new();
    while !stop.load(Ordering::Relaxed) {
        silent.extend(std::net::TcpStream::connect(admin));
        if silent.len() > 300 {
            silent.pop_front();
        }
        std::thread::sleep(Duration::from_micros(400));
    }
}

/// 300 scrapes that do not read the response, 20 new ones a second, and 2,000 silent connections a second.
#[test]
#[ignore = "needs the MTU of a pod network: unshare -n sh -c 'ip link set lo up mtu 1500 && TEST --ignored NAME'"]
fn liveness_is_answered_beside_unread_metrics_and_silent_connections() {
    let server = Server::start(None, 500);
    let (admin, stop) = (server.admin, Arc::new(AtomicBool::new(false)));
    runtime().block_on(async {
        let mut open = VecDeque::new();
        for _ in 0..300 {
            open.push_back(unread_metrics(admin).await);
        }
        let silent = std::thread::spawn({
            let stop = Arc::clone(&stop);
            move || open_silent_connections(admin, &stop)
        });
        let mut failed = Vec::new();
        for pause in [0, 2, 10, 25].map(Duration::from_millis) {
            for _ in 0..50 {
                if !is_alive(admin, pause).await {
                    failed.push(pause);
                }
                open.push_back(unread_metrics(admin).await);
                open.pop_front();
            }
        }
        stop.store(true, Ordering::Relaxed);
        silent.join().unwrap();
        println!("liveness: {} of 200 probes fail", failed.len());
        assert!(failed.is_empty(), "probes fail: {failed:?}");
    });
}
