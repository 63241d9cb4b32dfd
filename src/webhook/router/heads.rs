//! Request heads, and the responses that need no body.

use bytes::Bytes;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};

use super::PATH_PREFIX;
use crate::PROBE_PATH;

/// A parsed request path.
pub(super) struct RequestPath<'a> {
    pub(super) token: &'a str,
    pub(super) is_probe: bool,
}

pub(super) fn parse_path<B>(request: &Request<B>) -> Option<RequestPath<'_>> {
    let rest = request.uri().path().strip_prefix(PATH_PREFIX)?;
    let token = rest.strip_suffix(PROBE_PATH);
    Some(RequestPath { token: token.unwrap_or(rest), is_probe: token.is_some() })
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
