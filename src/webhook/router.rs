//! HTTP: authenticates requests, reads their bodies within limits, and responds.

mod heads;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Body;
use hyper::{Request, Response, StatusCode, Version};
use squelch_engine::Moment;
use tokio::time::timeout;

use super::body::{
    BODY_TIMEOUT, MAX_BODIES, MAX_BODY, MAX_LONG_BODIES, MAX_PROBE, Received, prefix_of, receive,
    receive_prefix,
};
use super::cancellation::{ReviewConnection, Stalls, poll_for_reset};
use super::handler::{Undecided, Webhook, allow_unread};
use super::limiter::{Limiter, RequestPermits};
use super::long_reviews::{LONG, LongReviews, on_own_thread};

pub(super) use heads::{Caller, unavailable};
use heads::{reject, review_response, text};

/// The part of the path before the token.
const PATH_PREFIX: &str = "/events/";

/// Maximum reviews in flight, probes included: the number of writes that queue up while the webhook stalls. A review is in
/// flight until its response is sent.
const MAX_REVIEWS: usize = 4_000;

/// Maximum reviews above [`MAX_REVIEWS`] that are allowed after reading a prefix. Further ones get 503 without reading.
const MAX_PREFIX_REVIEWS: usize = 4_000;

/// Maximum requests without the token in flight. Further ones get 404 without reading.
const MAX_UNAUTHENTICATED_REQUESTS: usize = 64;

/// Maximum body bytes read of a request without the token. The response is sent before the connection reaches
/// [`super::read_limit::MAX_UNAUTHENTICATED_HTTP1`].
const MAX_UNAUTHENTICATED_BODY: usize = 32 << 10;

/// Returns the path for `clientConfig` of a webhook with `token`. It is a secret: do not log it.
pub fn path(token: &crate::tls::PathToken) -> String {
    format!("{PATH_PREFIX}{}", token.reveal())
}

/// Answers HTTP requests in process. Clones are cheap and share their limits.
#[derive(Clone)]
pub struct Router {
    webhook: Arc<Webhook>,
    limiters: Arc<Limiters>,
}

struct Limiters {
    reviews: Limiter,
    prefix_reviews: Limiter,
    bodies: Limiter,
    long_bodies: Limiter,
    unauthenticated: Limiter,
    long_reviews: LongReviews,
    stalls: Arc<Stalls>,
    /// The connection of requests that bypass the server.
    unconnected: Arc<ReviewConnection>,
}

/// Returns the router of `webhook`.
pub fn router(webhook: Arc<Webhook>) -> Router {
    let stalls = Arc::new(Stalls::default());
    let limiters = Limiters {
        reviews: Limiter::new(MAX_REVIEWS),
        prefix_reviews: Limiter::new(MAX_PREFIX_REVIEWS),
        bodies: Limiter::new(MAX_BODIES),
        long_bodies: Limiter::new(MAX_LONG_BODIES),
        unauthenticated: Limiter::new(MAX_UNAUTHENTICATED_REQUESTS),
        long_reviews: LongReviews::new(),
        unconnected: Arc::new(ReviewConnection::new(Arc::clone(&stalls))),
        stalls,
    };
    Router { webhook, limiters: Arc::new(limiters) }
}

impl Router {
    /// Returns the caller of `request`.
    pub(super) fn caller<B>(&self, request: &Request<B>) -> Caller {
        Caller::of(request, &self.webhook.tokens)
    }

    /// Counts a client that was rejected in the TLS handshake.
    pub(super) fn tls_handshake_failure(&self) {
        self.webhook.metrics.tls_handshake_failure();
    }

    /// Whether this replica is active. Connections to a standby must end, so that the next one may reach the active
    /// replica.
    pub fn is_active(&self) -> bool {
        self.webhook.is_active()
    }

    /// Waits until this replica is no longer active.
    pub async fn deactivated(&self) {
        self.webhook.lease_deadline.ended().await;
    }

    /// Returns the state of a new connection.
    pub(super) fn connection(&self) -> Arc<ReviewConnection> {
        Arc::new(ReviewConnection::new(Arc::clone(&self.limiters.stalls)))
    }

    /// Watches for stalls of the process until dropped.
    pub(super) async fn watch_for_stalls(&self) {
        self.limiters.stalls.watch(&self.webhook.clock).await;
    }

    /// Answers one request. A well-formed review gets 200, whatever the decision.
    pub async fn route<B: Body<Data = Bytes>>(&self, request: Request<B>) -> Response<Full<Bytes>> {
        let caller = self.caller(&request);
        self.answer(self.prepare(caller, &self.limiters.unconnected, request)).await
    }

    /// Acquires the permits of `request`, which came on `connection`. Reads nothing of the body and keeps nothing of the
    /// head.
    pub(super) fn prepare<B>(
        &self,
        caller: Caller,
        connection: &Arc<ReviewConnection>,
        request: Request<B>,
    ) -> Prepared<B> {
        if !caller.is_authenticated() {
            self.webhook.metrics.unauthenticated_request();
        }
        if let Some(rejection) = reject(&request, caller.is_authenticated()) {
            return Prepared::Answered(rejection);
        }
        let probe = match caller {
            Caller::Unauthenticated => return Prepared::Unauthenticated(request.into_body()),
            Caller::Review => None,
            Caller::Probe(token) => Some(token),
        };
        let can_be_reset = request.version() == Version::HTTP_2;
        let body = request.into_body();
        let (read, permit) = match self.limiters.reviews.try_acquire(1) {
            Some(permit) => (BodyRead::Whole, Some(permit)),
            None => (BodyRead::Prefix, self.limiters.prefix_reviews.try_acquire(1)),
        };
        match (permit.map(RequestPermits::new), probe) {
            (Some(permits), Some(token)) => Prepared::Probe { body, read, permits, token },
            (Some(permits), None) => {
                let began = self.webhook.clock.now();
                let undecided = Undecided::new(&self.webhook, connection.client(began));
                let review = ReviewRequest { read, undecided, can_be_reset, began };
                Prepared::Review { body, permits, review }
            }
            (None, probe) => {
                if probe.is_none() {
                    self.webhook.count_failed_open();
                }
                Prepared::Answered(unavailable())
            }
        }
    }

    /// Answers a prepared request.
    pub(super) async fn answer<B: Body<Data = Bytes>>(&self, prepared: Prepared<B>) -> Response<Full<Bytes>> {
        let (answered, permits) = match prepared {
            Prepared::Answered(response) => (Ok(response), None),
            Prepared::Unauthenticated(body) => {
                (timeout(BODY_TIMEOUT, self.answer_unauthenticated(body)).await, None)
            }
            Prepared::Probe { body, read, mut permits, token } => {
                let answering = self.answer_probe(body, read, &mut permits, &token);
                (timeout(BODY_TIMEOUT, answering).await, Some(permits))
            }
            Prepared::Review { body, mut permits, review } => {
                let (webhook, began) = (&self.webhook, review.began);
                // Also if the client no longer waits, and this is dropped.
                scopeguard::defer! { webhook.metrics.admission(webhook.clock.now().since(began)) }
                let answered = timeout(BODY_TIMEOUT, self.answer_review(body, &mut permits, review)).await;
                (answered, Some(permits))
            }
        };
        let late = |_| text(StatusCode::REQUEST_TIMEOUT, "timed out while reading the body\n");
        let response = answered.unwrap_or_else(late);
        response.map(|body| match permits {
            Some(permits) => Full::new(permits.attach_to(body)),
            None => Full::new(body),
        })
    }

    async fn answer_review<B: Body<Data = Bytes>>(
        &self,
        body: B,
        permits: &mut RequestPermits,
        review: ReviewRequest,
    ) -> Response<Bytes> {
        let ReviewRequest { read, mut undecided, can_be_reset, .. } = review;
        review_response(match self.receive(body, read, MAX_BODY).await {
            Received::Whole(bytes, permit) => {
                permits.set_body(permit);
                let long = self.limiters.long_reviews.acquire(bytes.len()).await;
                let prefix = long.as_ref().map(|_| prefix_of(&bytes));
                undecided.received(bytes);
                self.webhook.wait_until_role_is_known().await;
                if can_be_reset {
                    poll_for_reset().await;
                }
                match long {
                    None => undecided.answer(),
                    Some(long) => {
                        // The thread also frees the review, which takes a millisecond too.
                        let answered = on_own_thread(long, move || undecided.answer()).await;
                        answered.unwrap_or_else(|| allow_unread(&prefix.unwrap_or_default()))
                    }
                }
            }
            Received::Prefix(bytes) => allow_unread(&bytes),
            Received::Aborted => None,
        })
    }

    /// Answers a probe. Metrics of reviews exclude probes.
    async fn answer_probe<B: Body<Data = Bytes>>(
        &self,
        body: B,
        read: BodyRead,
        permits: &mut RequestPermits,
        token: &str,
    ) -> Response<Bytes> {
        review_response(match self.receive(body, read, MAX_PROBE).await {
            Received::Whole(bytes, permit) => {
                permits.set_body(permit);
                self.webhook.sign_probe(&bytes, token)
            }
            Received::Prefix(bytes) => allow_unread(&bytes),
            Received::Aborted => None,
        })
    }

    async fn receive<B: Body<Data = Bytes>>(&self, body: B, read: BodyRead, max_length: usize) -> Received {
        match read {
            BodyRead::Whole => {
                let is_short = body.size_hint().exact().is_some_and(|length| length <= LONG as u64);
                let limiter = if is_short { &self.limiters.bodies } else { &self.limiters.long_bodies };
                receive(body, max_length, limiter).await
            }
            BodyRead::Prefix => receive_prefix(body, MAX_BODY).await,
        }
    }

    /// Allows the write without changing state.
    async fn answer_unauthenticated<B: Body<Data = Bytes>>(&self, body: B) -> Response<Bytes> {
        let Some(_in_flight) = self.limiters.unauthenticated.try_acquire(1) else {
            return text(StatusCode::NOT_FOUND, "not found\n");
        };
        match receive_prefix(body, MAX_UNAUTHENTICATED_BODY).await {
            Received::Prefix(bytes) => review_response(allow_unread(&bytes)),
            Received::Whole(..) | Received::Aborted => review_response(None),
        }
    }
}

/// A request whose head is read, with its permits.
pub(super) enum Prepared<B> {
    /// The response needs only the head.
    Answered(Response<Bytes>),
    /// With the token: the review of a write.
    Review { body: B, permits: RequestPermits, review: ReviewRequest },
    /// With the token: a probe.
    Probe { body: B, read: BodyRead, permits: RequestPermits, token: String },
    /// Without the token.
    Unauthenticated(B),
}

/// The review of a write, before its body is read.
pub(super) struct ReviewRequest {
    read: BodyRead,
    undecided: Undecided,
    can_be_reset: bool,
    began: Moment,
}

/// The part of a body that is kept.
#[derive(Clone, Copy)]
pub(super) enum BodyRead {
    Whole,
    Prefix,
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router").finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(super) mod tests;
