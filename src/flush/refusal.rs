//! What an answer of the API server other than success means for a flush. Pure.

use std::time::Duration;

use serde::Deserialize;

use crate::metrics::FlushResult;

/// The longest `Retry-After` that is respected, so that the API server is tried at least once a minute.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);
/// The time between two attempts while a permission is missing.
const PAUSE_FORBIDDEN: Duration = Duration::from_secs(30);
/// Parts of the messages of a 500 for an object that is too large: etcd refuses it (etcd, api/v3rpc/rpctypes,
/// `ErrGRPCRequestTooLarge`), or the API server's client does not send it (grpc-go, `SendMsg`).
const TOO_LARGE_FOR_ETCD: [&str; 2] = ["request is too large", "trying to send message larger than max"];

/// Why a flush failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// 409: another client wrote or created the Event since it was read.
    Conflict,
    /// 404 to a write: the Event was deleted since it was read.
    Gone,
    /// The namespace is being deleted, is gone, or was created again: nothing may be created in it.
    Terminating,
    /// 401 or another 403: permissions, an admission policy.
    Forbidden,
    /// 400, 413 or 422: a retry would fail too.
    Invalid,
    /// The stored Event is too large to be read or written.
    TooLarge,
    /// 429, with the `Retry-After`, if any.
    TooManyRequests(Option<Duration>),
    /// 5xx, with the `Retry-After`, if any.
    ServerError(Option<Duration>),
    /// No answer within the deadline. The call may have been done.
    Timeout,
    /// No connection, or it broke. The call may have been done.
    Disconnected,
    /// Any other answer.
    Unexpected,
}

/// What happens to the flush task next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// The Event has changed since it was read: read it again now.
    ReadAgain,
    /// The occurrences stay pending; retry after at least this long.
    RetryAfter(Duration),
    /// No retry can succeed: the pending occurrences are lost.
    Discard,
}

impl Refusal {
    /// Interprets an HTTP status that is not a success. `retry_after` is the header in seconds. `body` is a `Status`,
    /// or the text of a proxy.
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
            // Other 404 answers, such as the page of a proxy, do not show that the Event is gone.
            404 if kind == Some("events") => Self::Gone,
            409 => Self::Conflict,
            403 if details.has_terminating_cause() => Self::Terminating,
            401 | 403 => Self::Forbidden,
            400 | 413 | 422 => Self::Invalid,
            429 => Self::TooManyRequests(asked()),
            500.. => Self::ServerError(asked()),
            _ => Self::Unexpected,
        }
    }

    /// Interprets the answer to a write.
    pub(super) fn of_write(code: u16, retry_after: Option<&str>, body: &[u8]) -> Self {
        if code == 500
            && let Some(message) = Status::parse(body).message
            && TOO_LARGE_FOR_ETCD.iter().any(|text| message.contains(text))
        {
            return Self::TooLarge;
        }
        Self::of(code, retry_after, body)
    }

    /// The label value in `squelch_flushes_total`.
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

    /// Returns what happens to the flush task.
    pub(super) fn next_step(self) -> NextStep {
        match self {
            Self::Conflict | Self::Gone => NextStep::ReadAgain,
            Self::Terminating | Self::Invalid | Self::TooLarge => NextStep::Discard,
            Self::Forbidden => NextStep::RetryAfter(PAUSE_FORBIDDEN),
            Self::TooManyRequests(asked) | Self::ServerError(asked) => {
                NextStep::RetryAfter(asked.unwrap_or_default())
            }
            Self::Timeout | Self::Disconnected | Self::Unexpected => NextStep::RetryAfter(Duration::ZERO),
        }
    }

    /// Whether the API server is overloaded or unavailable, so that other flushes have to wait too.
    pub(super) fn is_overload(self) -> bool {
        matches!(self, Self::TooManyRequests(_) | Self::ServerError(_) | Self::Timeout | Self::Disconnected)
    }

    /// The pause that the API server asked for.
    pub(super) fn retry_after(self) -> Option<Duration> {
        match self {
            Self::TooManyRequests(asked) | Self::ServerError(asked) => asked,
            _ => None,
        }
    }
}

/// The fields of a `Status` that distinguish the answers. The others are skipped: the answer may quote a large Event.
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
    /// Returns an empty value if the body is no `Status`.
    fn parse(body: &[u8]) -> Self {
        serde_json::from_slice(body).unwrap_or_default()
    }
}

impl Details {
    /// Whether the API server refused a new object because its namespace is being deleted.
    fn has_terminating_cause(&self) -> bool {
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
    fn a_terminating_namespace_is_distinguished_from_missing_permissions() {
        let terminating =
            json!({"causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]});
        assert_eq!(of(403, &terminating), Refusal::Terminating);
        assert_eq!(of(403, &json!({"kind": "events"})), Refusal::Forbidden);
        assert_eq!(of(404, &json!({"kind": "namespaces", "name": "shop"})), Refusal::Terminating);
        assert_eq!(of(404, &json!({"kind": "events", "name": "cart.1"})), Refusal::Gone);
        assert_eq!(Refusal::of(404, None, b"404 page not found"), Refusal::Unexpected);
    }

    #[test]
    fn retry_after_is_respected_up_to_a_minute() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        // Priority and fairness answers in plain text, with a header.
        let busy = b"Too many requests, please try again later.";
        assert_eq!(Refusal::of(429, Some("7"), busy), Refusal::TooManyRequests(seconds(7)));
        assert_eq!(of(503, &json!({"retryAfterSeconds": 3})), Refusal::ServerError(seconds(3)));
        assert_eq!(Refusal::of(429, Some("86400"), b""), Refusal::TooManyRequests(seconds(60)));
        for nothing in [None, Some("0"), Some("soon"), Some("-1")] {
            assert_eq!(Refusal::of(429, nothing, b""), Refusal::TooManyRequests(None), "{nothing:?}");
        }
    }

    #[test]
    fn a_write_that_etcd_refuses_is_too_large_and_a_read_is_not() {
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
        assert!(!Refusal::TooLarge.is_overload() && Refusal::TooLarge.next_step() == NextStep::Discard);
    }

    #[test]
    fn an_answer_without_a_status_object_is_classified_by_its_code() {
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
