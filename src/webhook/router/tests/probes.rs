//! Probes of squelch and dry runs of others.

use super::*;

/// As the API server writes it: the uid comes first.
fn as_sent(review: &Value) -> String {
    review.to_string().replacen("\"request\":{", "\"request\":{\"uid\":\"u\",", 1)
}

#[tokio::test]
async fn a_probe_is_signed_and_not_counted_as_a_review() {
    use base64::Engine as _;
    let (router, token) = active_router();
    let before = router.webhook.metrics.text();
    let path = format!("{}{PROBE_PATH}?timeout=1s", path(&token));
    assert!(router.caller(&post(&path, "")).is_probe());
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
