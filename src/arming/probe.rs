//! One proof: a dry-run Event through the API server comes back with the mark that only squelch's webhook sets.

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

use super::proof::Outcome;
use crate::descriptors;
use crate::metrics::ProofResult;
use crate::tls::{self, AcceptedTokens};
use crate::{PROBE_ANNOTATION, PROOF_ANNOTATION};

/// How long the API server may take, and the webhook behind it: half of what an Event write waits for a webhook
/// that hangs.
const DEADLINE: Duration = Duration::from_millis(500);

/// An answer is awaited for this long: an API server that is slow itself answers late, with the mark. Longer than the
/// second for which the API server waits for the webhook. Short enough that a webhook that hangs is disarmed 3.5 s later
/// at most: one second until the next probe, and two of these.
const LATE_DEADLINE: Duration = Duration::from_millis(1250);

/// How long the API server may take to say that it is well.
const WELL_DEADLINE: Duration = Duration::from_millis(500);

/// What became of a proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// In a word.
    pub result: ProofResult,
    /// In words, for the log and the Event of a disarming.
    pub why: String,
}

/// Asks for proofs.
pub struct Probe {
    client: Client,
    namespace: String,
    tokens: Arc<AcceptedTokens>,
}

impl Probe {
    /// Asks through `client`, in squelch's own namespace, for marks made with one of `tokens`.
    pub fn new(client: Client, namespace: String, tokens: Arc<AcceptedTokens>) -> Self {
        Self { client, namespace, tokens }
    }

    /// Asks once.
    pub async fn ask(&self) -> Answered {
        // The client library calls each failed call an error; whoever asks each second tells changes only.
        self.ask_aloud().with_subscriber(NoSubscriber::new()).await
    }

    async fn ask_aloud(&self) -> Answered {
        let Ok([one, other]) = tls::random_seed() else {
            return answered(ProofResult::Unexpected, "no random numbers");
        };
        let nonce = format!("{one:016x}{other:016x}");
        let mut asking = std::pin::pin!(self.send(self.event(&nonce)));
        let late = tokio::select! {
            biased;
            answer = &mut asking => return self.confirmed(self.judge(&nonce, answer)).await,
            () = sleep(DEADLINE) => answered(ProofResult::NoAnswer, format!("no answer within {} ms", DEADLINE.as_millis())),
        };
        let last = timeout(LATE_DEADLINE.saturating_sub(DEADLINE), asking);
        let (answer, missed) = tokio::join!(last, self.confirmed(late));
        match answer {
            Ok(answer) => self.judge_late(&nonce, answer, missed),
            Err(_) => missed,
        }
    }

    /// What an answer after the deadline says; `missed` is the result without it. The mark proves that the webhook has
    /// answered: the API server is slow. An answer without a mark is what a webhook that hangs looks like.
    fn judge_late(
        &self,
        nonce: &str,
        answer: Result<(StatusCode, Value), Failure>,
        missed: Answered,
    ) -> Answered {
        let judged = self.judge(nonce, answer);
        match (judged.result, Outcome::of(judged.result)) {
            (_, Outcome::Proven) => {
                let why = format!("the mark came, after more than {} ms", DEADLINE.as_millis());
                answered(ProofResult::Late, why)
            }
            (ProofResult::NoMark, _) => missed,
            // A miss is one only if the API server is well.
            (_, Outcome::Missed) if Outcome::of(missed.result) != Outcome::Missed => missed,
            _ => judged,
        }
    }

    /// A miss only if the API server is well, else it says nothing of the webhook: when it starts it refuses much.
    async fn confirmed(&self, answer: Answered) -> Answered {
        // Without descriptors nothing can be asked, and the failure is this process's own.
        if Outcome::of(answer.result) != Outcome::Missed || answer.result == ProofResult::NoDescriptors {
            return answer;
        }
        match self.health().await {
            Health::Well => answer,
            Health::NotWell => {
                answered(ProofResult::NotWell, format!("the API server is not well ({})", answer.why))
            }
            Health::Unasked(failure) => failure.answered(),
        }
    }

    /// What a look at the answer says.
    fn judge(&self, nonce: &str, answer: Result<(StatusCode, Value), Failure>) -> Answered {
        let (status, body) = match answer {
            Ok(answer) => answer,
            Err(failure) => return failure.answered(),
        };
        let message = body["message"].as_str().unwrap_or_default();
        let refused = |result| answered(result, format!("the API server answers {status}: {message}"));
        match status.as_u16() {
            200..300 => self.look_for_mark(nonce, &body),
            429 => refused(ProofResult::TooManyRequests),
            500.. => refused(ProofResult::ServerError),
            // Of these the last comes of a name that is taken, which no proof's is, or of a proxy in between.
            401 | 408 | 409 => refused(ProofResult::Unexpected),
            400..500 => refused(ProofResult::Refused),
            _ => refused(ProofResult::Unexpected),
        }
    }

    fn look_for_mark(&self, nonce: &str, body: &Value) -> Answered {
        match body["metadata"]["annotations"][PROOF_ANNOTATION].as_str() {
            Some(mark) if self.tokens.have_marked(nonce, mark) => answered(ProofResult::Proven, ""),
            Some(_) => answered(ProofResult::WrongMark, "another webhook answers in its place"),
            None => answered(
                ProofResult::NoMark,
                "the API server cannot ask it (its log says why, under probe.squelch.dev)",
            ),
        }
    }

    fn event(&self, nonce: &str) -> Result<Request<Body>, http::Error> {
        let namespace = &self.namespace;
        let event = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                // Of its own, so that no stored Event is in its way.
                "name": format!("squelch-probe.{nonce}"),
                "namespace": namespace,
                "annotations": { PROBE_ANNOTATION: nonce },
            },
            "involvedObject": {
                "apiVersion": "v1", "kind": "Namespace", "namespace": namespace, "name": namespace,
            },
            "type": "Normal",
            "reason": "Probe",
            "message": "squelch asks whether its webhook answers; this Event is never stored.",
            "source": { "component": "squelch" },
        });
        let path = format!("/api/v1/namespaces/{namespace}/events?dryRun=All");
        let request =
            Request::builder().method(Method::POST).uri(path).header(CONTENT_TYPE, "application/json");
        request.body(Body::from(event.to_string().into_bytes()))
    }

    /// It serves, and reaches its etcd. That it says no to the question says so too. Its health is asked past the
    /// queues of priority and fairness, which Event writes that wait for a webhook fill.
    async fn health(&self) -> Health {
        let asked = self.send(Request::get("/readyz").body(Body::empty()));
        match timeout(WELL_DEADLINE, asked).await {
            Ok(Ok((status, _))) if !status.is_server_error() => Health::Well,
            Ok(Err(failure)) if failure.no_descriptors => Health::Unasked(failure),
            _ => Health::NotWell,
        }
    }

    /// Over a new connection, which ends with the answer: there may be several API servers.
    async fn send(
        &self,
        request: Result<Request<Body>, http::Error>,
    ) -> Result<(StatusCode, Value), Failure> {
        let mut request = request.map_err(|error| Failure::of(&error))?;
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        let answer = self.client.send(request).await.map_err(|error| Failure::of(&error))?;
        let status = answer.status();
        let body = answer.into_body().collect_bytes().await.map_err(|error| Failure::of(&error))?;
        // What is no JSON has no message and no mark.
        Ok((status, serde_json::from_slice(&body).unwrap_or_default()))
    }
}

/// What the API server says of itself.
enum Health {
    Well,
    NotWell,
    /// This process could not ask, for lack of descriptors.
    Unasked(Failure),
}

/// A call without an answer.
struct Failure {
    why: String,
    /// Its cause is this process, which has no file descriptor left.
    no_descriptors: bool,
}

impl Failure {
    fn of(error: &(dyn Error + 'static)) -> Self {
        Self { why: error.to_string(), no_descriptors: descriptors::are_exhausted(error) }
    }

    fn answered(self) -> Answered {
        if self.no_descriptors {
            return answered(
                ProofResult::NoDescriptors,
                format!("no file descriptor is left ({})", self.why),
            );
        }
        answered(ProofResult::Unreachable, self.why)
    }
}

fn answered(result: ProofResult, why: impl Into<String>) -> Answered {
    Answered { result, why: why.into() }
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

    /// Answers one call with a status and what becomes of its body.
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

    /// Says that it is well.
    async fn is_well(server: &mut ApiServer) {
        assert_eq!(answer(server, 200, |_| {}).await, "GET /readyz");
    }

    fn mark(event: &mut Value, token: &PathToken) {
        let nonce = event["metadata"]["annotations"][PROBE_ANNOTATION].as_str().unwrap();
        let mark = AcceptedTokens::new(vec![token.clone()]).mark(token.reveal(), nonce).unwrap();
        event["metadata"]["annotations"][PROOF_ANNOTATION] = json!(mark);
    }

    #[tokio::test]
    async fn the_mark_of_an_accepted_token_proves() {
        let (probe, token, mut server) = mocked();
        let (other, nothing) = (PathToken::generate().unwrap(), None);
        for (signer, expected) in [
            (Some(&token), ProofResult::Proven),
            (Some(&other), ProofResult::WrongMark),
            (nothing, ProofResult::NoMark),
        ] {
            let answering = async {
                let marks = |event: &mut Value| signer.into_iter().for_each(|signer| mark(event, signer));
                let asked = answer(&mut server, 201, marks).await;
                if expected != ProofResult::Proven {
                    is_well(&mut server).await;
                }
                asked
            };
            let (answered, asked) = tokio::join!(probe.ask(), answering);
            assert_eq!(answered.result, expected);
            assert_eq!(asked, "POST /api/v1/namespaces/squelch/events?dryRun=All");
        }
    }

    #[tokio::test]
    async fn a_mark_proves_once() {
        let (probe, token, mut server) = mocked();
        let mut seen = Value::Null;
        let first = answer(&mut server, 201, |event| {
            mark(event, &token);
            seen = event.clone();
        });
        assert_eq!(tokio::join!(probe.ask(), first).0.result, ProofResult::Proven);
        let again = async {
            answer(&mut server, 201, |event| *event = seen.clone()).await;
            is_well(&mut server).await;
        };
        assert_eq!(tokio::join!(probe.ask(), again).0.result, ProofResult::WrongMark);
    }

    #[tokio::test]
    async fn what_the_api_server_refuses_is_told_apart_from_its_failures() {
        let (probe, _, mut server) = mocked();
        for (code, expected) in [
            (400, ProofResult::Refused),
            (403, ProofResult::Refused),
            (404, ProofResult::Refused),
            (409, ProofResult::Unexpected),
            (429, ProofResult::TooManyRequests),
            (500, ProofResult::ServerError),
            (503, ProofResult::ServerError),
        ] {
            let answering = async {
                answer(&mut server, code, |body| *body = json!({"message": "in words"})).await;
                if expected == ProofResult::Refused {
                    is_well(&mut server).await;
                }
            };
            let answered = tokio::join!(probe.ask(), answering).0;
            assert_eq!(answered.result, expected, "{code}");
            assert!(answered.why.contains("in words"), "{}", answered.why);
        }
        // When it starts it does not know yet who may what.
        let starting = async {
            answer(&mut server, 403, |_| {}).await;
            answer(&mut server, 500, |_| {}).await;
        };
        assert_eq!(tokio::join!(probe.ask(), starting).0.result, ProofResult::NotWell);
        drop(server);
        assert_eq!(probe.ask().await.result, ProofResult::Unreachable);
    }

    /// The failure is this process's own, and the API server cannot be asked for its health either.
    #[tokio::test]
    async fn a_dial_without_descriptors_is_a_miss() {
        let exhausted = |_request: Request<Body>| async {
            let error = std::io::Error::from_raw_os_error(rustix::io::Errno::MFILE.raw_os_error());
            Err::<Response<Body>, _>(tower::BoxError::from(error))
        };
        let (probe, _) = probe(Client::new(tower::service_fn(exhausted), "default"));
        let answered = probe.ask().await;
        assert_eq!(answered.result, ProofResult::NoDescriptors, "{}", answered.why);
        assert_eq!(Outcome::of(answered.result), Outcome::Missed);
    }

    #[tokio::test]
    async fn a_miss_that_cannot_be_confirmed_without_descriptors_stays_a_miss() {
        let asked = std::sync::atomic::AtomicUsize::new(0);
        let unmarked_once = move |_request: Request<Body>| {
            let first = asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
            async move {
                let error = std::io::Error::from_raw_os_error(rustix::io::Errno::MFILE.raw_os_error());
                let body = Body::from(b"{}".to_vec());
                if first { Ok(Response::new(body)) } else { Err(tower::BoxError::from(error)) }
            }
        };
        let (probe, _) = probe(Client::new(tower::service_fn(unmarked_once), "default"));
        assert_eq!(probe.ask().await.result, ProofResult::NoDescriptors);
    }

    /// Leaves the Event without an answer, for ever; what the health check is answered.
    async fn hangs(server: &mut ApiServer, health: Option<u16>) {
        let _event = server.next_request().await.unwrap();
        if let Some(code) = health {
            assert_eq!(answer(server, code, |_| {}).await, "GET /readyz");
        }
        std::future::pending::<()>().await;
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_a_miss_only_if_the_api_server_is_well() {
        for (health, expected) in [
            (Some(200), ProofResult::NoAnswer),
            (Some(403), ProofResult::NoAnswer),
            (Some(500), ProofResult::NotWell),
            (None, ProofResult::NotWell),
        ] {
            let (probe, _, mut server) = mocked();
            let began = crate::clock::now();
            let answered = tokio::select! {
                answered = probe.ask() => answered,
                () = hangs(&mut server, health) => unreachable!("it hangs for ever"),
            };
            assert_eq!(answered.result, expected, "{health:?}");
            assert!(crate::clock::now().since(began) <= LATE_DEADLINE + Duration::from_millis(10));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_answer_is_a_miss_only_without_the_mark() {
        for (after, marked, health, expected) in [
            (600, true, 200, ProofResult::Late),
            (1200, true, 200, ProofResult::Late),
            (600, true, 500, ProofResult::Late),
            (1300, true, 200, ProofResult::NoAnswer),
            (600, false, 200, ProofResult::NoAnswer),
            (1000, false, 200, ProofResult::NoAnswer),
            (1000, false, 500, ProofResult::NotWell),
        ] {
            let (probe, token, mut server) = mocked();
            let answering = async {
                let (request, send) = server.next_request().await.unwrap();
                let body = request.into_body().collect_bytes().await.unwrap();
                let mut event: Value = serde_json::from_slice(&body).unwrap();
                if marked {
                    mark(&mut event, &token);
                }
                let late = async {
                    sleep(Duration::from_millis(after)).await;
                    let body = Body::from(event.to_string().into_bytes());
                    send.send_response(Response::builder().status(201).body(body).unwrap());
                };
                tokio::join!(late, answer(&mut server, health, |_| {}));
            };
            let answered = tokio::join!(probe.ask(), answering).0;
            assert_eq!(answered.result, expected, "{after} ms, marked: {marked}, health: {health}");
        }
    }

    #[tokio::test]
    async fn each_proof_has_a_connection_of_its_own() {
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
                // It would keep the connection.
                stream.write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}").await.unwrap();
                let mut rest = Vec::new();
                assert_eq!(stream.read_to_end(&mut rest).await.unwrap(), 0, "the proof closes it");
                // Each miss is confirmed.
                if accepted == 6 {
                    return;
                }
            }
        };
        let asking = async {
            for _ in 0..3 {
                assert_eq!(probe.ask().await.result, ProofResult::NoMark);
            }
        };
        tokio::join!(serving, asking);
    }
}
