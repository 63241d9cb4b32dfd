//! EventPolicies as users write and read them.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::cluster::checkout;
use e2e::policy::{Policy, idle_after};
use e2e::wait::not_yet;
use e2e::{Emission, GENEROUS, Squelch, Test, wait_for};
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

const STORM: Duration = Duration::from_secs(60);

#[tokio::test]
async fn the_quickstart_applies_and_becomes_effective() -> Result<()> {
    let test = Test::begin("quickstart").await?;
    let squelch = test.squelch().await?;
    let file = checkout("examples/quickstart.yaml").display().to_string();
    test.kubectl().run(&["apply", "-f", &file]).await?;
    let policy = Policy::named(test.client(), &test.namespace, "quickstart");
    policy.effective().await?;

    test.emit(&Emission::legacy().about("pod", 1).count(20).rate(50))?.finish(STORM).await?;
    let counters = policy.received(20).await?;
    ensure!(counters.compacted > 10, "{counters:?}");
    let shown = test.kubectl().run(&["get", "eventpolicies"]).await?;
    for column in ["MODE", "ACCEPTED", "EFFECTIVE", "REASON", "RECEIVED", "ADMITTED", "COMPACTED", "AGE"] {
        ensure!(shown.contains(column), "no column {column}:\n{shown}");
    }
    ensure!(shown.contains("Enforce") && shown.contains("20"), "{shown}");
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn every_invalid_example_is_refused_with_its_message() -> Result<()> {
    let test = Test::begin("invalid").await?;
    let mut tried = 0;
    for entry in std::fs::read_dir(checkout("examples/invalid"))? {
        let path = entry?.path();
        let text = std::fs::read_to_string(&path)?;
        let file = path.display().to_string();
        let expected = text.lines().next().and_then(|line| line.strip_prefix("# expect: "));
        let expected = expected.with_context(|| format!("{file} does not begin with # expect:"))?;
        let Err(answer) = test.kubectl().run(&["apply", "-f", &file]).await else {
            anyhow::bail!("{file} was accepted");
        };
        ensure!(answer.to_string().contains(expected), "{file}: expected {expected}\nbut got {answer}");
        tried += 1;
    }
    ensure!(tried > 55, "only {tried} invalid examples");
    test.passed()
}

/// Applies a policy as a dry run; returns its spec with defaults.
async fn tried(test: &Test, spec: &Value) -> Result<Value> {
    let object = json!({
        "apiVersion": "squelch.dev/v1alpha1", "kind": "EventPolicy",
        "metadata": { "name": "tried" }, "spec": spec,
    });
    let arguments = ["create", "--dry-run=server", "--output=json", "-f", "-"];
    let answer = test.kubectl().run_with(&arguments, object.to_string()).await?;
    Ok(serde_json::from_str::<Value>(&answer)?["spec"].take())
}

#[tokio::test]
async fn defaults_are_in_the_object_and_limits_are_inclusive() -> Result<()> {
    let test = Test::begin("limits").await?;
    let defaults = tried(&test, &json!({ "budget": {} })).await?;
    let expected = json!({
        "mode": "Enforce", "priority": 0, "rejection": "AlreadyExists",
        "series": { "mode": "Enforce", "idleTimeout": "6m", "heartbeatInterval": "30m" },
        "aggregation": { "mode": "Enforce", "maxEvents": 10, "idleTimeout": "10m", "groupBy": "Object" },
        "spamFilter": {
            "mode": "Enforce", "burst": 25, "refillInterval": "5m", "tokensPerRefill": 1,
            "per": ["Emitter", "Object", "Type"],
        },
        "budget": { "mode": "Enforce", "burst": 500, "refillInterval": "100ms", "tokensPerRefill": 1 },
    });
    assert_eq!(defaults, expected);
    assert_eq!(tried(&test, &json!({})).await?.get("budget"), None, "no budget unless it is given");
    for reached in [
        json!({ "aggregation": { "maxEvents": 1, "idleTimeout": "1s" } }),
        json!({ "aggregation": { "maxEvents": 10_000, "idleTimeout": "720h" } }),
        json!({ "spamFilter": { "burst": 1, "refillInterval": "720h", "per": ["Reason"] } }),
        json!({ "spamFilter": { "burst": 1_000_000, "refillInterval": "1ms" } }),
        // Exactly 100 years.
        json!({ "budget": { "burst": 87_600, "refillInterval": "10h" } }),
        json!({ "spamFilter": { "burst": 87_600, "refillInterval": "30h", "tokensPerRefill": 3 } }),
        // Unusual but valid texts.
        json!({ "match": {
            "types": ["Warning", "Normal"], "reasons": ["Back off", "*"], "reportingComponents": ["shop.dev/sync-?"],
            "regarding": [{ "kind": "?ods", "apiGroup": "v2.example.com", "name": "system:x-*" }, { "apiGroup": "" }],
        } }),
    ] {
        tried(&test, &reached).await?;
    }
    test.passed()
}

#[tokio::test]
async fn explain_shows_units_defaults_and_limits_of_every_stage() -> Result<()> {
    let test = Test::begin("explain").await?;
    let stages: [(&str, &[&str]); 4] = [
        (
            "series",
            &["units h, m, s, ms", "from 1s to 8760h", "Default: 6m", "Default: 30m", "Default: Enforce"],
        ),
        (
            "aggregation",
            &["From 1 to 10000", "Default: 10.", "from 1s to 720h", "Default: 10m", "Default: Object"],
        ),
        (
            "spamFilter",
            &[
                "From 1 to 1000000",
                "Default: 25",
                "from 1ms to 720h",
                "Default: 5m",
                "100 years",
                "[Emitter, Object, Type]",
            ],
        ),
        (
            "budget",
            &[
                "From 1 to 1000000",
                "Default: 500",
                "from 1ms to 720h",
                "Default: 100ms",
                "100 years",
                "no budget",
            ],
        ),
    ];
    for (stage, facts) in stages {
        let explained = test.kubectl().run(&["explain", &format!("eventpolicy.spec.{stage}")]).await?;
        // kubectl wraps lines.
        let words = explained.split_whitespace().collect::<Vec<_>>().join(" ");
        for fact in facts {
            ensure!(words.contains(fact), "{fact:?} is not explained:\n{explained}");
        }
    }
    test.passed()
}

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
    let crd = kubectl.run(&["get", "crd", "eventpolicies.squelch.dev", "--output=json"]).await?;
    let mut crd: Value = serde_json::from_str(&crd)?;
    loosen(&mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]);
    kubectl.run_with(&["replace", "-f", "-"], crd.to_string()).await?;
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
    let crd = kubectl.run(&["get", "crd", "eventpolicies.squelch.dev", "--output=json"]).await?;
    let mut crd: Value = serde_json::from_str(&crd)?;
    crd["metadata"]["resourceVersion"].take();
    let original = crd.to_string();
    let spec = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    spec["properties"]["invented"] = json!({ "type": "boolean" });
    let modes = &mut spec["properties"]["series"]["properties"]["mode"]["enum"];
    modes.as_array_mut().context("series.mode is no enum")?.push("Invented".into());
    kubectl.run_with(&["replace", "-f", "-"], crd.to_string()).await?;
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

#[tokio::test]
async fn observe_counts_the_same_and_suppresses_nothing() -> Result<()> {
    let test = Test::begin("observe").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&json!({ "mode": "Observe", "series": { "idleTimeout": "3s" } })).await?;
    let writes = test.writes().await?;

    let core = test.emit(&Emission::legacy().about("core", 1).count(100).rate(50))?;
    let new = test.emit(&Emission::kube().about("new", 1).count(100).rate(50))?;
    let creates = test.emit(&Emission::creates_core().about("creates", 1).count(50).rate(50))?;
    for storm in [core, new, creates] {
        let report = storm.finish(STORM).await?;
        ensure!(report.refused().is_empty(), "refused in Observe: {:?}", report.refused());
    }
    let counters = policy.received(250).await?;
    ensure!(counters.compacted > 200, "{counters:?}");
    let written = writes.so_far().await?;
    assert_eq!(written.len(), 250, "in Observe every write is in etcd, and squelch adds none");
    test.one_event("core-0", 100).await?;
    test.one_event("new-0", 100).await?;
    assert_eq!(test.events(Some("creates-0")).await?.len(), 50);

    let metrics = squelch.metrics().await?;
    let of = |metric| metrics.sum(metric, &[("event_namespace", &test.namespace)]) as i64;
    assert_eq!((of("squelch_observed_occurrences_total"), of("squelch_occurrences_total")), (250, 0));
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn a_changed_or_deleted_policy_flushes_its_pending_counts() -> Result<()> {
    let test = Test::begin("change").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&idle_after("10m")).await?;
    let storm = Emission::legacy().about("pod", 1).count(100).rate(100);
    test.emit(&storm)?.finish(STORM).await?;
    policy.received(100).await?;
    // Another mode: the pending occurrences of Enforce are flushed at once.
    policy.change(&test.kubectl(), &json!({ "mode": "Observe" })).await?;
    test.one_event("pod-0", 100).await?;

    policy.change(&test.kubectl(), &idle_after("10m")).await?;
    let storm = Emission::creates_core().about("other", 1).count(100).rate(100);
    test.emit(&storm)?.finish(STORM).await?;
    policy.received(200).await?;
    test.kubectl().run(&["delete", "eventpolicy", "policy"]).await?;
    test.one_event("other-0", 100).await?;
    squelch.stop().await?;
    test.passed()
}
