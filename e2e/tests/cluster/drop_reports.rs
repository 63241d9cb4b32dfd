//! `EventDropReport`: what tenants see of suppressed Events.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use e2e::policy::Counters;
use e2e::user::Version;
use e2e::wait::not_yet;
use e2e::{GENEROUS, Policy, Test, User, wait_for};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::ListParams;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::scenarios::helm;
use crate::top_dropped::{BURST, filtering, storm};

/// Waits until the report of the namespace has this number of dropped occurrences.
pub(crate) async fn report(test: &Test, dropped: i64) -> Result<Value> {
    wait_for(&format!("a report of {dropped} dropped occurrences"), GENEROUS, async || {
        let text = test.kubectl().run(&["get", "edr", "squelch", "--output=json"]).await.map_err(not_yet)?;
        let report: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        if report["droppedOccurrences"] == dropped { Ok(report) } else { Err(text) }
    })
    .await
}

/// The counters of a policy in a report.
fn counters_of(report: &Value, policy: &Policy) -> Result<Counters> {
    let listed = report["policies"].as_array().into_iter().flatten();
    let mut listed = listed.filter(|entry| entry["policyName"] == policy.name);
    let entry = listed.next().with_context(|| format!("{} is not in {report}", policy.name))?;
    Ok(Counters::deserialize(&entry["counters"])?)
}

/// Type, reason, count and example of each entry.
fn drops(report: &Value) -> Vec<(String, String, i64, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let entries = report["dropped"].as_array().into_iter().flatten().map(|entry| {
        let count = entry["count"].as_i64().unwrap_or_default();
        (text(&entry["type"]), text(&entry["reason"]), count, text(&entry["exampleObject"]))
    });
    entries.collect()
}

fn expected(entries: &[(&str, &str, i64, &str)]) -> Vec<(String, String, i64, String)> {
    let owned = |(event_type, reason, count, object): &(&str, &str, i64, &str)| {
        ((*event_type).to_owned(), (*reason).to_owned(), *count, (*object).to_owned())
    };
    entries.iter().map(owned).collect()
}

/// Grants the rights of the chart's role `squelch-view` in the namespace.
pub(crate) async fn grant_view(test: &Test, user: &str) -> Result<()> {
    let people =
        helm(Path::new("helm"), &["--show-only", "templates/people.yaml"])?.map_err(anyhow::Error::msg)?;
    test.kubectl().run_with(&["apply", "-f", "-"], people).await?;
    let user = format!("--user={user}");
    test.kubectl()
        .run(&["create", "rolebinding", "sees-reports", "--clusterrole=squelch-view", &user])
        .await?;
    Ok(())
}

#[tokio::test]
async fn a_tenant_sees_what_was_dropped_in_their_namespace() -> Result<()> {
    let test = Test::begin("drop-report").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&filtering()).await?;
    storm(&test, "loud", "BackOff", "Warning", 100).await?;
    storm(&test, "quiet", "Pulled", "Normal", 20).await?;

    let seen = report(&test, 100 + 20 - 2 * BURST).await?;
    let status = policy.received(120).await?;
    assert_eq!(counters_of(&seen, &policy)?, status, "the report and the status differ");
    assert_eq!(seen["droppedWarnings"], 100 - BURST);
    let listed = [("Warning", "BackOff", 100 - BURST, "loud-0"), ("Normal", "Pulled", 20 - BURST, "quiet-0")];
    assert_eq!(drops(&seen), expected(&listed));

    let tenant = "tenant-of-reports";
    grant_view(&test, tenant).await?;
    let other = test.neighbour().await?;
    let kubectl = test.kubectl().user(tenant);
    wait_for("the tenant to have the role", GENEROUS, async || {
        kubectl.run(&["get", "edr", "squelch"]).await.map_err(not_yet)
    })
    .await?;
    let shown = kubectl.run(&["get", "eventdropreports"]).await?;
    ensure!(shown.contains("DROPPED WARNINGS"), "{shown}");
    let change = r#"--patch={"droppedOccurrences":0}"#;
    let refused = kubectl.run(&["patch", "edr", "squelch", "--type=merge", change]).await;
    ensure!(refused.is_err(), "a tenant has changed the report");
    ensure!(
        other.kubectl().user(tenant).run(&["get", "edr"]).await.is_err(),
        "a tenant sees others' reports"
    );

    squelch.stop().await?;
    let squelch = test.squelch().await?;
    policy.effective().await?;
    storm(&test, "later", "BackOff", "Warning", 50).await?;
    let seen = report(&test, 100 + 20 + 50 - 3 * BURST).await?;
    assert_eq!(counters_of(&seen, &policy)?, policy.received(170).await?, "after a restart");
    assert_eq!(drops(&seen)[0], expected(&[("Warning", "BackOff", 150 - 2 * BURST, "loud-0")])[0]);
    squelch.stop().await?;
    test.passed()
}

/// Waits until the only receipt in the namespace has this count.
async fn receipt(test: &Test, count: i64) -> Result<Event> {
    let events: Api<Event> = Api::namespaced(test.cluster.client.clone(), &test.namespace);
    let receipts = ListParams::default().fields("reason=EventsDropped");
    wait_for(&format!("a receipt with count {count}"), GENEROUS, async || {
        let mut found = events.list(&receipts).await.map_err(not_yet)?.items;
        match (found.pop(), found.is_empty()) {
            (Some(receipt), true) if i64::from(receipt.count.unwrap_or_default()) == count => Ok(receipt),
            found => Err(format!("{found:?}")),
        }
    })
    .await
}

#[tokio::test]
async fn dropped_events_have_a_receipt_that_is_updated_in_place() -> Result<()> {
    let test = Test::begin("receipts").await?;
    let squelch = test.squelch_with(&["--receipt-interval", "1s"]).await?;
    let policy = test.policy(&filtering()).await?;
    storm(&test, "quiet", "Pulled", "Normal", 20).await?;
    let first = receipt(&test, 20 - BURST).await?;
    assert_eq!(first.type_.as_deref(), Some("Normal"));
    let message = first.message.clone().unwrap_or_default();
    ensure!(message.starts_with(&format!("EventPolicy {} dropped ", policy.name)), "{message}");
    ensure!(message.contains("Pulled of Pod (filtered)"), "{message}");
    let report = report(&test, 20 - BURST).await?;
    assert_eq!(first.involved_object.uid.as_deref(), report["metadata"]["uid"].as_str());
    assert_eq!(first.related.and_then(|related| related.name).as_ref(), Some(&policy.name));

    storm(&test, "loud", "BackOff", "Warning", 50).await?;
    let second = receipt(&test, 70 - 2 * BURST).await?;
    assert_eq!((second.type_.as_deref(), &second.metadata.name), (Some("Warning"), &first.metadata.name));
    assert_eq!(second.first_timestamp, first.first_timestamp);

    let tenant = "tenant-of-receipts";
    test.kubectl()
        .run(&["create", "rolebinding", "sees-events", "--clusterrole=view", &format!("--user={tenant}")])
        .await?;
    let kubectl = test.kubectl().user(tenant);
    let shown = wait_for("the tenant to see the receipt", GENEROUS, async || {
        kubectl.run(&["get", "events", "--field-selector=type=Warning"]).await.map_err(not_yet)
    })
    .await?;
    ensure!(shown.contains("EventsDropped") && shown.contains("kubectl get edr squelch -n"), "{shown}");

    // It was deleted, as after its expiry, and a replica that has just started continues its count.
    squelch.stop().await?;
    test.kubectl().run(&["delete", "events", "--field-selector=reason=EventsDropped"]).await?;
    let squelch = test.squelch_with(&["--receipt-interval", "1s"]).await?;
    policy.effective().await?;
    storm(&test, "later", "BackOff", "Warning", 50).await?;
    receipt(&test, 120 - 3 * BURST).await?;
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn the_reports_of_a_cluster_policy_add_up_to_its_status() -> Result<()> {
    let test = Test::begin("drop-reports").await?;
    let neighbour = test.neighbour().await?;
    let squelch = test.squelch().await?;
    let policy = test.cluster_policy();
    for labelled in [&test, &neighbour] {
        let label = format!("reports={}", test.namespace);
        labelled.kubectl().run(&["label", "namespace", &labelled.namespace, &label]).await?;
    }
    let mut spec = filtering();
    spec["namespaceSelector"] = json!({ "matchLabels": { "reports": test.namespace } });
    policy.change(&test.kubectl(), &spec).await?;
    storm(&test, "one", "BackOff", "Warning", 60).await?;
    storm(&neighbour, "two", "BackOff", "Warning", 40).await?;
    let status = policy.received(100).await?;
    let (one, two) = (report(&test, 60 - BURST).await?, report(&neighbour, 40 - BURST).await?);
    let (one, two) = (counters_of(&one, &policy)?, counters_of(&two, &policy)?);
    assert_eq!(one.filtered + two.filtered, status.filtered);
    assert_eq!(one.dropped_warnings + two.dropped_warnings, status.dropped_warnings);
    assert_eq!((one.received, two.received), (60, 40));
    squelch.stop().await?;
    test.passed()
}

/// Creates the namespace, and this number of muted Events in it, each with this reason.
async fn mute_in(test: &Test, namespace: &str, reason: &str, number: i64) -> Result<()> {
    test.cluster.kubectl.run(&["create", "namespace", namespace]).await?;
    let tenant = User::with_rights(&test.cluster, "builder", namespace, &["create"]).await?;
    let mut attempts = 0;
    for _ in 0..number {
        wait_for("a muted Event", GENEROUS, async || {
            // A second CREATE of one name would report nothing new.
            attempts += 1;
            let name = format!("{reason}.{attempts}");
            let mut event = Version::Core.event(namespace, &name, "pod", "text", Timestamp::now());
            event["reason"] = reason.into();
            event["type"] = "Normal".into();
            let answer = tenant.create(&event).await.map_err(not_yet)?;
            if answer.is_refused_by_squelch() { Ok(()) } else { Err(answer.text) }
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_recreated_namespace_shows_no_text_of_the_former_one() -> Result<()> {
    let test = Test::begin("drop-again").await?;
    let squelch = test.squelch().await?;
    let name = format!("pr-7-{}", test.namespace);
    let selector = json!({ "matchLabels": { "kubernetes.io/metadata.name": name } });
    let spec = json!({ "namespaceSelector": selector, "mute": [{ "types": ["Normal"] }] });
    test.cluster_policy().put(&test.kubectl(), &spec).await?;
    let kubectl = test.cluster.kubectl.namespace(&name);
    for reason in ["Former", "Later"] {
        mute_in(&test, &name, reason, 3).await?;
        let seen = wait_for(&format!("a report of {reason}"), GENEROUS, async || {
            let text = kubectl.run(&["get", "edr", "squelch", "--output=json"]).await.map_err(not_yet)?;
            let report: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
            let of_reason = |entry: &Value| entry["reason"] == reason && entry["count"] == 3;
            let listed = report["dropped"].as_array().is_some_and(|listed| listed.iter().any(of_reason));
            if listed { Ok(text) } else { Err(text) }
        })
        .await?;
        ensure!(reason == "Former" || !seen.contains("Former"), "text of the former namespace: {seen}");
        kubectl.run(&["delete", "namespace", &name, "--wait", "--timeout=60s"]).await?;
    }
    squelch.stop().await?;
    test.passed()
}
