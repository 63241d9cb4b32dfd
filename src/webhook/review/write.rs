//! From one write of an Event to the observation for the engine.

use std::borrow::Cow;

use jiff::{SignedDuration, Timestamp};
use squelch_engine::{Api, EventView, ObjectReference, Observation, Operation};

use super::difference::EventDifference;
use super::wire::{Event, EventSeries, Metadata, Reference, Source};
use super::{NotObserved, Raw};

/// Maximum lead of a client's clock over squelch's. Later times are clamped to it.
const MAX_CLOCK_LEAD: SignedDuration = SignedDuration::from_secs(10);

/// Maximum age of a last observed time, and the time for which the engine keeps names. Earlier times are clamped to it.
const MAX_AGE: SignedDuration = SignedDuration::from_hours(24);

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
        let series: EventSeries<'_> = written.series.read();
        let value = value(&series, written);
        let change = match self.operation {
            Operation::Create => EventDifference::new(written, metadata),
            Operation::Update => {
                let old = self.old_object.ok_or(NotObserved::NoEvent)?;
                let old_metadata = old.metadata.as_ref().ok_or(NotObserved::NoEvent)?;
                EventDifference::between(written, metadata, value, old, old_metadata)
            }
        };
        let parsed = |text| Some((text, time(text)?));
        // The later one: a client that counts in `lastTimestamp` may leave a series that another one has written.
        let last = [series.last_observed_time, written.last_timestamp].into_iter().filter_map(parsed);
        let last = last.reduce(|latest, other| if other.1 > latest.1 { other } else { latest });
        let last = last.or_else(|| parsed(written.event_time));
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

fn name<'r>(request_name: &'r str, metadata: &'r Metadata<'_>) -> Option<Cow<'r, str>> {
    let names = [request_name, metadata.name.as_str()];
    names.into_iter().find(|name| !name.is_empty()).map(Cow::Borrowed)
}

/// Returns the larger of `series.count` and `count`, clamped to 1..=`i32::MAX`; 1 without either. An Event has both if one
/// client counts in `count` and another in `series`.
pub(super) fn value(series: &EventSeries<'_>, event: &Event<'_>) -> i64 {
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
