use http::Response;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tower_test::mock::{self, Handle};

use super::*;
use crate::tls::PathToken;

type ApiServer = Handle<Request<Body>, Response<Body>>;

fn probe(client: Client) -> (Probe, PathToken) {
    let token = PathToken::generate().unwrap();
    let tokens = Arc::new(AcceptedTokens::new(vec![token.clone()]));
    (Probe::new(client, "squelch".to_owned(), tokens), token)
}

fn mocked() -> (Probe, PathToken, ApiServer) {
    let (service, server) = mock::pair();
    let (probe, token) = probe(Client::new(service, "default"));
    (probe, token, server)
}

/// Answers one call with a status and its changed body. Returns its verb and path.
async fn answer(server: &mut ApiServer, code: u16, change: impl FnOnce(&mut Value)) -> String {
    let (request, send) = server.next_request().await.unwrap();
    let (head, body) = request.into_parts();
    assert_eq!(head.headers[CONNECTION], "close");
    let mut body: Value = serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap_or_default();
    change(&mut body);
    send.send_response(
        Response::builder().status(code).body(Body::from(body.to_string().into_bytes())).unwrap(),
    );
    format!("{} {}", head.method, head.uri)
}

/// Answers a health check.
async fn answer_health_check(server: &mut ApiServer) {
    assert_eq!(answer(server, 200, |_| {}).await, "GET /readyz");
}

fn sign(event: &mut Value, token: &PathToken) {
    let nonce = event["metadata"]["annotations"][PROBE_ANNOTATION].as_str().unwrap();
    let signature = AcceptedTokens::new(vec![token.clone()]).sign(token.reveal(), nonce).unwrap();
    event["metadata"]["annotations"][PROBE_SIGNATURE_ANNOTATION] = json!(signature);
}

#[tokio::test]
async fn a_probe_succeeds_with_the_signature_of_an_accepted_token() {
    let (probe, token, mut server) = mocked();
    let (other, nothing) = (PathToken::generate().unwrap(), None);
    for (signer, expected) in [
        (Some(&token), ProbeResult::Succeeded),
        (Some(&other), ProbeResult::WrongSignature),
        (nothing, ProbeResult::Unsigned),
    ] {
        let answering = async {
            let signs = |event: &mut Value| signer.into_iter().for_each(|signer| sign(event, signer));
            let asked = answer(&mut server, 201, signs).await;
            if expected != ProbeResult::Succeeded {
                answer_health_check(&mut server).await;
            }
            asked
        };
        let (probed, asked) = tokio::join!(probe.send(), answering);
        assert_eq!(probed.result, expected);
        assert_eq!(asked, "POST /api/v1/namespaces/squelch/events?dryRun=All");
    }
}

#[tokio::test]
async fn a_signature_is_valid_for_one_probe() {
    let (probe, token, mut server) = mocked();
    let mut seen = Value::Null;
    let first = answer(&mut server, 201, |event| {
        sign(event, &token);
        seen = event.clone();
    });
    assert_eq!(tokio::join!(probe.send(), first).0.result, ProbeResult::Succeeded);
    let again = async {
        answer(&mut server, 201, |event| *event = seen.clone()).await;
        answer_health_check(&mut server).await;
    };
    assert_eq!(tokio::join!(probe.send(), again).0.result, ProbeResult::WrongSignature);
}

#[tokio::test]
async fn a_rejected_probe_differs_from_a_failing_api_server() {
    let (probe, _, mut server) = mocked();
    for (code, expected) in [
        (400, ProbeResult::Rejected),
        (403, ProbeResult::Rejected),
        (404, ProbeResult::Rejected),
        (409, ProbeResult::Unexpected),
        (429, ProbeResult::TooManyRequests),
        (500, ProbeResult::ServerError),
        (503, ProbeResult::ServerError),
    ] {
        let answering = async {
            answer(&mut server, code, |body| *body = json!({"message": "in words"})).await;
            if expected == ProbeResult::Rejected {
                answer_health_check(&mut server).await;
            }
        };
        let probed = tokio::join!(probe.send(), answering).0;
        assert_eq!(probed.result, expected, "{code}");
        assert!(probed.message.contains("in words"), "{}", probed.message);
    }
    // An API server that is starting refuses requests, because RBAC is not loaded yet.
    let starting = async {
        answer(&mut server, 403, |_| {}).await;
        answer(&mut server, 500, |_| {}).await;
    };
    assert_eq!(tokio::join!(probe.send(), starting).0.result, ProbeResult::ApiserverUnhealthy);
    drop(server);
    assert_eq!(probe.send().await.result, ProbeResult::ApiserverUnreachable);
}

/// The cause is this process, which cannot check the API server's health either.
#[tokio::test]
async fn a_probe_without_descriptors_is_a_failure() {
    let exhausted = |_request: Request<Body>| async {
        let error = std::io::Error::from_raw_os_error(rustix::io::Errno::MFILE.raw_os_error());
        Err::<Response<Body>, _>(tower::BoxError::from(error))
    };
    let (probe, _) = probe(Client::new(tower::service_fn(exhausted), "default"));
    let probed = probe.send().await;
    assert_eq!(probed.result, ProbeResult::NoDescriptors, "{}", probed.message);
    assert_eq!(ProbeOutcome::of(probed.result), ProbeOutcome::Hang);
}

#[tokio::test]
async fn a_failure_whose_health_check_has_no_descriptors_is_a_failure() {
    let asked = std::sync::atomic::AtomicUsize::new(0);
    let unsigned_once = move |_request: Request<Body>| {
        let first = asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
        async move {
            let error = std::io::Error::from_raw_os_error(rustix::io::Errno::MFILE.raw_os_error());
            let body = Body::from(b"{}".to_vec());
            if first { Ok(Response::new(body)) } else { Err(tower::BoxError::from(error)) }
        }
    };
    let (probe, _) = probe(Client::new(tower::service_fn(unsigned_once), "default"));
    assert_eq!(probe.send().await.result, ProbeResult::NoDescriptors);
}

/// Never answers the probe, and answers the health check with `health`.
async fn hangs(server: &mut ApiServer, health: Option<u16>) {
    let _event = server.next_request().await.unwrap();
    if let Some(code) = health {
        assert_eq!(answer(server, code, |_| {}).await, "GET /readyz");
    }
    std::future::pending::<()>().await;
}

#[tokio::test(start_paused = true)]
async fn a_timeout_is_a_failure_only_if_the_api_server_is_healthy() {
    for (health, expected) in [
        (Some(200), ProbeResult::Timeout),
        (Some(403), ProbeResult::Timeout),
        (Some(500), ProbeResult::ApiserverUnhealthy),
        (None, ProbeResult::ApiserverUnhealthy),
    ] {
        let (probe, _, mut server) = mocked();
        let began = crate::clock::now();
        let probed = tokio::select! {
            probed = probe.send() => probed,
            () = hangs(&mut server, health) => unreachable!("it never answers"),
        };
        assert_eq!(probed.result, expected, "{health:?}");
        assert!(crate::clock::now().since(began) <= LATE_TIMEOUT + Duration::from_millis(10));
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_is_a_failure_only_without_a_signature() {
    for (after, signed, health, expected) in [
        (600, true, 200, ProbeResult::Slow),
        (1200, true, 200, ProbeResult::Slow),
        (600, true, 500, ProbeResult::Slow),
        (1300, true, 200, ProbeResult::Timeout),
        (600, false, 200, ProbeResult::Timeout),
        (1000, false, 200, ProbeResult::Timeout),
        (1000, false, 500, ProbeResult::ApiserverUnhealthy),
    ] {
        let (probe, token, mut server) = mocked();
        let answering = async {
            let (request, send) = server.next_request().await.unwrap();
            let body = request.into_body().collect_bytes().await.unwrap();
            let mut event: Value = serde_json::from_slice(&body).unwrap();
            if signed {
                sign(&mut event, &token);
            }
            let late = async {
                sleep(Duration::from_millis(after)).await;
                let body = Body::from(event.to_string().into_bytes());
                send.send_response(Response::builder().status(201).body(body).unwrap());
            };
            tokio::join!(late, answer(&mut server, health, |_| {}));
        };
        let probed = tokio::join!(probe.send(), answering).0;
        assert_eq!(probed.result, expected, "{after} ms, signed: {signed}, health: {health}");
    }
}

#[tokio::test]
async fn each_probe_has_a_connection_of_its_own() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let client = Client::try_from(kube::Config::new(url.parse().unwrap())).unwrap();
    let (probe, _) = probe(client);
    let serving = async {
        let mut accepted = 0;
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            accepted += 1;
            let mut request = Vec::new();
            let is_whole = |request: &[u8]| {
                request.ends_with(b"}") || request.starts_with(b"GET ") && request.ends_with(b"\r\n\r\n")
            };
            while !is_whole(&request) {
                stream.read_buf(&mut request).await.unwrap();
            }
            // The server would keep the connection open.
            stream.write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}").await.unwrap();
            let mut rest = Vec::new();
            assert_eq!(stream.read_to_end(&mut rest).await.unwrap(), 0, "the client closes it");
            // Each failure is followed by a health check.
            if accepted == 6 {
                return;
            }
        }
    };
    let asking = async {
        for _ in 0..3 {
            assert_eq!(probe.send().await.result, ProbeResult::Unsigned);
        }
    };
    tokio::join!(serving, asking);
}
