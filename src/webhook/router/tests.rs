mod probes;
mod undecided;

use super::*;
use crate::PROBE_PATH;
use crate::clock;
use crate::leader::LeaseDeadline;
use crate::policy;
use crate::tls::PathToken;
use futures::FutureExt as _;
use http_body_util::BodyExt;
use hyper::header::{ALLOW, CONTENT_TYPE};
use serde_json::{Value, json};
use std::time::Duration;

const CREATE: &str = include_str!("../testdata/core_create.json");

pub(in crate::webhook) fn active_router() -> (Router, PathToken) {
    router_of(LeaseDeadline::unlimited())
}

fn router_of(lease_deadline: LeaseDeadline) -> (Router, PathToken) {
    router_with(clock::Clock::default(), lease_deadline)
}

fn router_with(clock: clock::Clock, lease_deadline: LeaseDeadline) -> (Router, PathToken) {
    let token = PathToken::generate().unwrap();
    let webhook = Webhook {
        clock,
        lease_deadline: Arc::new(lease_deadline),
        ..Webhook::new(
            Arc::new(squelch_engine::testing::engine()),
            Arc::new(policy::Store::default()),
            "system:serviceaccount:squelch-system:squelch",
            token.clone(),
        )
    };
    (router(Arc::new(webhook)), token)
}

fn post(path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    Request::post(path).header(CONTENT_TYPE, "application/json").body(Full::new(body.into())).unwrap()
}

/// The API server adds its timeout as a query.
fn review_path(token: &PathToken) -> String {
    format!("{}?timeout=1s", path(token))
}

async fn send(router: &Router, request: Request<Full<Bytes>>) -> (StatusCode, Value) {
    let response = router.route(request).await;
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

fn allowed(uid: &str, version: &str) -> Value {
    json!({"kind": "AdmissionReview", "apiVersion": version, "response": {"uid": uid, "allowed": true}})
}

fn reviews(router: &Router, operation: &str, api: &str, result: &str) -> String {
    let text = router.webhook.metrics.text();
    let start =
        format!("squelch_reviews_total{{api=\"{api}\",operation=\"{operation}\",result=\"{result}\"}} ");
    text.lines().find_map(|line| line.strip_prefix(&start)).unwrap().to_owned()
}

fn unauthenticated_requests(router: &Router) -> String {
    let text = router.webhook.metrics.text();
    text.lines()
        .find_map(|line| line.strip_prefix("squelch_unauthenticated_requests_total "))
        .unwrap()
        .to_owned()
}

#[tokio::test]
async fn a_review_without_a_policy_is_allowed_and_counted() {
    let (router, token) = active_router();
    let uids = [
        (CREATE, "705ab4f5-6393-11e8-b7cc-42010a800002"),
        (include_str!("../testdata/core_update.json"), "9d0cf6a1-1b7c-4c41-8f0a-4b1f0e6d2c3a"),
        (include_str!("../testdata/events_create.json"), "1c9e6a4d-0a0f-4f4c-8f2e-7a5d3b1c0e9f"),
        (include_str!("../testdata/events_update.json"), "a3f1d2c4-b5e6-4788-99aa-bbccddeeff00"),
    ];
    for (review, uid) in uids {
        let (status, answer) = send(&router, post(&review_path(&token), review)).await;
        assert_eq!((status, answer), (StatusCode::OK, allowed(uid, "admission.k8s.io/v1")));
    }
    for (operation, api) in
        [("create", "core"), ("update", "core"), ("create", "events"), ("update", "events")]
    {
        assert_eq!(reviews(&router, operation, api, "allowed"), "1");
    }
    assert_eq!(unauthenticated_requests(&router), "0");
}

#[tokio::test]
async fn a_review_on_another_path_is_allowed_and_changes_nothing() {
    let (router, _) = active_router();
    let wrong = path(&PathToken::generate().unwrap());
    for path in ["/", "/events", "/events/", wrong.as_str(), "/events/short"] {
        let (status, answer) = send(&router, post(path, CREATE)).await;
        let expected = allowed("705ab4f5-6393-11e8-b7cc-42010a800002", "admission.k8s.io/v1");
        assert_eq!((status, answer), (StatusCode::OK, expected), "{path}");
    }
    assert_eq!(unauthenticated_requests(&router), "5");
    assert_eq!(reviews(&router, "create", "core", "allowed"), "0");
    assert!(router.webhook.metrics.text().contains("squelch_admission_duration_seconds_count 0"));
}

#[tokio::test]
async fn both_tokens_of_a_rotation_are_accepted() {
    let (router, old) = active_router();
    let new = PathToken::generate().unwrap();
    router.webhook.tokens.replace(vec![old.clone(), new.clone()]);
    for token in [&old, &new] {
        assert_eq!(router.caller(&post(&review_path(token), "")), Caller::Review);
    }
    router.webhook.tokens.replace(vec![new.clone()]);
    assert_eq!(router.caller(&post(&review_path(&old), "")), Caller::Unauthenticated);
    assert_eq!(router.caller(&post(&review_path(&new), "")), Caller::Review);
}

/// Puts a policy in force for the namespace of the recorded reviews.
fn put_policy_in_force(router: &Router) {
    let namespace = serde_json::from_str::<Value>(CREATE).unwrap()["request"]["namespace"].clone();
    let policy = policy::fixtures::policy(namespace.as_str().unwrap(), "p", &json!({}), 0);
    router.webhook.policies.swap(policy::Set::new([policy]));
}

#[tokio::test]
async fn a_standby_counts_no_occurrence_and_rejects_writes_that_lower_a_count() {
    let (router, token) = router_of(LeaseDeadline::default());
    put_policy_in_force(&router);
    let mut lowers: Value = serde_json::from_str(include_str!("../testdata/core_update.json")).unwrap();
    lowers["request"]["oldObject"]["count"] = json!(1_000_000);
    for review in [CREATE, CREATE, include_str!("../testdata/core_update.json")] {
        let (_, answer) = send(&router, post(&review_path(&token), review)).await;
        assert_eq!(answer["response"]["allowed"], json!(true), "{answer}");
    }
    let (_, answer) = send(&router, post(&review_path(&token), lowers.to_string())).await;
    assert_eq!(answer["response"]["status"]["code"], json!(409), "{answer}");
    assert_eq!(reviews(&router, "create", "core", "standby"), "2");
    assert_eq!(reviews(&router, "update", "core", "already_exists"), "1");
    assert!(router.webhook.engine.counters().is_empty());

    let (_, answer) =
        send(&router, post(&format!("{}{PROBE_PATH}", path(&token)), probe_review().to_string())).await;
    assert!(answer["response"]["patch"].is_null(), "a standby does not sign: {answer}");
}

#[tokio::test]
async fn a_stale_update_is_allowed() {
    for lease_deadline in [LeaseDeadline::unlimited(), LeaseDeadline::default()] {
        let (router, token) = router_of(lease_deadline);
        put_policy_in_force(&router);
        let mut lowers: Value = serde_json::from_str(include_str!("../testdata/core_update.json")).unwrap();
        lowers["request"]["oldObject"]["count"] = json!(1_000_000);
        lowers["request"]["oldObject"]["metadata"]["resourceVersion"] = json!("48302");
        let uid = lowers["request"]["uid"].as_str().unwrap();
        let (_, answer) = send(&router, post(&review_path(&token), lowers.to_string())).await;
        assert_eq!(answer, allowed(uid, "admission.k8s.io/v1"));
        assert!(router.webhook.engine.counters().is_empty());
    }
}

#[tokio::test]
async fn reviews_outside_squelchs_rules_are_allowed() {
    let (router, token) = active_router();
    let uid = "705ab4f5-6393-11e8-b7cc-42010a800002";
    for (from, to) in [
        ("\"operation\":\"CREATE\"", "\"operation\":\"DELETE\""),
        ("\"operation\":\"CREATE\"", "\"operation\":\"CONNECT\""),
        ("\"requestResource\":", "\"subResource\":\"status\",\"requestResource\":"),
    ] {
        let review = CREATE.replace(from, to);
        assert_ne!(review, CREATE);
        let (status, answer) = send(&router, post(&review_path(&token), review)).await;
        assert_eq!((status, answer), (StatusCode::OK, allowed(uid, "admission.k8s.io/v1")), "{to}");
    }
    let old = CREATE.replace("admission.k8s.io/v1", "admission.k8s.io/v1beta1");
    let (status, answer) = send(&router, post(&review_path(&token), old)).await;
    assert_eq!((status, answer), (StatusCode::OK, allowed(uid, "admission.k8s.io/v1beta1")));
    assert_eq!(reviews(&router, "unknown", "unknown", "not_concerned"), "2");
    assert_eq!(reviews(&router, "create", "core", "not_concerned"), "2");
}

#[tokio::test]
async fn a_body_that_is_no_review_gets_400() {
    let (router, token) = active_router();
    for body in ["", "{}", "null", "[1", "{\"request\":null}"] {
        let (status, _) = send(&router, post(&review_path(&token), body)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
        let (status, _) = send(&router, post("/elsewhere", body)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
    }
    assert_eq!(reviews(&router, "unknown", "unknown", "failed_open"), "5");
}

#[tokio::test]
async fn other_methods_and_content_types_are_rejected() {
    let (router, token) = active_router();
    let get = |path: &str| Request::get(path).body(Full::new(Bytes::new())).unwrap();
    assert_eq!(send(&router, get("/")).await.0, StatusCode::NOT_FOUND);
    let response = router.route(get(&review_path(&token))).await;
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(response.headers()[ALLOW], "POST");
    let typed = |value: &str| {
        Request::post(review_path(&token))
            .header(CONTENT_TYPE, value)
            .body(Full::new(Bytes::from(CREATE)))
            .unwrap()
    };
    assert_eq!(send(&router, typed("text/plain")).await.0, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert_eq!(send(&router, typed("application/json; charset=utf-8")).await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_review_is_in_flight_until_its_response_is_sent() {
    let (router, token) = active_router();
    let answer = router.route(post(&review_path(&token), CREATE)).await;
    let length = usize::try_from(answer.body().size_hint().exact().unwrap()).unwrap();
    assert!(router.limiters.reviews.try_acquire(MAX_REVIEWS).is_none());
    assert!(
        router.limiters.bodies.try_acquire(MAX_BODIES - length).is_some(),
        "the permit shrinks to the response"
    );
    drop(answer);
    assert!(router.limiters.reviews.try_acquire(MAX_REVIEWS).is_some());
    assert!(router.limiters.bodies.try_acquire(MAX_BODIES).is_some());
}

#[tokio::test]
async fn a_uid_above_the_maximum_length_is_rejected() {
    let (router, token) = active_router();
    let uid = "705ab4f5-6393-11e8-b7cc-42010a800002";
    let review = |length| CREATE.replace(uid, &"u".repeat(length));
    let (status, answer) = send(&router, post(&review_path(&token), review(256))).await;
    assert_eq!((status, answer), (StatusCode::OK, allowed(&"u".repeat(256), "admission.k8s.io/v1")));
    let (status, _) = send(&router, post(&review_path(&token), review(257))).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(reviews(&router, "unknown", "unknown", "failed_open"), "1");
    for path in ["/elsewhere".to_owned(), format!("{}{PROBE_PATH}", path(&token))] {
        assert_eq!(send(&router, post(&path, review(257))).await.0, StatusCode::BAD_REQUEST);
    }
}

/// A router with a cluster policy. `shop` is the only namespace.
fn router_with_cluster_policy() -> (Router, PathToken) {
    let (router, token) = active_router();
    let policy = policy::fixtures::cluster_policy("all", &json!({}), 1);
    let namespaces = policy::Namespaces::from([("shop".into(), policy::fixtures::labels(&[]))]);
    router.webhook.policies.swap(policy::Set::in_cluster([policy], &namespaces));
    (router, token)
}

#[tokio::test]
async fn only_known_namespaces_are_stored_in_the_tables() {
    let (router, token) = router_with_cluster_policy();
    for namespace in ["nowhere", "shop-2", "kube-system"] {
        let review = CREATE.replace("\"namespace\":\"shop\"", &format!("\"namespace\":\"{namespace}\""));
        let (status, answer) = send(&router, post(&review_path(&token), review)).await;
        assert_eq!((status, &answer["response"]["allowed"]), (StatusCode::OK, &json!(true)));
    }
    assert_eq!(router.webhook.engine.gauges().series, 0);
    assert_eq!(reviews(&router, "create", "core", "allowed"), "3");
    send(&router, post(&review_path(&token), CREATE)).await;
    assert_eq!(router.webhook.engine.gauges().series, 1);
}

/// squelch's own dry run with a nonce to sign.
fn probe_review() -> Value {
    let mut review: Value = serde_json::from_str(CREATE).unwrap();
    review["request"]["dryRun"] = json!(true);
    review["request"]["userInfo"]["username"] = json!("system:serviceaccount:squelch-system:squelch");
    review["request"]["object"]["metadata"]["annotations"] = json!({"squelch.dev/probe": "4711"});
    review
}
