use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};

const OWN: &str = "system:serviceaccount:squelch-system:squelch";

fn wall() -> Timestamp {
    "2026-11-21T09:00:00Z".parse().unwrap()
}

fn core_create() -> Value {
    serde_json::from_str(include_str!("../testdata/core_create.json")).unwrap()
}

fn core_update() -> Value {
    serde_json::from_str(include_str!("../testdata/core_update.json")).unwrap()
}

/// Decodes `review` and passes its observation to `check`.
fn observed<T>(review: &Value, check: impl FnOnce(&Observation<'_>) -> T) -> T {
    let bytes = serde_json::to_vec(review).unwrap();
    let decoded = decode(&bytes).unwrap();
    check(&decoded.observe(OWN, wall()).unwrap())
}

fn unobserved(review: &Value) -> NotObserved {
    let bytes = serde_json::to_vec(review).unwrap();
    decode(&bytes).unwrap().observe(OWN, wall()).unwrap_err()
}

#[test]
fn a_create_through_core_is_observed() {
    let bytes = include_bytes!("../testdata/core_create.json");
    let review = decode(bytes).unwrap();
    assert_eq!(review.uid(), "705ab4f5-6393-11e8-b7cc-42010a800002");
    let seen = review.observe(OWN, wall()).unwrap();
    assert_eq!((seen.operation, seen.api), (Operation::Create, Api::Core));
    assert_eq!((seen.user, seen.own, seen.dry_run), ("system:node:node-1", false, false));
    assert_eq!(seen.namespace, "shop");
    assert_eq!(seen.name.as_deref(), Some("web-7d4b9c6f5-x2x9k.187a2b3c4d5e6f70"));
    assert_eq!((seen.value, seen.old_value, seen.has_series), (1, 0, false));
    assert!(!seen.edited && !seen.unchanged);
    assert_eq!(seen.event.reporter(), ("kubelet", "node-1"));
    assert_eq!(seen.event.regarding.field_path, "spec.containers{app}");
    assert_eq!(seen.event.first_timestamp, "2026-11-21T08:54:00Z");
    assert_eq!(seen.event.event_time, "");
    assert!(seen.event.related.is_none());
    assert!(matches!(seen.event.message, Cow::Borrowed(_)));
    assert_eq!(seen.first_seen, Some("2026-11-21T08:54:00Z".parse().unwrap()));
    assert_eq!(seen.occurred_at, "2026-11-21T08:54:00Z".parse().unwrap());
}

#[test]
fn an_update_through_core_is_an_occurrence() {
    observed(&core_update(), |seen| {
        assert_eq!((seen.operation, seen.value, seen.old_value), (Operation::Update, 2, 1));
        assert!(!seen.edited && !seen.unchanged);
        assert_eq!(seen.occurred_at, "2026-11-21T08:54:10Z".parse().unwrap());
    });
}

#[test]
fn a_create_through_events_k8s_io_is_observed() {
    let bytes = include_bytes!("../testdata/events_create.json");
    let review = decode(bytes).unwrap();
    let seen = review.observe("system:serviceaccount:shop:controller", wall()).unwrap();
    assert_eq!((seen.operation, seen.api, seen.own), (Operation::Create, Api::Events, true));
    assert_eq!(seen.event.message, "cannot reach <db> & \"cache\"");
    assert_eq!(seen.event.event_time, "2026-11-21T08:54:00.123456Z");
    assert_eq!(seen.first_seen, Some("2026-11-21T08:54:00.123456Z".parse().unwrap()));
    assert_eq!(seen.event.source_component, "");
}

#[test]
fn an_update_through_events_k8s_io_is_counted_by_its_series() {
    let bytes = include_bytes!("../testdata/events_update.json");
    let review = decode(bytes).unwrap();
    let seen = review.observe(OWN, wall()).unwrap();
    assert_eq!((seen.value, seen.old_value, seen.has_series), (2, 1, true));
    assert!(!seen.edited && !seen.unchanged);
    assert_eq!(seen.occurred_at, "2026-11-21T08:54:05.654321Z".parse().unwrap());
}

#[test]
fn a_create_with_generate_name_has_no_name() {
    let bytes = include_bytes!("../testdata/generate_name.json");
    let review = decode(bytes).unwrap();
    let seen = review.observe(OWN, wall()).unwrap();
    assert_eq!((seen.name.as_deref(), &*seen.generate_name, seen.dry_run), (None, "web-", true));
}

#[test]
fn a_change_of_a_field_that_repeats_keep_is_an_edit() {
    let fields = [
        ("/metadata/labels", json!({"a": ""})),
        ("/metadata/annotations", json!({"a": "b"})),
        ("/metadata/ownerReferences", json!([{"uid": "x"}])),
        ("/metadata/finalizers", json!(["x"])),
        ("/involvedObject/resourceVersion", json!("7")),
        ("/related", json!({"kind": "Node"})),
        ("/type", json!("Normal")),
        ("/reason", json!("Other")),
        ("/action", json!("Other")),
        ("/source/host", json!("other")),
        ("/reportingComponent", json!("other")),
        ("/reportingInstance", json!("other")),
        ("/firstTimestamp", json!("2026-11-21T08:53:00Z")),
        ("/eventTime", json!("2026-11-21T08:53:00.000000Z")),
        ("/fieldOfTomorrow", json!({"x": 1})),
    ];
    for (path, value) in fields {
        for side in ["object", "oldObject"] {
            let mut review = core_update();
            let (parent, key) = path.rsplit_once('/').unwrap();
            review["request"][side].pointer_mut(parent).unwrap()[key] = value.clone();
            assert!(observed(&review, |seen| seen.edited), "{side} {path}");
        }
    }
}

#[test]
fn changes_of_server_fields_and_empty_fields_are_no_edit() {
    let mut review = core_update();
    let object = &mut review["request"]["object"];
    for key in
        ["uid", "resourceVersion", "managedFields", "creationTimestamp", "selfLink", "deletionTimestamp"]
    {
        object["metadata"][key] = json!("other");
    }
    object["metadata"]["generation"] = json!(7);
    object["metadata"]["labels"] = json!({});
    object["metadata"]["finalizers"] = json!([]);
    object["action"] = json!("");
    object["related"] = Value::Null;
    object["fieldOfTomorrow"] = json!(0);
    object.as_object_mut().unwrap().remove("eventTime");
    assert!(observed(&review, |seen| !seen.edited));
}

#[test]
fn an_update_with_another_resource_version_is_stale() {
    for (written, stored, stale) in [
        (json!("48300"), json!("48301"), true),
        (json!("48302"), json!("48301"), true),
        (json!("48301"), json!("48301"), false),
        // The API server compares numbers. A missing resourceVersion and 0 match any stored one.
        (json!("048301"), json!("48301"), false),
        (Value::Null, json!("48301"), false),
        (json!(""), json!("48301"), false),
        (json!("0"), json!("48301"), false),
        // The API server sends none of these.
        (json!("other"), json!("48301"), false),
        (json!(48300), json!([]), false),
        (json!("48300"), Value::Null, false),
    ] {
        let mut review = core_update();
        review["request"]["object"]["metadata"]["resourceVersion"] = written.clone();
        review["request"]["oldObject"]["metadata"]["resourceVersion"] = stored.clone();
        observed(&review, |seen| assert_eq!(seen.stale, stale, "{written} over {stored}"));
    }
    let mut absent = core_update();
    absent["request"]["object"]["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    assert!(observed(&absent, |seen| !seen.stale));
    let mut create = core_create();
    create["request"]["object"]["metadata"]["resourceVersion"] = json!("1");
    assert!(observed(&create, |seen| !seen.stale));
}

/// Another client, or squelch, may have set `series` while the client counts in `count`.
#[test]
fn the_larger_of_count_and_series_count_is_read() {
    let mut review = core_update();
    let event =
        json!({"count": 8, "series": {"count": 7, "lastObservedTime": "2026-11-21T08:54:00.000000Z"}});
    for (field, value) in event.as_object().unwrap() {
        review["request"]["object"][field] = value.clone();
        review["request"]["oldObject"][field] = value.clone();
    }
    review["request"]["oldObject"]["count"] = json!(6);
    assert_eq!(observed(&review, |seen| (seen.value, seen.old_value)), (8, 7));
}

#[test]
fn an_update_that_changes_no_count_is_unchanged() {
    let mut review = core_update();
    review["request"]["object"] = review["request"]["oldObject"].clone();
    review["request"]["object"]["message"] = json!("corrected by hand");
    assert!(observed(&review, |seen| seen.unchanged && !seen.edited));
    for (key, value) in [
        ("count", json!(7)),
        ("series", json!({"count": 2})),
        ("lastTimestamp", json!("2026-11-21T08:55:00Z")),
    ] {
        let mut changed = review.clone();
        changed["request"]["object"][key] = value;
        assert!(observed(&changed, |seen| !seen.unchanged), "{key}");
    }
}

#[test]
fn the_value_is_read_from_any_json() {
    let huge: Value = serde_json::from_str("1e300").unwrap();
    for (series, count, value) in [
        (Value::Null, json!(5), 5),
        (Value::Null, Value::Null, 1),
        (Value::Null, json!(0), 1),
        (Value::Null, json!(-3), 1),
        (Value::Null, json!(2.5), 2),
        (Value::Null, huge.clone(), i64::from(i32::MAX)),
        (Value::Null, json!(u64::MAX), i64::from(i32::MAX)),
        (Value::Null, json!("7"), 1),
        (json!({"count": 9}), json!(5), 9),
        (json!({"count": 0}), json!(5), 5),
        (json!({"count": 9}), json!(12), 12),
        (json!({"count": -1}), json!(5), 5),
        (json!("none"), json!(5), 5),
    ] {
        let mut review = core_create();
        review["request"]["object"]["series"] = series.clone();
        review["request"]["object"]["count"] = count.clone();
        assert_eq!(observed(&review, |seen| seen.value), value, "{series} {count}");
    }
    let text = include_str!("../testdata/core_create.json").replace("\"count\":1", "\"count\":1e999");
    let review = decode(text.as_bytes()).unwrap();
    assert_eq!(review.observe(OWN, wall()).unwrap().value, i64::from(i32::MAX));
}

#[test]
fn an_occurrence_is_not_later_than_its_receipt() {
    let mut review = core_create();
    review["request"]["object"]["lastTimestamp"] = json!("2099-01-01T00:00:00Z");
    assert_eq!(observed(&review, |seen| seen.occurred_at), wall());
    review["request"]["object"]["lastTimestamp"] = json!("yesterday");
    assert_eq!(observed(&review, |seen| seen.occurred_at), wall());
}

#[test]
fn an_implausible_time_is_clamped() {
    let mut review = core_create();
    let mut last_observed = |written: Timestamp| {
        review["request"]["object"]["lastTimestamp"] = json!(written.to_string());
        observed(&review, |seen| seen.last_observed).unwrap()
    };
    let (day, ahead) = (SignedDuration::from_hours(24), SignedDuration::from_secs(10));
    for (written, taken) in [(day * 5, ahead), (ahead, ahead), (-day, -day), (-day * 8, -day)] {
        assert_eq!(last_observed(wall() + written), wall() + taken, "{written}");
    }
}

#[test]
fn other_reviews_are_not_concerned() {
    for (path, value) in [
        ("/request/operation", json!("DELETE")),
        ("/request/operation", json!("CONNECT")),
        ("/request/operation", Value::Null),
        ("/request/subResource", json!("status")),
        ("/request/kind/kind", json!("Pod")),
        ("/request/kind/group", json!("events.k8s.io")),
        ("/request/requestKind/group", json!("apps")),
        ("/apiVersion", json!("admission.k8s.io/v1beta1")),
    ] {
        let mut review = core_create();
        let (parent, key) = path.rsplit_once('/').unwrap();
        review.pointer_mut(parent).unwrap()[key] = value;
        assert_eq!(unobserved(&review), NotObserved::NotConcerned, "{path}");
    }
}

#[test]
fn a_review_without_its_event_is_not_observed() {
    for (review, path) in [(core_create(), "object"), (core_update(), "object"), (core_update(), "oldObject")]
    {
        let mut review = review;
        review["request"][path] = Value::Null;
        assert_eq!(unobserved(&review), NotObserved::NoEvent, "{path}");
    }
}

#[test]
fn an_invalid_namespace_is_not_observed() {
    for namespace in ["squelch/pods/POD?a=", "..", "A", "", "a.b"] {
        let mut review = core_create();
        review["request"]["namespace"] = json!(namespace);
        assert_eq!(unobserved(&review), NotObserved::NoNamespace, "{namespace}");
    }
}

#[test]
fn the_last_of_duplicate_keys_wins() {
    let text = include_str!("../testdata/core_create.json")
        .replace("\"reason\":\"BackOff\"", "\"reason\":\"One\",\"reason\":\"Two\"")
        .replace("\"username\":", "\"username\":\"x\",\"username\":");
    let review = decode(text.as_bytes()).unwrap();
    let seen = review.observe(OWN, wall()).unwrap();
    assert_eq!((&*seen.event.reason, seen.user), ("Two", "system:node:node-1"));
}

#[test]
fn deep_and_wide_events_do_not_crash_the_decoder() {
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    let text = include_str!("../testdata/core_update.json").replacen(
        "\"reason\":\"BackOff\"",
        &format!("\"reason\":\"BackOff\",\"tomorrow\":{deep}"),
        1,
    );
    let review = decode(text.as_bytes()).unwrap();
    assert!(review.observe(OWN, wall()).unwrap().edited);

    let wide: String = (0..1_000).map(|at| format!("\"k{at}\":1,")).collect();
    let text = include_str!("../testdata/core_create.json").replacen(
        "\"reason\":",
        &format!("{wide}\"reason\":"),
        1,
    );
    assert!(matches!(decode(text.as_bytes()), Err(ReviewDecodeError::Json(_))));
    assert!(matches!(decode(&[0xff]), Err(ReviewDecodeError::Utf8(_))));
    assert!(matches!(decode(b"{}"), Err(ReviewDecodeError::NoRequest)));
}

#[test]
fn the_fast_path_for_kinds_reads_the_same_as_the_slow_path() {
    for usual in [
        include_str!("../testdata/core_create.json"),
        include_str!("../testdata/core_update.json"),
        include_str!("../testdata/events_create.json"),
        include_str!("../testdata/events_update.json"),
    ] {
        let unusual = usual.replacen("\"version\":\"v1\"", "\"version\": \"v1\"", 1);
        assert_ne!(usual, unusual);
        let show = |text: &str| {
            let review = decode(text.as_bytes()).unwrap();
            format!("{:?} {:?}", review.api(), review.request.kind)
        };
        assert_eq!(show(usual), show(&unusual));
        let other = usual.replace("\"requestKind\":{\"group\":\"", "\"requestKind\":{\"group\":\"other.");
        assert_eq!(decode(other.as_bytes()).unwrap().api(), None);
    }
}

/// A field's value. Some values are prefixes of others.
fn value_text() -> impl Strategy<Value = String> {
    let values =
        ["1", "12", "1.5", "1e2", "null", "[]", "[1]", "{}", "{ }", r#"{"count":1}"#, r#""""#, r#""\u0061""#];
    prop_oneof![
        prop::sample::select(values.to_vec()).prop_map(str::to_owned),
        "[a-z<é]{0,3}".prop_map(|text| json!(text).to_string()),
    ]
}

/// The members of two objects with the same keys.
fn two_objects(keys: &'static [&'static str]) -> impl Strategy<Value = (String, String)> {
    prop::collection::vec((prop::sample::select(keys), value_text(), value_text()), 1..6).prop_map(
        |members| {
            let one: Vec<_> = members.iter().map(|(key, value, _)| format!("\"{key}\":{value}")).collect();
            let another: Vec<_> =
                members.iter().map(|(key, _, value)| format!("\"{key}\":{value}")).collect();
            (one.join(","), another.join(","))
        },
    )
}

proptest! {
    #[test]
    fn the_stored_event_is_read_the_same_before_and_after_the_written_one(
        (object, old) in two_objects(&["count", "series", "message", "source", "tomorrow", "m\\u0065ssage"]),
        (metadata, old_metadata) in two_objects(&["name", "labels", "managedFields", "uid"]),
    ) {
        let object = format!(r#"{{"metadata":{{{metadata}}},{object}}}"#);
        let old = format!(r#"{{{old},"metadata":{{{old_metadata}}}}}"#);
        let after = format!(r#"{{"request":{{"object":{object},"oldObject":{old}}}}}"#);
        // In this order there is no written Event to compare with yet.
        let before = format!(r#"{{"request":{{"oldObject":{old},"object":{object}}}}}"#);
        let read = |text: &str| decode(text.as_bytes()).ok().map(|review| format!("{review:?}"));
        prop_assert_eq!(read(&after), read(&before));
    }

    #[test]
    fn any_text_of_a_tenant_is_decoded_unchanged(message in any::<String>(), reason in any::<String>(), name in any::<String>()) {
        let mut review = core_create();
        review["request"]["object"]["message"] = json!(message);
        review["request"]["object"]["reason"] = json!(reason);
        review["request"]["object"]["involvedObject"]["name"] = json!(name);
        observed(&review, |seen| {
            assert_eq!(seen.event.message, message);
            assert_eq!(seen.event.reason, reason);
            assert_eq!(seen.event.regarding.name, name);
        });
    }

    #[test]
    fn arbitrary_bytes_do_not_crash_the_decoder(bytes in any::<Vec<u8>>(), at in 0_usize..2_000, with in any::<u8>()) {
        let _ = decode(&bytes);
        let mut review = include_bytes!("../testdata/core_update.json").to_vec();
        let at = at % review.len();
        review[at] = with;
        if let Ok(decoded) = decode(&review) {
            let _ = decoded.observe(OWN, wall());
        }
    }
}
