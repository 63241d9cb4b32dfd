//! `squelch suggest` on the stored Events of a real cluster.

use anyhow::{Result, ensure};
use e2e::process::run_with_input;
use e2e::{Emission, GENEROUS, STORM, Test, cluster, events, wait_for};
use std::process::Command;

#[tokio::test]
async fn a_suggested_policy_for_a_noisy_client_can_be_applied() -> Result<()> {
    let test = Test::begin("suggest").await?;
    // Without squelch, as before an installation.
    let storm = Emission::creates_core().about("job", 2).reason("Retried").count(60).rate(100);
    let sent = test.emit(&storm)?.finish(STORM).await?.sent();
    wait_for("the storm to be stored", GENEROUS, async || {
        let stored = test.events(None).await.map_err(e2e::wait::not_yet)?;
        let counted: i64 = stored.iter().map(events::value).sum();
        if counted == sent { Ok(()) } else { Err(format!("{counted} of {sent}")) }
    })
    .await?;

    let mut command = Command::new(cluster::given("SQUELCH_BIN")?);
    command.args(["suggest", "--namespace", &test.namespace, "--kubeconfig"]).arg(&test.cluster.kubeconfig);
    let output = run_with_input(&mut command, "")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let suggested = String::from_utf8(output.stdout)?;
    // Comments are wrapped.
    let unwrapped = suggested.replace("\n#   ", " ");
    ensure!(unwrapped.contains("- Retried") && unwrapped.contains("Warnings dropped: 0."), "{suggested}");

    let applied = test.kubectl().run_with(&["apply", "-f", "-"], suggested.clone()).await?;
    ensure!(applied.contains("created"), "{applied}: {suggested}");
    let named = test.kubectl().run(&["get", "eventpolicies", "--output=name"]).await?;
    ensure!(named.contains("suggested-emitter"), "{named}");
    // It governs as it was suggested.
    let squelch = test.squelch().await?;
    wait_for("the policy to be in force", GENEROUS, async || {
        let effective = ["wait", "--for=condition=Effective", "--timeout=5s", "eventpolicies", "--all"];
        test.kubectl().run(&effective).await.map(drop).map_err(e2e::wait::not_yet)
    })
    .await?;
    squelch.stop().await?;

    // squelch's own account may not list Events.
    let mut command = Command::new(cluster::given("SQUELCH_BIN")?);
    command.args(["suggest", "--all-namespaces", "--kubeconfig", &test.squelch_kubeconfig()]);
    let output = run_with_input(&mut command, "")?;
    let refusal = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.code() == Some(1), "{refusal}");
    ensure!(refusal.contains("you may not list events in all namespaces"), "{refusal}");
    test.passed()
}
