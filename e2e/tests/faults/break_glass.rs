//! A user disables squelch: by the annotation, or by deleting the configuration.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::stage::Stage;
use e2e::writer::gap;

use crate::measure::{STORM, begin, configuration, disarmed, until, wait_until_active_again};

/// squelch watches its configuration.
const DISARMED: Duration = Duration::from_secs(3);
/// Time in which nothing may be suppressed.
const STAYS: Duration = Duration::from_secs(10);
/// Three probes and a poll.
const ARMED: Duration = Duration::from_secs(10);

const CONFIGURATION: &str = "mutatingwebhookconfiguration/squelch";

/// The annotation of the runbook.
pub(crate) async fn annotated() -> Result<String> {
    broken(
        "fault-break-glass",
        async |stage: &Stage| {
            let kubectl = &stage.node.cluster.kubectl;
            kubectl.run(&["annotate", CONFIGURATION, "squelch.dev/disarm=INC-7"]).await.map(drop)
        },
        async |stage: &Stage| {
            stage
                .node
                .cluster
                .kubectl
                .run(&["annotate", CONFIGURATION, "squelch.dev/disarm-"])
                .await
                .map(drop)
        },
    )
    .await
}

/// The configuration is deleted, and restored by a user.
pub(crate) async fn deleted() -> Result<String> {
    let saved = std::cell::RefCell::new(String::new());
    broken(
        "fault-deleted",
        async |stage: &Stage| {
            let mut whole = configuration(&stage.node.cluster).await?.context("there is none")?;
            if let Some(metadata) = whole["metadata"].as_object_mut() {
                metadata
                    .retain(|field, _| field == "name" || field == "labels" || field == "ownerReferences");
            }
            saved.replace(whole.to_string());
            stage.node.cluster.kubectl.run(&["delete", CONFIGURATION]).await.map(drop)
        },
        async |stage: &Stage| {
            let saved = saved.borrow().clone();
            stage.node.cluster.kubectl.run_with(&["create", "-f", "-"], saved).await.map(drop)
        },
    )
    .await
}

async fn broken(
    label: &str,
    take: impl AsyncFnOnce(&Stage) -> Result<()>,
    give: impl AsyncFnOnce(&Stage) -> Result<()>,
) -> Result<String> {
    let (stage, _) = begin(label, STORM).await?;
    let (cluster, writer) = (&stage.node.cluster, &stage.writer);
    let began = writer.elapsed();
    take(&stage).await?;
    let away = disarmed(cluster, writer, began).await?;
    // Reviews that were sent before the rules were removed may still be answered.
    let quiet = began + away + Duration::from_secs(1);
    until(writer, quiet + STAYS).await?;
    let without_decision = gap(&writer.times(), quiet, quiet + STAYS);
    let given = writer.elapsed();
    give(&stage).await?;
    let armed = wait_until_active_again(writer, given).await?;
    let (node, evidence) = stage.end().await?;
    let measured = format!(
        "disarmed after {away:.1?}, for as long as requested; active {armed:.1?} after it was restored"
    );
    ensure!(without_decision >= STAYS, "suppressed although disarmed: {measured}");
    ensure!(away <= DISARMED && armed <= ARMED, "{measured}");
    let counted = evidence.nothing_lost()?;
    node.passed()?;
    Ok(format!("{measured}; {counted}"))
}
