//! An Event as a list or a watch shows it, and as a trace contains it.

use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::Value;
use squelch_engine::{Api, sanitise};

use crate::FIELD_MANAGER;

/// Names of fields in `v1` and in `events.k8s.io/v1` (kubernetes/pkg/apis/events/v1/conversion.go).
const FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// A stored Event.
#[derive(Debug)]
pub(super) struct SeenEvent {
    /// Its `v1` form without `metadata.managedFields`, as JSON.
    pub(super) json: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) version: String,
    /// `metadata.creationTimestamp`. Texts of two times compare as the times do.
    pub(super) created: String,
    /// The number of occurrences that it reports.
    pub(super) value: i64,
    /// The API of its last write.
    pub(super) api: Api,
    /// Whether managedFields has the API. Otherwise it is that of clients that set the same fields.
    pub(super) is_api_recorded: bool,
    /// Whether squelch has written it last, by its field manager.
    pub(super) is_by_squelch: bool,
}

impl SeenEvent {
    pub(super) fn new(mut object: Value) -> Self {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let [namespace, name, uid] = ["namespace", "name", "uid"].map(text);
        let [version, created] = ["resourceVersion", "creationTimestamp"].map(text);
        let value = value(&object["count"], &object["series"]["count"]);
        let managers = object["metadata"]["managedFields"].as_array().into_iter().flatten();
        // The API server sets the time at each write that changes a field.
        let last = managers.max_by_key(|manager| manager["time"].as_str().unwrap_or_default());
        let recorded = last.and_then(|manager| match manager["apiVersion"].as_str()? {
            "v1" => Some(Api::Core),
            version => version.starts_with("events.k8s.io/").then_some(Api::Events),
        });
        let is_by_squelch = last.is_some_and(|manager| manager["manager"] == FIELD_MANAGER);
        let api = recorded.unwrap_or_else(|| api_of_fields(&object));
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        if let Some(members) = object.as_object_mut() {
            // The items of a list leave them to the list.
            members.insert("apiVersion".to_owned(), "v1".into());
            members.insert("kind".to_owned(), "Event".into());
        }
        let (is_api_recorded, json) = (recorded.is_some(), object.to_string());
        Self { json, namespace, name, uid, version, created, value, api, is_api_recorded, is_by_squelch }
    }
}

/// Returns the API whose clients set these fields: `events.k8s.io` requires `eventTime`, and refuses a CREATE with the
/// fields that it calls deprecated.
fn api_of_fields(object: &Value) -> Api {
    let has_count = object["count"].as_i64().is_some_and(|count| count > 0);
    let has_old_fields =
        has_count || object["firstTimestamp"].is_string() || object["lastTimestamp"].is_string();
    if object["eventTime"].is_string() && !has_old_fields { Api::Events } else { Api::Core }
}

/// Returns the larger of the two counts of an Event, at least 1.
fn value(count: &Value, series_count: &Value) -> i64 {
    count.as_i64().max(series_count.as_i64()).unwrap_or(1).max(1)
}

/// What a comparison needs of [`SeenEvent::json`].
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct KnownEvent {
    metadata: KnownMetadata,
    count: Value,
    series: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct KnownMetadata {
    uid: String,
    resource_version: String,
}

impl KnownEvent {
    pub(super) fn read(json: &str) -> Self {
        serde_json::from_str(json).unwrap_or_default()
    }

    /// Whether it is this version of the Event.
    pub(super) fn is(&self, event: &SeenEvent) -> bool {
        self.is_earlier(event) && self.metadata.resource_version == event.version
    }

    /// Whether it is a version of the same Event. A deleted Event and a new one can have the same name.
    pub(super) fn is_earlier(&self, event: &SeenEvent) -> bool {
        self.metadata.uid == event.uid
    }

    pub(super) fn value(&self) -> i64 {
        value(&self.count, &self.series["count"])
    }
}

/// Adds one line of a trace. `json` and `old` are Events in `v1`.
pub(super) fn push_line(
    lines: &mut String,
    millis: u128,
    operation: &str,
    api: Api,
    json: &str,
    old: Option<&str>,
) {
    let in_api = |json: &str| match api {
        Api::Core => json.to_owned(),
        Api::Events => in_new_api(json),
    };
    let (seconds, millis) = (millis / 1000, millis % 1000);
    let object = in_api(json);
    let old = old.map_or_else(String::new, |old| format!(r#","oldObject":{}"#, in_api(old)));
    let line = format!(r#"{{"at":{seconds}.{millis:03},"operation":"{operation}","object":{object}{old}}}"#);
    push_escaped(lines, &line);
    lines.push('\n');
}

/// Returns the `events.k8s.io/v1` form of an Event.
fn in_new_api(json: &str) -> String {
    let mut event: Value = serde_json::from_str(json).unwrap_or_default();
    if let Some(members) = event.as_object_mut() {
        for (core, new) in FIELDS {
            if let Some(value) = members.remove(core) {
                members.insert(new.to_owned(), value);
            }
        }
        members.insert("apiVersion".to_owned(), "events.k8s.io/v1".into());
    }
    event.to_string()
}

/// Adds compact JSON. Characters that control a terminal are escaped, which changes no value: they occur only in strings.
fn push_escaped(to: &mut String, json: &str) {
    for character in json.chars() {
        if sanitise(character) == character {
            to.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            let _ = write!(to, "\\u{unit:04x}");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn managed(api_version: &str, manager: &str, time: &str) -> Value {
        json!({ "manager": manager, "operation": "Update", "apiVersion": api_version, "time": time, "fieldsV1": {} })
    }

    #[test]
    fn the_api_is_that_of_the_last_manager() {
        let of = |managers: &[Value]| {
            let event =
                SeenEvent::new(json!({ "metadata": { "name": "a", "managedFields": managers }, "count": 1 }));
            assert!(!event.json.contains("managedFields"));
            (event.api, event.is_api_recorded, event.is_by_squelch)
        };
        let core = managed("v1", "kubelet", "2026-01-01T00:00:01Z");
        let new = managed("events.k8s.io/v1", "scheduler", "2026-01-01T00:00:02Z");
        let squelch = managed("v1", "squelch", "2026-01-01T00:00:03Z");
        assert_eq!(of(std::slice::from_ref(&core)), (Api::Core, true, false));
        assert_eq!(of(&[new.clone(), core.clone()]), (Api::Events, true, false));
        assert_eq!(of(&[squelch, new, core]), (Api::Core, true, true));
        assert_eq!(of(&[]), (Api::Core, false, false));
    }

    #[test]
    fn without_managed_fields_the_api_is_that_of_the_fields() {
        let of = |fields: Value| SeenEvent::new(fields).api;
        let time = "2026-01-01T00:00:00.000000Z";
        assert_eq!(
            of(json!({ "eventTime": time, "firstTimestamp": null, "lastTimestamp": null })),
            Api::Events
        );
        assert_eq!(of(json!({ "eventTime": null, "firstTimestamp": "2026-01-01T00:00:00Z" })), Api::Core);
        assert_eq!(of(json!({ "eventTime": time, "count": 2 })), Api::Core);
    }

    #[test]
    fn the_value_is_the_larger_count() {
        let of = |fields: Value| {
            let event = SeenEvent::new(fields);
            assert_eq!(KnownEvent::read(&event.json).value(), event.value);
            event.value
        };
        assert_eq!(of(json!({})), 1);
        assert_eq!(of(json!({ "count": 3, "series": null })), 3);
        assert_eq!(of(json!({ "count": 3, "series": { "count": 7 } })), 7);
        assert_eq!(of(json!({ "count": -3 })), 1);
    }

    #[test]
    fn a_line_has_the_fields_of_its_api_and_no_control_characters() {
        let event =
            json!({ "metadata": { "name": "a" }, "message": "a\u{9b}1m \u{e0041}\u{1b}\u{7f}ü", "count": 2 });
        let json = SeenEvent::new(event).json;
        for (api, message, count) in
            [(Api::Core, "message", "count"), (Api::Events, "note", "deprecatedCount")]
        {
            let mut line = String::new();
            push_line(&mut line, 12_005, "UPDATE", api, &json, Some(&json));
            assert!(line.starts_with(r#"{"at":12.005,"operation":"UPDATE","object":{"#), "{line}");
            assert!(line.trim_end_matches('\n').chars().all(|it| sanitise(it) == it), "{line}");
            let line: Value = serde_json::from_str(&line).unwrap();
            for event in [&line["object"], &line["oldObject"]] {
                assert_eq!(event[message], "a\u{9b}1m \u{e0041}\u{1b}\u{7f}ü");
                assert_eq!((&event[count], &event["kind"]), (&json!(2), &json!("Event")));
                let version = if api == Api::Core { "v1" } else { "events.k8s.io/v1" };
                assert_eq!(event["apiVersion"], version);
            }
        }
    }

    #[test]
    fn what_is_no_object_is_an_event_without_fields() {
        assert_eq!(SeenEvent::new(json!("x")).name, "");
    }
}
