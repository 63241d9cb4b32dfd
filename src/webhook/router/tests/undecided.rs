//! Reviews that are admitted without a decision.

use super::*;

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

/// Long reviews of one tenant wait for a thread.
#[tokio::test]
async fn long_reviews_leave_room_for_short_ones() {
    let (mut router, token) = active_router();
    Arc::get_mut(&mut router.limiters).unwrap().long_reviews = LongReviews::with_permits(0);
    let long = Bytes::from(CREATE.to_owned() + &" ".repeat(MAX_LONG_BODIES / 4 - CREATE.len()));
    let mut waiting: Vec<_> =
        (0..4).map(|_| Box::pin(router.route(post(&review_path(&token), long.clone())))).collect();
    for review in &mut waiting {
        assert!(futures::poll!(review).is_pending());
    }
    send(&router, post(&review_path(&token), CREATE)).await;
    assert_eq!(reviews(&router, "create", "core", "allowed"), "1");
    let another = Bytes::from(CREATE.to_owned() + &" ".repeat(200 << 10));
    send(&router, post(&review_path(&token), another)).await;
    assert_eq!(reviews(&router, "unknown", "unknown", "failed_open"), "1");
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

#[tokio::test]
async fn a_write_in_an_invalid_namespace_is_admitted_without_a_decision() {
    let (router, token) = router_with_cluster_policy();
    let review = CREATE.replace("\"namespace\":\"shop\"", "\"namespace\":\"squelch/pods/POD?a=\"");
    let (status, answer) = send(&router, post(&review_path(&token), review)).await;
    assert_eq!((status, &answer["response"]["allowed"]), (StatusCode::OK, &json!(true)));
    assert_eq!(router.webhook.engine.gauges().series, 0);
    assert_eq!(reviews(&router, "create", "core", "failed_open"), "1");
}

#[tokio::test]
async fn the_time_of_a_cancelled_review_is_recorded() {
    let (router, token) = active_router();
    let mut request = post(&review_path(&token), CREATE);
    *request.version_mut() = Version::HTTP_2;
    assert!(router.route(request).now_or_never().is_none(), "pending when its client resets it");
    let text = router.webhook.metrics.text();
    assert!(text.contains("squelch_admission_duration_seconds_count 1\n"), "{text}");
}
