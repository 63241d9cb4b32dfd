//! Bytes of an AdmissionReview -> [`Review`] -> [`Observation`].
//!
//! Decoding succeeds for every review that the API server can send. [`Write`] is the part without the envelope, for Events
//! from another source.

mod json;
mod parsed_event;
mod reader;
mod scan;
mod wire;

use std::borrow::Cow;

use jiff::{SignedDuration, Timestamp};
use simdutf8::compat::{Utf8Error, from_utf8};
use squelch_engine::{Api, EventView, ObjectReference, Observation, Operation, is_namespace_name};

use self::json::Emptiness;
use self::wire::{Metadata, Reference, Request, Series, Source};

pub(super) use self::json::Raw;
pub use self::parsed_event::{ParseError, ParsedEvent};
pub use self::reader::Malformed;
pub(super) use self::scan::{ReviewHead, scan};
pub use self::wire::Event;

/// Maximum length of `request.uid`, in bytes. The API server sends a UUID of 36. Every response repeats it.
const MAX_UID: usize = 256;

/// Maximum lead of a client's clock over squelch's. Later times are clamped to it.
const MAX_CLOCK_LEAD: SignedDuration = SignedDuration::from_secs(10);

/// Maximum age of a last observed time, and the time for which the engine keeps names. Earlier times are clamped to it.
const MAX_AGE: SignedDuration = SignedDuration::from_hours(24);

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

/// One write of an Event.
#[derive(Clone, Copy, Debug)]
pub struct Write<'r> {
    /// CREATE or UPDATE.
    pub operation: Operation,
    /// The API that the client used.
    pub api: Api,
    /// The user that wrote it.
    pub user: &'r str,
    /// Whether the API server does not store it.
    pub dry_run: bool,
    /// The Event's namespace.
    pub namespace: &'r str,
    /// The Event's name if it is known apart from `object`, or else empty.
    pub name: &'r str,
    /// The Event as written.
    pub object: &'r Event<'r>,
    /// The stored Event of an UPDATE.
    pub old_object: Option<&'r Event<'r>>,
    /// See [`Observation::stale`]. Only a review has it: a stored Event has a new resourceVersion.
    pub stale: bool,
}

impl<'r> Write<'r> {
    /// Returns the observation for the engine. `own_user` is the user of squelch's own writes, `wall` the time of receipt.
    pub fn observe(&self, own_user: &str, wall: Timestamp) -> Result<Observation<'r>, NotObserved> {
        let written = self.object;
        let metadata = written.metadata.as_ref().ok_or(NotObserved::NoEvent)?;
        let series: Series<'_> = written.series.read();
        let value = value(&series, written);
        let change = match self.operation {
            Operation::Create => EventDifference::new(written, metadata),
            Operation::Update => {
                let old = self.old_object.ok_or(NotObserved::NoEvent)?;
                let old_metadata = old.metadata.as_ref().ok_or(NotObserved::NoEvent)?;
                EventDifference::between(written, metadata, value, old, old_metadata)
            }
        };
        let last = [series.last_observed_time, written.last_timestamp, written.event_time];
        let last = last.into_iter().find_map(|text| Some((text, time(text)?)));
        let first_seen = match self.operation {
            // Most clients write the same time twice.
            Operation::Create => {
                [written.first_timestamp, written.event_time].into_iter().find_map(|text| match last {
                    Some((same, time)) if same == text => Some(time),
                    _ => time(text),
                })
            }
            Operation::Update => None,
        };
        let last_observed = last.map(|(_, time)| time);
        Ok(Observation {
            operation: self.operation,
            api: self.api,
            user: self.user,
            own: self.user == own_user,
            dry_run: self.dry_run,
            namespace: self.namespace,
            name: name(self.name, metadata),
            generate_name: Cow::Borrowed(metadata.generate_name.as_str()),
            event: view(change.content, change.content_metadata),
            value,
            old_value: change.old_value,
            has_series: !written.series.is_blank(),
            edited: change.edited,
            unchanged: change.unchanged,
            stale: self.stale,
            first_seen,
            last_observed: last_observed.map(|time| clamp_time(time, wall)),
            occurred_at: last_observed.map_or(wall, |time| time.min(wall)),
        })
    }
}

/// Clamps a client's time to [`MAX_AGE`] and [`MAX_CLOCK_LEAD`]. Clients of one Event are counted by its times: a time of
/// next week must not make all later writes look older.
fn clamp_time(time: Timestamp, wall: Timestamp) -> Timestamp {
    let lead = time.duration_since(wall);
    if lead > MAX_CLOCK_LEAD {
        wall.saturating_add(MAX_CLOCK_LEAD).unwrap_or(Timestamp::MAX)
    } else if lead < -MAX_AGE {
        wall.saturating_sub(MAX_AGE).unwrap_or(Timestamp::MIN)
    } else {
        time
    }
}

/// The difference between a write and the stored Event.
struct EventDifference<'r, 'a> {
    /// The Event with the content: the stored one of an UPDATE, because a later note does not change the series.
    content: &'r Event<'a>,
    content_metadata: &'r Metadata<'a>,
    old_value: i64,
    edited: bool,
    unchanged: bool,
}

impl<'r, 'a> EventDifference<'r, 'a> {
    fn new(written: &'r Event<'a>, metadata: &'r Metadata<'a>) -> Self {
        Self { content: written, content_metadata: metadata, old_value: 0, edited: false, unchanged: false }
    }

    fn between(
        written: &'r Event<'a>,
        metadata: &'r Metadata<'a>,
        value: i64,
        old: &'r Event<'a>,
        old_metadata: &'r Metadata<'a>,
    ) -> Self {
        let old_value = self::value(&old.series.read(), old);
        let counted = [
            (written.count, old.count),
            (written.series, old.series),
            (written.last_timestamp, old.last_timestamp),
        ];
        Self {
            content: old,
            content_metadata: old_metadata,
            old_value,
            edited: fields_differ(written, old) || metadata_differs(metadata, old_metadata),
            // A changed value saves the comparison of the fields.
            unchanged: value == old_value
                && counted.iter().all(|(new, old)| new.same(*old, Emptiness::Fields)),
        }
    }
}

/// Whether a field other than `count`, `lastTimestamp`, `message` and `series` differs.
fn fields_differ(written: &Event<'_>, old: &Event<'_>) -> bool {
    let known = [
        (written.involved_object, old.involved_object),
        (written.related, old.related),
        (written.event_type, old.event_type),
        (written.reason, old.reason),
        (written.action, old.action),
        (written.source, old.source),
        (written.reporting_component, old.reporting_component),
        (written.reporting_instance, old.reporting_instance),
        (written.first_timestamp, old.first_timestamp),
        (written.event_time, old.event_time),
    ];
    known.iter().any(|(new, old)| !new.same(*old, Emptiness::Fields))
        || unknown_fields_differ(written, old)
        || unknown_fields_differ(old, written)
}

fn unknown_fields_differ(written: &Event<'_>, old: &Event<'_>) -> bool {
    written.unknown.iter().any(|(key, value)| {
        let other = old.unknown.iter().rfind(|(other, _)| other == key).map(|(_, value)| *value);
        !value.same(other.unwrap_or_default(), Emptiness::Fields)
    })
}

fn metadata_differs(written: &Metadata<'_>, old: &Metadata<'_>) -> bool {
    !(written.labels.same(old.labels, Emptiness::Keys)
        && written.annotations.same(old.annotations, Emptiness::Keys)
        && written.owner_references.same(old.owner_references, Emptiness::Fields)
        && written.finalizers.same(old.finalizers, Emptiness::Fields))
}

fn name<'r>(request_name: &'r str, metadata: &'r Metadata<'_>) -> Option<Cow<'r, str>> {
    let names = [request_name, metadata.name.as_str()];
    names.into_iter().find(|name| !name.is_empty()).map(Cow::Borrowed)
}

/// Returns the larger of `series.count` and `count`, clamped to 1..=`i32::MAX`; 1 without either. An Event has both if one
/// client counts in `count` and another in `series`.
fn value(series: &Series<'_>, event: &Event<'_>) -> i64 {
    let value = series.count.integer().max(event.count.integer()).unwrap_or(1);
    value.clamp(1, i64::from(i32::MAX))
}

fn time(raw: Raw<'_>) -> Option<Timestamp> {
    if raw.is_blank() { None } else { raw.text().parse().ok() }
}

fn view<'a>(event: &Event<'a>, metadata: &Metadata<'a>) -> EventView<'a> {
    let source: Source<'a> = event.source.read();
    EventView {
        regarding: reference(event.involved_object.read()),
        related: (!event.related.is_blank()).then(|| reference(event.related.read())),
        event_type: event.event_type.text(),
        reason: event.reason.text(),
        action: event.action.text(),
        message: event.message.text(),
        reporting_component: event.reporting_component.text(),
        reporting_instance: event.reporting_instance.text(),
        source_component: source.component.0,
        source_host: source.host.0,
        first_timestamp: event.first_timestamp.text(),
        event_time: event.event_time.text(),
        labels: map(metadata.labels),
        annotations: map(metadata.annotations),
    }
}

fn map(raw: Raw<'_>) -> &str {
    if raw.is_blank() { "" } else { raw.json() }
}

fn reference(wire: Reference<'_>) -> ObjectReference<'_> {
    ObjectReference {
        api_version: wire.api_version.0,
        kind: wire.kind.0,
        namespace: wire.namespace.0,
        name: wire.name.0,
        uid: wire.uid.0,
        field_path: wire.field_path.0,
    }
}

#[cfg(test)]
mod tests;
