//! Bytes of an AdmissionReview -> [`Review`] -> [`Observation`].
//!
//! Decoding succeeds for every review that the API server can send. [`Write`] is the part without the envelope, for Events
//! from another source.

mod difference;
mod json;
mod parsed_event;
mod reader;
mod scan;
mod wire;
mod write;

use std::borrow::Cow;

use jiff::Timestamp;
use simdutf8::compat::{Utf8Error, from_utf8};
use squelch_engine::{Api, Observation, Operation, is_namespace_name};

use self::wire::Request;

pub(super) use self::json::Raw;
pub use self::parsed_event::{ParseError, ParsedEvent};
pub use self::reader::Malformed;
pub(super) use self::scan::{ReviewHead, scan};
pub use self::wire::Event;
pub use self::write::Write;

/// Maximum length of `request.uid`, in bytes. The API server sends a UUID of 36. Every response repeats it.
const MAX_UID: usize = 256;

/// The version of the AdmissionReview. The response must repeat it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReviewVersion {
    /// `admission.k8s.io/v1`, the only version in squelch's webhook configuration. Also stands for unknown versions.
    #[default]
    V1,
    /// `admission.k8s.io/v1beta1`. The write is allowed without a decision.
    V1Beta1,
}

impl ReviewVersion {
    fn of(api_version: &str) -> Self {
        if api_version == "admission.k8s.io/v1beta1" { Self::V1Beta1 } else { Self::V1 }
    }

    /// Returns the `apiVersion`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "admission.k8s.io/v1",
            Self::V1Beta1 => "admission.k8s.io/v1beta1",
        }
    }
}

/// The reason why bytes are no review.
#[derive(Debug, thiserror::Error)]
pub enum ReviewDecodeError {
    /// Not UTF-8.
    #[error("not UTF-8")]
    Utf8(#[from] Utf8Error),
    /// Not the JSON of an AdmissionReview.
    #[error("not an AdmissionReview: {0}")]
    Json(#[from] Malformed),
    /// No `request`.
    #[error("AdmissionReview without a request")]
    NoRequest,
    /// `request.uid` has more than [`MAX_UID`] bytes.
    #[error("AdmissionReview with a uid of {0} bytes, maximum {MAX_UID}")]
    LongUid(usize),
}

/// The reason why a review has no write of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotObserved {
    /// Not a CREATE or UPDATE of a core/v1 Event in `admission.k8s.io/v1`, so outside squelch's rules.
    NotConcerned,
    /// The Event is missing.
    NoEvent,
    /// The namespace has an invalid name, so the API server has not sent the review.
    NoNamespace,
}

/// A decoded review that borrows from its bytes.
#[derive(Debug)]
pub struct Review<'a> {
    version: ReviewVersion,
    request: Request<'a>,
}

/// Decodes a review. Copies only strings with escapes.
pub fn decode(bytes: &[u8]) -> Result<Review<'_>, ReviewDecodeError> {
    let envelope: wire::Envelope<'_> = reader::read(from_utf8(bytes)?)?;
    let request = envelope.request.ok_or(ReviewDecodeError::NoRequest)?;
    let uid = request.uid.as_str().len();
    if uid > MAX_UID {
        return Err(ReviewDecodeError::LongUid(uid));
    }
    Ok(Review { version: ReviewVersion::of(envelope.api_version.as_str()), request })
}

impl<'a> Review<'a> {
    /// The version of the review and of its response.
    pub fn version(&self) -> ReviewVersion {
        self.version
    }

    /// `request.uid`. The response must repeat it.
    pub fn uid(&self) -> &str {
        self.request.uid.as_str()
    }

    /// CREATE or UPDATE; `None` for other operations.
    pub fn operation(&self) -> Option<Operation> {
        match self.request.operation.as_str() {
            "CREATE" => Some(Operation::Create),
            "UPDATE" => Some(Operation::Update),
            _ => None,
        }
    }

    /// The API that the client used; `None` for a group without Events.
    pub fn api(&self) -> Option<Api> {
        match self.request.request_kind.group.as_str() {
            "" => Some(Api::Core),
            "events.k8s.io" => Some(Api::Events),
            _ => None,
        }
    }

    /// The written Event and the stored one; `None` if either is missing.
    pub(super) fn written_and_old(&self) -> Option<(&Event<'a>, &Event<'a>)> {
        Some((self.request.object.as_deref()?, self.request.old_object.as_deref()?))
    }

    /// The message that the write stores; empty without an Event.
    pub(super) fn written_message(&self) -> Cow<'a, str> {
        self.request.object.as_deref().map_or(Cow::Borrowed(""), |written| written.message.text())
    }

    /// See [`Observation::stale`].
    fn is_stale(&self, operation: Operation) -> bool {
        operation == Operation::Update
            && self.written_and_old().is_some_and(|(written, old)| written.is_stale_over(old))
    }

    /// Returns the observation for the engine. `own_user` is the user of squelch's own writes, `wall` the time of receipt.
    pub fn observe(&self, own_user: &str, wall: Timestamp) -> Result<Observation<'_>, NotObserved> {
        let request = &self.request;
        let (Some(operation), Some(api)) = (self.operation(), self.api()) else {
            return Err(NotObserved::NotConcerned);
        };
        let is_event = request.kind.group.as_str().is_empty() && request.kind.kind.as_str() == "Event";
        if self.version != ReviewVersion::V1 || !is_event || !request.subresource.as_str().is_empty() {
            return Err(NotObserved::NotConcerned);
        }
        if !is_namespace_name(request.namespace.as_str()) {
            return Err(NotObserved::NoNamespace);
        }
        let write = Write {
            operation,
            api,
            user: request.user.name.as_str(),
            dry_run: request.dry_run.unwrap_or(false),
            namespace: request.namespace.as_str(),
            name: request.name.as_str(),
            object: request.object.as_deref().ok_or(NotObserved::NoEvent)?,
            old_object: request.old_object.as_deref(),
            stale: self.is_stale(operation),
        };
        write.observe(own_user, wall)
    }
}

#[cfg(test)]
mod tests;
