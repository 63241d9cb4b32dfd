//! Which updates are edits, stale or unchanged.

use super::*;

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
