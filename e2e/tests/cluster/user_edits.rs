//! Edits of Events by users and tools are neither refused nor counted.

use anyhow::{Context, Result, ensure};
use e2e::emitters::RunningEmitter;
use e2e::policy::idle_after;
use e2e::wait::not_yet;
use e2e::{Emission, GENEROUS, STORM, Squelch, Test, events, wait_for};
use k8s_openapi::api::core::v1::Event;
use serde_json::{Value, json};

/// A storm of 6 s, enough for the edits.
async fn storm(test: &Test) -> Result<RunningEmitter> {
    let storm = test.emit(&Emission::legacy().about("pod", 1).count(120).rate(20))?;
    storm.wait_for_calls(10, STORM).await?;
    Ok(storm)
}

/// Returns the single Event about an object, once its count is at least `value`.
async fn shows(test: &Test, object: &str, value: i64) -> Result<Event> {
    wait_for(&format!("a count of at least {value}"), GENEROUS, async || {
        let stored = test.events(Some(object)).await.map_err(not_yet)?;
        match &stored[..] {
            [event] if events::value(event) >= value => Ok(event.clone()),
            _ => Err(events::list(&stored)),
        }
    })
    .await
}

async fn received(squelch: &Squelch, test: &Test) -> Result<i64> {
    let namespace = ("event_namespace", test.namespace.as_str());
    Ok(squelch.metrics().await?.sum("squelch_occurrences_total", &[namespace]) as i64)
}

#[tokio::test]
async fn annotations_and_dry_runs_pass_uncounted() -> Result<()> {
    let test = Test::begin("annotate").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&idle_after("3s")).await?;
    let storm = storm(&test).await?;
    ensure!(received(&squelch, &test).await? > 0, "nothing is counted");

    let event = shows(&test, "pod-0", 2).await?;
    let jane = test.kubectl().cluster_admin("jane");
    let name = events::name(&event);
    jane.run(&["annotate", "event", name, "example.com/seen=yes"]).await?;
    jane.run(&["label", "event", name, "seen=yes"]).await?;
    jane.run(&["annotate", "event", name, "example.com/tried=yes", "--dry-run=server"]).await?;
    // A dry run of the next occurrence, as its emitter would send it.
    let again = format!(r#"{{"count": {}}}"#, events::value(&event) + 1000);
    let patch = ["patch", "event", name, "--type=merge", "--dry-run=server", "--patch", again.as_str()];
    jane.run(&patch).await?;
    let copy = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": { "name": "copy" },
        "involvedObject": event.involved_object, "reason": event.reason, "message": event.message,
        "type": event.type_, "source": event.source, "count": 1,
    });
    jane.run_with(&["create", "--dry-run=server", "-f", "-"], copy.to_string()).await?;

    let sent = storm.finish(STORM).await?.sent();
    assert_eq!(sent, 120);
    let event = test.one_event("pod-0", 120).await?;
    squelch.wait_until_idle(GENEROUS).await?;
    // squelch's own writes are not counted either: there were some.
    ensure!(
        squelch.metrics().await?.sum("squelch_flushes_total", &[("result", "written")]) > 0.0,
        "no flush"
    );
    policy.received(120).await?;
    let annotations = event.metadata.annotations.context("the annotation is missing")?;
    assert_eq!(annotations.get("example.com/seen").map(String::as_str), Some("yes"));
    assert_eq!(annotations.get("example.com/tried"), None);
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn a_deleted_event_is_created_again_with_its_full_count() -> Result<()> {
    let test = Test::begin("delete").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&idle_after("3s")).await?;
    let storm = storm(&test).await?;
    let event = shows(&test, "pod-0", 2).await?;
    test.kubectl().cluster_admin("jane").run(&["delete", "event", events::name(&event)]).await?;

    assert_eq!(storm.finish(STORM).await?.sent(), 120);
    let again = test.one_event("pod-0", 120).await?;
    assert_ne!(again.metadata.uid, event.metadata.uid);
    policy.received(120).await?;
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn a_deleted_event_without_pending_counts_stays_deleted() -> Result<()> {
    let test = Test::begin("deleted").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&idle_after("2s")).await?;
    test.emit(&Emission::legacy().about("pod", 1).count(50).rate(50))?.finish(STORM).await?;
    test.one_event("pod-0", 50).await?;
    squelch.wait_until_idle(GENEROUS).await?;
    let counted = policy.received(50).await?;
    test.kubectl().cluster_admin("jane").run(&["delete", "events", "--all"]).await?;
    // Stopping flushes all pending occurrences.
    squelch.stop().await?;
    assert_eq!(test.events(None).await?.len(), 0);
    assert_eq!(policy.counters().await?, counted);
    test.passed()
}

#[tokio::test]
async fn a_user_can_edit_the_message_of_an_event_with_a_raised_count() -> Result<()> {
    let test = Test::begin("message").await?;
    let squelch = test.squelch().await?;
    // The second process may start seconds after the first has ended.
    let policy = test.policy(&idle_after("12s")).await?;
    // The first process names the Event and ends with a count of 10; the second one's occurrences are added.
    let first = Emission::legacy().about("pod", 1).count(10).rate(20);
    test.emit(&first)?.finish(STORM).await?;
    let second = test.emit(&Emission::legacy().about("pod", 1).count(120).rate(20))?;
    let event = shows(&test, "pod-0", 16).await?;

    let change =
        ["patch", "event", events::name(&event), "--type=merge", "--patch", r#"{"message": "known: #7"}"#];
    test.kubectl().cluster_admin("jane").run(&change).await?;
    assert_eq!(second.finish(STORM).await?.sent(), 120);
    let event = test.one_event("pod-0", 130).await?;
    assert_eq!(event.message.as_deref(), Some("known: #7"));
    squelch.wait_until_idle(GENEROUS).await?;
    policy.received(130).await?;

    // Also after the end of the series.
    let change =
        ["patch", "event", events::name(&event), "--type=merge", "--patch", r#"{"message": "mended"}"#];
    test.kubectl().cluster_admin("jane").run(&change).await?;
    let event = test.one_event("pod-0", 130).await?;
    assert_eq!(event.message.as_deref(), Some("mended"));
    squelch.stop().await?;
    assert_eq!(policy.counters().await?.received, 130);
    test.passed()
}

/// The URL of the webhook, token included.
async fn webhook_url(test: &Test) -> Result<String> {
    let configuration = "mutatingwebhookconfiguration/squelch";
    let text = test.kubectl().run(&["get", configuration, "--output=json"]).await?;
    let configuration: Value = serde_json::from_str(&text)?;
    let url = configuration["webhooks"].as_array().into_iter().flatten().find_map(|webhook| {
        (webhook["name"] == "events.squelch.dev").then(|| webhook["clientConfig"]["url"].as_str()).flatten()
    });
    Ok(url.context("the webhook has no url")?.to_owned())
}

/// Posts a review of a CREATE that repeats `event` under another name, and returns the response.
async fn review(squelch: &Squelch, test: &Test, path: &str, event: &Event, name: &str) -> Result<Value> {
    let mut object = serde_json::to_value(event)?;
    object["metadata"] = json!({ "name": name, "namespace": test.namespace });
    object["count"] = json!(1);
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": name, "operation": "CREATE", "namespace": test.namespace, "name": name,
            "kind": { "group": "", "version": "v1", "kind": "Event" },
            "requestKind": { "group": "", "version": "v1", "kind": "Event" },
            "resource": { "group": "", "version": "v1", "resource": "events" },
            "requestResource": { "group": "", "version": "v1", "resource": "events" },
            "userInfo": { "username": e2e::accounts::EMITTER.user() },
            "object": object, "oldObject": null, "dryRun": false,
        },
    });
    let answer = squelch.post(path, review.to_string()).await?;
    Ok(serde_json::from_str::<Value>(&answer)?["response"].take())
}

#[tokio::test]
async fn a_review_without_the_token_changes_nothing() -> Result<()> {
    let test = Test::begin("token").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&idle_after("10m")).await?;
    test.emit(&Emission::legacy().about("pod", 1).count(20).rate(50))?.finish(STORM).await?;
    policy.received(20).await?;
    let event = test.events(Some("pod-0")).await?.pop().context("no Event")?;

    let url = webhook_url(&test).await?;
    let path = url.strip_prefix(&squelch.webhook).context("the webhook has another address")?;
    ensure!(path.len() > 40, "too short for 256 bits: {} characters", path.len());
    let (kept, last) = path.split_at(path.len() - 1);
    let wrong = format!("{kept}{}", if last == "A" { "B" } else { "A" });
    for (number, path) in ["/", "/admit", "/metrics", &wrong, &path[..path.len() - 2]].into_iter().enumerate()
    {
        let response = review(&squelch, &test, path, &event, &format!("forged-{number}")).await?;
        assert_eq!(response["allowed"], true, "{response}");
        assert_eq!(response.get("patch"), None);
        assert_eq!(response["uid"], format!("forged-{number}"));
    }
    assert_eq!(received(&squelch, &test).await?, 20);
    // With the token, the review is merged.
    let response = review(&squelch, &test, path, &event, "genuine").await?;
    assert_eq!((&response["allowed"], &response["status"]["code"]), (&json!(false), &json!(409)));
    assert_eq!(received(&squelch, &test).await?, 21);
    squelch.stop().await?;
    test.one_event("pod-0", 21).await?;
    test.passed()
}
