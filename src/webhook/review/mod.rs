//! Bytes of an AdmissionReview -> [`Review`] -> [`Observation`].
//!
//! Nothing that a tenant can send through the API server fails here; what does is no review of an Event.
//! [`Write`] is the part behind the envelope: whoever has an Event from elsewhere is told the same of it.

mod json;
mod reader;
mod scan;
mod spelled;
mod wire;

use std::borrow::Cow;

use jiff::{SignedDuration, Timestamp};
use simdutf8::compat::{Utf8Error, from_utf8};
use squelch_engine::{Api, EventView, ObjectReference, Observation, Operation, is_namespace_name};

use self::json::Emptiness;
use self::wire::{Metadata, Reference, Request, Series, Source};

pub(super) use self::json::Raw;
pub use self::reader::Malformed;
pub(super) use self::scan::{Asked, scan};
pub use self::spelled::{Spelled, Unreadable};
pub use self::wire::Event;

/// How far the clock of a client may be ahead of squelch's: a later time counts as one this far ahead.
const MOST_AHEAD: SignedDuration = SignedDuration::from_secs(10);

/// An earlier time counts as this long ago: names are remembered for that long.
const OLDEST_OBSERVED: SignedDuration = SignedDuration::from_hours(24);

/// The version of the AdmissionReview, which its answer must repeat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// `admission.k8s.io/v1`, and whatever else asks: it is the only one that squelch's rules name.
    #[default]
    V1,
    /// `admission.k8s.io/v1beta1`: allowed, unread.
    V1Beta1,
}

impl Version {
    fn of(api_version: &str) -> Self {
        if api_version == "admission.k8s.io/v1beta1" { Self::V1Beta1 } else { Self::V1 }
    }

    /// As `apiVersion` says it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "admission.k8s.io/v1",
            Self::V1Beta1 => "admission.k8s.io/v1beta1",
        }
    }
}

/// Why bytes are no review.
#[derive(Debug, thiserror::Error)]
pub enum Undecodable {
    /// Not UTF-8.
    #[error("not UTF-8")]
    Utf8(#[from] Utf8Error),
    /// Not JSON, or not of the shape of an AdmissionReview.
    #[error("no AdmissionReview: {0}")]
    Json(#[from] Malformed),
    /// There is no `request` in it.
    #[error("an AdmissionReview without a request")]
    NoRequest,
}

/// Why a review holds no write of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unobserved {
    /// Not a CREATE or UPDATE of a core/v1 Event asked in `admission.k8s.io/v1`: nothing that squelch's rules ask
    /// for.
    NotConcerned,
    /// The Event that it should hold is missing.
    NoEvent,
    /// No namespace can have the name that it gives: the API server has not sent it.
    NoNamespace,
}

/// A decoded review; borrows from its bytes.
#[derive(Debug)]
pub struct Review<'a> {
    version: Version,
    request: Request<'a>,
}

/// Reads a review; copies only strings that hold escapes.
pub fn decode(bytes: &[u8]) -> Result<Review<'_>, Undecodable> {
    let envelope: wire::Envelope<'_> = reader::read(from_utf8(bytes)?)?;
    let request = envelope.request.ok_or(Undecodable::NoRequest)?;
    Ok(Review { version: Version::of(envelope.api_version.as_str()), request })
}

impl<'a> Review<'a> {
    /// The version to answer in.
    pub fn version(&self) -> Version {
        self.version
    }

    /// `request.uid`, which the answer must repeat.
    pub fn uid(&self) -> &str {
        self.request.uid.as_str()
    }

    /// CREATE or UPDATE; `None` for any other.
    pub fn operation(&self) -> Option<Operation> {
        match self.request.operation.as_str() {
            "CREATE" => Some(Operation::Create),
            "UPDATE" => Some(Operation::Update),
            _ => None,
        }
    }

    /// The API that the client used; `None` for a group that has no Events.
    pub fn api(&self) -> Option<Api> {
        match self.request.request_kind.group.as_str() {
            "" => Some(Api::Core),
            "events.k8s.io" => Some(Api::Events),
            _ => None,
        }
    }

    /// The written Event and the one before it, for a patch that restores; `None` unless both are there.
    pub(super) fn written_and_old(&self) -> Option<(&Event<'a>, &Event<'a>)> {
        Some((self.request.object.as_deref()?, self.request.old_object.as_deref()?))
    }

    /// See [`Observation::stale`].
    fn is_stale(&self, operation: Operation) -> bool {
        operation == Operation::Update
            && self.written_and_old().is_some_and(|(written, old)| written.is_stale_over(old))
    }

    /// What the engine is told. `own_user` is the user of squelch's own writes; `wall` the time of receipt.
    pub fn observe(&self, own_user: &str, wall: Timestamp) -> Result<Observation<'_>, Unobserved> {
        let request = &self.request;
        let (Some(operation), Some(api)) = (self.operation(), self.api()) else {
            return Err(Unobserved::NotConcerned);
        };
        let is_event = request.kind.group.as_str().is_empty() && request.kind.kind.as_str() == "Event";
        if self.version != Version::V1 || !is_event || !request.subresource.as_str().is_empty() {
            return Err(Unobserved::NotConcerned);
        }
        if !is_namespace_name(request.namespace.as_str()) {
            return Err(Unobserved::NoNamespace);
        }
        let write = Write {
            operation,
            api,
            user: request.user.name.as_str(),
            dry_run: request.dry_run.unwrap_or(false),
            namespace: request.namespace.as_str(),
            name: request.name.as_str(),
            object: request.object.as_deref().ok_or(Unobserved::NoEvent)?,
            old_object: request.old_object.as_deref(),
            stale: self.is_stale(operation),
        };
        write.observe(own_user, wall)
    }
}

/// One write of an Event, whatever told of it.
#[derive(Clone, Copy, Debug)]
pub struct Write<'r> {
    /// CREATE or UPDATE.
    pub operation: Operation,
    /// The API that the client used.
    pub api: Api,
    /// Who wrote.
    pub user: &'r str,
    /// Nothing will be stored.
    pub dry_run: bool,
    /// The Event's namespace.
    pub namespace: &'r str,
    /// The Event's name, where it is known beside `object`; else empty.
    pub name: &'r str,
    /// The Event as written.
    pub object: &'r Event<'r>,
    /// The Event as it was stored, of an UPDATE.
    pub old_object: Option<&'r Event<'r>>,
    /// See [`Observation::stale`]. Only a review says: what has been stored has a resourceVersion of its own.
    pub stale: bool,
}

impl<'r> Write<'r> {
    /// What the engine is told. `own_user` is the user of squelch's own writes; `wall` the time of receipt.
    pub fn observe(&self, own_user: &str, wall: Timestamp) -> Result<Observation<'r>, Unobserved> {
        let written = self.object;
        let metadata = written.metadata.as_ref().ok_or(Unobserved::NoEvent)?;
        let series: Series<'_> = written.series.read();
        let value = value(&series, written);
        let change = match self.operation {
            Operation::Create => Change::new(written, metadata),
            Operation::Update => {
                let old = self.old_object.ok_or(Unobserved::NoEvent)?;
                let old_metadata = old.metadata.as_ref().ok_or(Unobserved::NoEvent)?;
                Change::between(written, metadata, value, old, old_metadata)
            }
        };
        let last_observed = [series.last_observed_time, written.last_timestamp, written.event_time];
        let last_observed = last_observed.into_iter().find_map(time);
        Ok(Observation {
            operation: self.operation,
            api: self.api,
            user: self.user,
            own: self.user == own_user,
            dry_run: self.dry_run,
            namespace: self.namespace,
            name: name(self.name, metadata),
            generate_name: Cow::Borrowed(metadata.generate_name.as_str()),
            event: view(change.told, change.told_metadata),
            value,
            old_value: change.old_value,
            has_series: !written.series.is_blank(),
            edited: change.edited,
            unchanged: change.unchanged,
            stale: self.stale,
            first_seen: time(written.first_timestamp).or_else(|| time(written.event_time)),
            last_observed: last_observed.map(|told| plausible(told, wall)),
            occurred_at: last_observed.map_or(wall, |told| told.min(wall)),
        })
    }
}

/// A time that a client claims, as far as it can be true. Another user's Event is counted by its times too: a time of
/// next week must not make all that follow look older, nor one that is older than names are remembered.
fn plausible(told: Timestamp, wall: Timestamp) -> Timestamp {
    let earliest = wall.saturating_sub(OLDEST_OBSERVED).unwrap_or(Timestamp::MIN);
    let latest = wall.saturating_add(MOST_AHEAD).unwrap_or(Timestamp::MAX);
    told.clamp(earliest, latest)
}

/// How a write differs from what is stored.
struct Change<'r, 'a> {
    /// The Event that says what it tells: a later note does not change what a series is about.
    told: &'r Event<'a>,
    told_metadata: &'r Metadata<'a>,
    old_value: i64,
    edited: bool,
    unchanged: bool,
}

impl<'r, 'a> Change<'r, 'a> {
    fn new(written: &'r Event<'a>, metadata: &'r Metadata<'a>) -> Self {
        Self { told: written, told_metadata: metadata, old_value: 0, edited: false, unchanged: false }
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
            told: old,
            told_metadata: old_metadata,
            old_value,
            edited: differ(written, old) || metadata_differs(metadata, old_metadata),
            // A number that has changed spares looking into what gives it.
            unchanged: value == old_value
                && counted.iter().all(|(new, old)| new.same(*old, Emptiness::Fields)),
        }
    }
}

/// A field of the Event other than `count`, `lastTimestamp`, `message`, `series` differs.
fn differ(written: &Event<'_>, old: &Event<'_>) -> bool {
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
        || unknown_differ(written, old)
        || unknown_differ(old, written)
}

fn unknown_differ(written: &Event<'_>, old: &Event<'_>) -> bool {
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

fn name<'r>(told: &'r str, metadata: &'r Metadata<'_>) -> Option<Cow<'r, str>> {
    let names = [told, metadata.name.as_str()];
    names.into_iter().find(|name| !name.is_empty()).map(Cow::Borrowed)
}

/// `series.count`, else `count`, else 1; at least 1, at most `i32::MAX`.
fn value(series: &Series<'_>, event: &Event<'_>) -> i64 {
    let told = series.count.integer().or_else(|| event.count.integer()).unwrap_or(1);
    told.clamp(1, i64::from(i32::MAX))
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
