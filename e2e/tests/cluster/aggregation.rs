//! Similar Events are aggregated into one summary with the right count.

use anyhow::{Context, Result, ensure};
use e2e::emitters::Report;
use e2e::writes::{every_change_raised, history};
use e2e::{Emission, STORM, Test, Writes, conservation, events};
use k8s_openapi::api::core::v1::Event;
use serde_json::{Value, json};

/// The message prefix of a summary, the same as client-go's.
const PREFIX: &str = "(combined from similar events): ";

fn is_summary(event: &Event) -> bool {
    event.message.as_deref().is_some_and(|message| message.starts_with(PREFIX))
}

/// The single summary, and the Events that were stored unchanged.
async fn stored(test: &Test) -> Result<(Event, Vec<Event>)> {
    let (mut summaries, plain): (Vec<_>, Vec<_>) = test.events(None).await?.into_iter().partition(is_summary);
    ensure!(summaries.len() == 1, "{} summaries: {}", summaries.len(), events::list(&summaries));
    let summary = summaries.pop().context("no summary")?;
    let annotations = summary.metadata.annotations.clone().unwrap_or_default();
    assert_eq!(annotations.get("squelch.dev/policy"), Some(&format!("{}/policy", test.namespace)));
    let selected = ["get", "events", "--selector=squelch.dev/summary=true", "--output=name"];
    let selected = test.kubectl().run(&selected).await?;
    assert_eq!(
        selected.trim(),
        format!("event/{}", events::name(&summary)),
        "summaries are selected by label"
    );
    Ok((summary, plain))
}

/// A summary with this count was written at its first merge, at each doubling, and at the end.
async fn was_written_rarely(writes: &Writes, count: i64) -> Result<()> {
    let mut writes = writes.so_far().await?;
    writes.retain(|write| is_summary(&write.event));
    ensure!(writes.len() as u32 <= count.ilog2() + 2, "{} writes:\n{}", writes.len(), history(&writes));
    every_change_raised(&writes)
}

/// Every call succeeded or was answered with 409, which client-go ignores without a log line.
fn was_quiet(report: &Report) -> Result<()> {
    let unexpected: Vec<_> =
        report.refused().into_iter().filter(|call| ![404, 409].contains(&call.status)).collect();
    ensure!(unexpected.is_empty(), "{unexpected:?}");
    ensure!(report.error_lines().is_empty(), "the client logged {:?}", report.error_lines());
    Ok(())
}

/// Creates an object, so that `kubectl describe` works; returns its uid.
async fn config_map(test: &Test, name: &str) -> Result<String> {
    test.kubectl().run(&["create", "configmap", name]).await?;
    let uid = ["get", "configmap", name, "--output=jsonpath={.metadata.uid}"];
    test.kubectl().run(&uid).await
}

#[tokio::test]
async fn a_thousand_messages_about_one_object_become_nine_events_and_a_summary() -> Result<()> {
    let test = Test::begin("aggregate").await?;
    let squelch = test.squelch().await?;
    // With the defaults: the nine stored Events are below the spam filter's burst.
    let policy = test.policy(&json!({})).await?;
    let writes = test.writes().await?;
    let uid = config_map(&test, "settings-0").await?;

    let storm = Emission::legacy()
        .about("settings", 1)
        .with("--kind", "ConfigMap")
        .with("--uid", &uid)
        .with("--messages", "distinct")
        .count(1000)
        .rate(200);
    let report = test.emit(&storm)?.finish(STORM).await?;
    was_quiet(&report)?;
    assert_eq!(report.sent(), 1000);
    let counters = conservation::holds(&test, squelch, &policy, 1000).await?;
    assert_eq!((counters.admitted, counters.aggregated), (9, 991), "{counters:?}");

    let (summary, plain) = stored(&test).await?;
    assert_eq!((summary.count, plain.len()), (Some(991), 9));
    ensure!(summary.series.is_none(), "a legacy Event with a series: kubectl would show the series");
    for event in &plain {
        assert_eq!((events::value(event), &event.reason, &event.type_), (1, &summary.reason, &summary.type_));
        assert_eq!((&event.source, &event.involved_object), (&summary.source, &summary.involved_object));
    }
    was_written_rarely(&writes, 991).await?;
    let described = test.kubectl().run(&["describe", "configmap", "settings-0"]).await?;
    ensure!(described.contains("(x991 over ") && described.contains(PREFIX), "{described}");
    assert_eq!(described.matches("BackOff").count(), 10, "{described}");
    test.passed()
}

#[tokio::test]
async fn events_of_the_new_api_get_a_summary_of_the_new_api() -> Result<()> {
    let test = Test::begin("aggregate-new").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&json!({ "aggregation": { "maxEvents": 4 } })).await?;
    let writes = test.writes().await?;

    let long = format!("🦀{}", "x".repeat(900));
    let storm = Emission::creates_new_style().about("pod", 1).with("--messages", "distinct").message(&long);
    let report = test.emit(&storm.count(300).rate(150))?.finish(STORM).await?;
    was_quiet(&report)?;
    let counters = conservation::holds(&test, squelch, &policy, 300).await?;
    assert_eq!((counters.admitted, counters.aggregated), (3, 297), "{counters:?}");

    let (summary, plain) = stored(&test).await?;
    assert_eq!((summary.series.as_ref().and_then(|series| series.count), plain.len()), (Some(297), 3));
    assert_eq!((summary.count, &summary.first_timestamp), (None, &None));
    ensure!(summary.event_time.is_some() && summary.action == plain[0].action, "{summary:?}");
    was_written_rarely(&writes, 297).await?;
    // It is also the view of events.k8s.io.
    let name = events::name(&summary);
    let shown = test.kubectl().run(&["get", "events.v1.events.k8s.io", name, "--output=json"]).await?;
    let shown: Value = serde_json::from_str(&shown)?;
    assert_eq!((&shown["series"]["count"], &shown["reason"]), (&json!(297), &json!("BackOff")));
    test.passed()
}

#[tokio::test]
async fn max_events_1_stores_one_event_and_the_summary() -> Result<()> {
    let test = Test::begin("aggregate-all").await?;
    let squelch = test.squelch().await?;
    let one = json!({ "series": { "mode": "Disabled" }, "aggregation": { "maxEvents": 1 } });
    let policy = test.policy(&one).await?;
    let storm = Emission::creates_core().about("pod", 1).count(50).rate(100).generate_name();
    was_quiet(&test.emit(&storm)?.finish(STORM).await?)?;
    assert_eq!(conservation::holds(&test, squelch, &policy, 50).await?.aggregated, 49);
    let (summary, plain) = stored(&test).await?;
    assert_eq!((events::value(&summary), plain.len()), (49, 1));
    test.passed()
}

/// Events about many objects: the first nine are stored, the others share the summary.
async fn many_objects_share_a_summary(label: &str, emission: Emission, objects: usize) -> Result<()> {
    let test = Test::begin(label).await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&json!({ "aggregation": { "groupBy": "Kind" } })).await?;
    let writes = test.writes().await?;

    let report = test.emit(&emission.about("pod", objects).count(10).rate(100))?.finish(STORM).await?;
    let sent = 10 * objects as i64;
    assert_eq!(report.sent(), sent);
    let counters = conservation::holds(&test, squelch, &policy, sent).await?;
    assert_eq!((counters.aggregated, counters.filtered), (sent - 90, 0), "{counters:?}");

    let (summary, plain) = stored(&test).await?;
    assert_eq!((events::value(&summary), plain.len()), (sent - 90, 9));
    for event in &plain {
        assert_eq!(events::value(event), 10, "{}", events::list(&plain));
    }
    let message = summary.message.clone().unwrap_or_default();
    let expected = format!("{PREFIX}on {objects} objects, the last: ");
    ensure!(message.starts_with(&expected), "{message}");
    ensure!(events::object(&summary).starts_with("pod-"), "{:?}", summary.involved_object);
    was_written_rarely(&writes, sent - 90).await.and_then(|()| test.passed())
}

#[tokio::test]
async fn events_of_the_legacy_recorder_about_many_objects_share_a_summary() -> Result<()> {
    many_objects_share_a_summary("kind-legacy", Emission::legacy(), 30).await
}

#[tokio::test]
async fn events_of_kubes_recorder_about_many_objects_share_a_summary() -> Result<()> {
    many_objects_share_a_summary("kind-kube", Emission::kube(), 20).await
}
