mod any_json;
mod edits;

use std::borrow::Cow;

use super::*;
use jiff::SignedDuration;
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

/// A client counts in `count` and `lastTimestamp` of an Event that has a series too.
#[test]
fn a_series_that_the_client_leaves_does_not_hide_its_time() {
    let mut review = core_update();
    for side in ["object", "oldObject"] {
        review["request"][side]["series"] =
            json!({ "count": 1, "lastObservedTime": "2000-01-01T00:00:00.000000Z" });
    }
    let alone = observed(&core_update(), |seen| seen.last_observed);
    assert!(alone.is_some());
    observed(&review, |seen| assert_eq!(seen.last_observed, alone));
}
