//! A person takes squelch out of the way: by the annotation, by deleting the configuration.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::stage::Stage;
use e2e::writer::gap;

use crate::measure::{STORM, begin, configuration, decides_again, disarmed, until};

/// squelch looks every two seconds.
const DISARMED: Duration = Duration::from_secs(3);
/// For so long it is seen to that nothing is held back.
const STAYS: Duration = Duration::from_secs(10);
/// Three proofs, and a look.
const ARMED: Duration = Duration::from_secs(10);

const CONFIGURATION: &str = "mutatingwebhookconfiguration/squelch";

/// The annotation of the runbook.
pub(crate) async fn annotated() -> Result<String> {
    broken(
        "fault-glass",
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

/// Deleted, and put back by a person.
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
    let began = writer.has_written_for();
    take(&stage).await?;
    let away = disarmed(cluster, writer, began).await?;
    // What was asked before the rules were away may be answered yet.
    let quiet = began + away + Duration::from_secs(1);
    until(writer, quiet + STAYS).await?;
    let nobody = gap(&writer.times(), quiet, quiet + STAYS);
    let given = writer.has_written_for();
    give(&stage).await?;
    let armed = decides_again(writer, given).await?;
    let (node, evidence) = stage.end().await?;
    let measured = format!(
        "disarmed after {away:.1?}, for as long as wanted; decides {armed:.1?} after it was given back"
    );
    ensure!(nobody >= STAYS, "held back although disarmed: {measured}");
    ensure!(away <= DISARMED && armed <= ARMED, "{measured}");
    let counted = evidence.nothing_lost()?;
    node.passed()?;
    Ok(format!("{measured}; {counted}"))
}
