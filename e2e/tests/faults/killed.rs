//! The active replica is killed: another becomes active, and no write fails.

use std::time::Duration;

use anyhow::Result;
use e2e::faults::{active, process};
use e2e::node::SQUELCH;
use e2e::policy::Counters;
use e2e::process::send;
use e2e::stage::Stage;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use crate::measure::{STORM, begin, begin_routed, gap_below};

/// Maximum time until a replica with the Lease is active.
const GAP: Duration = Duration::from_secs(7);

/// The pod with its container: there is no restart in place.
pub(crate) async fn pod(by_endpoint: bool) -> Result<String> {
    killed(begin_routed("fault-kill-pod", by_endpoint).await?, true).await
}

/// Only its container: the kubelet restarts it in the same pod, which has the label.
pub(crate) async fn container() -> Result<String> {
    killed(begin("fault-kill", STORM).await?, false).await
}

async fn killed((stage, counters): (Stage, Counters), with_pod: bool) -> Result<String> {
    let pod: Pod = active(&stage.node.cluster).await?;
    let pid = process(&pod)?;
    let began = stage.writer.elapsed();
    send(pid, "KILL")?;
    if with_pod {
        let kubectl = stage.node.cluster.kubectl.namespace(SQUELCH);
        kubectl
            .run(&["delete", "pod", &pod.name_any(), "--force", "--grace-period=0", "--wait=false"])
            .await?;
    }
    let counters = stage.wait_for_decisions(counters).await?;
    stage.node.rolled_out(SQUELCH, SQUELCH).await?;
    stage.wait_for_decisions(counters).await?;
    stage.writer.wait_for_answers(50).await?;
    let ended = stage.writer.elapsed();
    let (node, evidence) = stage.end().await?;
    evidence.no_write_failed()?;
    let gap = gap_below(GAP, &evidence, began, ended)?;
    node.passed()?;
    // Occurrences pending at that moment are lost, as documented for crashes.
    Ok(format!(
        "no active replica for {gap:.1?}; 0 of {} writes failed (slowest {:.0?}); {} reported, {} stored",
        evidence.answers.occurrences(),
        evidence.answers.slowest,
        evidence.reported,
        evidence.stored
    ))
}
