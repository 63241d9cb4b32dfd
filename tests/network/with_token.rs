//! Clients with a leaked token.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use squelch::tls::PathToken;
use squelch::webhook::{path, router};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf, split};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use crate::frames::{DATA, END_HEADERS, END_STREAM, HEADERS, SETTINGS, WINDOW_UPDATE, frame, post, preface};
use crate::server::{DEADLINE, REVIEW, Server, runtime, webhook};
use crate::{LEFT, POD};

/// The server keeps 16 KiB of each of 4,000 reviews (63 MiB), and 1 KiB of each of 4,000 more. Each of the 8,000 has a task,
/// and each connection a window of 1 MiB.
#[test]
fn reviews_above_the_limit_in_flight_take_little_memory() {
    const CONNECTIONS: usize = 60;
    let server = Server::start(None, 0);
    runtime().block_on(async {
        server.is_alive().await;
        let config = server.config(b"h2");
        let mut open = Vec::new();
        for _ in 0..CONNECTIONS {
            open.push(server.dial(&config).await.unwrap());
        }
        let before = server.peak();
        let mut sending = JoinSet::new();
        for stream in open {
            let path = server.path.clone();
            sending.spawn(async move { begin_reviews(stream, &path).await });
        }
        let _open = sending.join_all().await;
        server.wait_until_read(server.webhook).await;
        let peak = server.peak();
        println!("above the limit: {before} MiB before, {peak} MiB at most");
        assert!(peak - before < LEFT, "{before} MiB before, {peak} MiB at most");
    });
}

/// Begins 250 reviews and sends 16 KiB of each, within the window of the server.
async fn begin_reviews(stream: TlsStream<TcpStream>, path: &str) -> WriteHalf<TlsStream<TcpStream>> {
    let (reader, mut writer) = split(stream);
    let window = Arc::new(Semaphore::new(65_535));
    tokio::spawn(follow_window(reader, Arc::clone(&window)));
    writer.write_all(&preface()).await.unwrap();
    for id in (0..250).map(|number| 2 * number + 1) {
        // A closed window limits memory too.
        let Ok(Ok(taken)) = timeout(Duration::from_secs(5), window.acquire_many(16_384)).await else { break };
        taken.forget();
        let begun =
            [frame(HEADERS, END_HEADERS, id, &post(path)), frame(DATA, 0, id, &[b' '; 16_384])].concat();
        if writer.write_all(&begun).await.is_err() || writer.flush().await.is_err() {
            break;
        }
    }
    writer
}

async fn follow_window(mut reader: ReadHalf<TlsStream<TcpStream>>, window: Arc<Semaphore>) {
    let mut head = [0; 9];
    while reader.read_exact(&mut head).await.is_ok() {
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        if reader.read_exact(&mut payload).await.is_err() {
            return;
        }
        if head[3] == WINDOW_UPDATE && head[5..9] == [0; 4] {
            window.add_permits(u32::from_be_bytes(payload[..4].try_into().unwrap()) as usize);
        }
    }
}

/// Streams have no window, so the client accepts no response body.
#[test]
fn reviews_with_unread_responses_count_as_in_flight() {
    let server = Server::start(None, 0);
    runtime().block_on(async {
        server.is_alive().await;
        let config = server.config(b"h2");
        let before = server.peak();
        let mut open = Vec::new();
        for _ in 0..80 {
            let mut stream = server.dial(&config).await.unwrap();
            let mut sent =
                [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])]
                    .concat();
            for id in (0..250).map(|number| 2 * number + 1) {
                sent.extend(frame(HEADERS, END_HEADERS, id, &post(&server.path)));
                sent.extend(frame(DATA, END_STREAM, id, b"{\"request\":{\"uid\":\"u\"}}"));
            }
            stream.write_all(&sent).await.unwrap();
            stream.flush().await.unwrap();
            open.push(stream);
        }
        server.wait_until_read(server.webhook).await;
        let peak = server.peak();
        println!("unread responses: {before} MiB before, {peak} MiB at most");
        assert!(peak - before < 64, "{before} MiB before, {peak} MiB at most");
    });
}

/// With 50 connections instead of 4,000.
#[test]
fn idle_connections_do_not_block_the_api_server() {
    const MAX_CONNECTIONS: usize = 50;
    let server = Server::start(Some(MAX_CONNECTIONS), 0);
    runtime().block_on(async {
        let mut idle = Vec::new();
        for _ in 0..MAX_CONNECTIONS {
            idle.push(server.send_review().await);
        }
        for _ in 0..3 {
            // Idle connections end only after 120 s.
            let answered = timeout(DEADLINE, server.send_review()).await;
            idle.push(answered.expect("a new connection is served"));
        }
    });
}

/// Each review is below the 40 MiB limit of a body, and two are below the 96 MiB limit of long bodies.
#[test]
fn reviews_with_a_long_uid_fit_into_the_memory_of_the_pod() {
    let server = Server::start(None, 0);
    let mut review: Value = serde_json::from_str(REVIEW).unwrap();
    review["request"]["uid"] = "u".repeat(39 << 20).into();
    let review = review.to_string();
    runtime().block_on(async {
        server.send_review().await;
        let before = server.peak();
        let config = server.config(b"http/1.1");
        let mut open = Vec::new();
        for _ in 0..12 {
            let mut stream = server.dial(&config).await.unwrap();
            stream.write_all(server.head(review.len()).as_bytes()).await.unwrap();
            stream.write_all(review.as_bytes()).await.unwrap();
            stream.flush().await.unwrap();
            // Only the first bytes of the response.
            stream.read_exact(&mut [0; 16]).await.unwrap();
            open.push(stream);
        }
        let peak = server.peak();
        println!("a long uid: {before} MiB before, {peak} MiB at most");
        assert!(peak < POD / 2, "{before} MiB before, {peak} MiB at most");
    });
}

/// A probe above the maximum length is allowed after reading a prefix.
#[test]
fn a_probe_above_the_maximum_length_is_not_decoded() {
    let token = PathToken::generate().unwrap();
    let router = router(Arc::new(webhook(&token)));
    let mut review: Value = serde_json::from_str(REVIEW).unwrap();
    review["request"]["dryRun"] = json!(true);
    review["request"]["userInfo"]["username"] = json!("squelch");
    review["request"]["object"]["metadata"]["annotations"] = json!({"squelch.dev/probe": "4711"});
    let is_signed = |review: &Value| {
        let request = http::Request::post(format!("{}/probe", path(&token)))
            .header("content-type", "application/json")
            // As the API server writes it: the uid comes first.
            .body(http_body_util::Full::new(bytes::Bytes::from(review.to_string().replacen(
                "\"request\":{",
                "\"request\":{\"uid\":\"u\",",
                1,
            ))))
            .unwrap();
        runtime().block_on(async {
            let answer = router.route(request).await;
            assert_eq!(answer.status(), 200);
            let body = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
            String::from_utf8_lossy(&body).contains("patch")
        })
    };
    assert!(is_signed(&review));
    review["request"]["object"]["message"] = "x".repeat(65 << 10).into();
    assert!(!is_signed(&review));
}
