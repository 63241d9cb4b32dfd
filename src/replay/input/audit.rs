//! A Kubernetes audit log, from which Event writes are reconstructed.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;
use squelch_engine::{Api, Moment, Operation};

use super::last_seen::LastSeen;
use super::{Entries, EntryError, EntryFailure, InputStats, LeftOut, time};
use crate::replay::WriteSink;
use crate::webhook::review::{ParsedEvent, Write};

/// The largest step back in time. The log has the order of the answers, so entries may be slightly out of order; a
/// larger step means that files are concatenated in the wrong order.
const OUT_OF_ORDER: std::time::Duration = std::time::Duration::from_secs(600);

/// The fields of an `audit.k8s.io/v1` Event that a replay needs.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AuditEntry<'a> {
    #[serde(borrow, default)]
    api_version: Cow<'a, str>,
    #[serde(borrow, default)]
    stage: Cow<'a, str>,
    #[serde(borrow, default)]
    verb: Cow<'a, str>,
    #[serde(borrow, default, rename = "requestURI")]
    request_uri: Cow<'a, str>,
    #[serde(borrow)]
    user: Option<User<'a>>,
    #[serde(borrow)]
    impersonated_user: Option<User<'a>>,
    #[serde(borrow)]
    object_ref: Option<ObjectRef<'a>>,
    #[serde(borrow)]
    response_status: Option<Status<'a>>,
    #[serde(borrow)]
    request_object: Option<&'a RawValue>,
    #[serde(borrow)]
    response_object: Option<&'a RawValue>,
    request_received_timestamp: Option<Timestamp>,
    stage_timestamp: Option<Timestamp>,
}

#[derive(Debug, Deserialize)]
struct User<'a> {
    #[serde(borrow, default)]
    username: Cow<'a, str>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ObjectRef<'a> {
    #[serde(borrow, default)]
    resource: Cow<'a, str>,
    #[serde(borrow, default)]
    subresource: Cow<'a, str>,
    #[serde(borrow, default)]
    api_group: Cow<'a, str>,
    #[serde(borrow, default)]
    namespace: Cow<'a, str>,
    #[serde(borrow, default)]
    name: Cow<'a, str>,
}

#[derive(Debug, Deserialize)]
struct Status<'a> {
    code: Option<u16>,
    #[serde(borrow, default)]
    message: Cow<'a, str>,
}

/// Reads an audit log.
#[derive(Debug, Default)]
pub(super) struct Audit {
    last: Moment,
    last_seen: LastSeen,
}

/// A request that wrote an Event.
struct RecordedRequest<'r, 'a> {
    entry: &'r AuditEntry<'a>,
    api: Api,
    namespace: String,
    name: String,
    operation: Operation,
    /// The Event as it was written.
    object: &'a RawValue,
}

impl Entries for Audit {
    type Entry<'a> = AuditEntry<'a>;
    // The old object depends on earlier entries, so no entry is observed alone.
    type Observed<'r> = ();

    fn read(text: &str) -> Result<AuditEntry<'_>, EntryError> {
        let entry: AuditEntry<'_> = serde_json::from_str(text).map_err(|error| EntryError::json(&error))?;
        if !entry.api_version.starts_with("audit.k8s.io/") {
            return Err(EntryError::new(
                "the line is not an audit log entry: its apiVersion is not audit.k8s.io/v1",
            ));
        }
        Ok(entry)
    }

    fn observe(_: &AuditEntry<'_>, _: &str) -> Result<(), EntryError> {
        Ok(())
    }

    fn replay(
        &mut self,
        entry: &AuditEntry<'_>,
        (): (),
        sink: &mut dyn WriteSink,
        stats: &mut InputStats,
    ) -> Result<(), EntryFailure> {
        let found = self.request(entry)?;
        match found {
            Ok(request) => self.write(&request, sink, stats),
            Err(reason) => {
                stats.leave_out(reason);
                Ok(())
            }
        }
    }
}

impl Audit {
    /// Returns the write of a request, or why there is none.
    fn request<'r, 'a>(
        &mut self,
        entry: &'r AuditEntry<'a>,
    ) -> Result<Result<RecordedRequest<'r, 'a>, LeftOut>, EntryError> {
        let Some((api, namespace, name)) = event(entry) else { return Ok(Err(LeftOut::OtherResource)) };
        if entry.stage != "ResponseComplete" {
            return Ok(Err(LeftOut::OtherStage));
        }
        let code = entry.response_status.as_ref().and_then(|status| status.code);
        if !code.is_some_and(|code| (200..300).contains(&code)) {
            let message = entry.response_status.as_ref().map_or("", |status| &status.message);
            let by_squelch = message.contains("events.squelch.dev");
            return Ok(Err(if by_squelch { LeftOut::RefusedBySquelch } else { LeftOut::Failed }));
        }
        let operation = match &*entry.verb {
            "create" => Operation::Create,
            // Server-side apply has created the Event.
            "patch" if code == Some(201) => Operation::Create,
            "update" | "patch" => Operation::Update,
            "delete" => {
                self.last_seen.remove(&namespace, &name);
                return Ok(Err(LeftOut::NoWrite));
            }
            _ => return Ok(Err(LeftOut::NoWrite)),
        };
        let object = if entry.verb == "patch" { entry.response_object } else { entry.request_object };
        let Some(object) = object else { return Ok(Err(LeftOut::NoBody)) };
        Ok(Ok(RecordedRequest { entry, api, namespace, name, operation, object }))
    }

    fn write(
        &mut self,
        request: &RecordedRequest<'_, '_>,
        sink: &mut dyn WriteSink,
        stats: &mut InputStats,
    ) -> Result<(), EntryFailure> {
        let RecordedRequest { entry, api, namespace, name, operation, object } = request;
        let (now, wall) = self.moment(entry)?;
        let written = event_of(object, *api)?;
        let dry_run = entry.request_uri.contains("dryRun=All");
        let old_json = match operation {
            Operation::Create => None,
            Operation::Update => self.last_seen.event(namespace, name),
        };
        if *operation == Operation::Update && old_json.is_none() {
            stats.leave_out(LeftOut::NoOldObject);
        } else {
            let old_object = old_json
                .map(|old| ParsedEvent::parse(old, Some(*api)).map_err(|error| no_event(&error)))
                .transpose()?;
            let user = entry.impersonated_user.as_ref().or(entry.user.as_ref());
            let write = Write {
                operation: *operation,
                api: *api,
                user: user.map_or("", |user| &user.username),
                dry_run,
                namespace,
                name,
                object: &written.event,
                old_object: old_object.as_ref().map(|old| &old.event),
                stale: false,
            };
            let observation = write.observe(sink.own_user(), wall);
            let observation = observation.map_err(|_| EntryError::new("the Event has no metadata"))?;
            sink.write(now, &observation, object.get().len() as u64)?;
        }
        if !dry_run {
            self.remember(request);
        }
        Ok(())
    }

    /// Stores the Event as it is stored now. The response has it, with the name that the API server generated.
    fn remember(&mut self, request: &RecordedRequest<'_, '_>) {
        let stored = request.entry.response_object.unwrap_or(request.object);
        let Ok(event) = ParsedEvent::parse(stored.get(), Some(request.api)) else { return };
        let name = if request.name.is_empty() { event.event.name() } else { &request.name };
        if !name.is_empty() {
            self.last_seen.insert(&request.namespace, name, stored.get());
        }
    }

    /// Returns the time of the answer, but never a time before the previous entry's.
    fn moment(&mut self, entry: &AuditEntry<'_>) -> Result<(Moment, Timestamp), EntryError> {
        let wall = entry.stage_timestamp.or(entry.request_received_timestamp);
        let found = wall.and_then(|wall| Some((time::of(wall)?, wall)));
        let (now, wall) = found
            .ok_or_else(|| EntryError::new("neither stageTimestamp nor requestReceivedTimestamp is set"))?;
        if self.last.since(now) > OUT_OF_ORDER {
            return Err(EntryError::new(format!(
                "the time goes back to {wall}; concatenate the files of a rotated log oldest first"
            )));
        }
        self.last = self.last.max(now);
        Ok((self.last, wall))
    }
}

/// Returns which Event a request is about, if it is about one.
fn event(entry: &AuditEntry<'_>) -> Option<(Api, String, String)> {
    let about = entry.object_ref.as_ref()?;
    let api = match &*about.api_group {
        "" => Api::Core,
        "events.k8s.io" => Api::Events,
        _ => return None,
    };
    let is_event = about.resource == "events" && about.subresource.is_empty();
    is_event.then(|| (api, about.namespace.to_string(), about.name.to_string()))
}

fn event_of(json: &RawValue, api: Api) -> Result<ParsedEvent<'_>, EntryError> {
    ParsedEvent::parse(json.get(), Some(api)).map_err(|error| no_event(&error))
}

fn no_event(error: &crate::webhook::review::ParseError) -> EntryError {
    EntryError::new(format!("the written object is not an Event of v1 or events.k8s.io/v1: {error}"))
}
