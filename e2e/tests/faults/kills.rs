//! The active replica is killed: another decides, and no write fails.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::faults::{active, process};
use e2e::node::SQUELCH;
use e2e::process::send;
use e2e::writer::gap;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use crate::measure::{STORM, begin};

/// Until one that holds the Lease decides.
const GAP: Duration = Duration::from_secs(7);

/// The pod, with its container: nobody starts it again in place.
pub(crate) async fn pod() -> Result<String> {
    killed("fault-kill-pod", true).await
}

/// Its container alone: the kubelet starts it again in the same pod, which has the label.
pub(crate) async fn container() -> Result<String> {
    killed("fault-kill", false).await
}

async fn killed(label: &str, with_pod: bool) -> Result<String> {
    let (stage, counters) = begin(label, STORM).await?;
    let pod: Pod = active(&stage.node.cluster).await?;
    let pid = process(&pod)?;
    let began = stage.writer.has_written_for();
    send(pid, "KILL")?;
    if with_pod {
        let kubectl = stage.node.cluster.kubectl.namespace(SQUELCH);
        kubectl
            .run(&["delete", "pod", &pod.name_any(), "--force", "--grace-period=0", "--wait=false"])
            .await?;
    }
    let counters = stage.decides(counters).await?;
    stage.node.rolled_out(SQUELCH, SQUELCH).await?;
    stage.decides(counters).await?;
    stage.writer.goes_on(50).await?;
    let ended = stage.writer.has_written_for();
    let (node, evidence) = stage.end().await?;
    evidence.nobody_failed()?;
    let gap = gap(&evidence.times, began, ended);
    ensure!(gap < GAP, "for {gap:.1?} nobody decided, {GAP:?} are allowed");
    node.passed()?;
    // What was owed at that moment is gone: a crash is told of in the docs.
    Ok(format!(
        "no decision for {gap:.1?}; 0 of {} writes failed (slowest {:.0?}); {} told, {} stored",
        evidence.answers.occurrences(),
        evidence.answers.slowest,
        evidence.told,
        evidence.stored
    ))
}
