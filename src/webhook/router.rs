//! HTTP: who may ask, what is read of the question, and in which bounds.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Body;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Version};
use tokio::time::timeout;

use super::body::{BODY_TIMEOUT, MAX_BODIES, Received, beginning_of, receive, receive_beginning};
use super::caller::{Caller, Connection, Stalls, look_for_reset};
use super::handler::{Undecided, Webhook, unread};
use super::room::Room;
use super::turns::{Turns, apart};
use crate::PROOF_PATH;

/// The path's part before the token.
const PREFIX: &str = "/events/";

/// Reviews in flight: as many as writes wait when the webhook has stalled. Beyond that they are let through.
const MAX_REVIEWS: usize = 4_000;

/// Requests in flight from callers that have not proved themselves. Beyond that they are turned away unread.
const MAX_STRAYS: usize = 64;

/// So much is drained of a stranger's body: an Event as large as the API server takes without escapes.
const STRAY_BODY: usize = 4 << 20;

/// The path that a webhook with `token` is asked on, for `clientConfig`. A secret: not to be logged.
pub fn path(token: &crate::tls::PathToken) -> String {
    format!("{PREFIX}{}", token.reveal())
}

/// Answers HTTP requests in the process; cheap to clone, all clones share their bounds.
#[derive(Clone)]
pub struct Router {
    webhook: Arc<Webhook>,
    bounds: Arc<Bounds>,
}

struct Bounds {
    reviews: Room,
    bodies: Room,
    strays: Room,
    turns: Turns,
    stalls: Arc<Stalls>,
    /// Of requests that come on no connection of the server's.
    unconnected: Arc<Connection>,
}

/// A router that asks `webhook`.
pub fn router(webhook: Arc<Webhook>) -> Router {
    let stalls = Arc::new(Stalls::default());
    let bounds = Bounds {
        reviews: Room::new(MAX_REVIEWS),
        bodies: Room::new(MAX_BODIES),
        strays: Room::new(MAX_STRAYS),
        turns: Turns::new(),
        unconnected: Arc::new(Connection::new(Arc::clone(&stalls))),
        stalls,
    };
    Router { webhook, bounds: Arc::new(bounds) }
}

impl Router {
    /// Whether the request's path carries an accepted token: the caller is the API server. Constant time.
    pub fn accepts<B>(&self, request: &Request<B>) -> bool {
        offered(request).is_some_and(|offered| self.webhook.tokens.accept(offered.token))
    }

    /// Whether a proof is asked for, after which the connection has to end.
    pub fn proves<B>(&self, request: &Request<B>) -> bool {
        offered(request).is_some_and(|offered| offered.proof)
    }

    /// Counts a caller who was turned away before he could ask.
    pub(super) fn refused_handshake(&self) {
        self.webhook.metrics.refused_handshake();
    }

    /// Whether this replica decides. Where it does not, connections have to end: the next may reach one that does.
    pub fn decides(&self) -> bool {
        self.webhook.decides()
    }

    /// Ends when it decides no more.
    pub async fn retired(&self) {
        self.webhook.term.ended().await;
    }

    /// A new connection of the server's.
    pub(super) fn connection(&self) -> Arc<Connection> {
        Arc::new(Connection::new(Arc::clone(&self.bounds.stalls)))
    }

    /// Watches for stalls of the process until dropped.
    pub(super) async fn watch_for_stalls(&self) {
        self.bounds.stalls.watch(&self.webhook.clock).await;
    }

    /// Answers one request. A well-formed review is answered with 200, whatever is decided.
    pub async fn route<B: Body<Data = Bytes>>(&self, request: Request<B>) -> Response<Full<Bytes>> {
        self.route_from(&self.bounds.unconnected, request).await
    }

    /// The same for a request that came on `connection`.
    pub(super) async fn route_from<B: Body<Data = Bytes>>(
        &self,
        connection: &Arc<Connection>,
        request: Request<B>,
    ) -> Response<Full<Bytes>> {
        // Before a byte of the body is read.
        let proved = self.accepts(&request);
        if !proved {
            self.webhook.metrics.stray_request();
        }
        if let Some(refused) = refusal(&request, proved) {
            return refused;
        }
        let proof = offered(&request).filter(|offered| proved && offered.proof);
        let proof = proof.map(|offered| offered.token.to_owned());
        let can_be_reset = request.version() == Version::HTTP_2;
        let body = request.into_body();
        let answered = if let Some(token) = proof {
            timeout(BODY_TIMEOUT, self.answer_proof(body, &token)).await
        } else if proved {
            let clock = &self.webhook.clock;
            let began = clock.now();
            let answered =
                timeout(BODY_TIMEOUT, self.answer(body, connection.caller(began), can_be_reset)).await;
            self.webhook.metrics.admission(clock.now().since(began));
            answered
        } else {
            timeout(BODY_TIMEOUT, self.answer_stranger(body)).await
        };
        answered.unwrap_or_else(|_late| text(StatusCode::REQUEST_TIMEOUT, "the body did not come in time\n"))
    }

    async fn answer<B: Body<Data = Bytes>>(
        &self,
        body: B,
        caller: Caller,
        can_be_reset: bool,
    ) -> Response<Full<Bytes>> {
        let mut undecided = Undecided::of(&self.webhook, caller);
        let received = match self.bounds.reviews.take(1) {
            Some(_in_flight) => receive(body, &self.bounds.bodies).await,
            None => receive_beginning(body, super::body::MAX_BODY).await,
        };
        reviewed(match received {
            Received::Whole(bytes, _taken) => {
                let turn = self.bounds.turns.next(bytes.len()).await;
                let beginning = beginning_of(if turn.is_some() { &bytes } else { &[] });
                undecided.received(bytes);
                self.webhook.settled().await;
                if can_be_reset {
                    look_for_reset().await;
                }
                match turn {
                    None => undecided.answer(),
                    Some(turn) => {
                        // All of it is given back there: that takes a millisecond too.
                        let answered = apart(turn, move || undecided.answer()).await;
                        answered.unwrap_or_else(|| unread(&beginning))
                    }
                }
            }
            Received::Beginning(bytes) => unread(&bytes),
            Received::Broken => None,
        })
    }

    /// Neither counted nor timed as a review of a write.
    async fn answer_proof<B: Body<Data = Bytes>>(&self, body: B, token: &str) -> Response<Full<Bytes>> {
        reviewed(match receive(body, &self.bounds.bodies).await {
            Received::Whole(bytes, _taken) => self.webhook.prove(&bytes, token),
            Received::Beginning(bytes) => unread(&bytes),
            Received::Broken => None,
        })
    }

    /// Allowed without state: a pod that reaches the Service changes nothing.
    async fn answer_stranger<B: Body<Data = Bytes>>(&self, body: B) -> Response<Full<Bytes>> {
        let Some(_in_flight) = self.bounds.strays.take(1) else {
            return text(StatusCode::NOT_FOUND, "not found\n");
        };
        match receive_beginning(body, STRAY_BODY).await {
            Received::Beginning(bytes) => reviewed(unread(&bytes)),
            Received::Whole(..) | Received::Broken => reviewed(None),
        }
    }
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router").finish_non_exhaustive()
    }
}

/// What a path offers.
struct Offered<'a> {
    token: &'a str,
    proof: bool,
}

fn offered<B>(request: &Request<B>) -> Option<Offered<'_>> {
    let offered = request.uri().path().strip_prefix(PREFIX)?;
    let token = offered.strip_suffix(PROOF_PATH);
    Some(Offered { token: token.unwrap_or(offered), proof: token.is_some() })
}

/// What cannot be a review, by its head alone.
fn refusal<B>(request: &Request<B>, proved: bool) -> Option<Response<Full<Bytes>>> {
    if request.method() != Method::POST {
        if !proved {
            return Some(text(StatusCode::NOT_FOUND, "not found\n"));
        }
        let mut refused = text(StatusCode::METHOD_NOT_ALLOWED, "a review is sent by POST\n");
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        return Some(refused);
    }
    let json = request.headers().get(CONTENT_TYPE).is_some_and(|value| {
        let media_type = value.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
        media_type.trim_ascii().eq_ignore_ascii_case(b"application/json")
    });
    (!json).then(|| text(StatusCode::UNSUPPORTED_MEDIA_TYPE, "a review is application/json\n"))
}

fn reviewed(answer: Option<Bytes>) -> Response<Full<Bytes>> {
    let Some(answer) = answer else {
        return text(StatusCode::BAD_REQUEST, "not an AdmissionReview\n");
    };
    let mut response = Response::new(Full::new(answer));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn text(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

#[cfg(test)]
pub(super) mod tests;
