//! Clients without the token.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use crate::frames::{CONTINUATION, END_HEADERS, END_STREAM, GET, HEADERS, RST_STREAM, frame, preface};
use crate::server::{DEADLINE, Server, runtime};
use crate::{LEFT, POD};

/// A head of 480 bytes with 475 equal fields: 16 KiB as RFC 9113 counts it. The first head adds the field to the table.
fn long_head(first: bool) -> Vec<u8> {
    let field: &[u8] = if first { &[0x40, 1, b'a', 0] } else { &[] };
    [&GET, field, &[0xbe; 475]].concat()
}

fn reset_streams(number: u32) -> Vec<u8> {
    let streams = (0..number).flat_map(|at| {
        let head = frame(HEADERS, END_HEADERS | END_STREAM, 2 * at + 1, &long_head(at == 0));
        [head, frame(RST_STREAM, 0, 2 * at + 1, &8_u32.to_be_bytes())].concat()
    });
    preface().into_iter().chain(streams).collect()
}

#[test]
fn reset_streams_take_little_memory() {
    let server = Server::start(None, 0);
    let storm = Arc::new(reset_streams(4_000));
    runtime().block_on(async {
        server.is_alive().await;
        let before = server.peak();
        let config = server.config(b"h2");
        let mut open = Vec::new();
        for _ in 0..32 {
            open.push(server.dial(&config).await.unwrap());
        }
        let mut sending = JoinSet::new();
        for mut stream in open {
            let storm = Arc::clone(&storm);
            sending.spawn(async move {
                let send_and_read = async {
                    let _ = stream.write_all(&storm).await;
                    let _ = stream.flush().await;
                    let _ = stream.read_to_end(&mut Vec::new()).await;
                };
                timeout(DEADLINE, send_and_read).await
            });
        }
        let ended = sending.join_all().await;
        let peak = server.peak();
        println!("reset streams: {before} MiB before, {peak} MiB at most");
        assert!(ended.iter().all(Result::is_ok), "the connections are cut");
        assert!(peak - before < POD / 16, "{before} MiB before, {peak} MiB at most");
    });
}

/// Measures the memory of 400 connections that send `begun`, a tenth of the maximum, after 100 for the memory that the process
/// allocates once. (4,000 handshakes could exceed the ten seconds of an unauthenticated connection.)
fn unfinished_heads(protocol: &[u8], begun: &[u8], what: &str) {
    let server = Arc::new(Server::start(None, 0));
    let config = server.config(protocol);
    runtime().block_on(async {
        let _first = begin_heads(&server, &config, begun, 100).await;
        let before = server.peak();
        let _open = begin_heads(&server, &config, begun, 400).await;
        let peak = server.peak();
        println!("{what}: {before} MiB before, {peak} MiB at most, {} bytes each", begun.len());
        assert!(
            (peak - before) * 10 < LEFT,
            "{before} MiB before, {peak} MiB with a tenth of the connections"
        );
    });
}

async fn begin_heads(
    server: &Arc<Server>,
    config: &Arc<rustls::ClientConfig>,
    begun: &[u8],
    number: u64,
) -> Vec<TlsStream<TcpStream>> {
    let (begun, next) = (Arc::new(begun.to_vec()), Arc::new(AtomicU64::new(0)));
    let mut dialling = JoinSet::new();
    for _ in 0..16 {
        let (server, config) = (Arc::clone(server), Arc::clone(config));
        let (begun, next) = (Arc::clone(&begun), Arc::clone(&next));
        dialling.spawn(async move {
            let mut open = Vec::new();
            while next.fetch_add(1, Ordering::Relaxed) < number {
                let mut stream = server.dial(&config).await.unwrap();
                // Fails if the connection is cut.
                let _ = stream.write_all(&begun).await;
                let _ = stream.flush().await;
                open.push(stream);
            }
            open
        });
    }
    let open = dialling.join_all().await;
    server.wait_until_read(server.webhook).await;
    open.into_iter().flatten().collect()
}

#[test]
fn unfinished_http1_heads_fit_into_the_memory_of_the_pod() {
    for length in [7 << 10, 15 << 10, 63 << 10] {
        let begun = [b"POST /events/x HTTP/1.1\r\nA: ".as_slice(), &vec![b'a'; length]].concat();
        unfinished_heads(b"http/1.1", &begun, "HTTP/1.1 heads");
    }
}

#[test]
fn unfinished_http2_heads_fit_into_the_memory_of_the_pod() {
    let letters = b"abcdefghijklmnopqrstuvwxyz0123456789";
    for (fields, length) in [(40, 4_000), (465_usize, 17_000)] {
        // Fields with different names: each takes an entry of the header map.
        let fields = (0..fields).flat_map(|at| [0, 2, letters[at / 36], letters[at % 36], 0]);
        let head: Vec<u8> = GET.into_iter().chain(fields).collect();
        let more = frame(CONTINUATION, 0, 1, &vec![0xff; 16 << 10]);
        let begun = [preface(), frame(HEADERS, 0, 1, &head), more].concat();
        unfinished_heads(b"h2", &begun[..length], "HTTP/2 heads");
    }
}

/// A ClientHello without its last byte, in records of 16,000 bytes. The server does not sign.
fn unfinished_hello(length: u16) -> Vec<u8> {
    let body = vec![0; usize::from(length) - 2];
    let message = [&[1, 0], &length.to_be_bytes()[..], &[3, 3], &body].concat();
    let records = message[..message.len() - 1].chunks(16_000).map(|part| {
        let length = u16::try_from(part.len()).unwrap().to_be_bytes();
        [&[22, 3, 1], &length[..], part].concat()
    });
    records.collect::<Vec<_>>().concat()
}

#[test]
fn unfinished_client_hellos_fit_into_the_memory_of_the_pod() {
    for length in [15_000, 65_000] {
        let server = Server::start(None, 0);
        let hello = unfinished_hello(length);
        runtime().block_on(async {
            server.is_alive().await;
            let before = server.peak();
            let mut open = Vec::new();
            for _ in 0..4_000 {
                let mut stream = TcpStream::connect(server.webhook).await.unwrap();
                // Fails if the connection is cut.
                let _ = stream.write_all(&hello).await;
                open.push(stream);
            }
            server.wait_until_read(server.webhook).await;
            let peak = server.peak();
            println!("hellos: {before} MiB before, {peak} MiB at most, {length} bytes each");
            assert!(peak - before < LEFT, "{before} MiB before, {peak} MiB at most");
        });
    }
}

/// Other clients send as much as they can.
#[test]
fn a_review_with_the_token_is_answered_beside_a_storm_of_resets() {
    let server = Server::start(None, 0);
    runtime().block_on(async {
        let config = server.config(b"h2");
        let mut open = Vec::new();
        for _ in 0..8 {
            let mut stream = server.dial(&config).await.unwrap();
            let _ = stream.write_all(&reset_streams(100)).await;
            open.push(stream);
        }
        let answered = timeout(Duration::from_secs(20), server.send_review()).await;
        assert!(answered.is_ok(), "the review is answered");
    });
}
