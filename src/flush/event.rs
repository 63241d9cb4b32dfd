//! The bodies of squelch's own writes, in the form of the stored Event. Pure.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::stored::FetchedEvent;
use super::valid::{self, Form};
use squelch_engine::{Content, ObjectReference, Shown};

/// The time that a flush stores in `lastTimestamp`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoredTime {
    /// The time of the last occurrence.
    #[default]
    Occurrence,
    /// The time of the flush. Consumers that ignore Events by their age then take each flush; `kubectl get events` shows
    /// a closing flush as the last occurrence.
    Flush,
}

/// The times that a flush stores.
#[derive(Clone, Copy)]
pub(super) struct Times {
    /// In `series`: the time of the last occurrence.
    occurred_at: Timestamp,
    /// In `lastTimestamp`.
    last: Timestamp,
}

impl StoredTime {
    /// Returns the times of a flush at `now`.
    pub(super) fn times(self, occurred_at: Timestamp, now: Timestamp) -> Times {
        match self {
            Self::Occurrence => occurred_at.into(),
            Self::Flush => Times { occurred_at, last: occurred_at.max(now) },
        }
    }
}

impl From<Timestamp> for Times {
    fn from(occurred_at: Timestamp) -> Self {
        Self { occurred_at, last: occurred_at }
    }
}

/// Returns the merge patch that makes `event` show `value`, where its client keeps the count: in `series`, in
/// `count`, or in both if it has both. A legacy Event never gets a `series`, because kubectl would show that before
/// the count. (Through core/v1 the content of an Event of either form may change.)
pub(super) fn change(
    event: &FetchedEvent,
    value: i64,
    times: impl Into<Times>,
    shown: &Shown,
    namespace: &str,
) -> Value {
    let Times { occurred_at, last } = times.into();
    // The last time never moves back. One that cannot be parsed is replaced.
    let not_back = |time: Timestamp| event.last.unwrap_or(time).max(time);
    let mut patch = Map::new();
    if event.has_series {
        patch.append(&mut series(value, not_back(occurred_at)));
    }
    if event.has_count {
        patch.append(&mut counted(value, not_back(last)));
    }
    let mut metadata = json!({ "resourceVersion": event.resource_version });
    if let Shown::Message(message) = shown {
        patch.insert("message".to_owned(), json!(message));
    }
    if let Shown::Summary(content) = shown {
        let summary = content.view();
        // Everything that marks a summary: another client may have replaced the Event of this name.
        metadata["labels"] = Value::Object(valid::labels(summary.labels));
        metadata["annotations"] = Value::Object(valid::annotations(summary.annotations));
        let form = if event.has_event_time { Form::New } else { Form::Legacy };
        // In an Event of the new API these must not be empty, and stay as they are.
        if let Form::Legacy = form {
            patch.insert("type".to_owned(), json!(summary.event_type));
            patch.insert("reason".to_owned(), json!(summary.reason));
            let source = json!({ "component": summary.source_component, "host": summary.source_host });
            patch.insert("source".to_owned(), source);
            patch.insert("reportingComponent".to_owned(), json!(summary.reporting_component));
            patch.insert("reportingInstance".to_owned(), json!(summary.reporting_instance));
        }
        patch.insert("message".to_owned(), json!(summary.message));
        let regarding = valid::about(summary.regarding, form, namespace);
        patch.insert("involvedObject".to_owned(), replaced(&regarding));
    }
    // The precondition: the API server refuses the patch with 409 if the Event was written since it was read.
    patch.insert("metadata".to_owned(), metadata);
    Value::Object(patch)
}

/// Returns a valid Event with this content and `value`, to be created.
pub(super) fn recreate(
    namespace: &str,
    name: &str,
    content: &Content,
    value: i64,
    times: impl Into<Times>,
) -> Value {
    let Times { occurred_at: at, last } = times.into();
    let event = valid::fit(content.view(), namespace, at);
    let mut body = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": { "namespace": namespace, "name": name },
        "involvedObject": reference(&event.regarding),
        "type": event.event_type,
        "reason": event.reason,
        "message": event.message,
        "source": { "component": event.source_component, "host": event.source_host },
        "reportingComponent": event.reporting_component,
        "reportingInstance": event.reporting_instance,
    });
    for (field, text) in [
        ("action", &event.action),
        ("firstTimestamp", &event.first_timestamp),
        ("eventTime", &event.event_time),
    ] {
        if !text.is_empty() {
            body[field] = json!(text);
        }
    }
    if let Some(related) = &event.related {
        body["related"] = reference(related);
    }
    for (field, map) in
        [("labels", valid::labels(event.labels)), ("annotations", valid::annotations(event.annotations))]
    {
        if !map.is_empty() {
            body["metadata"][field] = Value::Object(map);
        }
    }
    let is_new = !event.event_time.is_empty() && event.first_timestamp.is_empty();
    let shape = if is_new { series(value, at) } else { counted(value, last) };
    for (field, value) in shape {
        body[field] = value;
    }
    body
}

fn counted(value: i64, last: Timestamp) -> Map<String, Value> {
    Map::from_iter([
        ("count".to_owned(), json!(value)),
        ("lastTimestamp".to_owned(), json!(valid::time(last))),
    ])
}

/// A count of 1 has no series: events.k8s.io requires at least 2 in it.
fn series(value: i64, last: Timestamp) -> Map<String, Value> {
    if value < 2 {
        return Map::new();
    }
    let last = valid::micro_time(last);
    Map::from_iter([("series".to_owned(), json!({ "count": value, "lastObservedTime": last }))])
}

fn reference(object: &ObjectReference<'_>) -> Value {
    let present = fields(object).into_iter().filter(|(_, text)| !text.is_empty());
    present.map(|(field, text)| (field.to_owned(), json!(text))).collect::<Map<_, _>>().into()
}

/// The reference for a merge patch: fields that the object lacks are removed.
fn replaced(object: &ObjectReference<'_>) -> Value {
    let value = |text: &str| if text.is_empty() { Value::Null } else { json!(text) };
    fields(object)
        .into_iter()
        .map(|(field, text)| (field.to_owned(), value(text)))
        .collect::<Map<_, _>>()
        .into()
}

fn fields<'a>(object: &'a ObjectReference<'_>) -> [(&'static str, &'a str); 6] {
    [
        ("apiVersion", &object.api_version),
        ("kind", &object.kind),
        ("namespace", &object.namespace),
        ("name", &object.name),
        ("uid", &object.uid),
        ("fieldPath", &object.field_path),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use squelch_engine::EventView;

    fn stored(body: &Value) -> FetchedEvent {
        FetchedEvent::new(body.to_string().as_bytes(), None).unwrap()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn only_last_timestamp_has_the_time_of_the_flush() {
        let (occurred, now) = (at("2026-01-01T00:00:05Z"), at("2026-01-01T00:06:05Z"));
        assert_eq!(StoredTime::Occurrence.times(occurred, now).last, occurred);
        // The clock of the client is ahead.
        assert_eq!(StoredTime::Flush.times(now, occurred).last, now);
        let times = StoredTime::Flush.times(occurred, now);

        let legacy = stored(&json!({"metadata": {"resourceVersion": "7"}, "count": 2,
            "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z"}));
        let patch = change(&legacy, 8, times, &Shown::Count, "shop");
        assert_eq!(patch["lastTimestamp"], json!("2026-01-01T00:06:05Z"));

        let new =
            stored(&json!({"metadata": {"resourceVersion": "7"}, "eventTime": "2026-01-01T00:00:00.000000Z",
            "series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:00.000000Z"}}));
        let patch = change(&new, 8, times, &Shown::Count, "shop");
        assert_eq!(patch["series"]["lastObservedTime"], json!("2026-01-01T00:00:05.000000Z"));
        assert_eq!(patch.get("lastTimestamp"), None);
    }

    #[test]
    fn a_legacy_event_gets_a_count_and_never_a_series() {
        let event = stored(&json!({"metadata": {"resourceVersion": "7"}, "involvedObject": {}, "count": 3,
            "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:09Z"}));
        assert_eq!(event.count, 3);
        let change = change(&event, 8, at("2026-01-01T00:00:05.9Z"), &Shown::Count, "shop");
        assert_eq!(
            change,
            json!({"metadata": {"resourceVersion": "7"}, "count": 8, "lastTimestamp": "2026-01-01T00:00:09Z"}),
            "the time shown never goes back"
        );
    }

    #[test]
    fn an_event_of_the_new_api_gets_a_series_with_six_fraction_digits() {
        let event = stored(&json!({"metadata": {"resourceVersion": "7"}, "involvedObject": {},
            "eventTime": "2026-01-01T00:00:00.000000Z"}));
        assert_eq!(event.count, 1);
        assert_eq!(
            change(&event, 8, at("2026-01-01T00:00:05Z"), &Shown::Count, "shop")["series"],
            json!({"count": 8, "lastObservedTime": "2026-01-01T00:00:05.000000Z"})
        );
    }

    #[test]
    fn an_event_with_an_event_time_and_a_count_gets_a_count_and_no_series() {
        let event = stored(&json!({"metadata": {"resourceVersion": "7"}, "involvedObject": {}, "count": 3,
            "eventTime": "2026-01-01T00:00:00.000000Z", "lastTimestamp": "2026-01-01T00:00:09Z"}));
        let change = change(&event, 8, at("2026-01-01T00:00:05Z"), &Shown::Count, "shop");
        assert_eq!(
            change,
            json!({"metadata": {"resourceVersion": "7"}, "count": 8, "lastTimestamp": "2026-01-01T00:00:09Z"})
        );
    }

    #[test]
    fn an_event_with_a_count_and_a_series_shows_the_larger_one_and_gets_both() {
        let event = stored(&json!({"metadata": {"resourceVersion": "7"}, "involvedObject": {}, "count": 9,
            "lastTimestamp": "2026-01-01T00:00:09Z", "eventTime": "2026-01-01T00:00:00.000000Z",
            "series": {"count": 7, "lastObservedTime": "2026-01-01T00:00:05.000000Z"}}));
        assert_eq!(event.count, 9);
        let change = change(&event, 12, at("2026-01-01T00:00:10Z"), &Shown::Count, "shop");
        assert_eq!((&change["count"], &change["series"]["count"]), (&json!(12), &json!(12)));
        assert_eq!(change["lastTimestamp"], json!("2026-01-01T00:00:10Z"));
    }

    #[test]
    fn a_time_out_of_range_does_not_prevent_a_flush() {
        for time in ["9999-12-31T23:59:59Z", "10000-01-01T00:00:00Z", "-001-01-01T00:00:00Z"] {
            let event =
                stored(&json!({"metadata": {"resourceVersion": "7"}, "involvedObject": {}, "count": 3,
                "firstTimestamp": time, "lastTimestamp": time}));
            assert_eq!(
                change(&event, 8, at("2026-01-01T00:00:05Z"), &Shown::Count, "shop")["count"],
                8,
                "{time}"
            );
        }
    }

    #[test]
    fn a_newer_message_changes_nothing_else() {
        let event = stored(&json!({"metadata": {"resourceVersion": "7"}, "count": 3, "involvedObject": {}}));
        let time = at("2026-01-01T00:00:05Z");
        let mut expected = change(&event, 8, time, &Shown::Count, "shop");
        expected["message"] = json!("took 2s");
        assert_eq!(change(&event, 8, time, &Shown::Message("took 2s".into()), "shop"), expected);
    }

    #[test]
    fn a_summary_shows_its_newest_event() {
        let event = stored(&json!({"metadata": {"resourceVersion": "7"}, "count": 3,
            "involvedObject": {"kind": "Pod", "name": "old", "fieldPath": "spec.containers{app}"}}));
        let regarding = ObjectReference {
            kind: "Pod".into(),
            name: "new".into(),
            namespace: "shop".into(),
            ..ObjectReference::default()
        };
        let content = Content::of(&EventView {
            message: "(combined) m".into(),
            reason: "BackOff".into(),
            reporting_component: "kubelet".into(),
            labels: r#"{"squelch.dev/summary":"true"}"#,
            annotations: r#"{"squelch.dev/policy":"shop/quiet"}"#,
            regarding,
            ..EventView::default()
        });
        let change =
            change(&event, 8, at("2026-01-01T00:00:05Z"), &Shown::Summary(Box::new(content)), "shop");
        assert_eq!(change["message"], "(combined) m");
        assert_eq!(
            (&change["reason"], &change["reportingComponent"]),
            (&json!("BackOff"), &json!("kubelet"))
        );
        assert_eq!(
            change["metadata"],
            json!({"resourceVersion": "7", "labels": {"squelch.dev/summary": "true"},
                "annotations": {"squelch.dev/policy": "shop/quiet"}})
        );
        assert_eq!(
            change["involvedObject"],
            json!({"apiVersion": null, "kind": "Pod", "namespace": "shop", "name": "new", "uid": null, "fieldPath": null})
        );
    }

    #[test]
    fn a_deleted_event_is_recreated_with_its_content() {
        let view = EventView {
            event_time: "2026-01-01T00:00:00.000000Z".into(),
            reporting_component: "c".into(),
            reporting_instance: "i".into(),
            action: "A".into(),
            reason: "R".into(),
            regarding: ObjectReference { namespace: "shop".into(), ..ObjectReference::default() },
            labels: r#"{"a":"b"}"#,
            ..EventView::default()
        };
        let body = recreate("shop", "e", &Content::of(&view), 5, at("2026-01-01T00:01:00Z"));
        assert_eq!(body["series"]["count"], 5);
        assert_eq!(body["metadata"], json!({"namespace": "shop", "name": "e", "labels": {"a": "b"}}));
        assert!(body.get("count").is_none() && body.get("firstTimestamp").is_none());
        let legacy = EventView { first_timestamp: "2026-01-01T00:00:00Z".into(), ..EventView::default() };
        let body = recreate("shop", "e", &Content::of(&legacy), 5, at("2026-01-01T00:01:00Z"));
        assert_eq!((&body["count"], body.get("series")), (&json!(5), None));
        assert!(serde_json::from_value::<k8s_openapi::api::core::v1::Event>(body).is_ok());
    }
}
