//! kwok, and its nodes.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use e2e::cluster::given;
use e2e::process::Process;
use e2e::wait::{not_yet, pass};
use e2e::{Cluster, STORM, wait_for};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::json;

/// Number of nodes that are created at the same time.
const AT_ONCE: usize = 8;

/// The duration of a node's Lease in seconds; kwok renews it four times as often. A node without a renewal for 50 s is
/// NotReady, and kwok does not repair the pods that the node controller then marks: with renewals every 10 s, as by
/// kubelets, two busy processors fell behind.
const LEASE: u32 = 80;

/// Starts kwok with its own Stages. It renews the Lease of each node.
pub(crate) fn start(cluster: &Cluster, folder: &Path) -> Result<Process> {
    let mut command = Command::new(given("SQUELCH_KWOK")?);
    command
        .arg("--kubeconfig")
        .arg(&cluster.kubeconfig)
        .arg("--config")
        .arg(given("SQUELCH_KWOK_STAGES")?)
        .args(["--manage-all-nodes=true", &format!("--node-lease-duration-seconds={LEASE}")]);
    Process::start("kwok", &mut command, folder)
}

/// Creates this many nodes, and waits until pods can be scheduled on all of them.
pub(crate) async fn create(cluster: &Cluster, number: usize) -> Result<()> {
    let api: Api<Node> = Api::all(cluster.client.clone());
    let nodes = (0..number).map(node).collect::<serde_json::Result<Vec<Node>>>()?;
    futures::stream::iter(nodes)
        .map(|node| {
            let api = api.clone();
            async move { api.create(&PostParams::default(), &node).await.map(drop) }
        })
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await?;
    wait_for("all nodes to be ready", STORM, async || {
        pass(Duration::from_secs(2)).await;
        let nodes = api.list(&ListParams::default()).await.map_err(not_yet)?.items;
        let ready = nodes.iter().filter(|node| is_schedulable(node)).count();
        if ready == number { Ok(()) } else { Err(format!("{ready} of {number}")) }
    })
    .await
}

fn node(number: usize) -> serde_json::Result<Node> {
    let capacity = json!({ "cpu": "32", "memory": "256Gi", "pods": "110" });
    serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": format!("kwok-{number:04}"), "annotations": { "kwok.x-k8s.io/node": "fake" } },
        "status": { "allocatable": capacity, "capacity": capacity },
    }))
}

fn is_schedulable(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let is_ready = conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True");
    is_ready && node.spec.as_ref().is_none_or(|spec| spec.taints.as_deref().unwrap_or_default().is_empty())
}
