//! The control plane fails, or the Lease is changed: squelch recovers, and two replicas are active at most briefly.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::Cluster;
use e2e::faults::{ActiveReplicaWatch, Frozen};
use e2e::node::SQUELCH;
use e2e::stage::Stage;
use serde_json::json;

use crate::measure::{STORM, begin, none_failed_but, until, wait_until_active_again};

/// Deadline until a replica is active again.
const RECOVERED: Duration = Duration::from_secs(15);
/// Maximum time with two active replicas: the lease duration.
const LEASE: Duration = Duration::from_secs(4);
/// Time that etcd is stopped.
const STILL: Duration = Duration::from_secs(20);

async fn holder(cluster: &Cluster) -> Result<String> {
    let kubectl = cluster.kubectl.namespace(SQUELCH);
    kubectl.run(&["get", "lease", "squelch", "--output=jsonpath={.spec.holderIdentity}"]).await
}

/// The API server is stopped or killed, and started again: the same replica stays active.
pub(crate) async fn api_server(kill: bool) -> Result<String> {
    trouble("fault-apiserver", async |stage: &Stage| stage.node.restart_apiserver(kill).await).await
}

/// etcd is stopped for 20 s.
pub(crate) async fn etcd() -> Result<String> {
    trouble("fault-etcd", async |stage: &Stage| {
        let began = stage.writer.elapsed();
        let still = Frozen::component(&stage.node.cluster, "etcd")?;
        until(&stage.writer, began + STILL).await?;
        drop(still);
        Ok(())
    })
    .await
}

/// Another client writes itself into the Lease.
pub(crate) async fn lease_stolen(by_endpoint: bool) -> Result<String> {
    Cluster::connect().await?.route_by_endpoint(by_endpoint).await?;
    trouble("fault-stolen", async |stage: &Stage| {
        let now = format!("{:.6}", jiff::Timestamp::now());
        let theft = json!({ "spec": { "holderIdentity": "thief_0", "renewTime": now, "acquireTime": now } });
        let kubectl = stage.node.cluster.kubectl.namespace(SQUELCH);
        let patch = ["patch", "lease", "squelch", "--type=merge", "--patch", &theft.to_string()];
        kubectl.run(&patch).await.map(drop)
    })
    .await
}

/// The Lease is deleted.
pub(crate) async fn lease_deleted() -> Result<String> {
    trouble("fault-lease", async |stage: &Stage| {
        let kubectl = stage.node.cluster.kubectl.namespace(SQUELCH);
        kubectl.run(&["delete", "lease", "squelch"]).await.map(drop)
    })
    .await
}

/// After `how` a replica is active again, and no write fails outside of the outage.
async fn trouble(label: &str, how: impl AsyncFnOnce(&Stage) -> Result<()>) -> Result<String> {
    let (stage, counters) = begin(label, STORM).await?;
    let (cluster, writer) = (&stage.node.cluster, &stage.writer);
    let before = holder(cluster).await?;
    let active_replicas = ActiveReplicaWatch::watch(cluster);
    let began = writer.elapsed();
    how(&stage).await?;
    let over = writer.elapsed();
    // Enough time for a handover.
    let again = wait_until_active_again(writer, over + Duration::from_secs(1))
        .await
        .context("no replica is active")?;
    let again = again + Duration::from_secs(1);
    until(writer, over + RECOVERED).await?;
    wait_until_active_again(writer, over + RECOVERED).await?;
    stage.wait_for_decisions(counters).await?;
    let two = active_replicas.longest().await?;
    let failed = none_failed_but(writer, began..over + Duration::from_secs(1))?;
    let stayed = if holder(cluster).await? == before { "the same replica" } else { "another replica" };
    let measured = format!(
        "{stayed} is active {again:.1?} after the outage; two active for {two:.1?}; {failed} writes failed, none outside of \
         the outage"
    );
    ensure!(again <= RECOVERED && two <= LEASE, "{measured}");
    let (node, evidence) = stage.end().await?;
    ensure!(evidence.counters.are_conserved(), "the counters do not add up: {:?}", evidence.counters);
    node.passed()?;
    Ok(measured)
}
