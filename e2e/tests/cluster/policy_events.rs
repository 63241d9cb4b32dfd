//! squelch's own Events: few, and only on changes.

use anyhow::{Result, ensure};
use e2e::policy::Policy;
use e2e::wait::not_yet;
use e2e::{GENEROUS, Test, wait_for};
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;

const CONFIGURATION: &str = "involvedObject.kind=MutatingWebhookConfiguration,involvedObject.name=squelch";

/// Type, reason and object of squelch's Events about policies in the test's namespace, oldest first.
async fn about_policies(test: &Test) -> Result<Vec<(String, String, String)>> {
    let api: Api<Event> = Api::namespaced(test.client(), &test.namespace);
    let ours = ListParams::default().fields("involvedObject.apiVersion=squelch.dev/v1alpha1");
    let mut events = api.list(&ours).await?.items;
    events.sort_by_key(|event| event.event_time.as_ref().map(|time| time.0));
    let seen = |event: Event| {
        let word = Option::unwrap_or_default;
        (word(event.type_), word(event.reason), word(event.involved_object.name))
    };
    Ok(events.into_iter().map(seen).collect())
}

async fn wait_for_events(test: &Test, expected: &[(&str, &str, &str)]) -> Result<()> {
    wait_for(&format!("Events of squelch: {expected:?}"), GENEROUS, async || {
        let seen = about_policies(test).await.map_err(not_yet)?;
        let found: Vec<_> = seen.iter().map(|(kind, reason, of)| (&**kind, &**reason, &**of)).collect();
        if found == expected { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await
}

#[tokio::test]
async fn policy_changes_are_announced_once_across_restarts() -> Result<()> {
    let test = Test::begin("policy-events").await?;
    let squelch = test.squelch().await?;
    test.policy(&json!({})).await?;
    let accepted = ("Normal", "Accepted", "policy");
    wait_for_events(&test, &[accepted]).await?;

    // Older, but of lower priority: it is overridden.
    let (client, kubectl) = (test.client(), test.kubectl());
    Policy::apply(client, &kubectl, &test.namespace, "strong", &json!({ "priority": 1 })).await?;
    let strong = ("Normal", "Accepted", "strong");
    let overridden = ("Normal", "Overridden", "policy");
    wait_for("an Event that names the overriding policy", GENEROUS, async || {
        let mut seen = about_policies(&test).await.map_err(not_yet)?;
        seen.sort();
        let mut expected = [accepted, strong, overridden]
            .map(|(kind, reason, of)| (kind.to_owned(), reason.to_owned(), of.to_owned()));
        expected.sort();
        if seen == expected { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await?;
    let described = kubectl.run(&["describe", "eventpolicy", "policy"]).await?;
    for word in ["Events:", "Accepted", "Overridden", "EventPolicy strong has precedence"] {
        ensure!(described.contains(word), "{word} is not in\n{described}");
    }

    // After a restart there is nothing new to report about unchanged policies.
    squelch.stop().await?;
    let squelch = test.squelch().await?;
    Policy::named(test.client(), &test.namespace, "strong").effective().await?;
    let seen = about_policies(&test).await?;
    ensure!(seen.len() == 3, "{seen:?}");
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn arming_and_disarming_are_announced() -> Result<()> {
    let test = Test::begin("armed").await?;
    let api: Api<Event> = Api::namespaced(test.client(), "default");
    let count = async |reason: &str| -> Result<i64> {
        let events = api.list(&ListParams::default().fields(CONFIGURATION)).await?;
        let seen = events.items.iter().filter(|event| event.reason.as_deref() == Some(reason));
        Ok(seen.map(e2e::events::value).sum())
    };
    let grows = async |reason: &str, before: i64| {
        wait_for(&format!("an Event of squelch with the reason {reason}"), GENEROUS, async || {
            let now = count(reason).await.map_err(not_yet)?;
            if now > before { Ok(()) } else { Err(format!("still {now}")) }
        })
        .await
    };
    let before = count("Armed").await?;
    let squelch = test.squelch().await?;
    test.policy(&json!({})).await?;
    grows("Armed", before).await?;
    let described =
        test.cluster.kubectl.run(&["describe", "mutatingwebhookconfiguration", "squelch"]).await?;
    ensure!(described.contains("Armed") && described.contains("are sent to squelch"), "{described}");

    // The last policy is deleted, and another created.
    let before = count("Disarmed").await?;
    test.kubectl().run(&["delete", "eventpolicy", "policy"]).await?;
    grows("Disarmed", before).await?;
    let before = count("Armed").await?;
    test.policy(&json!({})).await?;
    grows("Armed", before).await?;
    let before = count("Disarmed").await?;
    squelch.stop().await?;
    grows("Disarmed", before).await?;
    test.passed()
}
