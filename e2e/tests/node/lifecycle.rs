//! Installed, upgraded, rolled back, installed again, restarted, removed: while Events are written all the time.

use anyhow::{Context, Result, ensure};
use e2e::node::SQUELCH;
use e2e::policy::Counters;
use e2e::wait::told;
use e2e::{GENEROUS, Node, wait_for};
use serde_json::json;

use e2e::stage::{Stage, values};

/// helm install, upgrade with changed values, rollback, uninstall, and install again over the policies that were kept.
pub(crate) async fn upgraded() -> Result<String> {
    let stage = Stage::begin("row-upgrade", &json!({}), 3).await?;
    let helm = stage.node.helm();
    let mut counters = stage.decides(Counters::default()).await?;
    helm.upgrade(&values(&json!({ "operator": { "flushQps": 50 }, "podLabels": { "step": "two" } }))).await?;
    counters = stage.decides(counters).await.context("after the upgrade")?;
    helm.rollback().await?;
    counters = stage.decides(counters).await.context("after the rollback")?;
    helm.uninstall().await?;
    helm.install(&values(&json!({}))).await?;
    counters = stage.decides(counters).await.context("after it was installed again")?;
    let (node, evidence) = stage.end().await?;
    ensure!(evidence.counters.received >= counters.received, "the counters have gone back");
    let measured = evidence.nothing_lost()?;
    node.passed()?;
    Ok(measured)
}

/// helm uninstall in the middle of a storm.
pub(crate) async fn removed() -> Result<String> {
    let stage = Stage::begin("row-uninstall", &json!({}), 2).await?;
    stage.decides(Counters::default()).await?;
    stage.node.helm().uninstall().await?;
    stage.writer.goes_on(100).await?;
    let left = leftovers(&stage.node).await;
    let counters = stage.policy.counters().await.context("the policy is gone")?;
    let (node, evidence) = stage.end().await?;
    left?;
    ensure!(
        evidence.counters == counters,
        "somebody goes on counting: {counters:?}, {:?}",
        evidence.counters
    );
    let measured = evidence.nothing_lost()?;
    node.passed()?;
    Ok(format!("{measured}; nothing left but the policies"))
}

/// kubectl rollout restart in the middle of a storm.
pub(crate) async fn restarted() -> Result<String> {
    let stage = Stage::begin("row-restart", &json!({}), 2).await?;
    let counters = stage.decides(Counters::default()).await?;
    let before = stage.node.squelch_pods().await?;
    let kubectl = stage.node.cluster.kubectl.namespace(SQUELCH);
    kubectl.run(&["rollout", "restart", "deployment/squelch"]).await?;
    stage.node.rolled_out(SQUELCH, SQUELCH).await?;
    let after = stage.node.squelch_pods().await?;
    ensure!(!after.is_empty() && after.iter().all(|pod| !before.contains(pod)), "{before:?}, then {after:?}");
    stage.decides(counters).await?;
    let (node, evidence) = stage.end().await?;
    let measured = evidence.nothing_lost()?;
    node.passed()?;
    Ok(measured)
}

/// Waits until no object of the chart's or of squelch's own is left, but the definitions.
async fn leftovers(node: &Node) -> Result<()> {
    let kubectl = &node.cluster.kubectl;
    let kinds = kubectl.run(&["api-resources", "--verbs=list", "--output=name"]).await?;
    let looked_at =
        |kind: &&str| !kind.starts_with("events") && !kind.starts_with("customresourcedefinitions");
    let kinds = kinds.lines().filter(looked_at).collect::<Vec<_>>().join(",");
    for label in ["app.kubernetes.io/instance=squelch", "app.kubernetes.io/managed-by=squelch"] {
        wait_for(&format!("every object with {label} to be gone"), GENEROUS, async || {
            let list = ["get", &kinds, "--all-namespaces", "--selector", label, "--output=name"];
            let left = kubectl.run(&list).await.map_err(told)?;
            if left.trim().is_empty() { Ok(()) } else { Err(left) }
        })
        .await?;
    }
    for object in ["mutatingwebhookconfiguration/squelch", "secret/squelch-webhook"] {
        let found =
            kubectl.namespace(SQUELCH).run(&["get", object, "--ignore-not-found", "--output=name"]).await?;
        ensure!(found.trim().is_empty(), "{object} is left");
    }
    Ok(())
}
