//! JSON patches of responses: `add` and `remove` of single fields. The API server rejects path `""` with code 500.

use super::review::{Raw, Review};

/// A change of one field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PatchOperation<'a> {
    path: &'a str,
    value: PatchValue<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PatchValue<'a> {
    /// An absent value removes the field.
    Json(Raw<'a>),
    Text(&'a str),
}

impl<'a> PatchOperation<'a> {
    /// Sets the name of an Event with `generateName`.
    pub(super) fn name(name: &'a str) -> Self {
        Self { path: "/metadata/name", value: PatchValue::Text(name) }
    }

    /// Sets the message.
    pub(super) fn message(message: &'a str) -> Self {
        Self { path: "/message", value: PatchValue::Text(message) }
    }
}

/// Returns the operations that restore every field that a repeat changes from `oldObject`; `None` without an `oldObject`.
/// With `managedFields` restored too, the API server sees no change and does not write to etcd.
pub(super) fn restore<'a>(review: &Review<'a>) -> Option<Vec<PatchOperation<'a>>> {
    let (written, old) = review.written_and_old()?;
    let fields = [
        ("/series", written.series, old.series),
        ("/count", written.count, old.count),
        ("/lastTimestamp", written.last_timestamp, old.last_timestamp),
        ("/message", written.message, old.message),
        ("/metadata/managedFields", written.managed_fields()?, old.managed_fields()?),
    ];
    let differing = fields.into_iter().filter(|(_, new, old)| new != old);
    Some(differing.map(|(path, _, value)| PatchOperation { path, value: PatchValue::Json(value) }).collect())
}

/// Writes the patch.
pub(super) fn write<'a>(out: &mut Vec<u8>, operations: impl IntoIterator<Item = PatchOperation<'a>>) {
    let mut before = b'[';
    for PatchOperation { path, value } in operations {
        let is_removed = matches!(value, PatchValue::Json(value) if value.is_absent());
        out.push(before);
        before = b',';
        out.extend_from_slice(if is_removed { br#"{"op":"remove"# } else { br#"{"op":"add"# });
        out.extend_from_slice(br#"","path":"#);
        write_string(out, path);
        if !is_removed {
            out.extend_from_slice(br#","value":"#);
            match value {
                PatchValue::Json(value) => out.extend_from_slice(value.json().as_bytes()),
                PatchValue::Text(text) => write_string(out, text),
            }
        }
        out.push(b'}');
    }
    out.push(b']');
}

/// Writes the patch that adds an annotation. The Event must already have annotations.
pub(super) fn write_annotation(out: &mut Vec<u8>, key: &str, value: &str) {
    // RFC 6901, in this order.
    let path = format!("/metadata/annotations/{}", key.replace('~', "~0").replace('/', "~1"));
    write(out, [PatchOperation { path: &path, value: PatchValue::Text(value) }]);
}

/// Appends `text` as a JSON string.
pub(super) fn write_string(out: &mut Vec<u8>, text: &str) {
    // Most texts need no escapes. Copying them in one step takes a tenth of the instructions.
    let is_plain = |byte: &u8| (*byte >= b' ') & (*byte != b'"') & (*byte != b'\\');
    if text.as_bytes().iter().fold(true, |plain, byte| plain & is_plain(byte)) {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
        return;
    }
    serde_json::to_writer(out, text).expect("writing a string to a Vec cannot fail");
}

#[cfg(test)]
mod tests {
    use super::super::review::decode;
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    const RESTORED: [&str; 4] = ["series", "count", "lastTimestamp", "message"];

    proptest! {
        #[test]
        fn a_string_is_written_as_serde_writes_it(text in prop_oneof!["[a-z0-9-]{0,60}", "[ -~]{0,60}", any::<String>()]) {
            let mut out = Vec::new();
            write_string(&mut out, &text);
            prop_assert_eq!(out, serde_json::to_vec(&text).unwrap());
        }
    }

    fn apply(review: &Value) -> Value {
        let bytes = serde_json::to_vec(review).unwrap();
        let decoded = decode(&bytes).unwrap();
        let operations = restore(&decoded).unwrap();
        let mut object = review["request"]["object"].clone();
        if !operations.is_empty() {
            let mut text = Vec::new();
            write(&mut text, operations);
            let patch: json_patch::Patch = serde_json::from_slice(&text).unwrap();
            json_patch::patch(&mut object, &patch).unwrap();
        }
        object
    }

    /// Any JSON value: escapes, empty values, wrong types.
    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
            Just(json!("a\"b\\c\u{2028}<&>\u{0}")),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::hash_map(any::<String>(), inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect::<Map<_, _>>())),
            ]
        })
    }

    fn any_event() -> impl Strategy<Value = Value> {
        let field = || prop::option::of(any_value());
        (prop::array::uniform5(field()), any::<String>()).prop_map(|(fields, name)| {
            let mut event = json!({"metadata": {"name": name}, "reason": "BackOff"});
            let [managed, restored @ ..] = fields;
            for (key, value) in RESTORED.iter().zip(restored) {
                if let Some(value) = value {
                    event[key] = value;
                }
            }
            if let Some(managed) = managed {
                event["metadata"]["managedFields"] = managed;
            }
            event
        })
    }

    proptest! {
        #[test]
        fn a_restoring_patch_always_applies_and_restores_the_old_fields(new in any_event(), old in any_event()) {
            let review = json!({"request": {"uid": "u", "object": new, "oldObject": old}});
            let restored = apply(&review);
            for key in RESTORED {
                prop_assert_eq!(restored.get(key), old.get(key));
            }
            prop_assert_eq!(restored["metadata"].get("managedFields"), old["metadata"].get("managedFields"));
            prop_assert_eq!(&restored["metadata"]["name"], &new["metadata"]["name"]);
            prop_assert_eq!(&restored["reason"], &new["reason"]);
        }

        #[test]
        fn any_name_and_message_can_be_set(name in any::<Option<String>>(), message in any::<String>()) {
            let mut text = Vec::new();
            let set = name.as_deref().map(PatchOperation::name).into_iter().chain([PatchOperation::message(&message)]);
            write(&mut text, set);
            let patch: json_patch::Patch = serde_json::from_slice(&text).unwrap();
            let mut object = json!({"metadata": {"generateName": "x"}, "message": "long"});
            json_patch::patch(&mut object, &patch).unwrap();
            prop_assert_eq!(object["metadata"]["name"].as_str(), name.as_deref());
            prop_assert_eq!(object["message"].as_str(), Some(message.as_str()));
        }
    }

    #[test]
    fn an_annotation_is_added_beside_others() {
        let mut text = Vec::new();
        write_annotation(&mut text, "squelch.dev/probe-signature", "a\"b");
        let patch: json_patch::Patch = serde_json::from_slice(&text).unwrap();
        let mut object = json!({"metadata": {"annotations": {"other": "1"}}});
        json_patch::patch(&mut object, &patch).unwrap();
        let expected = json!({"other": "1", "squelch.dev/probe-signature": "a\"b"});
        assert_eq!(object["metadata"]["annotations"], expected);
    }

    #[test]
    fn unchanged_fields_are_not_patched() {
        let event = json!({"metadata": {"managedFields": [{"a": 1}]}, "count": 3, "message": "m"});
        let review = json!({"request": {"uid": "u", "object": event, "oldObject": event}});
        let bytes = serde_json::to_vec(&review).unwrap();
        assert_eq!(restore(&decode(&bytes).unwrap()), Some(Vec::new()));
    }

    #[test]
    fn without_an_old_event_no_patch_is_returned() {
        let bytes =
            serde_json::to_vec(&json!({"request": {"uid": "u", "object": {"metadata": {}}}})).unwrap();
        assert_eq!(restore(&decode(&bytes).unwrap()), None);
    }
}
