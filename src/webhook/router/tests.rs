use super::*;
use crate::PROBE_PATH;
use crate::clock;
use crate::leader::LeaseDeadline;
use crate::metrics::Metrics;
use crate::policy;
use crate::tls::{AcceptedTokens, PathToken};
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
        engine: Arc::new(squelch_engine::testing::engine()),
        policies: Arc::new(policy::Store::default()),
        metrics: Arc::new(Metrics::new()),
        own_user: "system:serviceaccount:squelch-system:squelch".to_owned(),
        tokens: Arc::new(AcceptedTokens::new(vec![token.clone()])),
        clock,
        lease_deadline: Arc::new(lease_deadline),
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
        assert!(router.accepts(&post(&review_path(token), "")));
    }
    router.webhook.tokens.replace(vec![new.clone()]);
    assert!(!router.accepts(&post(&review_path(&old), "")) && router.accepts(&post(&review_path(&new), "")));
}

/// As the API server writes it: the uid comes first.
fn as_sent(review: &Value) -> String {
    review.to_string().replacen("\"request\":{", "\"request\":{\"uid\":\"u\",", 1)
}

/// squelch's own dry run with a nonce to sign.
fn probe_review() -> Value {
    let mut review: Value = serde_json::from_str(CREATE).unwrap();
    review["request"]["dryRun"] = json!(true);
    review["request"]["userInfo"]["username"] = json!("system:serviceaccount:squelch-system:squelch");
    review["request"]["object"]["metadata"]["annotations"] = json!({"squelch.dev/probe": "4711"});
    review
}

#[tokio::test]
async fn a_probe_is_signed_and_not_counted_as_a_review() {
    use base64::Engine as _;
    let (router, token) = active_router();
    let before = router.webhook.metrics.text();
    let path = format!("{}{PROBE_PATH}?timeout=1s", path(&token));
    assert!(router.is_probe(&post(&path, "")) && router.accepts(&post(&path, "")));
    let (status, answer) = send(&router, post(&path, probe_review().to_string())).await;
    assert_eq!((status, &answer["response"]["allowed"]), (StatusCode::OK, &json!(true)));
    let patch = answer["response"]["patch"].as_str().unwrap();
    let patch = base64::engine::general_purpose::STANDARD.decode(patch).unwrap();
    let mut event = probe_review()["request"]["object"].take();
    let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
    json_patch::patch(&mut event, &patch).unwrap();
    let signature = event["metadata"]["annotations"]["squelch.dev/probe-signature"].as_str().unwrap();
    assert!(router.webhook.tokens.verify("4711", signature));

    let change =
        |text: &str| text.replace("squelch_probes_answered_total 1", "squelch_probes_answered_total 0");
    let own = |text: String| {
        let lines = text.lines().filter(|line| line.starts_with("squelch_"));
        lines.map(ToOwned::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(own(change(&router.webhook.metrics.text())), own(before));
}

#[tokio::test]
async fn only_squelchs_own_dry_run_on_the_probe_path_is_signed() {
    let (router, token) = active_router();
    let is_signed = async |path: String, review: &Value| {
        let (status, answer) = send(&router, post(&path, as_sent(review))).await;
        assert_eq!((status, &answer["response"]["allowed"]), (StatusCode::OK, &json!(true)));
        answer["response"]["patch"].is_string()
    };
    let probe_path = || format!("{}{PROBE_PATH}", path(&token));
    assert!(is_signed(probe_path(), &probe_review()).await, "precondition");
    assert!(!is_signed(path(&token), &probe_review()).await);
    let other_token = PathToken::generate().unwrap();
    assert!(!is_signed(format!("{}{PROBE_PATH}", path(&other_token)), &probe_review()).await);
    for (pointer, value) in [
        ("/request/dryRun", json!(false)),
        ("/request/userInfo/username", json!("system:serviceaccount:shop:emitter")),
        ("/request/operation", json!("UPDATE")),
        ("/request/object/metadata/annotations", json!({"squelch.dev/probe": 4711})),
        ("/request/object/metadata/annotations", json!(null)),
        ("/request/object/metadata/annotations", json!("no map")),
    ] {
        let mut review = probe_review();
        *review.pointer_mut(pointer).unwrap() = value;
        assert!(!is_signed(probe_path(), &review).await, "{pointer}");
    }
    assert_eq!(send(&router, post(&probe_path(), "[1")).await.0, StatusCode::BAD_REQUEST);
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
async fn no_review_is_decided_after_the_lease_deadline() {
    let (router, token) = router_of(LeaseDeadline::unlimited());
    put_policy_in_force(&router);
    send(&router, post(&review_path(&token), CREATE)).await;
    let counted = router.webhook.engine.counters();
    assert_eq!(counted[0].counters.received(), 1, "precondition");
    router.webhook.lease_deadline.revoke();
    send(&router, post(&review_path(&token), CREATE)).await;
    assert_eq!(router.webhook.engine.counters()[0].counters, counted[0].counters);
    assert!(!router.is_active());
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
async fn an_unreadable_event_is_admitted_without_a_decision() {
    let (router, token) = active_router();
    let uid = "705ab4f5-6393-11e8-b7cc-42010a800002";
    let at = CREATE.find("\"object\":").unwrap();
    let cut = &CREATE[..at];
    let bodies = [
        cut.to_owned() + "\"object\":[]}}",
        cut.to_owned() + "\"object\":{\"count\":NaN}}}",
        cut.to_owned(),
        cut.to_owned() + "\"object\":{\"metadata\":" + &"[".repeat(10_000),
    ];
    for body in bodies {
        let (status, answer) = send(&router, post(&review_path(&token), body.clone())).await;
        assert_eq!((status, answer), (StatusCode::OK, allowed(uid, "admission.k8s.io/v1")), "{body:.900}");
    }
    assert_eq!(reviews(&router, "unknown", "unknown", "failed_open"), "4");
    let without = CREATE.replace("\"object\":", "\"elsewhere\":");
    let (status, _) = send(&router, post(&review_path(&token), without)).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(reviews(&router, "create", "core", "failed_open"), "1");
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
async fn reviews_above_the_limits_are_admitted_without_a_decision() {
    let (router, token) = active_router();
    let uid = "705ab4f5-6393-11e8-b7cc-42010a800002";
    let ok = (StatusCode::OK, allowed(uid, "admission.k8s.io/v1"));
    let full = router.limiters.reviews.try_acquire(MAX_REVIEWS).unwrap();
    assert_eq!(send(&router, post(&review_path(&token), CREATE)).await, ok);
    drop(full);
    let full = router.limiters.bodies.try_acquire(MAX_BODIES).unwrap();
    assert_eq!(send(&router, post(&review_path(&token), CREATE)).await, ok);
    drop(full);
    assert_eq!(reviews(&router, "unknown", "unknown", "failed_open"), "2");
    assert_eq!(send(&router, post(&review_path(&token), CREATE)).await, ok);
    assert_eq!(reviews(&router, "create", "core", "allowed"), "1");

    let full = router.limiters.reviews.try_acquire(MAX_REVIEWS).unwrap();
    let prefixes = router.limiters.prefix_reviews.try_acquire(MAX_PREFIX_REVIEWS).unwrap();
    let unread = (StatusCode::SERVICE_UNAVAILABLE, Value::Null);
    assert_eq!(send(&router, post(&review_path(&token), CREATE)).await, unread);
    assert_eq!(reviews(&router, "unknown", "unknown", "failed_open"), "3");
    let probe = post(&format!("{}{PROBE_PATH}", path(&token)), probe_review().to_string());
    assert_eq!(send(&router, probe).await, unread);
    assert_eq!(reviews(&router, "unknown", "unknown", "failed_open"), "3", "a probe is not counted");
    drop((full, prefixes));

    let full = router.limiters.unauthenticated.try_acquire(MAX_UNAUTHENTICATED_REQUESTS).unwrap();
    assert_eq!(send(&router, post("/elsewhere", CREATE)).await.0, StatusCode::NOT_FOUND);
    assert_eq!(send(&router, post(&review_path(&token), CREATE)).await, ok);
    drop(full);
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

#[tokio::test]
async fn a_probe_above_the_maximum_length_is_not_signed() {
    let (router, token) = active_router();
    let probe = format!("{}{PROBE_PATH}", path(&token));
    for (length, is_signed) in [(50 << 10, true), (65 << 10, false)] {
        let mut review = probe_review();
        review["request"]["object"]["message"] = "x".repeat(length).into();
        let (status, answer) = send(&router, post(&probe, as_sent(&review))).await;
        assert_eq!((status, &answer["response"]["allowed"]), (StatusCode::OK, &json!(true)));
        assert_eq!(answer["response"]["patch"].is_string(), is_signed, "{length}");
    }
}

#[tokio::test]
async fn a_cancelled_long_review_is_counted_once() {
    let (mut router, token) = active_router();
    Arc::get_mut(&mut router.limiters).unwrap().long_reviews = LongReviews::with_permits(1);
    let long = || post(&review_path(&token), CREATE.to_owned() + &" ".repeat(200 << 10));
    let counted = || {
        (reviews(&router, "create", "core", "allowed"), reviews(&router, "unknown", "unknown", "failed_open"))
    };
    let permit = router.limiters.long_reviews.acquire(usize::MAX).await;
    assert!(router.route(long()).now_or_never().is_none(), "the review waits for a permit");
    assert_eq!(counted(), ("0".to_owned(), "1".to_owned()), "cancelled while it waits");
    drop(permit);
    // Cancelled while it is decoded, unless decoding has already ended.
    let _ = router.route(long()).now_or_never();
    drop(router.limiters.long_reviews.acquire(usize::MAX).await);
    assert_eq!(counted(), ("1".to_owned(), "1".to_owned()), "cancelled while it is decoded");
}

/// Returns the number of reviews without a decision, and of their occurrences in the engine.
fn failed_open(router: &Router) -> (String, u64) {
    let counted = router.webhook.engine.counters();
    let occurrences = counted.first().map_or(0, |scope| scope.counters.received());
    (reviews(router, "create", "core", "failed_open"), occurrences)
}

#[tokio::test]
async fn a_review_that_waited_during_a_stall_is_not_decided_and_counted_once() {
    let clock = clock::Clock::manual();
    let (router, token) = router_with(clock.clone(), LeaseDeadline::unlimited());
    put_policy_in_force(&router);
    let stalls = &router.limiters.stalls;
    let heartbeat_at = |milliseconds| {
        clock.set(Duration::from_millis(milliseconds));
        stalls.heartbeat(clock.now());
    };
    heartbeat_at(10_000);
    clock.set(Duration::from_millis(11_500));
    let (_, answer) = send(&router, post(&review_path(&token), CREATE)).await;
    assert_eq!(answer["response"]["allowed"], json!(true), "{answer}");
    assert_eq!(failed_open(&router), ("1".to_owned(), 1), "before the next heartbeat");
    heartbeat_at(11_500);
    send(&router, post(&review_path(&token), CREATE)).await;
    assert_eq!(failed_open(&router).0, "2", "after the next heartbeat");
    (115..126).for_each(|tenths| heartbeat_at(tenths * 100));
    send(&router, post(&review_path(&token), CREATE)).await;
    assert_eq!(failed_open(&router).0, "2", "reviews from before the end of the stall have timed out");
}

#[tokio::test]
async fn a_reset_stream_is_counted_once_as_failed_open() {
    let (router, token) = active_router();
    put_policy_in_force(&router);
    let mut request = post(&review_path(&token), CREATE);
    *request.version_mut() = Version::HTTP_2;
    assert!(router.route(request).now_or_never().is_none(), "hyper can check for a reset");
    assert_eq!(failed_open(&router), ("1".to_owned(), 1));
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

#[tokio::test]
async fn a_write_in_an_invalid_namespace_is_admitted_without_a_decision() {
    let (router, token) = router_with_cluster_policy();
    let review = CREATE.replace("\"namespace\":\"shop\"", "\"namespace\":\"squelch/pods/POD?a=\"");
    let (status, answer) = send(&router, post(&review_path(&token), review)).await;
    assert_eq!((status, &answer["response"]["allowed"]), (StatusCode::OK, &json!(true)));
    assert_eq!(router.webhook.engine.gauges().series, 0);
    assert_eq!(reviews(&router, "create", "core", "failed_open"), "1");
}
