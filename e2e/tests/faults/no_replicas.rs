//! No replica runs: Events are written as without a webhook.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::cluster::given;
use e2e::faults::{containerd, process};
use e2e::node::{IMAGE, SQUELCH, TAG, running_pods};
use e2e::process::send;
use e2e::stage::{Load, Stage};
use e2e::wait::not_yet;
use e2e::writer::percentile;
use e2e::{Cluster, GENEROUS, wait_for};

use crate::measure::{begin, until};

/// Time before the fault, enough for a percentile.
const LOAD: Load = Load { writes: 100, storm: 0, before: 1_000 };
/// From then on no write waits for a webhook.
const SETTLED: Duration = Duration::from_secs(15);
/// Duration of the measurement.
const MEASUREMENT: Duration = Duration::from_secs(10);
/// Difference below the noise of this machine.
const NOISE: Duration = Duration::from_millis(2);

/// kubectl scale --replicas=0.
pub(crate) async fn scaled() -> Result<String> {
    gone("fault-scaled", async |stage: &Stage| {
        let kubectl = stage.node.cluster.kubectl.namespace(SQUELCH);
        kubectl.run(&["scale", "deployment", SQUELCH, "--replicas=0"]).await.map(drop)
    })
    .await
}

/// SIGKILL of every replica, and of each restarted one.
pub(crate) async fn killed() -> Result<String> {
    gone("fault-killed", async |stage: &Stage| {
        let cluster = stage.node.cluster.clone();
        let end = stage.writer.elapsed() + SETTLED + MEASUREMENT;
        // Within this time no replica becomes active: each is killed before it acquires the Lease.
        while stage.writer.elapsed() < end {
            kill_all(&cluster).await?;
            stage.writer.wait_for_answers(10).await?;
        }
        Ok(())
    })
    .await
}

/// The image is removed from the node, and the replicas are killed.
pub(crate) async fn without_image() -> Result<String> {
    let archive = given("SQUELCH_IMAGE")?;
    let remove = async |stage: &Stage| {
        let cluster = &stage.node.cluster;
        let images = containerd(cluster, &["images", "list", "--quiet"])?;
        let listed = containerd(cluster, &["images", "list"])?;
        let reference = format!("{IMAGE}:{TAG}");
        let digest = listed
            .lines()
            .find(|line| line.starts_with(&reference))
            .and_then(|line| line.split_whitespace().nth(2));
        let digest = digest.context("the image is not on the node")?;
        let of_image =
            |name: &&str| listed.lines().any(|line| line.starts_with(name) && line.contains(digest));
        for name in images.lines().filter(of_image) {
            containerd(cluster, &["images", "remove", "--sync", name])?;
        }
        let kubectl = cluster.kubectl.namespace(SQUELCH);
        kubectl.run(&["delete", "pods", "--all", "--force", "--grace-period=0"]).await?;
        Ok(())
    };
    let measured =
        gone_until("fault-image", remove, async |cluster: &Cluster| e2e::node::load(cluster, &archive).await)
            .await;
    // Also if the row failed.
    e2e::node::load(&Cluster::connect().await?, &archive).await?;
    measured
}

/// kubectl delete namespace.
pub(crate) async fn without_namespace() -> Result<String> {
    gone("fault-namespace", async |stage: &Stage| {
        stage.node.cluster.kubectl.run(&["delete", "namespace", SQUELCH, "--timeout=120s"]).await.map(drop)
    })
    .await
}

async fn kill_all(cluster: &Cluster) -> Result<()> {
    for pod in running_pods(cluster).await? {
        // A pod may have no process at the moment.
        if let Ok(pid) = process(&pod) {
            let _ = send(pid, "KILL");
        }
    }
    Ok(())
}

/// No write fails, and after some seconds none takes longer than without a webhook.
async fn gone(label: &str, how: impl AsyncFnOnce(&Stage) -> Result<()>) -> Result<String> {
    gone_until(label, how, async |_: &Cluster| Ok(())).await
}

/// Same as `gone`, with a step before the chart can be uninstalled.
async fn gone_until(
    label: &str,
    how: impl AsyncFnOnce(&Stage) -> Result<()>,
    make_good: impl AsyncFnOnce(&Cluster) -> Result<()>,
) -> Result<String> {
    let (stage, _) = begin(label, LOAD).await?;
    let writer = &stage.writer;
    let before = percentile(&writer.times(), 99, Duration::from_secs(2), Duration::from_secs(10));
    let began = writer.elapsed();
    how(&stage).await?;
    until(writer, began + SETTLED + MEASUREMENT).await?;
    make_good(&stage.node.cluster).await?;
    left(&stage.node.cluster).await?;
    let away = writer.elapsed();
    until(writer, away + MEASUREMENT).await?;
    let times = writer.times();
    let meanwhile = percentile(&times, 100, began, began + SETTLED);
    let now = percentile(&times, 99, began + SETTLED, began + SETTLED + MEASUREMENT);
    let after = percentile(&times, 99, away, away + MEASUREMENT);
    let answers = writer.so_far();
    ensure!(answers.failed.is_empty(), "{answers}");
    // Measured before and after, because the load of the machine varies.
    let most = before.max(after).mul_f64(1.2) + NOISE;
    let measured = format!(
        "0 of {} writes failed; p99 {before:.1?} before the installation, {after:.1?} after its removal, {now:.1?} from 15 s \
         after the last replica; slowest before that {meanwhile:.0?}",
        answers.occurrences()
    );
    ensure!(now <= most, "{measured}");
    let Stage { node, writer, .. } = stage;
    writer.stop().await;
    node.passed()?;
    Ok(measured)
}

/// Cleans up for the next row.
async fn left(cluster: &Cluster) -> Result<()> {
    let helm = e2e::node::chart(cluster);
    helm.uninstall().await?;
    let kubectl = &cluster.kubectl;
    kubectl.run(&["delete", "mutatingwebhookconfiguration", "squelch", "--ignore-not-found"]).await?;
    wait_for("the pods of squelch to be gone", GENEROUS, async || {
        let pods = running_pods(cluster).await.map_err(not_yet)?.len();
        if pods == 0 { Ok(()) } else { Err(format!("{pods} run")) }
    })
    .await
}
