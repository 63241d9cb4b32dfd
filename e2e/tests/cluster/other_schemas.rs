//! Policies that were stored under other versions of their definition than squelch's.

use anyhow::{Result, ensure};
use e2e::policy::Policy;
use e2e::wait::not_yet;
use e2e::{Emission, GENEROUS, STORM, Squelch, Test, wait_for};
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::policy_api::tried;

/// The first minor version of Kubernetes that accepts a status although the unchanged spec breaks a CEL rule.
const FIRST_WITH_RATCHETING: u32 = 33;

/// Waits for what squelch reports of a status that the API server refuses.
async fn status_refused(test: &Test, squelch: &Squelch) -> Result<()> {
    let api: Api<Event> = Api::namespaced(test.client(), &test.namespace);
    wait_for("an Event with the rule", GENEROUS, async || {
        let seen =
            api.list(&ListParams::default().fields("reason=StatusRefused")).await.map_err(not_yet)?.items;
        let named = |event: &Event| {
            let note = event.message.as_deref().unwrap_or_default();
            event.involved_object.name.as_deref() == Some("wrong")
                && note.contains("burst times refillInterval")
        };
        if seen.iter().any(named) { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await?;
    let refused = squelch.metrics().await?.sum("squelch_refused_status_writes_total", &[]);
    ensure!(refused > 0.0, "the metric counts no refusal");
    Ok(())
}

/// Changes the schema of an EventPolicy's spec in the cluster. Returns the definition as it was, for `kubectl replace`.
async fn change_schema(test: &Test, change: impl FnOnce(&mut Value)) -> Result<String> {
    let kubectl = test.kubectl();
    let crd = kubectl.run(&["get", "crd", "eventpolicies.squelch.dev", "--output=json"]).await?;
    let mut crd: Value = serde_json::from_str(&crd)?;
    crd["metadata"]["resourceVersion"].take();
    let original = crd.to_string();
    change(&mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]);
    kubectl.run_with(&["replace", "-f", "-"], crd.to_string()).await?;
    Ok(original)
}

/// Removes every rule and limit from a schema, as in an older version.
fn loosen(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            for rule in ["x-kubernetes-validations", "minimum", "maximum", "maxItems", "maxLength"] {
                fields.remove(rule);
            }
            fields.values_mut().for_each(loosen);
        }
        Value::Array(entries) => entries.iter_mut().for_each(loosen),
        _ => (),
    }
}

#[tokio::test]
async fn an_invalid_policy_stored_before_the_rules_enforces_nothing_and_reports_it() -> Result<()> {
    let test = Test::begin("older-crd").await?;
    let kubectl = test.kubectl();
    change_schema(&test, loosen).await?;
    let wrong = json!({
        "apiVersion": "squelch.dev/v1alpha1", "kind": "EventPolicy", "metadata": { "name": "wrong" },
        "spec": { "spamFilter": { "burst": 1_000_000, "refillInterval": "720h" } },
    });
    wait_for("the API server to apply the schema without rules", GENEROUS, async || {
        kubectl.apply(&wrong).await.map_err(not_yet)
    })
    .await?;
    test.cluster.install().await?;
    wait_for("the API server to apply the schema with rules", GENEROUS, async || {
        let refused = tried(&test, &wrong["spec"]).await.is_err();
        if refused { Ok(()) } else { Err("it accepts an invalid policy".to_owned()) }
    })
    .await?;

    let squelch = test.squelch().await?;
    let policy = Policy::named(test.client(), &test.namespace, "wrong");
    let sentence = "spec.spamFilter: burst times refillInterval";
    if test.cluster.minor().await? < FIRST_WITH_RATCHETING {
        status_refused(&test, &squelch).await?;
    } else {
        policy.says("Accepted", "False", "Invalid", sentence).await?;
        policy.says("Effective", "False", "Invalid", "governs no Event writes").await?;
    }
    let writes = test.writes().await?;
    let storm = Emission::legacy().about("pod", 1).count(20).rate(50);
    ensure!(test.emit(&storm)?.finish(STORM).await?.refused().is_empty(), "something was suppressed");
    assert_eq!(writes.so_far().await?.len(), 20);

    // Once corrected, it enforces.
    policy.change(&kubectl, &json!({ "spamFilter": { "burst": 5 } })).await?;
    test.emit(&storm.about("other", 1))?.finish(STORM).await?;
    ensure!(policy.received(20).await?.compacted > 10, "nothing was suppressed");
    squelch.stop().await?;
    test.passed()
}

/// A rollback of squelch can leave newer CRDs behind.
#[tokio::test]
async fn a_policy_of_a_newer_crd_enforces_nothing_and_reports_it() -> Result<()> {
    let test = Test::begin("newer-crd").await?;
    let kubectl = test.kubectl();
    let original = change_schema(&test, |spec| {
        spec["properties"]["invented"] = json!({ "type": "boolean" });
        let modes = spec["properties"]["series"]["properties"]["mode"]["enum"].as_array_mut();
        modes.expect("series.mode is an enum").push("Invented".into());
    })
    .await?;
    let cases = [
        ("field", json!({ "invented": true }), "UnsupportedField", "spec.invented: "),
        ("value", json!({ "series": { "mode": "Invented" } }), "UnsupportedValue", "spec.series: "),
    ];
    for (name, spec, ..) in &cases {
        let policy = json!({
            "apiVersion": "squelch.dev/v1alpha1", "kind": "EventPolicy", "metadata": { "name": name }, "spec": spec,
        });
        wait_for("the API server to apply the newer schema", GENEROUS, async || {
            kubectl.run_with(&["create", "-f", "-"], policy.to_string()).await.map_err(not_yet)
        })
        .await?;
        let policy = Policy::named(test.client(), &test.namespace, name);
        policy.says("Accepted", "Unknown", "Pending", "").await?;
        policy.says("Effective", "Unknown", "Pending", "").await?;
    }

    let squelch = test.squelch().await?;
    for (name, _, reason, field) in cases {
        let policy = Policy::named(test.client(), &test.namespace, name);
        policy.says("Accepted", "False", reason, field).await?;
        policy.says("Stalled", "True", reason, "").await?;
    }
    let storm = Emission::legacy().about("pod", 1).count(20).rate(50);
    ensure!(test.emit(&storm)?.finish(STORM).await?.refused().is_empty(), "something was suppressed");
    squelch.stop().await?;
    kubectl.run_with(&["replace", "-f", "-"], original).await?;
    test.passed()
}
