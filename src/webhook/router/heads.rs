//! Request heads, and the responses that need no body.

use bytes::Bytes;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};

use super::PATH_PREFIX;
use crate::PROBE_PATH;
use crate::tls::AcceptedTokens;

/// The caller of a request, by the path of the request.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::webhook) enum Caller {
    /// The path has no accepted token.
    Unauthenticated,
    /// The API server, with the review of a write.
    Review,
    /// The API server, with a probe. The token signs it.
    Probe(String),
}

impl Caller {
    /// Returns the caller of `request`. Takes constant time for all tokens of the right length.
    pub(super) fn of<B>(request: &Request<B>, tokens: &AcceptedTokens) -> Self {
        let Some(rest) = request.uri().path().strip_prefix(PATH_PREFIX) else { return Self::Unauthenticated };
        let probe = rest.strip_suffix(PROBE_PATH);
        match (tokens.accept(probe.unwrap_or(rest)), probe) {
            (false, _) => Self::Unauthenticated,
            (true, None) => Self::Review,
            (true, Some(token)) => Self::Probe(token.to_owned()),
        }
    }

    pub(in crate::webhook) fn is_authenticated(&self) -> bool {
        *self != Self::Unauthenticated
    }

    pub(in crate::webhook) fn is_probe(&self) -> bool {
        matches!(self, Self::Probe(_))
    }
}

/// Returns the response to a request whose head rules out a review.
pub(super) fn reject<B>(request: &Request<B>, is_authenticated: bool) -> Option<Response<Bytes>> {
    if request.method() != Method::POST {
        if !is_authenticated {
            return Some(text(StatusCode::NOT_FOUND, "not found\n"));
        }
        let mut response =
            text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed, send the review by POST\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        return Some(response);
    }
    let is_json = request.headers().get(CONTENT_TYPE).is_some_and(|value| {
        // As the API server writes it.
        if value == "application/json" {
            return true;
        }
        let media_type = value.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
        media_type.trim_ascii().eq_ignore_ascii_case(b"application/json")
    });
    (!is_json).then(|| {
        text(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported content type, send application/json\n")
    })
}

pub(super) fn review_response(review: Option<Bytes>) -> Response<Bytes> {
    let Some(review) = review else {
        return text(StatusCode::BAD_REQUEST, "not an AdmissionReview\n");
    };
    let mut response = Response::new(review);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Returns the response above the limits. The API server ignores the failed webhook and stores the write. An empty body
/// needs no window of an HTTP/2 stream, so nothing of the request stays in memory.
pub(in crate::webhook) fn unavailable() -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response
}

pub(super) fn text(status: StatusCode, text: &'static str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from_static(text.as_bytes()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
