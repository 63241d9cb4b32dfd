//! One probe: a dry-run Event through the API server, which the webhook signs.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, StatusCode};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tracing::instrument::WithSubscriber as _;
use tracing::subscriber::NoSubscriber;

use super::reachability::ProbeOutcome;
use crate::descriptors;
use crate::metrics::ProbeResult;
use crate::tls::{self, AcceptedTokens};
use crate::{PROBE_ANNOTATION, PROBE_SIGNATURE_ANNOTATION};

/// Maximum time of a successful probe. Half of the time that an Event write waits for a webhook that hangs.
const TIMEOUT: Duration = Duration::from_millis(500);

/// How long to wait for an answer. A slow API server answers after [`TIMEOUT`], with a signature. This is longer than
/// the second for which the API server waits for the webhook, and short enough that a webhook that hangs is disarmed
/// within 3.5 s: one second until the next probe, and twice this time.
const LATE_TIMEOUT: Duration = Duration::from_millis(1250);

/// Timeout of the API server's health check.
const HEALTH_TIMEOUT: Duration = Duration::from_millis(500);

/// The result of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeReport {
    /// The result.
    pub result: ProbeResult,
    /// Details for logs, Events and conditions. Empty after a success.
    pub message: String,
}

/// Sends probes.
pub struct Probe {
    client: Client,
    namespace: String,
    tokens: Arc<AcceptedTokens>,
}

impl Probe {
    /// Sends probes through `client` in squelch's own namespace. `tokens` verify the signatures.
    pub fn new(client: Client, namespace: String, tokens: Arc<AcceptedTokens>) -> Self {
        Self { client, namespace, tokens }
    }

    /// Sends one probe.
    pub async fn send(&self) -> ProbeReport {
        // The client library logs each failed call as an error. The caller logs changes only.
        self.send_and_judge().with_subscriber(NoSubscriber::new()).await
    }

    async fn send_and_judge(&self) -> ProbeReport {
        let Ok([one, other]) = tls::random_seed() else {
            return report(ProbeResult::Unexpected, "cannot get random bytes");
        };
        let nonce = format!("{one:016x}{other:016x}");
        let mut sending = std::pin::pin!(self.call(self.event(&nonce)));
        let late = tokio::select! {
            biased;
            answer = &mut sending => return self.confirmed(self.judge(&nonce, answer)).await,
            () = sleep(TIMEOUT) => report(ProbeResult::Timeout, format!("no answer within {} ms", TIMEOUT.as_millis())),
        };
        let rest = timeout(LATE_TIMEOUT.saturating_sub(TIMEOUT), sending);
        let (answer, timed_out) = tokio::join!(rest, self.confirmed(late));
        match answer {
            Ok(answer) => self.judge_late(&nonce, answer, timed_out),
            Err(_) => timed_out,
        }
    }

    /// Returns the result of an answer that came after [`TIMEOUT`]. `timed_out` is the result without it. A signature
    /// shows that the webhook answers and the API server is slow. No signature is what a webhook that hangs looks like.
    fn judge_late(
        &self,
        nonce: &str,
        answer: Result<(StatusCode, Value), CallFailure>,
        timed_out: ProbeReport,
    ) -> ProbeReport {
        let judged = self.judge(nonce, answer);
        match (judged.result, ProbeOutcome::of(judged.result)) {
            (_, ProbeOutcome::Success) => {
                let message = format!("signed after more than {} ms", TIMEOUT.as_millis());
                report(ProbeResult::Slow, message)
            }
            (ProbeResult::Unsigned, _) => timed_out,
            // A failure counts only if the API server is healthy.
            (_, ProbeOutcome::Failure) if ProbeOutcome::of(timed_out.result) != ProbeOutcome::Failure => {
                timed_out
            }
            _ => judged,
        }
    }

    /// Checks the API server's health after a failure. An unhealthy API server, such as one that is starting, refuses
    /// many requests, and the failure says nothing about the webhook.
    async fn confirmed(&self, probed: ProbeReport) -> ProbeReport {
        // Without file descriptors, the cause is this process, and no health check is possible.
        if ProbeOutcome::of(probed.result) != ProbeOutcome::Failure
            || probed.result == ProbeResult::NoDescriptors
        {
            return probed;
        }
        match self.health().await {
            Health::Healthy => probed,
            Health::Unhealthy => report(
                ProbeResult::ApiserverUnhealthy,
                format!("the API server is unhealthy ({})", probed.message),
            ),
            Health::NoDescriptors(failure) => failure.report(),
        }
    }

    /// Returns the result of an answer.
    fn judge(&self, nonce: &str, answer: Result<(StatusCode, Value), CallFailure>) -> ProbeReport {
        let (status, body) = match answer {
            Ok(answer) => answer,
            Err(failure) => return failure.report(),
        };
        let message = body["message"].as_str().unwrap_or_default();
        let refused = |result| report(result, format!("the API server returned {status}: {message}"));
        match status.as_u16() {
            200..300 => self.check_signature(nonce, &body),
            429 => refused(ProbeResult::TooManyRequests),
            500.. => refused(ProbeResult::ServerError),
            // The probe's name is unique, so 409 comes from a proxy.
            401 | 408 | 409 => refused(ProbeResult::Unexpected),
            400..500 => refused(ProbeResult::Rejected),
            _ => refused(ProbeResult::Unexpected),
        }
    }

    fn check_signature(&self, nonce: &str, body: &Value) -> ProbeReport {
        match body["metadata"]["annotations"][PROBE_SIGNATURE_ANNOTATION].as_str() {
            Some(signature) if self.tokens.verify(nonce, signature) => report(ProbeResult::Succeeded, ""),
            Some(_) => report(ProbeResult::WrongSignature, "another process answers the webhook calls"),
            None => report(
                ProbeResult::Unsigned,
                "the API server cannot call the webhook (see its log for probe.squelch.dev)",
            ),
        }
    }

    fn event(&self, nonce: &str) -> Result<Request<Body>, http::Error> {
        let namespace = &self.namespace;
        let event = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                // Unique, so that it conflicts with no stored Event.
                "name": format!("squelch-probe.{nonce}"),
                "namespace": namespace,
                "annotations": { PROBE_ANNOTATION: nonce },
            },
            "involvedObject": {
                "apiVersion": "v1", "kind": "Namespace", "namespace": namespace, "name": namespace,
            },
            "type": "Normal",
            "reason": "Probe",
            "message": "Probe of the squelch webhook. This Event is never stored.",
            "source": { "component": "squelch" },
        });
        let path = format!("/api/v1/namespaces/{namespace}/events?dryRun=All");
        let request =
            Request::builder().method(Method::POST).uri(path).header(CONTENT_TYPE, "application/json");
        request.body(Body::from(event.to_string().into_bytes()))
    }

    /// Checks that the API server serves and reaches etcd. A refusal shows that too. Health checks bypass the queues of
    /// API Priority and Fairness, which Event writes that wait for a webhook can fill.
    async fn health(&self) -> Health {
        let asked = self.call(Request::get("/readyz").body(Body::empty()));
        match timeout(HEALTH_TIMEOUT, asked).await {
            Ok(Ok((status, _))) if !status.is_server_error() => Health::Healthy,
            Ok(Err(failure)) if failure.no_descriptors => Health::NoDescriptors(failure),
            _ => Health::Unhealthy,
        }
    }

    /// Makes a call on a new connection, which is closed after it: there may be several API servers.
    async fn call(
        &self,
        request: Result<Request<Body>, http::Error>,
    ) -> Result<(StatusCode, Value), CallFailure> {
        let mut request = request.map_err(|error| CallFailure::of(&error))?;
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        let answer = self.client.send(request).await.map_err(|error| CallFailure::of(&error))?;
        let status = answer.status();
        let body = answer.into_body().collect_bytes().await.map_err(|error| CallFailure::of(&error))?;
        // A body that is not JSON has no message and no signature.
        Ok((status, serde_json::from_slice(&body).unwrap_or_default()))
    }
}

/// The API server's health.
enum Health {
    Healthy,
    Unhealthy,
    /// Unknown: this process has no file descriptor left.
    NoDescriptors(CallFailure),
}

/// A call without an answer.
struct CallFailure {
    message: String,
    /// Whether the cause is that this process has no file descriptor left.
    no_descriptors: bool,
}

impl CallFailure {
    fn of(error: &(dyn Error + 'static)) -> Self {
        Self { message: error.to_string(), no_descriptors: descriptors::are_exhausted(error) }
    }

    fn report(self) -> ProbeReport {
        if self.no_descriptors {
            return report(
                ProbeResult::NoDescriptors,
                format!("no file descriptor is left ({})", self.message),
            );
        }
        report(ProbeResult::ApiserverUnreachable, self.message)
    }
}

fn report(result: ProbeResult, message: impl Into<String>) -> ProbeReport {
    ProbeReport { result, message: message.into() }
}

#[cfg(test)]
mod tests {
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
        let mut body: Value =
            serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap_or_default();
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
        assert_eq!(ProbeOutcome::of(probed.result), ProbeOutcome::Failure);
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
}
