//! Install, upgrade, rollback, restart and uninstall while Events are written.

use anyhow::{Context, Result, ensure};
use e2e::cluster::given;
use e2e::faults::containerd;
use e2e::node::{IMAGE, SQUELCH, TAG};
use e2e::policy::Counters;
use e2e::wait::not_yet;
use e2e::{GENEROUS, Node, wait_for};
use serde_json::json;

use e2e::stage::{Stage, values};

/// The tag of the other version's image.
const OTHER_TAG: &str = "other";

/// helm install, upgrade with changed values, rollback, uninstall, and a new install over the kept policies.
pub(crate) async fn upgraded() -> Result<String> {
    let stage = Stage::begin("row-upgrade", &json!({}), 3).await?;
    let helm = stage.node.helm();
    let mut counters = stage.wait_for_decisions(Counters::default()).await?;
    helm.upgrade(&values(&json!({ "operator": { "flushQps": 50 }, "podLabels": { "step": "two" } }))).await?;
    counters = stage.wait_for_decisions(counters).await.context("after the upgrade")?;
    helm.rollback().await?;
    counters = stage.wait_for_decisions(counters).await.context("after the rollback")?;
    helm.uninstall().await?;
    helm.install(&values(&json!({}))).await?;
    counters = stage.wait_for_decisions(counters).await.context("after the second install")?;
    let (node, evidence) = stage.end().await?;
    ensure!(evidence.counters.received >= counters.received, "the counters have decreased");
    let measured = evidence.nothing_lost()?;
    node.passed()?;
    Ok(measured)
}

/// helm upgrade to another version and back, a downgrade and an upgrade: to the archive `SQUELCH_OTHER_IMAGE` with the
/// chart in the folder `SQUELCH_OTHER_CHART`. Without them the other version is the same build under another name.
pub(crate) async fn another_version() -> Result<String> {
    let more = json!({ "replicas": 2 });
    let stage = Stage::begin("row-versions", &more, 5).await?;
    let mut counters = stage.wait_for_decisions(Counters::default()).await?;
    let this = stage.node.helm();
    let mut other = this.clone().set("image.tag", OTHER_TAG);
    if let Ok(archive) = given("SQUELCH_OTHER_IMAGE") {
        stage.node.load(&archive).await?;
        other.chart = given("SQUELCH_OTHER_CHART")?;
    } else {
        let names = [TAG, OTHER_TAG].map(|tag| format!("{IMAGE}:{tag}"));
        containerd(&stage.node.cluster, &["images", "tag", "--force", &names[0], &names[1]])?;
    }
    for (version, helm) in [("the other version", other), ("this version", this)] {
        helm.upgrade(&values(&more)).await.with_context(|| format!("upgrade to {version}"))?;
        stage.node.rolled_out(SQUELCH, SQUELCH).await?;
        counters = stage.wait_for_decisions(counters).await.with_context(|| format!("under {version}"))?;
    }
    let (node, evidence) = stage.end().await?;
    ensure!(evidence.counters.received >= counters.received, "the counters have decreased");
    let measured = evidence.nothing_lost()?;
    node.passed()?;
    Ok(measured)
}

/// helm uninstall during a storm.
pub(crate) async fn removed() -> Result<String> {
    let stage = Stage::begin("row-uninstall", &json!({}), 2).await?;
    stage.wait_for_decisions(Counters::default()).await?;
    stage.node.helm().uninstall().await?;
    stage.writer.wait_for_answers(100).await?;
    let left = leftovers(&stage.node).await;
    let counters = stage.policy.counters().await.context("the policy was deleted")?;
    let (node, evidence) = stage.end().await?;
    left?;
    ensure!(
        evidence.counters == counters,
        "the counters still increase: {counters:?}, {:?}",
        evidence.counters
    );
    let measured = evidence.nothing_lost()?;
    node.passed()?;
    Ok(format!("{measured}; only the policies are left"))
}

/// helm upgrade after `kubectl scale --replicas=0` starts squelch again, as docs/runbooks.md says.
pub(crate) async fn scaled_to_zero() -> Result<String> {
    let stage = Stage::begin("row-scaled-to-zero", &json!({}), 1).await?;
    let counters = stage.wait_for_decisions(Counters::default()).await?;
    let kubectl = stage.node.cluster.kubectl.namespace(SQUELCH);
    kubectl.run(&["scale", "deployment", SQUELCH, "--replicas=0"]).await?;
    stage.node.rolled_out(SQUELCH, SQUELCH).await?;
    stage.node.helm().upgrade(&values(&json!({}))).await?;
    stage.wait_for_decisions(counters).await?;
    stage.passed().await
}

/// A release in another namespace uses the definitions and the policy that an uninstalled one has left, and back.
pub(crate) async fn moved() -> Result<String> {
    let stage = Stage::begin("row-moved", &json!({}), 2).await?;
    let mut counters = stage.wait_for_decisions(Counters::default()).await?;
    let here = stage.node.helm().option("--take-ownership");
    let mut elsewhere = here.clone();
    "squelch-moved".clone_into(&mut elsewhere.namespace);
    here.uninstall().await?;
    elsewhere.install(&values(&json!({}))).await?;
    counters = stage.wait_for_decisions(counters).await.context("in another namespace")?;
    elsewhere.uninstall().await?;
    here.install(&values(&json!({}))).await?;
    stage.wait_for_decisions(counters).await.context("in the first namespace")?;
    stage.passed().await
}

/// kubectl rollout restart during a storm.
pub(crate) async fn restarted() -> Result<String> {
    let stage = Stage::begin("row-restart", &json!({}), 2).await?;
    let counters = stage.wait_for_decisions(Counters::default()).await?;
    let before = stage.node.squelch_pods().await?;
    let kubectl = stage.node.cluster.kubectl.namespace(SQUELCH);
    kubectl.run(&["rollout", "restart", "deployment/squelch"]).await?;
    stage.node.rolled_out(SQUELCH, SQUELCH).await?;
    let after = stage.node.squelch_pods().await?;
    ensure!(!after.is_empty() && after.iter().all(|pod| !before.contains(pod)), "{before:?}, then {after:?}");
    stage.wait_for_decisions(counters).await?;
    stage.passed().await
}

/// Waits until all objects of the chart and of squelch are deleted, except for the CRDs.
async fn leftovers(node: &Node) -> Result<()> {
    let kubectl = &node.cluster.kubectl;
    let kinds = kubectl.run(&["api-resources", "--verbs=list", "--output=name"]).await?;
    let is_checked =
        |kind: &&str| !kind.starts_with("events") && !kind.starts_with("customresourcedefinitions");
    let kinds = kinds.lines().filter(is_checked).collect::<Vec<_>>().join(",");
    for label in ["app.kubernetes.io/instance=squelch", "app.kubernetes.io/managed-by=squelch"] {
        wait_for(&format!("every object with {label} to be deleted"), GENEROUS, async || {
            let list = ["get", &kinds, "--all-namespaces", "--selector", label, "--output=name"];
            let left = kubectl.run(&list).await.map_err(not_yet)?;
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
