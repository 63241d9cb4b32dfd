//! EventPolicies as users write and read them.

use anyhow::{Context, Result, ensure};
use e2e::cluster::checkout;
use e2e::policy::{Policy, idle_after};
use e2e::{Emission, STORM, Test};
use serde_json::{Value, json};

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
pub(crate) async fn tried(test: &Test, spec: &Value) -> Result<Value> {
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
        "mode": "Enforce", "priority": 0, "warningPolicy": "NeverDrop", "rejection": "AlreadyExists",
        "series": { "mode": "Enforce", "idleTimeout": "6m", "heartbeatInterval": "30m" },
        "aggregation": { "mode": "Enforce", "maxEvents": 10, "idleTimeout": "10m", "groupBy": "Object" },
        "spamFilter": {
            "mode": "Enforce", "burst": 25, "refillInterval": "5m", "tokensPerRefill": 1,
            "per": ["Emitter", "Object", "Type"],
        },
        "budget": { "mode": "Enforce", "burst": 500, "refillInterval": "100ms", "tokensPerRefill": 1 },
        "export": { "include": "None" },
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
        json!({ "match": [{
            "types": ["Warning", "Normal"], "reasons": ["Back off", "*"], "reportingComponents": ["shop.dev/sync-?"],
            "regarding": [{ "kind": "?ods", "apiGroup": "v2.example.com", "name": "system:x-*" }, { "apiGroup": "" }],
        }] }),
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
