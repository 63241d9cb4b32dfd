//! Parses an Event of either API into the core/v1 Event that the webhook receives.
//!
//! The API server converts an Event before it calls the webhook. Both APIs have the same fields under different names.

use std::borrow::Cow;

use squelch_engine::Api;

use super::json::{Raw, Text, object};
use super::reader::{self, Malformed};
use super::wire::{Event, Metadata, unknown};

/// An Event and the API of its JSON.
#[derive(Debug)]
pub struct ParsedEvent<'a> {
    /// The Event, converted to core/v1.
    pub event: Event<'a>,
    /// The API of its `apiVersion`.
    pub api: Api,
}

/// The reason why a text is no Event.
#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    /// Not the JSON of an Event.
    #[error(transparent)]
    Json(#[from] Malformed),
    /// Another kind of object.
    #[error("kind {kind:?}, apiVersion {api_version:?}")]
    NoEvent {
        /// `kind`.
        kind: String,
        /// `apiVersion`.
        api_version: String,
    },
    /// No `metadata`.
    #[error("no metadata")]
    NoMetadata,
}

impl<'a> ParsedEvent<'a> {
    /// Parses the JSON of an Event. Without an `apiVersion` it is of `default_api`.
    pub fn parse(json: &'a str, default_api: Option<Api>) -> Result<Self, ParseError> {
        reader::read::<AnyEvent<'a>>(json)?.convert(default_api)
    }
}

/// The fields of both APIs. `apiVersion` may follow them, so all are read first.
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
    fn convert(self, default_api: Option<Api>) -> Result<ParsedEvent<'a>, ParseError> {
        let api = match self.api_version.as_str() {
            "v1" => Some(Api::Core),
            "events.k8s.io/v1" | "events.k8s.io/v1beta1" => Some(Api::Events),
            "" => default_api,
            _ => None,
        };
        let Some(api) = api.filter(|_| matches!(self.kind.as_str(), "Event" | "")) else {
            let (kind, api_version) = (self.kind.0.into_owned(), self.api_version.0.into_owned());
            return Err(ParseError::NoEvent { kind, api_version });
        };
        let event = self.into_core(api);
        if event.metadata.is_none() {
            return Err(ParseError::NoMetadata);
        }
        Ok(ParsedEvent { event, api })
    }

    /// Converts to core/v1 from `api`. Fields of the other API are unknown fields.
    fn into_core(self, api: Api) -> Event<'a> {
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
        let fields = pairs.map(|(core_name, core, new_name, new)| {
            let (own, other_name, other) = match api {
                Api::Core => (core, new_name, new),
                Api::Events => (new, core_name, core),
            };
            if !other.is_absent() {
                unknown.push((Cow::Borrowed(other_name), other));
            }
            own
        });
        let [involved_object, message, source, reporting_component, first_timestamp, last_timestamp, count] =
            fields;
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
        let written = ParsedEvent::parse(object, None).unwrap();
        let old = old_object.map(|old| ParsedEvent::parse(old, None).unwrap());
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

    /// The same Event with the field names of events.k8s.io.
    fn converted(core: &Value) -> Value {
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
    fn an_event_of_either_api_has_the_same_observation() {
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
            let old_converted = old.map(converted);
            assert_eq!(
                seen(object, old, Api::Core),
                seen(&converted(object), old_converted.as_ref(), Api::Events)
            );
        }
    }

    #[test]
    fn a_field_of_the_other_api_is_unknown() {
        let core = json!({"apiVersion": "v1", "metadata": {}, "message": "m", "note": "n"}).to_string();
        observed(&core, None, |seen, _| assert_eq!(seen.event.message, "m"));
        let new = converted(&json!({"metadata": {}, "message": "m"}));
        let mut other = new.clone();
        other["message"] = json!("x");
        observed(&other.to_string(), Some(&new.to_string()), |seen, _| {
            assert_eq!(seen.event.message, "m");
            assert!(seen.edited, "an unknown field has changed");
        });
    }

    #[test]
    fn the_namespace_is_from_metadata_or_the_involved_object() {
        for (event, namespace) in [
            (json!({"metadata": {"namespace": "a"}, "involvedObject": {"namespace": "b"}}), "a"),
            (json!({"metadata": {}, "involvedObject": {"namespace": "b"}}), "b"),
            (json!({"metadata": {}, "involvedObject": {"kind": "Node"}}), "default"),
        ] {
            let text = event.to_string();
            assert_eq!(ParsedEvent::parse(&text, Some(Api::Core)).unwrap().event.namespace(), namespace);
        }
    }

    #[test]
    fn the_error_names_the_kind_of_another_object() {
        let error = |json: &str, default_api| ParsedEvent::parse(json, default_api).unwrap_err().to_string();
        let pod = r#"{"kind":"Pod","apiVersion":"v1","metadata":{}}"#;
        assert_eq!(error(pod, None), r#"kind "Pod", apiVersion "v1""#);
        let nothing = r#"{"metadata":{}}"#;
        assert_eq!(error(nothing, None), r#"kind "", apiVersion """#);
        assert_eq!(ParsedEvent::parse(nothing, Some(Api::Events)).unwrap().api, Api::Events);
        assert_eq!(error(r#"{"apiVersion":"v1"}"#, None), "no metadata");
        assert_eq!(error("{", None), "a key expected at line 1 column 2");
    }
}
