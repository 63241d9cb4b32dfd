//! Makes a remembered Event valid by the API server's rules for core/v1 (Kubernetes,
//! pkg/apis/core/validation/events.go, `legacyValidateEvent`, and apimachinery's `ValidateObjectMeta`). Pure.
//!
//! A review shows an Event before the API server validates it, so a merged Event may be invalid. If the API server
//! refused what squelch writes, its pending occurrences would be lost.

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::{Map, Value};
use squelch_engine::{EventView, ObjectReference};

/// The longest reason, action and reporting instance of an Event with an `eventTime`, in bytes.
const MAX_WORD: usize = 128;
/// The longest message of an Event with an `eventTime`, in bytes.
const MAX_MESSAGE: usize = 1024;
/// The longest prefix of a qualified name, a DNS subdomain.
const MAX_PREFIX: usize = 253;
/// The longest name after that prefix.
const MAX_NAME: usize = 63;
/// The year 0: an API time has a year of four digits and no sign.
const EARLIEST: Timestamp = Timestamp::constant(-62_167_219_200, 0);
/// The value of a required field that the Event left empty.
const UNKNOWN: &str = "Unknown";

/// The two forms of an Event. An Event with an `eventTime` has more required fields; one without must regard an
/// object of its own namespace (in `default`, also a cluster-scoped object).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `firstTimestamp`, `lastTimestamp`, `count`.
    Legacy,
    /// `eventTime`, `series`.
    New,
}

impl Form {
    /// Whether an Event of this form in `namespace` may regard this object.
    fn allows(self, regarding: &ObjectReference<'_>, namespace: &str) -> bool {
        match (self, &*regarding.namespace) {
            (Self::Legacy, "") => namespace == "default",
            (Self::Legacy, of) => of == namespace,
            (Self::New, "") => matches!(namespace, "default" | "kube-system"),
            (Self::New, _) => true,
        }
    }
}

/// Returns a valid form of the event for `namespace` with as few changes as possible. A time that cannot be parsed
/// becomes `at`.
pub(super) fn fit<'a>(mut event: EventView<'a>, namespace: &str, at: Timestamp) -> EventView<'a> {
    let read = |text: &str| (!text.is_empty()).then(|| text.parse().unwrap_or(at));
    let (first_timestamp, event_time) = (read(&event.first_timestamp), read(&event.event_time));
    let legacy = Form::Legacy.allows(&event.regarding, namespace);
    let new = Form::New.allows(&event.regarding, namespace);
    let form = match event_time {
        None if legacy || !new => Form::Legacy,
        Some(_) if !new || legacy && !is_complete(&event) => Form::Legacy,
        _ => Form::New,
    };
    let (first_timestamp, event_time) = match form {
        Form::Legacy => (first_timestamp.or(event_time), None),
        Form::New if event_time.is_some() => (first_timestamp, event_time),
        Form::New => (None, first_timestamp.or(Some(at))),
    };
    match form {
        Form::Legacy => event.regarding = about(event.regarding, form, namespace),
        Form::New => complete(&mut event),
    }
    event.first_timestamp = first_timestamp.map_or_else(String::new, time).into();
    event.event_time = event_time.map_or_else(String::new, micro_time).into();
    event
}

/// Returns the reference as an Event of this form in `namespace` may have it.
pub(super) fn about<'a>(regarding: ObjectReference<'a>, form: Form, namespace: &str) -> ObjectReference<'a> {
    if form.allows(&regarding, namespace) {
        return regarding;
    }
    ObjectReference { namespace: namespace.to_owned().into(), ..regarding }
}

/// Returns the valid entries of `metadata.labels`; `text` is JSON.
pub(super) fn labels(text: &str) -> Map<String, Value> {
    let is_valid = |key: &str, value: &str| {
        is_qualified(key) && (value.is_empty() || is_name(value) && value.len() <= MAX_NAME)
    };
    entries(text, is_valid)
}

/// Returns the valid entries of `metadata.annotations`; `text` is JSON.
pub(super) fn annotations(text: &str) -> Map<String, Value> {
    entries(text, |key, _| is_qualified(&key.to_lowercase()))
}

/// Formats a metav1.Time: whole seconds.
pub(super) fn time(at: Timestamp) -> String {
    at.max(EARLIEST).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Formats a metav1.MicroTime: exactly six fraction digits, or the API server cannot decode it.
pub(super) fn micro_time(at: Timestamp) -> String {
    at.max(EARLIEST).strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// Whether the event has every field that an `eventTime` requires.
fn is_complete(event: &EventView<'_>) -> bool {
    let is_word = |text: &str| (1..=MAX_WORD).contains(&text.len());
    is_qualified(&event.reporting_component)
        && is_word(&event.reporting_instance)
        && is_word(&event.action)
        && is_word(&event.reason)
        && event.message.len() <= MAX_MESSAGE
}

/// Fills in the fields that an `eventTime` requires.
fn complete(event: &mut EventView<'_>) {
    if !is_qualified(&event.reporting_component) {
        let source = Some(&event.source_component).filter(|component| is_qualified(component));
        event.reporting_component = source.cloned().unwrap_or(UNKNOWN.into());
    }
    let host = Some(&event.source_host).filter(|host| !host.is_empty()).cloned();
    make_word(&mut event.reporting_instance, host);
    make_word(&mut event.reason, None);
    let reason = event.reason.clone();
    make_word(&mut event.action, Some(reason));
    truncate(&mut event.message, MAX_MESSAGE);
}

fn make_word<'a>(text: &mut Cow<'a, str>, instead: Option<Cow<'a, str>>) {
    if text.is_empty() {
        *text = instead.unwrap_or(UNKNOWN.into());
    }
    truncate(text, MAX_WORD);
}

fn truncate(text: &mut Cow<'_, str>, limit: usize) {
    if text.len() > limit {
        *text = text[..text.floor_char_boundary(limit)].to_owned().into();
    }
}

fn entries(text: &str, is_valid: impl Fn(&str, &str) -> bool) -> Map<String, Value> {
    let mut entries: Map<String, Value> = serde_json::from_str(text).unwrap_or_default();
    entries.retain(|key, value| value.as_str().is_some_and(|value| is_valid(key, value)));
    entries
}

/// apimachinery, util/validation, `IsQualifiedName`: a name with an optional DNS subdomain and slash before it.
fn is_qualified(text: &str) -> bool {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    prefix.is_none_or(is_subdomain) && is_name(name) && name.len() <= MAX_NAME
}

/// Whether this consists of letters, digits, `-`, `_` and `.`, with a letter or digit at both ends.
fn is_name(text: &str) -> bool {
    let ends = [text.bytes().next(), text.bytes().next_back()];
    ends.iter().all(|end| end.is_some_and(|end| end.is_ascii_alphanumeric()))
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

fn is_subdomain(text: &str) -> bool {
    let is_label =
        |label: &str| is_name(label) && label.bytes().all(|byte| !byte.is_ascii_uppercase() && byte != b'_');
    text.len() <= MAX_PREFIX && text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: &str = "2026-01-01T00:00:05Z";

    fn node(event_time: &'static str) -> EventView<'static> {
        EventView {
            regarding: ObjectReference {
                kind: "Node".into(),
                name: "n1".into(),
                ..ObjectReference::default()
            },
            event_time: event_time.into(),
            ..EventView::default()
        }
    }

    fn fitted(event: EventView<'static>, namespace: &str) -> EventView<'static> {
        fit(event, namespace, AT.parse().unwrap())
    }

    #[test]
    fn a_valid_event_is_unchanged() {
        let event = fitted(node(""), "default");
        assert_eq!((&*event.event_time, &*event.regarding.namespace), ("", ""));
        let event = EventView {
            reporting_component: "example.com/c".into(),
            reporting_instance: "i".into(),
            action: "A".into(),
            reason: "R".into(),
            ..node("2026-01-01T00:00:00.000001Z")
        };
        assert_eq!(format!("{:?}", fitted(event.clone(), "kube-system")), format!("{event:?}"));
    }

    #[test]
    fn an_incomplete_event_becomes_a_legacy_event() {
        let event = fitted(node("2026-01-01T00:00:00.000001Z"), "default");
        assert_eq!((&*event.first_timestamp, &*event.event_time), ("2026-01-01T00:00:00Z", ""));
    }

    #[test]
    fn missing_fields_are_filled_in_where_a_legacy_event_is_invalid() {
        let event = EventView { source_component: "kubelet".into(), reason: "R".into(), ..node("") };
        let event = fitted(event, "kube-system");
        assert_eq!((&*event.first_timestamp, &*event.event_time), ("", "2026-01-01T00:00:05.000000Z"));
        let said = [&*event.reporting_component, &*event.reporting_instance, &*event.reason, &*event.action];
        assert_eq!(said, ["kubelet", "Unknown", "R", "R"]);
    }

    #[test]
    fn a_cluster_scoped_object_gets_the_namespace_of_its_event_where_it_must() {
        let event = fitted(node(""), "shop");
        assert_eq!((&*event.event_time, &*event.regarding.namespace), ("", "shop"));
    }

    #[test]
    fn an_unparsable_time_is_replaced() {
        for time in ["10000-01-01T00:00:00Z", "-001-12-31T23:00:00Z", "soon"] {
            let event = EventView { first_timestamp: time.into(), ..node("") };
            assert_eq!(fitted(event, "default").first_timestamp, AT, "{time}");
        }
        assert_eq!(fitted(node(""), "default").first_timestamp, "", "a missing time stays missing");
        let before_year_zero = EventView { first_timestamp: "-009999-01-02T01:59:59Z".into(), ..node("") };
        assert_eq!(fitted(before_year_zero, "default").first_timestamp, "0000-01-01T00:00:00Z");
    }

    #[test]
    fn invalid_labels_and_annotations_are_omitted() {
        let given =
            r#"{"a": "b", "example.com/a": "", "": "x", "a b": "x", "-a": "x", "Q/a": "x", "Z": "not so"}"#;
        assert_eq!(labels(given).keys().collect::<Vec<_>>(), ["a", "example.com/a"]);
        assert_eq!(annotations(given).keys().collect::<Vec<_>>(), ["Q/a", "Z", "a", "example.com/a"]);
        assert_eq!(labels("{").len(), 0);
    }
}
