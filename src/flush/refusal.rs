//! What an answer means that is not the one hoped for. Pure.

use std::time::Duration;

use serde::Deserialize;

use crate::metrics::FlushResult;

/// What a 429 or a 5xx may ask for at most: an API server that wants to be left alone for longer is asked once a
/// minute all the same.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);
/// Where squelch has not the right: only a person mends that.
const PAUSE_FORBIDDEN: Duration = Duration::from_secs(30);
/// A write that etcd refuses because of its size, and one that the API server's client of etcd does not send: the API
/// server answers both with 500 (etcd, api/v3rpc/rpctypes, `ErrGRPCRequestTooLarge`; grpc-go, `SendMsg`).
const TOO_LARGE_FOR_ETCD: [&str; 2] = ["request is too large", "trying to send message larger than max"];

/// Why a look at a stored Event ended without what it was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// 409: someone wrote or made the Event since it was read.
    Conflict,
    /// 404 to a write: someone deleted the Event since it was read.
    Gone,
    /// The namespace ends, or has ended: nothing is made in it any more.
    Terminating,
    /// 401 or 403 otherwise: rights, a quota, another's policy.
    Forbidden,
    /// 400, 413 or 422: it will never be taken as it is.
    Invalid,
    /// The stored Event is too large to be read, or to be written again.
    TooLarge,
    /// 429: not now, and perhaps for how long.
    TooManyRequests(Option<Duration>),
    /// 5xx: something is broken, and perhaps for how long.
    ServerError(Option<Duration>),
    /// No answer in time. It may have been done all the same.
    Timeout,
    /// No connection, or it broke. It may have been done all the same.
    Disconnected,
    /// Anything else.
    Unexpected,
}

/// What follows for the debt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// The Event is not as it was read: read it again.
    LookAgain,
    /// It stays owed; not again before this long.
    Later(Duration),
    /// It can never be paid.
    Never,
}

impl Refusal {
    /// What an HTTP status says that is no success. `retry_after` is the header, in seconds; `body` a `Status`, or
    /// whatever stands between squelch and the API server has to say.
    pub(super) fn of(code: u16, retry_after: Option<&str>, body: &[u8]) -> Self {
        let Status { details, .. } = Status::parse(body);
        let kind = details.kind.as_deref();
        let asked = || {
            let header = retry_after.and_then(|seconds| seconds.trim().parse().ok());
            let seconds = header.or(details.retry_after_seconds).filter(|asked| *asked > 0);
            seconds.map(|asked| Duration::from_secs(asked).min(MAX_RETRY_AFTER))
        };
        match code {
            404 if kind == Some("namespaces") => Self::Terminating,
            // Whatever else answers 404, a proxy's page say, tells nothing of the Event.
            404 if kind == Some("events") => Self::Gone,
            409 => Self::Conflict,
            403 if details.names_a_namespace_that_ends() => Self::Terminating,
            401 | 403 => Self::Forbidden,
            400 | 413 | 422 => Self::Invalid,
            429 => Self::TooManyRequests(asked()),
            500.. => Self::ServerError(asked()),
            _ => Self::Unexpected,
        }
    }

    /// The same for the answer to a write.
    pub(super) fn of_write(code: u16, retry_after: Option<&str>, body: &[u8]) -> Self {
        if code == 500
            && let Some(message) = Status::parse(body).message
            && TOO_LARGE_FOR_ETCD.iter().any(|text| message.contains(text))
        {
            return Self::TooLarge;
        }
        Self::of(code, retry_after, body)
    }

    /// Its word in `squelch_flushes_total`.
    pub(super) fn result(self) -> FlushResult {
        match self {
            Self::Conflict => FlushResult::Conflict,
            Self::Gone => FlushResult::Gone,
            Self::Terminating => FlushResult::Terminating,
            Self::Forbidden => FlushResult::Forbidden,
            Self::Invalid | Self::TooLarge => FlushResult::Invalid,
            Self::TooManyRequests(_) => FlushResult::TooManyRequests,
            Self::ServerError(_) => FlushResult::ServerError,
            Self::Timeout => FlushResult::Timeout,
            Self::Disconnected => FlushResult::Disconnected,
            Self::Unexpected => FlushResult::Unexpected,
        }
    }

    /// What follows.
    pub(super) fn then(self) -> Then {
        match self {
            Self::Conflict | Self::Gone => Then::LookAgain,
            Self::Terminating | Self::Invalid | Self::TooLarge => Then::Never,
            Self::Forbidden => Then::Later(PAUSE_FORBIDDEN),
            Self::TooManyRequests(asked) | Self::ServerError(asked) => Then::Later(asked.unwrap_or_default()),
            Self::Timeout | Self::Disconnected | Self::Unexpected => Then::Later(Duration::ZERO),
        }
    }

    /// The API server cannot keep up, or is not there at all: not this debt alone is to wait.
    pub(super) fn is_strain(self) -> bool {
        matches!(self, Self::TooManyRequests(_) | Self::ServerError(_) | Self::Timeout | Self::Disconnected)
    }

    /// How long the API server asked to be left alone.
    pub(super) fn asked(self) -> Option<Duration> {
        match self {
            Self::TooManyRequests(asked) | Self::ServerError(asked) => asked,
            _ => None,
        }
    }
}

/// The fields of a `Status` that tell the answers apart. The others are skipped: the answer may quote a large Event.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    message: Option<String>,
    details: Details,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Details {
    kind: Option<String>,
    retry_after_seconds: Option<u64>,
    causes: Vec<Cause>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Cause {
    reason: Option<String>,
}

impl Status {
    /// Empty where the answer is no `Status`.
    fn parse(body: &[u8]) -> Self {
        serde_json::from_slice(body).unwrap_or_default()
    }
}

impl Details {
    /// The API server refuses new objects in a namespace that is being deleted, and says so as a cause.
    fn names_a_namespace_that_ends(&self) -> bool {
        self.causes.iter().any(|cause| cause.reason.as_deref() == Some("NamespaceTerminating"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(code: u16, details: &Value) -> Refusal {
        Refusal::of(code, None, json!({"kind": "Status", "details": details}).to_string().as_bytes())
    }

    #[test]
    fn a_namespace_that_ends_is_told_from_a_lack_of_rights() {
        let terminating =
            json!({"causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]});
        assert_eq!(of(403, &terminating), Refusal::Terminating);
        assert_eq!(of(403, &json!({"kind": "events"})), Refusal::Forbidden);
        assert_eq!(of(404, &json!({"kind": "namespaces", "name": "shop"})), Refusal::Terminating);
        assert_eq!(of(404, &json!({"kind": "events", "name": "cart.1"})), Refusal::Gone);
        assert_eq!(Refusal::of(404, None, b"404 page not found"), Refusal::Unexpected);
    }

    #[test]
    fn what_is_asked_for_is_granted_up_to_a_minute() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        // Priority and fairness answer in plain text, with a header.
        let busy = b"Too many requests, please try again later.";
        assert_eq!(Refusal::of(429, Some("7"), busy), Refusal::TooManyRequests(seconds(7)));
        assert_eq!(of(503, &json!({"retryAfterSeconds": 3})), Refusal::ServerError(seconds(3)));
        assert_eq!(Refusal::of(429, Some("86400"), b""), Refusal::TooManyRequests(seconds(60)));
        for nothing in [None, Some("0"), Some("soon"), Some("-1")] {
            assert_eq!(Refusal::of(429, nothing, b""), Refusal::TooManyRequests(None), "{nothing:?}");
        }
    }

    #[test]
    fn a_write_that_etcd_does_not_take_is_too_large_and_a_read_never_is() {
        for text in [
            "etcdserver: request is too large",
            "rpc error: code = ResourceExhausted desc = trying to send message larger than max (3 vs. 2)",
        ] {
            let body = json!({"kind": "Status", "message": text, "code": 500}).to_string();
            assert_eq!(Refusal::of_write(500, None, body.as_bytes()), Refusal::TooLarge, "{text}");
            assert_eq!(Refusal::of_write(503, None, body.as_bytes()), Refusal::ServerError(None), "{text}");
            assert_eq!(Refusal::of(500, None, body.as_bytes()), Refusal::ServerError(None), "{text}");
        }
        for body in
            ["{}", r#"{"message": "etcdserver: mvcc: database space exceeded"}"#, "request is too large"]
        {
            assert_eq!(Refusal::of_write(500, None, body.as_bytes()), Refusal::ServerError(None), "{body}");
        }
        assert!(!Refusal::TooLarge.is_strain() && Refusal::TooLarge.then() == Then::Never);
    }

    #[test]
    fn what_no_status_comes_with_is_told_by_its_number() {
        for (code, refusal) in [
            (302, Refusal::Unexpected),
            (400, Refusal::Invalid),
            (401, Refusal::Forbidden),
            (410, Refusal::Unexpected),
            (413, Refusal::Invalid),
            (422, Refusal::Invalid),
            (500, Refusal::ServerError(None)),
            (504, Refusal::ServerError(None)),
        ] {
            assert_eq!(Refusal::of(code, None, b"<html>"), refusal, "{code}");
        }
    }
}
