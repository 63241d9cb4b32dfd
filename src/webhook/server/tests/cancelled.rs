//! Reviews that are cancelled while the server is stalled. Clients run on threads of their own, and the server runs only
//! within [`Stage::run_until`].

use squelch_engine::Disposition;

use super::*;
use rustls::{ClientConnection, StreamOwned};
use serde_json::Value;
use std::io::{Read, Write};
use std::sync::mpsc;
use std::thread;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::yield_now;

/// The Event of the recorded review.
const NAME: &str = "web-7d4b9c6f5-x2x9k.187a2b3c4d5e6f70";

type Stream = StreamOwned<ClientConnection, std::net::TcpStream>;

struct Stage {
    runtime: Runtime,
    served: Served,
}

impl Stage {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let served = runtime.block_on(async { start(ConnectionLimits::default()) });
        Self { runtime, served }
    }

    /// Runs the server until it has counted this number of writes.
    fn run_until(&self, writes: u64) {
        let counted = async {
            while self.counted("") < writes {
                yield_now().await;
            }
        };
        let done = async { timeout(Duration::from_secs(20), counted).await.expect("all writes are counted") };
        self.runtime.block_on(done);
    }

    /// Returns the number of writes with this result; all writes for an empty one.
    fn counted(&self, result: &str) -> u64 {
        let text = self.served.metrics.text();
        let lines =
            text.lines().filter(|line| line.starts_with("squelch_reviews_total") && line.contains(result));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }

    /// The client sends one review and reads the response. Then it sends and cancels reviews while the server does not run.
    /// None of them is decided, and each is counted once.
    fn admits_cancelled(&self, reviews: u64, protocol: &'static [u8], client_steps: ClientSteps) {
        let mut config = client(&self.served.authority, &rustls::version::TLS13);
        config.alpn_protocols = vec![protocol.to_vec()];
        let (address, path) = (self.served.address, path(&self.served.token));
        let (answered, answer) = oneshot::channel();
        let ((go, may_go), (sent, are_sent), (end, ended)) =
            (mpsc::channel(), mpsc::channel(), mpsc::channel());
        let calling = thread::spawn(move || {
            let name = ServerName::try_from("127.0.0.1").unwrap();
            let tls = ClientConnection::new(Arc::new(config), name).unwrap();
            let mut stream = StreamOwned::new(tls, std::net::TcpStream::connect(address).unwrap());
            (client_steps.send)(&mut stream, &path);
            answered.send(()).unwrap();
            let () = may_go.recv().unwrap();
            let open = (client_steps.cancel)(stream, &path);
            sent.send(()).unwrap();
            let () = ended.recv().unwrap();
            drop(open);
        });
        self.runtime.block_on(answer).unwrap();
        assert_eq!(self.counted("\"allowed\""), 1, "no policy in force yet");
        let namespace = serde_json::from_str::<Value>(CREATE).unwrap()["request"]["namespace"].clone();
        let policy = policy::fixtures::policy(namespace.as_str().unwrap(), "p", &serde_json::json!({}), 0);
        self.served.policies.swap(policy::Set::new([policy]));

        go.send(()).unwrap();
        are_sent.recv_timeout(Duration::from_secs(20)).expect("the reviews are sent and cancelled");
        self.run_until(1 + reviews);
        assert_eq!(self.counted("\"failed_open\""), reviews);
        let counters = self.served.engine.counters()[0].counters;
        assert_eq!(counters.of(Disposition::FailedOpen), reviews, "the engine counts them");
        assert_eq!(counters.received(), reviews, "the engine counts no other occurrence");
        end.send(()).unwrap();
        calling.join().unwrap();
    }
}

/// The steps of a client on its own thread.
#[derive(Clone, Copy)]
struct ClientSteps {
    /// Sends a review and reads the response.
    send: fn(&mut Stream, &str),
    /// Sends and cancels reviews. Returns a connection that stays open.
    cancel: fn(Stream, &str) -> Option<Stream>,
}

/// The recorded review with another Event name.
fn numbered(number: u64) -> String {
    CREATE.replace(NAME, &format!("{NAME}{number}"))
}

fn read_until(stream: &mut Stream, is_whole: impl Fn(&[u8]) -> bool) {
    let (mut read, mut part) = (Vec::new(), [0; 4_096]);
    while !is_whole(&read) {
        let length = stream.read(&mut part).unwrap();
        assert_ne!(length, 0, "connection ended early: {}", String::from_utf8_lossy(&read));
        read.extend_from_slice(&part[..length]);
    }
}

fn http1(path: &str, review: &str) -> String {
    let length = review.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: squelch\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{review}"
    )
}

fn send_by_http1(stream: &mut Stream, path: &str) {
    stream.write_all(http1(path, CREATE).as_bytes()).unwrap();
    read_until(stream, |read| read.ends_with(b"}}"));
}

/// Closes like crypto/tls of Go: the alert, then the connection.
fn close(mut stream: Stream, path: &str) -> Option<Stream> {
    stream.write_all(http1(path, &numbered(1)).as_bytes()).unwrap();
    stream.conn.send_close_notify();
    stream.flush().unwrap();
    None
}

#[test]
fn a_review_of_a_closed_connection_is_admitted_without_a_decision() {
    Stage::new().admits_cancelled(1, b"http/1.1", ClientSteps { send: send_by_http1, cancel: close });
}

/// Its body arrives in several frames.
#[test]
fn a_longer_review_of_a_closed_connection_is_admitted_without_a_decision() {
    fn send_long(mut stream: Stream, path: &str) -> Option<Stream> {
        let review = numbered(1) + &" ".repeat(40 << 10);
        stream.write_all(http1(path, &review).as_bytes()).unwrap();
        None
    }
    Stage::new().admits_cancelled(1, b"http/1.1", ClientSteps { send: send_by_http1, cancel: send_long });
}

/// A frame of HTTP/2 (RFC 9113, section 4.1).
fn frame(kind: u8, flags: u8, stream: u64, payload: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(u32::try_from(stream).unwrap().to_be_bytes());
    frame.extend(payload);
    frame
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const CANCEL: [u8; 4] = [0, 0, 0, 8];

/// A review as Go sends it: one frame for the head and one for the body.
fn http2(stream: u64, path: &str, review: &str) -> Vec<u8> {
    let mut head = Vec::new();
    for (name, value) in [
        (":method", "POST"),
        (":scheme", "https"),
        (":authority", "squelch"),
        (":path", path),
        ("content-type", "application/json"),
    ] {
        // Literals without indexing (RFC 7541, section 6.2.2).
        head.push(0);
        for text in [name, value] {
            head.push(u8::try_from(text.len()).ok().filter(|length| *length < 127).unwrap());
            head.extend(text.as_bytes());
        }
    }
    let mut frames = frame(HEADERS, END_HEADERS, stream, &head);
    frames.extend(frame(DATA, END_STREAM, stream, review.as_bytes()));
    frames
}

fn send_by_http2(stream: &mut Stream, path: &str) {
    let mut begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    begin.extend(frame(SETTINGS, 0, 0, &[]));
    begin.extend(http2(1, path, CREATE));
    stream.write_all(&begin).unwrap();
    read_until(stream, |read| read.ends_with(b"}}"));
}

/// More resets than hyper accepts by default.
const STREAMS: u64 = 25;

/// Resets the streams and keeps the connection, like Go's client when a request's context ends.
fn reset(mut stream: Stream, path: &str) -> Option<Stream> {
    let ids = (1..=STREAMS).map(|number| 1 + 2 * number);
    let mut frames: Vec<_> = ids.clone().flat_map(|id| http2(id, path, &numbered(id))).collect();
    frames.extend(ids.flat_map(|id| frame(RST_STREAM, 0, id, &CANCEL)));
    stream.write_all(&frames).unwrap();
    Some(stream)
}

#[test]
fn a_review_of_a_reset_stream_is_admitted_without_a_decision() {
    Stage::new().admits_cancelled(STREAMS, b"h2", ClientSteps { send: send_by_http2, cancel: reset });
}
