use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

#[test]
fn the_length_is_that_of_compact_json() {
    let value = json!({"a b": "c \" \\ d\\", "e": [1, {"f": "  "}], "g": "\\\\\" "});
    assert_eq!(
        compact_length(&serde_json::to_string_pretty(&value).unwrap()),
        value.to_string().len() as u64
    );
}

proptest! {
    #[test]
    fn any_string_has_its_length(text in any::<String>()) {
        let value = Value::from(vec![text]);
        prop_assert_eq!(
            compact_length(&serde_json::to_string_pretty(&value).unwrap()),
            value.to_string().len() as u64
        );
    }
}

fn times(event: &Value) -> Option<(u64, u64)> {
    let raw = RawValue::from_string(event.to_string()).unwrap();
    let found = super::event(&raw, Api::Core).unwrap().ok()?;
    let seconds = |moment: Moment| moment.since(Moment::default()).as_secs();
    found.times().map(|(first, last)| (seconds(first), seconds(last)))
}

#[test]
fn times_are_read_from_the_event() {
    let event = |more: Value| {
        let mut event = json!({"metadata": {"name": "e", "namespace": "shop"}});
        event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        event
    };
    for (more, expected) in [
        (
            json!({"firstTimestamp": "1970-01-01T00:00:10Z", "lastTimestamp": "1970-01-01T00:00:50Z"}),
            Some((10, 50)),
        ),
        (
            json!({"eventTime": "1970-01-01T00:00:10.000000Z", "firstTimestamp": null,
                   "series": {"count": 3, "lastObservedTime": "1970-01-01T00:01:00.000000Z"}}),
            Some((10, 60)),
        ),
        (json!({"eventTime": "1970-01-01T00:00:10.000000Z"}), Some((10, 10))),
        (json!({"lastTimestamp": "1970-01-01T00:00:10Z"}), Some((10, 10))),
        (json!({"metadata": {"creationTimestamp": "1970-01-01T00:00:20Z"}}), Some((20, 20))),
        (
            json!({"apiVersion": "events.k8s.io/v1", "deprecatedFirstTimestamp": "1970-01-01T00:00:10Z",
                   "deprecatedLastTimestamp": "1970-01-01T00:00:11Z"}),
            Some((10, 11)),
        ),
        (json!({}), None),
        (json!({"firstTimestamp": "soon"}), None),
    ] {
        assert_eq!(times(&event(more.clone())), expected, "{more}");
    }
}
