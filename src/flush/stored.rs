//! A stored Event as it was read: the fields that a flush needs. Pure.

use std::borrow::Cow;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use squelch_engine::{Content, EventView, ObjectReference, StoredEvent};

/// What a flush keeps of an Event: at most about 30 KiB (see [`Content`]), however long the Event is.
pub(super) struct FetchedEvent {
    /// The precondition of a write.
    pub(super) resource_version: String,
    /// The count of the Event: the larger of `series.count` and `count`, else 1.
    pub(super) count: i64,
    /// The last time that the Event shows, if it can be parsed. Kubernetes accepts times that libraries do not, such
    /// as the year 10000.
    pub(super) last: Option<Timestamp>,
    /// Whether count and last time are in `series`: the Event has one, or is one of the new API without a `count`.
    pub(super) has_series: bool,
    /// Whether count and last time are in `count` and `lastTimestamp`. Both flags can be true: kubectl shows
    /// `series`, and a client may continue to count in `count`.
    pub(super) has_count: bool,
    /// Whether the Event has an `eventTime`: the API server validates it by the rules of the new API.
    pub(super) has_event_time: bool,
    age: Option<Duration>,
    content: Option<Box<Content>>,
}

impl FetchedEvent {
    /// Parses the Event in an answer that the API server sent at `date`. Returns `None` if the answer holds no Event.
    pub(super) fn new(answer: &[u8], date: Option<Timestamp>) -> Option<Self> {
        let event: Event<'_> = serde_json::from_slice(answer).ok()?;
        let Event { metadata, series, .. } = &event;
        let has_event_time = event.event_time.is_some();
        let positive = |count: Option<i64>| count.filter(|count| *count > 0);
        let of_series = positive(series.as_ref().and_then(|series| series.count));
        let count = positive(event.count);
        let is_new = has_event_time && event.first_timestamp.is_none() && count.is_none();
        let has_series = series.is_some() || is_new;
        let has_count = count.is_some() || !has_series;
        let time = |text: &String| text.parse::<Timestamp>().ok();
        let last_observed = series.as_ref().and_then(|series| series.last_observed_time.as_ref());
        let last =
            [last_observed.filter(|_| has_series), event.last_timestamp.as_ref().filter(|_| has_count)];
        let created = metadata.creation_timestamp.as_ref().and_then(time);
        Some(Self {
            resource_version: metadata.resource_version.clone(),
            count: of_series.max(count).unwrap_or(1),
            last: last.into_iter().flatten().filter_map(time).max(),
            has_series,
            has_count,
            has_event_time,
            // Both times are of the API server's clock.
            age: date.zip(created).and_then(|(date, created)| date.duration_since(created).try_into().ok()),
            content: Some(Box::new(Content::of(&event.view()))),
        })
    }

    /// Returns what the engine compares with the series. Only the first call returns the content.
    pub(super) fn found(&mut self) -> StoredEvent {
        StoredEvent { count: self.count, age: self.age, content: self.content.take() }
    }
}

/// An Event in the answer. All other fields (`managedFields`, `ownerReferences`) are skipped, and labels and
/// annotations stay text: parsed, a small entry takes ten times its length.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
    involved_object: Option<Reference>,
    related: Option<Reference>,
    r#type: Option<String>,
    reason: Option<String>,
    action: Option<String>,
    message: Option<String>,
    reporting_component: Option<String>,
    reporting_instance: Option<String>,
    source: Option<Source>,
    first_timestamp: Option<String>,
    last_timestamp: Option<String>,
    event_time: Option<String>,
    count: Option<i64>,
    series: Option<EventSeries>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    resource_version: String,
    creation_timestamp: Option<String>,
    #[serde(borrow)]
    labels: Option<&'a RawValue>,
    #[serde(borrow)]
    annotations: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reference {
    api_version: Option<String>,
    kind: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
    field_path: Option<String>,
}

#[derive(Deserialize)]
struct Source {
    component: Option<String>,
    host: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EventSeries {
    count: Option<i64>,
    last_observed_time: Option<String>,
}

impl Event<'_> {
    fn view(&self) -> EventView<'_> {
        let source = self.source.as_ref();
        EventView {
            regarding: self.involved_object.as_ref().map(Reference::view).unwrap_or_default(),
            related: self.related.as_ref().map(Reference::view),
            event_type: text(self.r#type.as_deref()),
            reason: text(self.reason.as_deref()),
            action: text(self.action.as_deref()),
            message: text(self.message.as_deref()),
            reporting_component: text(self.reporting_component.as_deref()),
            reporting_instance: text(self.reporting_instance.as_deref()),
            source_component: text(source.and_then(|source| source.component.as_deref())),
            source_host: text(source.and_then(|source| source.host.as_deref())),
            first_timestamp: text(self.first_timestamp.as_deref()),
            event_time: text(self.event_time.as_deref()),
            labels: self.metadata.labels.map_or("", RawValue::get),
            annotations: self.metadata.annotations.map_or("", RawValue::get),
        }
    }
}

impl Reference {
    fn view(&self) -> ObjectReference<'_> {
        ObjectReference {
            api_version: text(self.api_version.as_deref()),
            kind: text(self.kind.as_deref()),
            namespace: text(self.namespace.as_deref()),
            name: text(self.name.as_deref()),
            uid: text(self.uid.as_deref()),
            field_path: text(self.field_path.as_deref()),
        }
    }
}

fn text(text: Option<&str>) -> Cow<'_, str> {
    text.unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn stored(event: &Value) -> FetchedEvent {
        FetchedEvent::new(event.to_string().as_bytes(), Some("2026-01-01T00:01:00Z".parse().unwrap()))
            .unwrap()
    }

    #[test]
    fn every_field_of_a_recreated_event_is_kept() {
        let mut stored = stored(&json!({
            "metadata": {"resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": [{}],
                "labels": {"a": "b"}, "annotations": {"c": "d"}},
            "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "p", "uid": "u",
                "fieldPath": "spec", "resourceVersion": "9"},
            "related": {"name": "r"}, "type": "Normal", "reason": "R", "action": "A", "message": "m",
            "reportingComponent": "c", "reportingInstance": "i", "source": {"component": "s", "host": "h"},
            "firstTimestamp": "2026-01-01T00:00:00Z", "eventTime": "2026-01-01T00:00:00.000000Z", "count": 3,
        }));
        assert_eq!((stored.count, &*stored.resource_version), (3, "7"));
        let found = stored.found();
        assert_eq!((found.count, found.age), (3, Some(Duration::from_secs(60))));
        let expected = EventView {
            regarding: ObjectReference {
                api_version: "v1".into(),
                kind: "Pod".into(),
                namespace: "shop".into(),
                name: "p".into(),
                uid: "u".into(),
                field_path: "spec".into(),
            },
            related: Some(ObjectReference { name: "r".into(), ..ObjectReference::default() }),
            event_type: "Normal".into(),
            reason: "R".into(),
            action: "A".into(),
            message: "m".into(),
            reporting_component: "c".into(),
            reporting_instance: "i".into(),
            source_component: "s".into(),
            source_host: "h".into(),
            first_timestamp: "2026-01-01T00:00:00Z".into(),
            event_time: "2026-01-01T00:00:00.000000Z".into(),
            labels: r#"{"a":"b"}"#,
            annotations: r#"{"c":"d"}"#,
        };
        assert_eq!(format!("{:?}", found.content.unwrap().view()), format!("{expected:?}"));
        assert!(stored.found().content.is_none(), "the content is returned once");
    }

    #[test]
    fn a_field_that_is_null_is_empty() {
        let fields = [
            "involvedObject",
            "related",
            "type",
            "message",
            "source",
            "firstTimestamp",
            "eventTime",
            "series",
        ];
        let mut event =
            json!({"metadata": {"resourceVersion": "7", "labels": null, "creationTimestamp": null}});
        let plain = format!("{:?}", stored(&event).found().content.unwrap().view());
        fields.iter().for_each(|field| event[field] = Value::Null);
        assert_eq!(format!("{:?}", stored(&event).found().content.unwrap().view()), plain);
    }

    #[test]
    fn the_count_is_the_one_that_kubectl_shows() {
        let metadata = json!({"resourceVersion": "7"});
        for (event, count) in [
            (json!({"series": {"count": 5}, "count": 3}), 5),
            (json!({"series": {"count": 0}, "count": 3}), 3),
            (json!({"count": -3}), 1),
            (json!({}), 1),
        ] {
            let mut event = event;
            event["metadata"] = metadata.clone();
            assert_eq!(stored(&event).count, count, "{event}");
        }
    }

    #[test]
    fn an_answer_without_a_resource_version_is_no_event() {
        for answer in ["", "\"OK\"", "{}", r#"{"metadata": {}}"#, r#"{"metadata": {"resourceVersion": 7}}"#] {
            assert!(FetchedEvent::new(answer.as_bytes(), None).is_none(), "{answer}");
        }
    }
}
