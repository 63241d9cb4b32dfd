//! Two replicas and three API servers.

use anyhow::{Context, Result, ensure};
use e2e::api_servers::{ApiServer, PathFault};
use e2e::policy::idle_after;
use e2e::squelch::StartOptions;
use e2e::wait::not_yet;
use e2e::{GENEROUS, Test, wait_for};

/// Successful probes of each API server that arming needs.
const SUCCESSES: f64 = 3.0;

/// The active replica is frozen, a standby removes the rules and becomes active, and one API server does not reach it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_standby_has_disarmed_each_api_server_needs_new_probes() -> Result<()> {
    let test = Test::begin("reach-standby").await?;
    let flags = ["--secret", squelch::SECRET];
    let mut active = test.squelch_with(&flags).await?;
    let policy = test.policy(&idle_after("60s")).await?;
    let options = StartOptions { flags: &flags, standby: true, ..StartOptions::default() };
    let standby = test.squelch_with_options(options).await?;
    let servers = ApiServer::all(&test.cluster)?;
    let last = servers.last().context("no API server")?;
    let succeeded = SUCCESSES * servers.len() as f64;
    wait_for("the standby to probe each API server", GENEROUS, async || {
        let metrics = standby.metrics().await.map_err(not_yet)?;
        let number = metrics.sum("squelch_probes_total", &[("result", "succeeded")]);
        if number >= succeeded { Ok(()) } else { Err(metrics.show("squelch_probes_total")) }
    })
    .await?;
    standby.wait_until_armed(true).await?;

    // The way to the standby's webhook, which is not asked yet.
    let path = last.path_fault(standby.port()?, PathFault::Drop).await?;
    active.freeze()?;
    standby.wait_until_armed(false).await?;
    ensure!(standby.metrics().await?.was_disarmed(), "the standby has not removed the rules");
    let before = answered(&test, &servers).await?;
    standby.wait_until_active().await?;
    policy.says("Effective", "False", "WebhookNotArmed", last.address_and_port()).await?;
    wait_for("successful probes of the other API servers", GENEROUS, async || {
        let now = answered(&test, &servers).await.map_err(not_yet)?;
        let mut others = now.iter().zip(&before).take(servers.len() - 1);
        let reached = others.all(|(now, before)| now - before >= SUCCESSES);
        if reached { Ok(()) } else { Err(format!("{before:?}, then {now:?}")) }
    })
    .await?;
    ensure!(!standby.metrics().await?.is_armed(), "armed without a probe of one API server");

    let healing = answered(&test, &servers).await?;
    ensure!(healing.last() == before.last(), "a probe has passed the cut: {before:?}, then {healing:?}");
    path.heal().await?;
    standby.wait_until_armed(true).await?;
    let after = answered(&test, &servers).await?;
    let successes: Vec<_> = after.iter().zip(&before).map(|(after, before)| after - before).collect();
    eprintln!("successful probes until it was armed: {successes:?}");
    ensure!(successes.iter().all(|number| *number >= SUCCESSES), "{successes:?}");
    policy.effective().await?;
    drop(active);
    standby.stop().await?;
    test.passed()
}

/// The probes through each API server that a webhook has answered.
async fn answered(test: &Test, servers: &[ApiServer]) -> Result<Vec<f64>> {
    let mut numbers = Vec::new();
    for server in servers {
        numbers.push(server.answered_probes(&test.cluster).await?);
    }
    Ok(numbers)
}
