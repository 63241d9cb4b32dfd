//! What squelch tells in Events of its own: few, and only on change.

use anyhow::{Result, ensure};
use e2e::policy::Policy;
use e2e::wait::told;
use e2e::{GENEROUS, Test, wait_for};
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;

const CONFIGURATION: &str = "involvedObject.kind=MutatingWebhookConfiguration,involvedObject.name=squelch";

/// Type, reason and object of squelch's Events about policies in the test's namespace, the oldest first.
async fn about_policies(test: &Test) -> Result<Vec<(String, String, String)>> {
    let api: Api<Event> = Api::namespaced(test.client(), &test.namespace);
    let ours = ListParams::default().fields("involvedObject.apiVersion=squelch.dev/v1alpha1");
    let mut events = api.list(&ours).await?.items;
    events.sort_by_key(|event| event.event_time.as_ref().map(|time| time.0));
    let told = |event: Event| {
        let word = Option::unwrap_or_default;
        (word(event.type_), word(event.reason), word(event.involved_object.name))
    };
    Ok(events.into_iter().map(told).collect())
}

async fn tells(test: &Test, expected: &[(&str, &str, &str)]) -> Result<()> {
    wait_for(&format!("squelch to tell {expected:?}"), GENEROUS, async || {
        let told = about_policies(test).await.map_err(told)?;
        let found: Vec<_> = told.iter().map(|(kind, reason, of)| (&**kind, &**reason, &**of)).collect();
        if found == expected { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await
}

#[tokio::test]
async fn what_becomes_of_a_policy_is_told_once_over_restarts() -> Result<()> {
    let test = Test::begin("told").await?;
    let squelch = test.squelch().await?;
    test.policy(&json!({})).await?;
    let accepted = ("Normal", "Accepted", "policy");
    tells(&test, &[accepted]).await?;

    // Older, but of lower priority: it is left nothing.
    let (client, kubectl) = (test.client(), test.kubectl());
    Policy::apply(client, &kubectl, &test.namespace, "strong", &json!({ "priority": 1 })).await?;
    let strong = ("Normal", "Accepted", "strong");
    let overridden = ("Normal", "Overridden", "policy");
    wait_for("squelch to tell who overrides", GENEROUS, async || {
        let mut told = about_policies(&test).await.map_err(told)?;
        told.sort();
        let mut expected = [accepted, strong, overridden]
            .map(|(kind, reason, of)| (kind.to_owned(), reason.to_owned(), of.to_owned()));
        expected.sort();
        if told == expected { Ok(()) } else { Err(format!("{told:?}")) }
    })
    .await?;
    let described = kubectl.run(&["describe", "eventpolicy", "policy"]).await?;
    for word in ["Events:", "Accepted", "Overridden", "EventPolicy strong has precedence"] {
        ensure!(described.contains(word), "{word} is not in\n{described}");
    }

    // A new life has nothing new to tell of policies that it finds as they were left.
    squelch.stop().await?;
    let squelch = test.squelch().await?;
    Policy::named(test.client(), &test.namespace, "strong").effective().await?;
    let told = about_policies(&test).await?;
    ensure!(told.len() == 3, "{told:?}");
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn that_the_webhook_is_armed_and_disarmed_is_told() -> Result<()> {
    let test = Test::begin("armed").await?;
    let api: Api<Event> = Api::namespaced(test.client(), "default");
    let count = async |reason: &str| -> Result<i64> {
        let events = api.list(&ListParams::default().fields(CONFIGURATION)).await?;
        let told = events.items.iter().filter(|event| event.reason.as_deref() == Some(reason));
        Ok(told.map(e2e::events::value).sum())
    };
    let grows = async |reason: &str, before: i64| {
        wait_for(&format!("squelch to tell that it is {reason}"), GENEROUS, async || {
            let now = count(reason).await.map_err(told)?;
            if now > before { Ok(()) } else { Err(format!("{now}, as before")) }
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

    // The last policy goes, and another comes.
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
