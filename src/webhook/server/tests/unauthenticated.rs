//! Clients without the token.

use super::*;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// A frame of HTTP/2 (RFC 9113, section 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A request head: a method from HPACK's static table, then `https`, the path, an authority and `application/json`.
fn head(method: u8, path: &str) -> Vec<u8> {
    let length = u8::try_from(path.len()).ok().filter(|length| *length < 127).unwrap();
    let mut head =
        [&[method, 0x87, 0x04, length], path.as_bytes(), &[0x41, 1, b'x', 0x0f, 0x10, 16]].concat();
    head.extend(b"application/json");
    head
}

fn get(path: &str) -> Vec<u8> {
    head(0x82, path)
}

fn post(path: &str) -> Vec<u8> {
    head(0x83, path)
}

/// An HTTP/2 connection that sends and reads single frames.
struct Http2(TlsStream<TcpStream>);

impl Http2 {
    /// Sends the `requests` at once. Streams have no window, so the client accepts no response body.
    async fn open(served: &Served, requests: &[Vec<u8>]) -> Self {
        let mut stream = served.connect_offering(b"h2").await.unwrap();
        let mut out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        out.extend(frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
        out.extend(requests.concat());
        stream.write_all(&out).await.unwrap();
        Self(stream)
    }

    /// Reads until a frame of this kind.
    async fn read_until_kind(&mut self, wanted: u8) {
        self.read_while(|kind, _stream| kind != wanted).await;
    }

    /// Reads until a frame of this kind and stream.
    async fn read_until(&mut self, wanted: (u8, u32)) -> Vec<u8> {
        self.read_while(|kind, stream| (kind, stream) != wanted).await
    }

    async fn read_while(&mut self, continues: impl Fn(u8, u32) -> bool) -> Vec<u8> {
        let mut kinds = Vec::new();
        loop {
            let mut head = [0; 9];
            let read = timeout(Duration::from_secs(20), self.0.read_exact(&mut head)).await;
            read.expect("the server sends a frame").unwrap();
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; usize::try_from(length).unwrap()];
            self.0.read_exact(&mut payload).await.unwrap();
            kinds.push(head[3]);
            if !continues(head[3], u32::from_be_bytes([head[5], head[6], head[7], head[8]])) {
                return kinds;
            }
        }
    }
}

/// A review whose body never ends, then a probe.
fn endless_review_and_probe() -> [Vec<u8>; 2] {
    [
        frame(HEADERS, END_HEADERS, 1, &post("/events/guessed")),
        frame(HEADERS, END_HEADERS | END_STREAM, 3, &get("/events/guessed/probe")),
    ]
}

/// Limits without timeouts.
fn without_timeouts(connections: usize) -> ConnectionLimits {
    ConnectionLimits {
        connections,
        authentication: HOUR,
        shutdown_grace: HOUR,
        ..ConnectionLimits::default()
    }
}

async fn is_served(served: &Served) {
    let dialled = timeout(Duration::from_secs(20), served.connect()).await;
    let mut stream = dialled.expect("the API server's dial is accepted").unwrap();
    assert!(is_allowed(&served.send_review(&mut stream).await));
}

#[tokio::test]
async fn responses_that_are_not_read_end_with_their_connection() {
    let served = start(without_timeouts(100));
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    // Starts the server's own tasks.
    is_served(&served).await;
    let before = alive();
    let requests: Vec<_> =
        (0..256).map(|number| frame(HEADERS, END_HEADERS | END_STREAM, 2 * number + 1, &post("/"))).collect();
    for _ in 0..4 {
        let mut connection = Http2::open(&served, &requests).await;
        ends(&mut connection.0).await;
    }
    let ended = timeout(Duration::from_secs(20), async {
        while alive() > before {
            tokio::task::yield_now().await;
        }
    });
    assert!(ended.await.is_ok(), "{} tasks, {before} before", alive());
    is_served(&served).await;
}

/// Short, because an unauthenticated connection is cut after a few KiB.
const REVIEW: &str = r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u"}}"#;

/// Sends requests on an HTTP/2 connection, each after the previous response. Returns the status codes.
async fn send_reviews(served: &Served, paths: &[String]) -> Vec<Option<u16>> {
    let stream = served.connect_offering(b"h2").await.unwrap();
    let (mut client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    let _connection = tokio::spawn(connection);
    let mut answers = Vec::new();
    for path in paths {
        let request = Request::post(format!("https://squelch{path}"))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(REVIEW)))
            .unwrap();
        let answer = timeout(Duration::from_secs(20), client.send_request(request))
            .await
            .expect("a response or the end of the connection");
        answers.push(answer.ok().map(|response| response.status().as_u16()));
    }
    answers
}

#[tokio::test]
async fn an_http2_connection_ends_above_the_limit_of_unauthenticated_requests() {
    let served = start(without_timeouts(100));
    let few = vec!["/events/guessed".to_owned(); crate::webhook::connection::MAX_UNAUTHENTICATED];
    assert!(send_reviews(&served, &few).await.iter().all(|answer| *answer == Some(200)));
    let more = [few.as_slice(), &few].concat();
    assert_eq!(send_reviews(&served, &more).await.last(), Some(&None));
}

#[tokio::test]
async fn an_http2_connection_ends_above_the_read_limit_without_the_token() {
    let served = start(without_timeouts(100));
    let body = frame(DATA, 0, 1, &[b' '; crate::webhook::read_limit::MAX_UNAUTHENTICATED_HTTP2]);
    let requests = [frame(HEADERS, END_HEADERS, 1, &post("/events/guessed")), body];
    let mut connection = Http2::open(&served, &requests).await;
    ends(&mut connection.0).await;
}

/// As the API server dials after a stall: many reviews at once, with bodies above the unauthenticated limit.
#[tokio::test]
async fn an_authenticated_connection_has_no_read_limit() {
    let served = start(without_timeouts(100));
    let path = path(&served.token);
    let long = " ".repeat(16_000);
    let mut requests = Vec::new();
    for stream in [1, 3, 5] {
        requests.push(frame(HEADERS, END_HEADERS, stream, &post(&path)));
        requests.push(frame(DATA, 0, stream, REVIEW.as_bytes()));
        requests.push(frame(DATA, END_STREAM, stream, long.as_bytes()));
    }
    let mut connection = Http2::open(&served, &requests).await;
    // The responses arrive in any order.
    for _ in 0..3 {
        connection.read_until_kind(HEADERS).await;
    }
    is_served(&served).await;
}

/// The token may be rotated while the API server's connection is open.
#[tokio::test]
async fn an_authenticated_connection_stays_authenticated() {
    let served = start(without_timeouts(100));
    let mut paths = vec![path(&served.token)];
    paths.extend(vec!["/events/guessed".to_owned(); 4 * crate::webhook::connection::MAX_UNAUTHENTICATED]);
    assert!(send_reviews(&served, &paths).await.iter().all(|answer| *answer == Some(200)));
}

#[tokio::test]
async fn a_probe_without_the_token_does_not_begin_a_graceful_shutdown() {
    let served = start(without_timeouts(100));
    let mut connection = Http2::open(&served, &endless_review_and_probe()).await;
    connection.read_until((HEADERS, 3)).await;
    connection.0.write_all(&frame(PING, 0, 0, b"whatever")).await.unwrap();
    assert!(!connection.read_until((PING, 0)).await.contains(&GOAWAY));
}

#[tokio::test]
async fn a_connection_with_a_probe_without_the_token_is_evicted_at_capacity() {
    let served = start(without_timeouts(1));
    let mut connection = Http2::open(&served, &endless_review_and_probe()).await;
    connection.read_until((HEADERS, 3)).await;
    is_served(&served).await;
}

#[tokio::test]
async fn an_unauthenticated_connection_in_a_graceful_shutdown_is_evicted_at_capacity() {
    let served = start(without_timeouts(1));
    let mut connection = Http2::open(&served, &endless_review_and_probe()).await;
    connection.read_until((HEADERS, 3)).await;
    served.stages.closing.cancel();
    connection.read_until((GOAWAY, 0)).await;
    is_served(&served).await;
}

#[tokio::test]
async fn unauthenticated_requests_are_limited_during_a_graceful_shutdown() {
    let served = start(without_timeouts(100));
    let mut connection = Http2::open(&served, &endless_review_and_probe()).await;
    connection.read_until((HEADERS, 3)).await;
    served.stages.closing.cancel();
    connection.read_until((GOAWAY, 0)).await;
    for number in 2..200 {
        let request = frame(HEADERS, END_HEADERS | END_STREAM, 2 * number + 1, &post("/"));
        // Fails once the connection has ended.
        let _ = connection.0.write_all(&request).await;
    }
    ends(&mut connection.0).await;
}

#[tokio::test]
async fn an_unauthenticated_http1_connection_gets_one_response() {
    let served = start(ConnectionLimits::default());
    let mut stream = served.connect().await.unwrap();
    let response = served.send_review_to(&mut stream, "/events/guessed").await;
    assert!(is_allowed(&response) && response.contains("connection: close"), "{response}");
    ends(&mut stream).await;
}

#[tokio::test]
async fn only_unauthenticated_connections_are_cut_at_the_timeout() {
    let served =
        start(ConnectionLimits { authentication: Duration::from_millis(300), ..ConnectionLimits::default() });
    let mut authenticated = served.connect().await.unwrap();
    served.send_review(&mut authenticated).await;
    let mut silent = served.connect().await.unwrap();
    let mut slow = served.connect().await.unwrap();
    slow.write_all(b"POST /events/").await.unwrap();
    ends(&mut silent).await;
    ends(&mut slow).await;
    assert!(is_allowed(&served.send_review(&mut authenticated).await));
}

#[tokio::test]
async fn the_oldest_unauthenticated_connection_is_evicted_at_capacity() {
    let served = start(ConnectionLimits { connections: 2, ..ConnectionLimits::default() });
    let mut authenticated = served.connect().await.unwrap();
    served.send_review(&mut authenticated).await;
    let mut unauthenticated = TcpStream::connect(served.address).await.unwrap();
    let mut next = served.connect().await.unwrap();
    ends(&mut unauthenticated).await;
    assert!(is_allowed(&served.send_review(&mut next).await));
    assert!(is_allowed(&served.send_review(&mut authenticated).await));
}
