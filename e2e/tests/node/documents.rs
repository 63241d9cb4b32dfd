//! The commands of `docs/certificates.md` that need pods, as a reader pastes them.

use anyhow::{Context, Result, ensure};
use e2e::documents::{block_with, lines, pasted};
use e2e::node::SQUELCH;
use e2e::policy::Counters;
use e2e::wait::not_yet;
use e2e::{GENEROUS, Node, wait_for};
use serde_json::json;

use crate::key_rotation::secret;
use e2e::stage::Stage;

const DOCUMENT: &str = "docs/certificates.md";

/// The authority and the token in the Secret.
async fn keys(node: &Node) -> Result<[String; 2]> {
    let data = secret(node).await?["data"].clone();
    let text =
        |field: &str| data[field].as_str().map(str::to_owned).context(format!("no {field} in the Secret"));
    Ok([text("ca.crt")?, text("token")?])
}

fn are_new(now: &[String; 2], before: &[String; 2]) -> bool {
    now.iter().zip(before).all(|(now, before)| now != before)
}

/// Keys and token are rotated immediately: with squelch running, and with squelch stopped.
pub(crate) async fn rotated_at_once() -> Result<String> {
    let stage = Stage::begin("row-rotate", &json!({}), 2).await?;
    let node = &stage.node;
    let counters = stage.wait_for_decisions(Counters::default()).await?;
    let leaked = keys(node).await?;

    let commands = block_with(DOCUMENT, "data.previous-token")?;
    let commands = lines(&commands, "kubectl");
    let [rotating, since] = &commands[..] else { anyhow::bail!("not two commands: {commands:?}") };
    let before = pasted(&node.cluster, since).await?;
    let stop_first = block_with(DOCUMENT, "--replicas 0")?;
    let delete = "kubectl --namespace squelch delete secret squelch-webhook\n";
    pasted(&node.cluster, &block_with_only(delete)?).await?;
    wait_for("the end of the rotation", GENEROUS, async || {
        let now = keys(node).await.map_err(not_yet)?;
        let left = pasted(&node.cluster, rotating).await.map_err(not_yet)?;
        let begun = pasted(&node.cluster, since).await.map_err(not_yet)?;
        if are_new(&now, &leaked) && left.is_empty() && begun > before {
            Ok(())
        } else {
            Err(format!("{left}{begun}"))
        }
    })
    .await?;
    let counters = stage.wait_for_decisions(counters).await?;

    let second = keys(node).await?;
    pasted(&node.cluster, &stop_first).await?;
    node.rolled_out(SQUELCH, SQUELCH).await?;
    ensure!(are_new(&keys(node).await?, &second), "the Secret has the deleted keys again");
    stage.wait_for_decisions(counters).await?;
    let (node, evidence) = stage.end().await?;
    evidence.no_write_failed()?;
    node.passed()?;
    Ok(format!("0 of {} writes failed", evidence.answers.occurrences()))
}

/// The block of the document with only this line.
fn block_with_only(line: &str) -> Result<String> {
    let found = e2e::documents::blocks(DOCUMENT)?.into_iter().find(|block| block == line);
    found.context(format!("{DOCUMENT} has no such block: {line}"))
}
