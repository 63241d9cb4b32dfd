//! One replica ends in good order and another takes over: nothing is lost.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::faults::{active, containerd};
use e2e::node::{IMAGE, SQUELCH, TAG, running_pods};
use e2e::stage::Stage;
use e2e::wait::told;
use e2e::writer::gap;
use e2e::{Cluster, Emission, GENEROUS, wait_for};
use k8s_openapi::api::core::v1::Pod;
use kube::api::EvictParams;
use kube::{Api, ResourceExt};

use crate::measure::{STORM, begin};

/// Without decisions, draining included.
const GAP: Duration = Duration::from_secs(4);
/// The same with 10,000 debts, of which each takes a read and a write.
const LONG_GAP: Duration = Duration::from_secs(35);

/// kubectl rollout restart in the middle of the storm.
pub(crate) async fn rolled(by_endpoint: bool) -> Result<String> {
    let (stage, _) = routed("fault-rolled", by_endpoint).await?;
    handed_over(stage, GAP, restart).await
}

/// The active pod is evicted.
pub(crate) async fn drained(by_endpoint: bool) -> Result<String> {
    let (stage, _) = routed("fault-drained", by_endpoint).await?;
    handed_over(stage, GAP, async |stage: &Stage| {
        let pod = active(&stage.node.cluster).await?.name_any();
        evict(&stage.node.cluster, &pod).await
    })
    .await
}

/// In the middle of an upgrade: replicas of two images beside each other, of which the newer takes over. (The code is
/// the same, since there is no release before this one.)
pub(crate) async fn two_versions() -> Result<String> {
    let (stage, _) = begin("fault-versions", STORM).await?;
    let newer = format!("{IMAGE}:newer");
    containerd(&stage.node.cluster, &["images", "tag", "--force", &format!("{IMAGE}:{TAG}"), &newer])?;
    let is_newer = |pod: &Pod| {
        let containers = pod.spec.as_ref().map(|spec| spec.containers.as_slice()).unwrap_or_default();
        containers.iter().any(|container| container.image.as_deref() == Some(&newer))
    };
    handed_over(stage, GAP, async |stage: &Stage| {
        let cluster = &stage.node.cluster;
        let kubectl = cluster.kubectl.namespace(SQUELCH);
        kubectl.run(&["set", "image", "deployment/squelch", &format!("squelch={newer}")]).await?;
        kubectl.run(&["rollout", "pause", "deployment/squelch"]).await?;
        wait_for("a replica of the newer image to decide", GENEROUS, async || {
            let pod = active(cluster).await.map_err(told)?;
            if is_newer(&pod) {
                return Ok(());
            }
            let beside = running_pods(cluster).await.map_err(told)?;
            if !beside.iter().any(|pod| is_newer(pod) && is_ready(pod)) {
                return Err("no replica of the newer image is ready".to_owned());
            }
            evict(cluster, &pod.name_any()).await.map_err(told)?;
            Err(format!("{} decided", pod.name_any()))
        })
        .await?;
        kubectl.run(&["rollout", "resume", "deployment/squelch"]).await.map(drop)
    })
    .await
}

fn is_ready(pod: &Pod) -> bool {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    statuses.is_some_and(|statuses| statuses.iter().all(|status| status.ready))
}

/// As a drain of its node does, until it is gone.
async fn evict(cluster: &Cluster, pod: &str) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), SQUELCH);
    pods.evict(pod, &EvictParams::default()).await.context("the eviction of the active pod")?;
    let kubectl = cluster.kubectl.namespace(SQUELCH);
    kubectl.run(&["wait", "--for=delete", &format!("pod/{pod}"), "--timeout=90s"]).await.map(drop)
}

/// 500 stored Events are owed something.
pub(crate) async fn with_500_debts() -> Result<String> {
    let (mut stage, _) = begin("fault-debts", STORM).await?;
    owe(&mut stage, 500, 300).await?;
    handed_over(stage, GAP, restart).await
}

/// 10,000 are.
pub(crate) async fn with_10_000_debts() -> Result<String> {
    let (mut stage, _) = begin("fault-many-debts", crate::measure::CALM).await?;
    owe(&mut stage, 10_000, 600).await?;
    handed_over(stage, LONG_GAP, restart).await
}

async fn routed(label: &str, by_endpoint: bool) -> Result<(Stage, e2e::policy::Counters)> {
    let cluster = Cluster::connect().await?;
    cluster.restart_apiserver(false, &[&format!("--enable-aggregator-routing={by_endpoint}")]).await?;
    begin(label, STORM).await
}

/// Each object reports three times: the third is owed.
async fn owe(stage: &mut Stage, objects: usize, per_second: u32) -> Result<()> {
    let emission = Emission::legacy().about("debtor", objects).count(3).rate(per_second);
    stage.reports("debts", &emission).await
}

async fn restart(stage: &Stage) -> Result<()> {
    let before = stage.node.squelch_pods().await?;
    let kubectl = stage.node.cluster.kubectl.namespace(SQUELCH);
    kubectl.run(&["rollout", "restart", "deployment/squelch"]).await?;
    kubectl.run(&["rollout", "status", "deployment/squelch", "--timeout=150s"]).await?;
    for pod in before {
        kubectl.run(&["wait", "--for=delete", &format!("pod/{pod}"), "--timeout=90s"]).await?;
    }
    Ok(())
}

/// Nothing fails, nothing is lost, and for `most` at most nobody decides.
async fn handed_over(
    stage: Stage,
    most: Duration,
    how: impl AsyncFnOnce(&Stage) -> Result<()>,
) -> Result<String> {
    let counters = stage.policy.counters().await?;
    let began = stage.writer.has_written_for();
    how(&stage).await?;
    stage.node.rolled_out(SQUELCH, SQUELCH).await?;
    stage.decides(counters).await?;
    stage.writer.goes_on(50).await?;
    let ended = stage.writer.has_written_for();
    let (node, evidence) = stage.end().await?;
    let measured = evidence.nothing_lost()?;
    let gap = gap(&evidence.times, began, ended);
    ensure!(gap < most, "for {gap:.1?} nobody decided, {most:?} are allowed; {measured}");
    node.passed()?;
    Ok(format!("no decision for {gap:.1?}; {measured}"))
}
