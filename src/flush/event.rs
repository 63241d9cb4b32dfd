//! The bodies of squelch's own writes, in the shape that the stored Event has. Pure.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::stored::Stored;
use super::valid::{self, Form};
use squelch_engine::{Content, ObjectReference};

/// The change that makes `event` show `value`: `series` for an Event of the new API, else `count`. A legacy Event
/// never gets a `series`: kubectl would show it before the count. `content` is there for a summary, which tells the
/// newest of its look-alikes, whatever stands there. (Through core/v1 an Event of either shape may change what it says.)
pub(super) fn change(
    event: &Stored,
    value: i64,
    occurred_at: Timestamp,
    content: Option<&Content>,
    namespace: &str,
) -> Value {
    // The time shown never goes back; one that cannot be read is replaced.
    let last = event.last.unwrap_or(occurred_at).max(occurred_at);
    let mut patch = if event.has_series { series(value, last) } else { counted(value, last) };
    let mut metadata = json!({ "resourceVersion": event.resource_version });
    if let Some(summary) = content.map(Content::view) {
        // All that makes it a summary: somebody may have put an Event of his own under its name.
        metadata["annotations"] = Value::Object(valid::annotations(summary.annotations));
        let form = if event.has_event_time { Form::New } else { Form::Legacy };
        // Of an Event of the new API these may not be empty.
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
    // The precondition: the API server refuses the change with 409 if anyone wrote since the read.
    patch.insert("metadata".to_owned(), metadata);
    Value::Object(patch)
}

/// The Event as it is created again, with `value`, in a form that the API server takes.
pub(super) fn recreate(namespace: &str, name: &str, content: &Content, value: i64, at: Timestamp) -> Value {
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
    let shape = if is_new { series(value, at) } else { counted(value, at) };
    for (field, told) in shape {
        body[field] = told;
    }
    body
}

fn counted(value: i64, last: Timestamp) -> Map<String, Value> {
    Map::from_iter([
        ("count".to_owned(), json!(value)),
        ("lastTimestamp".to_owned(), json!(valid::time(last))),
    ])
}

/// One occurrence is told without a series: events.k8s.io wants at least two in it.
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

/// The same for a merge patch: what the object has no longer is taken away.
fn replaced(object: &ObjectReference<'_>) -> Value {
    let told = |text: &str| if text.is_empty() { Value::Null } else { json!(text) };
    fields(object)
        .into_iter()
        .map(|(field, text)| (field.to_owned(), told(text)))
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

    fn stored(body: &Value) -> Stored {
        Stored::new(body.to_string().as_bytes(), None).unwrap()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_legacy_event_gets_a_count_and_never_a_series() {
        let event = stored(&json!({"metadata": {"resourceVersion": "7"}, "involvedObject": {}, "count": 3,
            "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:09Z"}));
        assert_eq!(event.count, 3);
        let change = change(&event, 8, at("2026-01-01T00:00:05.9Z"), None, "shop");
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
            change(&event, 8, at("2026-01-01T00:00:05Z"), None, "shop")["series"],
            json!({"count": 8, "lastObservedTime": "2026-01-01T00:00:05.000000Z"})
        );
    }

    #[test]
    fn a_time_that_no_library_knows_is_no_obstacle() {
        for time in ["9999-12-31T23:59:59Z", "10000-01-01T00:00:00Z", "-001-01-01T00:00:00Z"] {
            let event =
                stored(&json!({"metadata": {"resourceVersion": "7"}, "involvedObject": {}, "count": 3,
                "firstTimestamp": time, "lastTimestamp": time}));
            assert_eq!(change(&event, 8, at("2026-01-01T00:00:05Z"), None, "shop")["count"], 8, "{time}");
        }
    }

    #[test]
    fn a_summary_follows_its_newest_look_alike() {
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
            annotations: r#"{"squelch.dev/summary":"true"}"#,
            regarding,
            ..EventView::default()
        });
        let change = change(&event, 8, at("2026-01-01T00:00:05Z"), Some(&content), "shop");
        assert_eq!(change["message"], "(combined) m");
        assert_eq!(
            (&change["reason"], &change["reportingComponent"]),
            (&json!("BackOff"), &json!("kubelet"))
        );
        assert_eq!(
            change["metadata"],
            json!({"resourceVersion": "7", "annotations": {"squelch.dev/summary": "true"}})
        );
        assert_eq!(
            change["involvedObject"],
            json!({"apiVersion": null, "kind": "Pod", "namespace": "shop", "name": "new", "uid": null, "fieldPath": null})
        );
    }

    #[test]
    fn a_lost_event_comes_back_as_it_was() {
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
