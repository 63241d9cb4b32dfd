//! A replica shuts down and another takes over: no occurrence is lost.

use std::time::Duration;

use anyhow::{Context, Result};
use e2e::cluster::given;
use e2e::faults::{active, containerd};
use e2e::node::{IMAGE, SQUELCH, TAG, running_pods};
use e2e::stage::Stage;
use e2e::wait::not_yet;
use e2e::writer::gap;
use e2e::{Cluster, Emission, GENEROUS, wait_for};
use k8s_openapi::api::core::v1::Pod;
use kube::api::EvictParams;
use kube::{Api, ResourceExt};

use serde_json::json;

use crate::measure::{CALM, STORM, begin, begin_routed, begin_with, gap_below};

/// Name of the image in the cluster.
const NODE: &str = "node1";
/// Maximum time without an active replica, final flush included.
const GAP: Duration = Duration::from_secs(4);
/// Same with 500 pending series: their flushes take 1 to 2 s of two busy processors.
const PENDING_GAP: Duration = Duration::from_secs(6);
/// The shutdown timeout with 10,000 pending series, each of which takes a read and a write. An API server on two busy
/// processors answers fewer than 500 of each a second, so that the default of 30 s is too short there.
const LONG_SHUTDOWN: Duration = Duration::from_secs(120);
/// Maximum time without an active replica with as many.
const LONG_GAP: Duration = Duration::from_secs(125);
/// Same if one of two replicas polls the Lease as rarely as an older version: as after a crash.
const GAP_OF_VERSIONS: Duration = Duration::from_secs(7);

/// kubectl rollout restart during the storm.
pub(crate) async fn rolled(by_endpoint: bool) -> Result<String> {
    let (stage, _) = begin_routed("fault-rolled", by_endpoint).await?;
    handed_over(stage, GAP, restart).await
}

/// The active pod is evicted.
pub(crate) async fn drained(by_endpoint: bool) -> Result<String> {
    let (stage, _) = begin_routed("fault-drained", by_endpoint).await?;
    handed_over(stage, GAP, async |stage: &Stage| {
        let pod = active(&stage.node.cluster).await?.name_any();
        evict(&stage.node.cluster, &pod).await
    })
    .await
}

/// During an upgrade: replicas of two images run together, and the newer one takes over. With an archive of another
/// build in `SQUELCH_OTHER_IMAGE` it is an upgrade to that build and back; otherwise the same build has two names.
pub(crate) async fn two_versions() -> Result<String> {
    let (stage, _) = begin("fault-versions", STORM).await?;
    let (this, other) = (format!("{IMAGE}:{TAG}"), format!("{IMAGE}:other"));
    let images = if let Ok(archive) = given("SQUELCH_OTHER_IMAGE") {
        stage.node.load(&archive).await?;
        vec![other, this]
    } else {
        containerd(&stage.node.cluster, &["images", "tag", "--force", &this, &other])?;
        vec![other]
    };
    handed_over(stage, GAP_OF_VERSIONS, async |stage: &Stage| {
        for image in &images {
            let began = stage.writer.elapsed();
            taken_over(stage, image).await.with_context(|| format!("rollout to {image}"))?;
            let gap = gap(&stage.writer.times(), began, stage.writer.elapsed());
            eprintln!("    no active replica for {gap:.1?} in the rollout to {image}");
        }
        Ok(())
    })
    .await
}

/// A paused rollout to `image`: a replica of it takes over from those of the previous image, of which one stays as
/// standby.
async fn taken_over(stage: &Stage, image: &str) -> Result<()> {
    let cluster = &stage.node.cluster;
    let kubectl = cluster.kubectl.namespace(SQUELCH);
    kubectl.run(&["set", "image", "deployment/squelch", &format!("squelch={image}")]).await?;
    kubectl.run(&["rollout", "pause", "deployment/squelch"]).await?;
    is_beside(cluster, "a replica of the newer image", |pod| is_of(pod, image)).await?;
    let cordon = Cordon::new(cluster).await?;
    wait_for("a replica of the newer image to be active", GENEROUS, async || {
        let deciding = active(cluster).await.map_err(not_yet)?;
        if is_of(&deciding, image) {
            return Ok(());
        }
        // The standby first: otherwise the next active replica would have the previous image too.
        let mut before = running_pods(cluster).await.map_err(not_yet)?;
        before.retain(|pod| !is_of(pod, image) && pod.name_any() != deciding.name_any());
        let pod = before.first().unwrap_or(&deciding).name_any();
        evict(cluster, &pod).await.map_err(not_yet)?;
        Err(format!("{} was active, {pod} was evicted", deciding.name_any()))
    })
    .await?;
    drop(cordon);
    is_beside(cluster, "a replica of the previous image", |pod| !is_of(pod, image)).await?;
    kubectl.run(&["rollout", "resume", "deployment/squelch"]).await?;
    stage.node.rolled_out(SQUELCH, SQUELCH).await
}

/// Waits for a ready pod.
async fn is_beside(cluster: &Cluster, what: &str, it: impl Fn(&Pod) -> bool) -> Result<()> {
    wait_for(&format!("{what} to be ready"), GENEROUS, async || {
        let pods = running_pods(cluster).await.map_err(not_yet)?;
        if pods.iter().any(|pod| it(pod) && is_ready(pod)) { Ok(()) } else { Err("none is".to_owned()) }
    })
    .await
}

/// Makes the node unschedulable, so that an evicted pod does not return, until the drop of this value.
struct Cordon<'a>(&'a Cluster);

impl<'a> Cordon<'a> {
    async fn new(cluster: &'a Cluster) -> Result<Self> {
        cluster.kubectl.run(&["cordon", NODE]).await?;
        Ok(Self(cluster))
    }
}

impl Drop for Cordon<'_> {
    fn drop(&mut self) {
        self.0.kubectl.say(&["uncordon", NODE]);
    }
}

fn is_of(pod: &Pod, image: &str) -> bool {
    let containers = pod.spec.as_ref().map(|spec| spec.containers.as_slice()).unwrap_or_default();
    containers.iter().any(|container| container.image.as_deref() == Some(image))
}

fn is_ready(pod: &Pod) -> bool {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    statuses.is_some_and(|statuses| statuses.iter().all(|status| status.ready))
}

/// Evicts a pod as kubectl drain does, and waits until it is deleted.
async fn evict(cluster: &Cluster, pod: &str) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), SQUELCH);
    pods.evict(pod, &EvictParams::default()).await.context("the eviction of the active pod")?;
    let kubectl = cluster.kubectl.namespace(SQUELCH);
    kubectl.run(&["wait", "--for=delete", &format!("pod/{pod}"), "--timeout=90s"]).await.map(drop)
}

/// Restart with 500 pending series.
pub(crate) async fn with_500_pending_series() -> Result<String> {
    let (mut stage, _) = begin("fault-pending", STORM).await?;
    make_pending(&mut stage, 500, 300).await?;
    handed_over(stage, PENDING_GAP, restart).await
}

/// Restart with 10,000 pending series.
pub(crate) async fn with_10_000_pending_series() -> Result<String> {
    let timeout = format!("{}s", LONG_SHUTDOWN.as_secs());
    let values = json!({ "operator": { "shutdownTimeout": timeout } });
    let (mut stage, _) = begin_with("fault-many-pending", &values, CALM).await?;
    make_pending(&mut stage, 10_000, 600).await?;
    handed_over(stage, LONG_GAP, restart).await
}

/// Each object reports three times: the third occurrence is pending.
async fn make_pending(stage: &mut Stage, objects: usize, per_second: u32) -> Result<()> {
    let emission = Emission::legacy().about("pending", objects).count(3).rate(per_second);
    stage.run_emitter("pending", &emission).await
}

async fn restart(stage: &Stage) -> Result<()> {
    let before = stage.node.squelch_pods().await?;
    let kubectl = stage.node.cluster.kubectl.namespace(SQUELCH);
    kubectl.run(&["rollout", "restart", "deployment/squelch"]).await?;
    kubectl.run(&["rollout", "status", "deployment/squelch", "--timeout=240s"]).await?;
    for pod in before {
        kubectl.run(&["wait", "--for=delete", &format!("pod/{pod}"), "--timeout=180s"]).await?;
    }
    Ok(())
}

/// No write fails, no occurrence is lost, and there is no active replica for at most `most`.
async fn handed_over(
    stage: Stage,
    most: Duration,
    how: impl AsyncFnOnce(&Stage) -> Result<()>,
) -> Result<String> {
    let counters = stage.policy.counters().await?;
    let began = stage.writer.elapsed();
    how(&stage).await?;
    stage.node.rolled_out(SQUELCH, SQUELCH).await?;
    stage.wait_for_decisions(counters).await?;
    stage.writer.wait_for_answers(50).await?;
    let ended = stage.writer.elapsed();
    let (node, evidence) = stage.end().await?;
    let measured = evidence.nothing_lost()?;
    let gap = gap_below(most, &evidence, began, ended).context(measured.clone())?;
    node.passed()?;
    Ok(format!("no active replica for {gap:.1?}; {measured}"))
}
