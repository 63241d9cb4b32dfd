//! `squelch replay` on what a real cluster has stored.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::process::run_with_input;
use e2e::{Emission, GENEROUS, Test, cluster, events, wait_for};
use serde_json::Value;

const STORM: Duration = Duration::from_secs(60);
const POLICY: &str =
    "apiVersion: squelch.dev/v1alpha1\nkind: EventPolicy\nmetadata: {name: quickstart}\nspec: {}\n";

/// Replays a dump of Events under a policy in every namespace.
fn replay(dump: &str) -> Result<Value> {
    let policy = std::env::temp_dir().join(format!("squelch-e2e-replay-{}.yaml", std::process::id()));
    std::fs::write(&policy, POLICY)?;
    let mut command = Command::new(cluster::given("SQUELCH_BIN")?);
    command.args(["replay", "--all-namespaces", "-o", "json", "--policy"]).arg(&policy).arg("-");
    let output = run_with_input(&mut command, dump)?;
    std::fs::remove_file(&policy)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

#[tokio::test]
async fn all_events_of_a_cluster_are_unfolded_and_folded_again() -> Result<()> {
    let test = Test::begin("replay").await?;
    // Without squelch: this is the cluster of somebody who thinks about it.
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
        let stored = test.events(None).await.map_err(e2e::wait::told)?;
        let counted: i64 = stored.iter().map(events::value).sum();
        if counted == expected { Ok(()) } else { Err(format!("{counted} of {expected}")) }
    })
    .await?;

    for resource in ["events", "events.v1.events.k8s.io"] {
        let dump = test.cluster.kubectl.run(&["get", resource, "--all-namespaces", "-o", "json"]).await?;
        let report = replay(&dump)?;
        let rows = report["policies"].as_array().context("rows")?;
        let row = rows.iter().find(|row| row["namespace"] == *test.namespace).context("its namespace")?;
        assert_eq!(row["occurrences"]["received"], expected, "{resource}: {row}");
        assert_eq!(report["input"]["leftOut"], serde_json::json!({}), "{resource}");
        let (without, with) = (&row["writes"]["etcdWithout"], &row["writes"]["etcdWith"]);
        assert_eq!(without, expected, "{resource}");
        // Each of the six Events takes log2(120) + 2 writes at most.
        ensure!(with.as_i64().context("writes")? <= 6 * 9, "{resource}: {row}");
    }
    test.passed()
}
