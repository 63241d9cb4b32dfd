//! Changes of policies and of their CRDs by users.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::faults::active;
use e2e::node::SQUELCH;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::measure::{CALM, STORM, begin, until};

/// A field that the CRDs of the previous version lack.
const FIELD: &str = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/rejection";

const POLICIES: usize = 500;
const BATCH: usize = 25;

/// squelch is newer than its CRDs, for a while.
pub(crate) async fn of_the_previous_version() -> Result<String> {
    let (stage, counters) = begin("fault-definitions", STORM).await?;
    let kubectl = &stage.node.cluster.kubectl;
    let definition = "crd/eventpolicies.squelch.dev";
    let current: Value = serde_json::from_str(&kubectl.run(&["get", definition, "--output=json"]).await?)?;
    let patch = async |patch: Value| {
        kubectl.run(&["patch", definition, "--type=json", "--patch", &patch.to_string()]).await.map(drop)
    };
    patch(json!([{ "op": "remove", "path": FIELD }])).await?;
    let in_squelch = kubectl.namespace(SQUELCH);
    in_squelch.run(&["rollout", "restart", "deployment/squelch"]).await?;
    stage.node.rolled_out(SQUELCH, SQUELCH).await?;
    let decided = stage.wait_for_decisions(counters).await;
    let field = current.pointer(FIELD).cloned().unwrap_or_default();
    patch(json!([{ "op": "add", "path": FIELD, "value": field }])).await?;
    stage.wait_for_decisions(decided?).await?;
    stage.passed().await
}

/// 500 policies are applied within a minute, none of which governs the writer's Events.
pub(crate) async fn five_hundred() -> Result<String> {
    let (stage, _) = begin("fault-policies", CALM).await?;
    let kubectl = stage.node.cluster.kubectl.namespace(&stage.node.namespace);
    let pod = active(&stage.node.cluster).await?.name_any();
    let slow = async || {
        let metrics = stage.node.metrics(&pod).await?;
        let all = metrics.sum("squelch_admission_duration_seconds_count", &[]);
        let quick = metrics.sum("squelch_admission_duration_seconds_bucket", &[("le", "0.05")]);
        anyhow::Ok((all, all - quick))
    };
    let (reviews, before) = slow().await?;
    let began = stage.writer.elapsed();
    for batch in 0..POLICIES / BATCH {
        let policy = |number: usize| {
            json!({
                "apiVersion": "squelch.dev/v1alpha1", "kind": "EventPolicy",
                "metadata": { "name": format!("of-users-{batch}-{number}") },
                "spec": { "priority": -1, "match": [{ "reasons": [format!("Reason{batch}x{number}*")] }] },
            })
        };
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": (0..BATCH).map(policy).collect::<Vec<_>>() });
        kubectl.run_with(&["apply", "--server-side", "-f", "-"], list.to_string()).await?;
        let paced = Duration::from_secs(60) * u32::try_from(batch + 1)? / u32::try_from(POLICIES / BATCH)?;
        until(&stage.writer, began + paced).await?;
    }
    let took = stage.writer.elapsed().saturating_sub(began);
    let (after, later) = slow().await?;
    let (node, evidence) = stage.end().await?;
    let measured = format!(
        "{POLICIES} policies in {took:.0?}; {} of {} reviews took longer than 50 ms; {}",
        later - before,
        after - reviews,
        evidence.nothing_lost()?
    );
    ensure!(later - before == 0.0 && after > reviews, "{measured}");
    node.passed()?;
    Ok(measured)
}
