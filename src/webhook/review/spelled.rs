//! An Event as clients and files spell it, in either API, read as the webhook is shown it: as a core/v1 Event.
//!
//! The API server converts before it asks. Both APIs have the same fields under other names, so that to convert
//! is to read them under their own.

use std::borrow::Cow;

use squelch_engine::Api;

use super::json::{Raw, Text, object};
use super::reader::{self, Malformed};
use super::wire::{Event, Metadata, unknown};

/// An Event, and the API in which it was spelled.
#[derive(Debug)]
pub struct Spelled<'a> {
    /// As core/v1 has it.
    pub event: Event<'a>,
    /// What its `apiVersion` said.
    pub api: Api,
}

/// Why a text is no Event.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// Not JSON, or of another shape.
    #[error(transparent)]
    Json(#[from] Malformed),
    /// It says of itself that it is something else.
    #[error("it is of kind {kind:?} and apiVersion {api_version:?}")]
    NoEvent {
        /// `kind`.
        kind: String,
        /// `apiVersion`.
        api_version: String,
    },
    /// There is no `metadata`.
    #[error("it has no metadata")]
    NoMetadata,
}

impl<'a> Spelled<'a> {
    /// Reads the JSON of an Event. One that does not say its `apiVersion` is of the API `unless_said`.
    pub fn read(json: &'a str, unless_said: Option<Api>) -> Result<Self, Unreadable> {
        reader::read::<AnyEvent<'a>>(json)?.spelled(unless_said)
    }
}

/// An Event of either API, read in one go: which one it is stands anywhere in it.
#[derive(Debug, Default)]
struct AnyEvent<'a> {
    api_version: Text<'a>,
    kind: Text<'a>,
    metadata: Option<Metadata<'a>>,
    related: Raw<'a>,
    event_type: Raw<'a>,
    reason: Raw<'a>,
    action: Raw<'a>,
    reporting_instance: Raw<'a>,
    event_time: Raw<'a>,
    series: Raw<'a>,
    involved_object: Raw<'a>,
    message: Raw<'a>,
    source: Raw<'a>,
    reporting_component: Raw<'a>,
    first_timestamp: Raw<'a>,
    last_timestamp: Raw<'a>,
    count: Raw<'a>,
    regarding: Raw<'a>,
    note: Raw<'a>,
    deprecated_source: Raw<'a>,
    reporting_controller: Raw<'a>,
    deprecated_first_timestamp: Raw<'a>,
    deprecated_last_timestamp: Raw<'a>,
    deprecated_count: Raw<'a>,
    unknown: Vec<(Cow<'a, str>, Raw<'a>)>,
}
object!(AnyEvent {
    "apiVersion" => api_version,
    "kind" => kind,
    "metadata" => metadata,
    "related" => related,
    "type" => event_type,
    "reason" => reason,
    "action" => action,
    "reportingInstance" => reporting_instance,
    "eventTime" => event_time,
    "series" => series,
    "involvedObject" => involved_object,
    "message" => message,
    "source" => source,
    "reportingComponent" => reporting_component,
    "firstTimestamp" => first_timestamp,
    "lastTimestamp" => last_timestamp,
    "count" => count,
    "regarding" => regarding,
    "note" => note,
    "deprecatedSource" => deprecated_source,
    "reportingController" => reporting_controller,
    "deprecatedFirstTimestamp" => deprecated_first_timestamp,
    "deprecatedLastTimestamp" => deprecated_last_timestamp,
    "deprecatedCount" => deprecated_count,
} else |event, key, reader| { unknown(&mut event.unknown, key, reader) });

impl<'a> AnyEvent<'a> {
    fn spelled(self, unless_said: Option<Api>) -> Result<Spelled<'a>, Unreadable> {
        let api = match self.api_version.as_str() {
            "v1" => Some(Api::Core),
            "events.k8s.io/v1" | "events.k8s.io/v1beta1" => Some(Api::Events),
            "" => unless_said,
            _ => None,
        };
        let Some(api) = api.filter(|_| matches!(self.kind.as_str(), "Event" | "")) else {
            let (kind, api_version) = (self.kind.0.into_owned(), self.api_version.0.into_owned());
            return Err(Unreadable::NoEvent { kind, api_version });
        };
        let event = self.of(api);
        if event.metadata.is_none() {
            return Err(Unreadable::NoMetadata);
        }
        Ok(Spelled { event, api })
    }

    /// As core/v1 has it, given in which API it was spelled. To that one the other's fields are unknown.
    fn of(self, api: Api) -> Event<'a> {
        // kubernetes/pkg/apis/events/v1/conversion.go
        let pairs = [
            ("involvedObject", self.involved_object, "regarding", self.regarding),
            ("message", self.message, "note", self.note),
            ("source", self.source, "deprecatedSource", self.deprecated_source),
            (
                "reportingComponent",
                self.reporting_component,
                "reportingController",
                self.reporting_controller,
            ),
            (
                "firstTimestamp",
                self.first_timestamp,
                "deprecatedFirstTimestamp",
                self.deprecated_first_timestamp,
            ),
            ("lastTimestamp", self.last_timestamp, "deprecatedLastTimestamp", self.deprecated_last_timestamp),
            ("count", self.count, "deprecatedCount", self.deprecated_count),
        ];
        let mut unknown = self.unknown;
        let its = pairs.map(|(core_name, core, new_name, new)| {
            let (its, other_name, other) = match api {
                Api::Core => (core, new_name, new),
                Api::Events => (new, core_name, core),
            };
            if !other.is_absent() {
                unknown.push((Cow::Borrowed(other_name), other));
            }
            its
        });
        let [involved_object, message, source, reporting_component, first_timestamp, last_timestamp, count] =
            its;
        Event {
            metadata: self.metadata,
            involved_object,
            related: self.related,
            event_type: self.event_type,
            reason: self.reason,
            action: self.action,
            message,
            source,
            reporting_component,
            reporting_instance: self.reporting_instance,
            first_timestamp,
            last_timestamp,
            event_time: self.event_time,
            count,
            series: self.series,
            unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::{Value, json};
    use squelch_engine::{Observation, Operation};

    use super::super::Write;
    use super::*;

    fn observed<T>(
        object: &str,
        old_object: Option<&str>,
        check: impl FnOnce(&Observation<'_>, Api) -> T,
    ) -> T {
        let written = Spelled::read(object, None).unwrap();
        let old = old_object.map(|old| Spelled::read(old, None).unwrap());
        let write = Write {
            operation: if old.is_some() { Operation::Update } else { Operation::Create },
            api: written.api,
            user: "u",
            dry_run: false,
            namespace: "shop",
            name: "",
            object: &written.event,
            old_object: old.as_ref().map(|old| &old.event),
            stale: false,
        };
        check(&write.observe("squelch", Timestamp::UNIX_EPOCH).unwrap(), written.api)
    }

    /// The same Event in the words of events.k8s.io.
    fn reworded(core: &Value) -> Value {
        let mut new = core.as_object().unwrap().clone();
        for (from, to) in [
            ("message", "note"),
            ("involvedObject", "regarding"),
            ("reportingComponent", "reportingController"),
            ("count", "deprecatedCount"),
            ("firstTimestamp", "deprecatedFirstTimestamp"),
            ("lastTimestamp", "deprecatedLastTimestamp"),
            ("source", "deprecatedSource"),
        ] {
            if let Some(value) = new.remove(from) {
                new.insert(to.to_owned(), value);
            }
        }
        new.insert("apiVersion".to_owned(), json!("events.k8s.io/v1"));
        Value::Object(new)
    }

    #[test]
    fn both_apis_say_the_same_in_other_words() {
        for review in [
            include_str!("../testdata/core_create.json"),
            include_str!("../testdata/core_update.json"),
            include_str!("../testdata/events_create.json"),
            include_str!("../testdata/events_update.json"),
        ] {
            let review: Value = serde_json::from_str(review).unwrap();
            let (object, old) = (&review["request"]["object"], &review["request"]["oldObject"]);
            let seen = |object: &Value, old: Option<&Value>, expected: Api| {
                let old = old.map(Value::to_string);
                observed(&object.to_string(), old.as_deref(), |seen, api| {
                    assert_eq!(api, expected);
                    format!("{:?}", Observation { api: Api::Core, ..seen.clone() })
                })
            };
            let old = (!old.is_null()).then_some(old);
            let old_reworded = old.map(reworded);
            assert_eq!(
                seen(object, old, Api::Core),
                seen(&reworded(object), old_reworded.as_ref(), Api::Events)
            );
        }
    }

    #[test]
    fn a_field_of_the_other_api_is_no_field_of_this_one() {
        let core = json!({"apiVersion": "v1", "metadata": {}, "message": "m", "note": "n"}).to_string();
        observed(&core, None, |seen, _| assert_eq!(seen.event.message, "m"));
        let new = reworded(&json!({"metadata": {}, "message": "m"}));
        let mut other = new.clone();
        other["message"] = json!("x");
        observed(&other.to_string(), Some(&new.to_string()), |seen, _| {
            assert_eq!(seen.event.message, "m");
            assert!(seen.edited, "a field that this API does not know has changed");
        });
    }

    #[test]
    fn the_namespace_is_its_own_or_that_of_what_it_is_about() {
        for (event, namespace) in [
            (json!({"metadata": {"namespace": "a"}, "involvedObject": {"namespace": "b"}}), "a"),
            (json!({"metadata": {}, "involvedObject": {"namespace": "b"}}), "b"),
            (json!({"metadata": {}, "involvedObject": {"kind": "Node"}}), "default"),
        ] {
            let text = event.to_string();
            assert_eq!(Spelled::read(&text, Some(Api::Core)).unwrap().event.namespace(), namespace);
        }
    }

    #[test]
    fn what_is_no_event_says_what_it_is() {
        let refused = |json: &str, unless_said| Spelled::read(json, unless_said).unwrap_err().to_string();
        let pod = r#"{"kind":"Pod","apiVersion":"v1","metadata":{}}"#;
        assert_eq!(refused(pod, None), r#"it is of kind "Pod" and apiVersion "v1""#);
        let nothing = r#"{"metadata":{}}"#;
        assert_eq!(refused(nothing, None), r#"it is of kind "" and apiVersion """#);
        assert_eq!(Spelled::read(nothing, Some(Api::Events)).unwrap().api, Api::Events);
        assert_eq!(refused(r#"{"apiVersion":"v1"}"#, None), "it has no metadata");
        assert_eq!(refused("{", None), "a key expected at line 1 column 2");
    }
}
