//! One replica ends in good order and another takes over: nothing is lost.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::cluster::given;
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

/// As the cluster calls it.
const NODE: &str = "node1";
/// Without decisions, draining included.
const GAP: Duration = Duration::from_secs(4);
/// The same with 10,000 debts, of which each takes a read and a write.
const LONG_GAP: Duration = Duration::from_secs(35);
/// The same where one of the two may look at the Lease as seldom as an older version did: as after a crash.
const GAP_OF_VERSIONS: Duration = Duration::from_secs(7);

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

/// In the middle of a change of versions: replicas of two images beside each other, of which the newer one takes over.
/// With an archive of another build in `SQUELCH_OTHER_IMAGE` it is from this build to that one and back again, else the
/// code is the same under two names.
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
            let began = stage.writer.has_written_for();
            taken_over(stage, image).await.with_context(|| format!("on the way to {image}"))?;
            let gap = gap(&stage.writer.times(), began, stage.writer.has_written_for());
            eprintln!("    no decision for {gap:.1?} on the way to {image}");
        }
        Ok(())
    })
    .await
}

/// A rollout to `image` that stands still while a replica of it takes over from those of the image before, and until
/// one of these stands by for it.
async fn taken_over(stage: &Stage, image: &str) -> Result<()> {
    let cluster = &stage.node.cluster;
    let kubectl = cluster.kubectl.namespace(SQUELCH);
    kubectl.run(&["set", "image", "deployment/squelch", &format!("squelch={image}")]).await?;
    kubectl.run(&["rollout", "pause", "deployment/squelch"]).await?;
    is_beside(cluster, "a replica of the newer image", |pod| is_of(pod, image)).await?;
    let cordon = Cordon::new(cluster).await?;
    wait_for("a replica of the newer image to decide", GENEROUS, async || {
        let deciding = active(cluster).await.map_err(told)?;
        if is_of(&deciding, image) {
            return Ok(());
        }
        // Whoever stands by first, or the next one to decide would be of the image before too.
        let mut before = running_pods(cluster).await.map_err(told)?;
        before.retain(|pod| !is_of(pod, image) && pod.name_any() != deciding.name_any());
        let pod = before.first().unwrap_or(&deciding).name_any();
        evict(cluster, &pod).await.map_err(told)?;
        Err(format!("{} decided, {pod} was evicted", deciding.name_any()))
    })
    .await?;
    drop(cordon);
    is_beside(cluster, "a replica of the image before", |pod| !is_of(pod, image)).await?;
    kubectl.run(&["rollout", "resume", "deployment/squelch"]).await?;
    stage.node.rolled_out(SQUELCH, SQUELCH).await
}

/// Waits for a ready one.
async fn is_beside(cluster: &Cluster, what: &str, it: impl Fn(&Pod) -> bool) -> Result<()> {
    wait_for(&format!("{what} to be ready"), GENEROUS, async || {
        let pods = running_pods(cluster).await.map_err(told)?;
        if pods.iter().any(|pod| it(pod) && is_ready(pod)) { Ok(()) } else { Err("none is".to_owned()) }
    })
    .await
}

/// The node gets no pods, so that who is evicted does not come back. It gets them with the end of this value.
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
