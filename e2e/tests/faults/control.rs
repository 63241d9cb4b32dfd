//! The control plane fails, or the Lease is meddled with: squelch recovers by itself, and two never decide for long.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::Cluster;
use e2e::faults::{Deciders, Frozen};
use e2e::node::SQUELCH;
use e2e::stage::Stage;
use serde_json::json;

use crate::measure::{STORM, begin, decides_again, none_failed_but, until};

/// Until squelch decides again.
const RECOVERED: Duration = Duration::from_secs(15);
/// Two may say that they decide for as long as a Lease lasts.
const LEASE: Duration = Duration::from_secs(4);
/// How long etcd stands still.
const STILL: Duration = Duration::from_secs(20);

async fn holder(cluster: &Cluster) -> Result<String> {
    let kubectl = cluster.kubectl.namespace(SQUELCH);
    kubectl.run(&["get", "lease", "squelch", "--output=jsonpath={.spec.holderIdentity}"]).await
}

/// Ended, or killed, and started again: the same replica goes on.
pub(crate) async fn api_server(kill: bool) -> Result<String> {
    trouble("fault-apiserver", async |stage: &Stage| stage.node.restart_apiserver(kill).await).await
}

/// It stands still for 20 s.
pub(crate) async fn etcd() -> Result<String> {
    trouble("fault-etcd", async |stage: &Stage| {
        let began = stage.writer.has_written_for();
        let still = Frozen::component(&stage.node.cluster, "etcd")?;
        until(&stage.writer, began + STILL).await?;
        drop(still);
        Ok(())
    })
    .await
}

/// Somebody who does not decide writes himself into it.
pub(crate) async fn lease_stolen() -> Result<String> {
    trouble("fault-stolen", async |stage: &Stage| {
        let now = format!("{:.6}", jiff::Timestamp::now());
        let theft = json!({ "spec": { "holderIdentity": "thief_0", "renewTime": now, "acquireTime": now } });
        let kubectl = stage.node.cluster.kubectl.namespace(SQUELCH);
        let patch = ["patch", "lease", "squelch", "--type=merge", "--patch", &theft.to_string()];
        kubectl.run(&patch).await.map(drop)
    })
    .await
}

/// It is gone.
pub(crate) async fn lease_deleted() -> Result<String> {
    trouble("fault-lease", async |stage: &Stage| {
        let kubectl = stage.node.cluster.kubectl.namespace(SQUELCH);
        kubectl.run(&["delete", "lease", "squelch"]).await.map(drop)
    })
    .await
}

/// After `how` has ended squelch decides again, and no write fails outside of it.
async fn trouble(label: &str, how: impl AsyncFnOnce(&Stage) -> Result<()>) -> Result<String> {
    let (stage, counters) = begin(label, STORM).await?;
    let (cluster, writer) = (&stage.node.cluster, &stage.writer);
    let before = holder(cluster).await?;
    let deciders = Deciders::watch(cluster);
    let began = writer.has_written_for();
    how(&stage).await?;
    let over = writer.has_written_for();
    // Long enough for whoever is to take over.
    let again =
        decides_again(writer, over + Duration::from_secs(1)).await.context("nobody decides any more")?;
    let again = again + Duration::from_secs(1);
    until(writer, over + RECOVERED).await?;
    decides_again(writer, over + RECOVERED).await?;
    stage.decides(counters).await?;
    let two = deciders.longest().await?;
    let failed = none_failed_but(writer, began..over + Duration::from_secs(1))?;
    let stayed = if holder(cluster).await? == before { "the same one" } else { "another one" };
    let measured = format!(
        "{stayed} decides {again:.1?} after it was over; two at a time for {two:.1?}; {failed} writes failed, none outside of \
         the outage"
    );
    ensure!(again <= RECOVERED && two <= LEASE, "{measured}");
    let (node, evidence) = stage.end().await?;
    ensure!(evidence.counters.are_conserved(), "the counters do not add up: {:?}", evidence.counters);
    node.passed()?;
    Ok(measured)
}
