use super::*;
use crate::clock;
use crate::leader::Term;
use crate::metrics::Metrics;
use crate::policy;
use crate::tls::{AcceptedTokens, PathToken};
use futures::FutureExt as _;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::time::Duration;

const CREATE: &str = include_str!("../testdata/core_create.json");

pub(in crate::webhook) fn served() -> (Router, PathToken) {
    serving(Term::endless())
}

fn serving(term: Term) -> (Router, PathToken) {
    serving_by(clock::Clock::default(), term)
}

fn serving_by(clock: clock::Clock, term: Term) -> (Router, PathToken) {
    let token = PathToken::generate().unwrap();
    let webhook = Webhook {
        engine: Arc::new(squelch_engine::testing::engine()),
        policies: Arc::new(policy::Store::default()),
        metrics: Arc::new(Metrics::new()),
        own_user: "system:serviceaccount:squelch-system:squelch".to_owned(),
        tokens: Arc::new(AcceptedTokens::new(vec![token.clone()])),
        clock,
        term: Arc::new(term),
    };
    (router(Arc::new(webhook)), token)
}

fn post(path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    Request::post(path).header(CONTENT_TYPE, "application/json").body(Full::new(body.into())).unwrap()
}

/// The API server adds its timeout as a query.
fn asked(token: &PathToken) -> String {
    format!("{}?timeout=1s", path(token))
}

async fn answered(router: &Router, request: Request<Full<Bytes>>) -> (StatusCode, Value) {
    let response = router.route(request).await;
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

fn allowed(uid: &str, version: &str) -> Value {
    json!({"kind": "AdmissionReview", "apiVersion": version, "response": {"uid": uid, "allowed": true}})
}

fn writes(router: &Router, operation: &str, api: &str, outcome: &str) -> String {
    let text = router.webhook.metrics.text();
    let start =
        format!("squelch_writes_total{{api=\"{api}\",operation=\"{operation}\",outcome=\"{outcome}\"}} ");
    text.lines().find_map(|line| line.strip_prefix(&start)).unwrap().to_owned()
}

fn strays(router: &Router) -> String {
    let text = router.webhook.metrics.text();
    text.lines().find_map(|line| line.strip_prefix("squelch_stray_requests_total ")).unwrap().to_owned()
}

#[tokio::test]
async fn a_review_without_a_policy_is_allowed_and_counted() {
    let (router, token) = served();
    let uids = [
        (CREATE, "705ab4f5-6393-11e8-b7cc-42010a800002"),
        (include_str!("../testdata/core_update.json"), "9d0cf6a1-1b7c-4c41-8f0a-4b1f0e6d2c3a"),
        (include_str!("../testdata/events_create.json"), "1c9e6a4d-0a0f-4f4c-8f2e-7a5d3b1c0e9f"),
        (include_str!("../testdata/events_update.json"), "a3f1d2c4-b5e6-4788-99aa-bbccddeeff00"),
    ];
    for (review, uid) in uids {
        let (status, answer) = answered(&router, post(&asked(&token), review)).await;
        assert_eq!((status, answer), (StatusCode::OK, allowed(uid, "admission.k8s.io/v1")));
    }
    for (operation, api) in
        [("create", "core"), ("update", "core"), ("create", "events"), ("update", "events")]
    {
        assert_eq!(writes(&router, operation, api, "allowed"), "1");
    }
    assert_eq!(strays(&router), "0");
}

#[tokio::test]
async fn a_review_on_another_path_is_allowed_and_changes_nothing() {
    let (router, _) = served();
    let wrong = path(&PathToken::generate().unwrap());
    for path in ["/", "/events", "/events/", wrong.as_str(), "/events/short"] {
        let (status, answer) = answered(&router, post(path, CREATE)).await;
        let expected = allowed("705ab4f5-6393-11e8-b7cc-42010a800002", "admission.k8s.io/v1");
        assert_eq!((status, answer), (StatusCode::OK, expected), "{path}");
    }
    assert_eq!(strays(&router), "5");
    assert_eq!(writes(&router, "create", "core", "allowed"), "0");
    assert!(router.webhook.metrics.text().contains("squelch_admission_duration_seconds_count 0"));
}

#[tokio::test]
async fn both_tokens_of_a_rotation_are_accepted() {
    let (router, old) = served();
    let new = PathToken::generate().unwrap();
    router.webhook.tokens.replace(vec![old.clone(), new.clone()]);
    for token in [&old, &new] {
        assert!(router.accepts(&post(&asked(token), "")));
    }
    router.webhook.tokens.replace(vec![new.clone()]);
    assert!(!router.accepts(&post(&asked(&old), "")) && router.accepts(&post(&asked(&new), "")));
}

/// squelch's own dry run with a number to be marked.
fn asks_for_proof() -> Value {
    let mut review: Value = serde_json::from_str(CREATE).unwrap();
    review["request"]["dryRun"] = json!(true);
    review["request"]["userInfo"]["username"] = json!("system:serviceaccount:squelch-system:squelch");
    review["request"]["object"]["metadata"]["annotations"] = json!({"squelch.dev/probe": "4711"});
    review
}

#[tokio::test]
async fn a_proof_is_marked_and_counted_nowhere_else() {
    use base64::Engine as _;
    let (router, token) = served();
    let before = router.webhook.metrics.text();
    let path = format!("{}{PROOF_PATH}?timeout=1s", path(&token));
    assert!(router.proves(&post(&path, "")) && router.accepts(&post(&path, "")));
    let (status, answer) = answered(&router, post(&path, asks_for_proof().to_string())).await;
    assert_eq!((status, &answer["response"]["allowed"]), (StatusCode::OK, &json!(true)));
    let patch = answer["response"]["patch"].as_str().unwrap();
    let patch = base64::engine::general_purpose::STANDARD.decode(patch).unwrap();
    let mut event = asks_for_proof()["request"]["object"].take();
    let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
    json_patch::patch(&mut event, &patch).unwrap();
    let mark = event["metadata"]["annotations"]["squelch.dev/proof"].as_str().unwrap();
    assert!(router.webhook.tokens.have_marked("4711", mark));

    let change = |text: &str| text.replace("squelch_proofs_given_total 1", "squelch_proofs_given_total 0");
    let own = |text: String| {
        let lines = text.lines().filter(|line| line.starts_with("squelch_"));
        lines.map(ToOwned::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(own(change(&router.webhook.metrics.text())), own(before));
}

#[tokio::test]
async fn only_squelchs_own_dry_run_is_marked_and_only_where_a_proof_is_asked_for() {
    let (router, token) = served();
    let marked = async |path: String, review: &Value| {
        let (status, answer) = answered(&router, post(&path, review.to_string())).await;
        assert_eq!((status, &answer["response"]["allowed"]), (StatusCode::OK, &json!(true)));
        answer["response"]["patch"].is_string()
    };
    let proof = || format!("{}{PROOF_PATH}", path(&token));
    assert!(marked(proof(), &asks_for_proof()).await, "else this test shows nothing");
    assert!(!marked(path(&token), &asks_for_proof()).await);
    let stranger = PathToken::generate().unwrap();
    assert!(!marked(format!("{}{PROOF_PATH}", path(&stranger)), &asks_for_proof()).await);
    for (pointer, value) in [
        ("/request/dryRun", json!(false)),
        ("/request/userInfo/username", json!("system:serviceaccount:shop:emitter")),
        ("/request/operation", json!("UPDATE")),
        ("/request/object/metadata/annotations", json!({"squelch.dev/probe": 4711})),
        ("/request/object/metadata/annotations", json!(null)),
        ("/request/object/metadata/annotations", json!("no map")),
    ] {
        let mut review = asks_for_proof();
        *review.pointer_mut(pointer).unwrap() = value;
        assert!(!marked(proof(), &review).await, "{pointer}");
    }
    assert_eq!(answered(&router, post(&proof(), "[1")).await.0, StatusCode::BAD_REQUEST);
}

/// A policy that governs every Event of the recorded reviews.
fn governed(router: &Router) {
    let namespace = serde_json::from_str::<Value>(CREATE).unwrap()["request"]["namespace"].clone();
    let policy = policy::fixtures::policy(namespace.as_str().unwrap(), "p", &json!({}), 0);
    router.webhook.policies.swap(policy::Set::new([policy]));
}

#[tokio::test]
async fn one_that_does_not_decide_counts_nothing_and_keeps_counts_from_being_lowered() {
    let (router, token) = serving(Term::default());
    governed(&router);
    let mut lowers: Value = serde_json::from_str(include_str!("../testdata/core_update.json")).unwrap();
    lowers["request"]["oldObject"]["count"] = json!(1_000_000);
    for review in [CREATE, CREATE, include_str!("../testdata/core_update.json")] {
        let (_, answer) = answered(&router, post(&asked(&token), review)).await;
        assert_eq!(answer["response"]["allowed"], json!(true), "{answer}");
    }
    let (_, answer) = answered(&router, post(&asked(&token), lowers.to_string())).await;
    assert_eq!(answer["response"]["status"]["code"], json!(409), "{answer}");
    assert_eq!(writes(&router, "create", "core", "standby"), "2");
    assert_eq!(writes(&router, "update", "core", "already_exists"), "1");
    assert!(router.webhook.engine.counters().is_empty());

    let (_, answer) =
        answered(&router, post(&format!("{}{PROOF_PATH}", path(&token)), asks_for_proof().to_string())).await;
    assert!(answer["response"]["patch"].is_null(), "it proves nothing: {answer}");
}

#[tokio::test]
async fn a_stale_update_is_left_to_the_api_server() {
    for term in [Term::endless(), Term::default()] {
        let (router, token) = serving(term);
        governed(&router);
        let mut lowers: Value = serde_json::from_str(include_str!("../testdata/core_update.json")).unwrap();
        lowers["request"]["oldObject"]["count"] = json!(1_000_000);
        lowers["request"]["oldObject"]["metadata"]["resourceVersion"] = json!("48302");
        let uid = lowers["request"]["uid"].as_str().unwrap();
        let (_, answer) = answered(&router, post(&asked(&token), lowers.to_string())).await;
        assert_eq!(answer, allowed(uid, "admission.k8s.io/v1"));
        assert!(router.webhook.engine.counters().is_empty());
    }
}

#[tokio::test]
async fn past_its_term_nothing_is_decided() {
    let (router, token) = serving(Term::endless());
    governed(&router);
    answered(&router, post(&asked(&token), CREATE)).await;
    let counted = router.webhook.engine.counters();
    assert_eq!(counted[0].counters.received(), 1, "else this test shows nothing");
    router.webhook.term.end();
    answered(&router, post(&asked(&token), CREATE)).await;
    assert_eq!(router.webhook.engine.counters()[0].counters, counted[0].counters);
    assert!(!router.decides());
}

#[tokio::test]
async fn what_squelch_did_not_ask_for_is_allowed() {
    let (router, token) = served();
    let uid = "705ab4f5-6393-11e8-b7cc-42010a800002";
    for (from, to) in [
        ("\"operation\":\"CREATE\"", "\"operation\":\"DELETE\""),
        ("\"operation\":\"CREATE\"", "\"operation\":\"CONNECT\""),
        ("\"requestResource\":", "\"subResource\":\"status\",\"requestResource\":"),
    ] {
        let review = CREATE.replace(from, to);
        assert_ne!(review, CREATE);
        let (status, answer) = answered(&router, post(&asked(&token), review)).await;
        assert_eq!((status, answer), (StatusCode::OK, allowed(uid, "admission.k8s.io/v1")), "{to}");
    }
    let old = CREATE.replace("admission.k8s.io/v1", "admission.k8s.io/v1beta1");
    let (status, answer) = answered(&router, post(&asked(&token), old)).await;
    assert_eq!((status, answer), (StatusCode::OK, allowed(uid, "admission.k8s.io/v1beta1")));
    assert_eq!(writes(&router, "unknown", "unknown", "not_concerned"), "2");
    assert_eq!(writes(&router, "create", "core", "not_concerned"), "2");
}

#[tokio::test]
async fn an_event_that_cannot_be_read_is_let_through() {
    let (router, token) = served();
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
        let (status, answer) = answered(&router, post(&asked(&token), body.clone())).await;
        assert_eq!((status, answer), (StatusCode::OK, allowed(uid, "admission.k8s.io/v1")), "{body:.900}");
    }
    assert_eq!(writes(&router, "unknown", "unknown", "failed_open"), "4");
    let without = CREATE.replace("\"object\":", "\"elsewhere\":");
    let (status, _) = answered(&router, post(&asked(&token), without)).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(writes(&router, "create", "core", "failed_open"), "1");
}

#[tokio::test]
async fn what_is_no_review_is_a_bad_request() {
    let (router, token) = served();
    for body in ["", "{}", "null", "[1", "{\"request\":null}"] {
        let (status, _) = answered(&router, post(&asked(&token), body)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
        let (status, _) = answered(&router, post("/elsewhere", body)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
    }
    assert_eq!(writes(&router, "unknown", "unknown", "failed_open"), "5");
}

#[tokio::test]
async fn other_methods_and_types_are_turned_away() {
    let (router, token) = served();
    let get = |path: &str| Request::get(path).body(Full::new(Bytes::new())).unwrap();
    assert_eq!(answered(&router, get("/")).await.0, StatusCode::NOT_FOUND);
    let response = router.route(get(&asked(&token))).await;
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(response.headers()[ALLOW], "POST");
    let typed = |value: &str| {
        Request::post(asked(&token)).header(CONTENT_TYPE, value).body(Full::new(Bytes::from(CREATE))).unwrap()
    };
    assert_eq!(answered(&router, typed("text/plain")).await.0, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert_eq!(answered(&router, typed("application/json; charset=utf-8")).await.0, StatusCode::OK);
}

#[tokio::test]
async fn beyond_the_bounds_writes_are_let_through() {
    let (router, token) = served();
    let uid = "705ab4f5-6393-11e8-b7cc-42010a800002";
    let ok = (StatusCode::OK, allowed(uid, "admission.k8s.io/v1"));
    let full = router.bounds.reviews.take(MAX_REVIEWS).unwrap();
    assert_eq!(answered(&router, post(&asked(&token), CREATE)).await, ok);
    drop(full);
    let full = router.bounds.bodies.take(MAX_BODIES).unwrap();
    assert_eq!(answered(&router, post(&asked(&token), CREATE)).await, ok);
    drop(full);
    assert_eq!(writes(&router, "unknown", "unknown", "failed_open"), "2");
    assert_eq!(answered(&router, post(&asked(&token), CREATE)).await, ok);
    assert_eq!(writes(&router, "create", "core", "allowed"), "1");

    let full = router.bounds.strays.take(MAX_STRAYS).unwrap();
    assert_eq!(answered(&router, post("/elsewhere", CREATE)).await.0, StatusCode::NOT_FOUND);
    assert_eq!(answered(&router, post(&asked(&token), CREATE)).await, ok);
    drop(full);
}

#[tokio::test]
async fn a_review_is_counted_once_whether_its_caller_waits_or_not() {
    let (mut router, token) = served();
    Arc::get_mut(&mut router.bounds).unwrap().turns = Turns::of(1);
    let long = || post(&asked(&token), CREATE.to_owned() + &" ".repeat(200 << 10));
    let counted = || {
        (writes(&router, "create", "core", "allowed"), writes(&router, "unknown", "unknown", "failed_open"))
    };
    let turn = router.bounds.turns.next(usize::MAX).await;
    assert!(router.route(long()).now_or_never().is_none(), "it has a turn");
    assert_eq!(counted(), ("0".to_owned(), "1".to_owned()), "gone before its turn came");
    drop(turn);
    // It is gone while it is read, unless that takes no time at all.
    let _ = router.route(long()).now_or_never();
    drop(router.bounds.turns.next(usize::MAX).await);
    assert_eq!(counted(), ("1".to_owned(), "1".to_owned()), "gone while it is read");
}

/// Writes that were let through, and occurrences of them that the engine counted.
fn failed_open(router: &Router) -> (String, u64) {
    let counted = router.webhook.engine.counters();
    let occurrences = counted.first().map_or(0, |account| account.counters.received());
    (writes(router, "create", "core", "failed_open"), occurrences)
}

#[tokio::test]
async fn a_review_that_waited_for_the_end_of_a_stall_is_let_through_and_counted_once() {
    let clock = clock::Clock::by_hand();
    let (router, token) = serving_by(clock.clone(), Term::endless());
    governed(&router);
    let stalls = &router.bounds.stalls;
    let beats = |milliseconds| {
        clock.set(Duration::from_millis(milliseconds));
        stalls.beat(clock.now());
    };
    beats(10_000);
    clock.set(Duration::from_millis(11_500));
    let (_, answer) = answered(&router, post(&asked(&token), CREATE)).await;
    assert_eq!(answer["response"]["allowed"], json!(true), "{answer}");
    assert_eq!(failed_open(&router), ("1".to_owned(), 1), "before the next beat");
    beats(11_500);
    answered(&router, post(&asked(&token), CREATE)).await;
    assert_eq!(failed_open(&router).0, "2", "after it");
    (115..126).for_each(|tenths| beats(tenths * 100));
    answered(&router, post(&asked(&token), CREATE)).await;
    assert_eq!(failed_open(&router).0, "2", "reviews from before its end have been given up");
}

#[tokio::test]
async fn a_reset_stream_counts_once_as_let_through() {
    let (router, token) = served();
    governed(&router);
    let mut request = post(&asked(&token), CREATE);
    *request.version_mut() = Version::HTTP_2;
    assert!(router.route(request).now_or_never().is_none(), "hyper can look for a reset");
    assert_eq!(failed_open(&router), ("1".to_owned(), 1));
}

/// A policy for every namespace, of which there is `shop` alone.
fn governed_everywhere() -> (Router, PathToken) {
    let (router, token) = served();
    let policy = policy::fixtures::cluster_policy("all", &json!({}), 1);
    let namespaces = policy::Namespaces::from([("shop".into(), policy::fixtures::labels(&[]))]);
    router.webhook.policies.swap(policy::Set::in_cluster([policy], &namespaces));
    (router, token)
}

#[tokio::test]
async fn only_known_namespaces_fill_the_tables() {
    let (router, token) = governed_everywhere();
    for namespace in ["nowhere", "shop-2", "kube-system"] {
        let review = CREATE.replace("\"namespace\":\"shop\"", &format!("\"namespace\":\"{namespace}\""));
        let (status, answer) = answered(&router, post(&asked(&token), review)).await;
        assert_eq!((status, &answer["response"]["allowed"]), (StatusCode::OK, &json!(true)));
    }
    assert_eq!(router.webhook.engine.gauges().series, 0);
    assert_eq!(writes(&router, "create", "core", "allowed"), "3");
    answered(&router, post(&asked(&token), CREATE)).await;
    assert_eq!(router.webhook.engine.gauges().series, 1);
}

#[tokio::test]
async fn a_namespace_that_cannot_be_is_let_through_undecided() {
    let (router, token) = governed_everywhere();
    let review = CREATE.replace("\"namespace\":\"shop\"", "\"namespace\":\"squelch/pods/POD?a=\"");
    let (status, answer) = answered(&router, post(&asked(&token), review)).await;
    assert_eq!((status, &answer["response"]["allowed"]), (StatusCode::OK, &json!(true)));
    assert_eq!(router.webhook.engine.gauges().series, 0);
    assert_eq!(writes(&router, "create", "core", "failed_open"), "1");
}
