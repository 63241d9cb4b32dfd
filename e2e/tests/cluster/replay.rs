//! `squelch replay` on the stored Events of a real cluster, and on its recorded reviews.

use anyhow::{Context, Result, ensure};
use e2e::process::run_with_input;
use e2e::squelch::StartOptions;
use e2e::{Emission, FaultProxy, GENEROUS, STORM, Test, cluster, conservation, events, wait_for};
use serde_json::{Value, json};
use std::process::Command;

const POLICY: &str =
    "apiVersion: squelch.dev/v1alpha1\nkind: EventPolicy\nmetadata: {name: quickstart}\nspec: {}\n";

/// Replays Events or a trace under a policy in every namespace.
pub(crate) fn replay(policy_text: &str, input: &str) -> Result<Value> {
    let policy = std::env::temp_dir().join(format!("squelch-e2e-replay-{}.yaml", std::process::id()));
    std::fs::write(&policy, policy_text)?;
    let mut command = Command::new(cluster::given("SQUELCH_BIN")?);
    command.args(["replay", "--all-namespaces", "-o", "json", "--policy"]).arg(&policy).arg("-");
    let output = run_with_input(&mut command, input)?;
    std::fs::remove_file(&policy)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

#[tokio::test]
async fn all_events_of_a_cluster_can_be_replayed() -> Result<()> {
    let test = Test::begin("replay").await?;
    // Without squelch, as before an installation.
    let storms = [
        Emission::legacy().about("pod", 3).count(120).rate(200),
        Emission::kube().about("order", 2).count(80).rate(200),
        Emission::creates_core().about("job", 1).count(50).rate(200),
    ];
    let mut expected = 0;
    for storm in storms {
        expected += test.emit(&storm)?.finish(STORM).await?.sent();
    }
    wait_for("the storms to be stored", GENEROUS, async || {
        let stored = test.events(None).await.map_err(e2e::wait::not_yet)?;
        let counted: i64 = stored.iter().map(events::value).sum();
        if counted == expected { Ok(()) } else { Err(format!("{counted} of {expected}")) }
    })
    .await?;

    for resource in ["events", "events.v1.events.k8s.io"] {
        let dump = test.cluster.kubectl.run(&["get", resource, "--all-namespaces", "-o", "json"]).await?;
        let report = replay(POLICY, &dump)?;
        let rows = report["policies"].as_array().context("rows")?;
        let row = rows.iter().find(|row| row["namespace"] == *test.namespace).context("its namespace")?;
        assert_eq!(row["occurrences"]["received"], expected, "{resource}: {row}");
        // Of an earlier test whose namespace is not deleted yet.
        let mut left_out = report["input"]["leftOut"].clone();
        let reasons = left_out.as_object_mut().context("no leftOut in the report")?;
        reasons.retain(|reason, _| !["ownEvent", "ownSummary"].contains(&reason.as_str()));
        assert_eq!(left_out, json!({}), "{resource}");
        let (without, with) = (&row["writes"]["etcdWithout"], &row["writes"]["etcdWith"]);
        assert_eq!(without, expected, "{resource}");
        // Each of the six Events takes at most log2(120) + 2 writes.
        ensure!(with.as_i64().context("writes")? <= 6 * 9, "{resource}: {row}");
    }
    test.passed()
}

#[tokio::test]
async fn recorded_reviews_replay_to_the_same_counts() -> Result<()> {
    let test = Test::begin("recorded").await?;
    let proxy = FaultProxy::start(&test.cluster).await?;
    proxy.record();
    let squelch =
        test.squelch_with_options(StartOptions { proxy: Some(&proxy), ..StartOptions::default() }).await?;
    // No bucket is refilled meanwhile: the replay's clock differs slightly.
    let spec = json!({
        "warningPolicy": "Limit",
        "aggregation": { "maxEvents": 4 },
        "spamFilter": { "burst": 2, "refillInterval": "720h" },
        "budget": { "burst": 12, "refillInterval": "720h" },
    });
    let policy = test.policy(&spec).await?;
    let storms = [
        Emission::legacy().about("legacy", 4).with("--messages", "8").count(40).rate(100),
        Emission::new_style_fast().about("new", 3).count(20).rate(20),
        Emission::kube().about("kube", 3).count(30).rate(50),
        Emission::creates_core().about("core", 4).with("--messages", "distinct").count(20).rate(100),
        Emission::creates_new_style().about("generated", 2).count(20).rate(50).generate_name(),
    ];
    let mut sent = 0;
    for storm in storms {
        sent += test.emit(&storm)?.finish(STORM).await?.sent();
    }
    let counters = conservation::status_matches_metrics(&test, &squelch, &policy, sent).await?;
    squelch.stop().await?;

    let written = json!({
        "apiVersion": "squelch.dev/v1alpha1", "kind": "EventPolicy", "metadata": { "name": "policy" }, "spec": spec,
    });
    let report = replay(&written.to_string(), &proxy.trace(&test.namespace))?;
    let rows = report["policies"].as_array().context("rows")?;
    let row = rows.iter().find(|row| row["namespace"] == *test.namespace).context("its namespace")?;
    let of = |disposition: &str| row["occurrences"][disposition].as_i64().unwrap_or_default();
    let replayed = [
        of("received"),
        of("admitted") + of("compacted"),
        of("aggregated"),
        of("filtered"),
        of("throttled"),
        of("failedOpen"),
    ];
    let counted = [
        counters.received,
        counters.admitted + counters.compacted,
        counters.aggregated,
        counters.filtered,
        counters.throttled,
        counters.failed_open,
    ];
    assert_eq!(replayed, counted, "{counters:?}");
    ensure!(counted[..5].iter().all(|count| *count > 0), "a stage counted nothing: {counters:?}");
    test.passed()
}
