//! Certificate, authority and token are rotated while Events are written.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use e2e::node::SQUELCH;
use e2e::policy::Counters;
use e2e::wait::not_yet;
use e2e::{Cluster, GENEROUS, Node, wait_for};
use serde_json::{Value, json};

use e2e::stage::{Stage, values};

/// Lifetime that rotates authority and token every 10 s.
const LIFETIME: &str = "5s";

pub(crate) async fn secret(node: &Node) -> Result<Value> {
    let kubectl = node.cluster.kubectl.namespace(SQUELCH);
    Ok(serde_json::from_str(&kubectl.run(&["get", "secret", squelch::SECRET, "--output=json"]).await?)?)
}

/// Waits until the authority in the Secret differs from `before`.
async fn another(node: &Node, before: &Value) -> Result<Value> {
    wait_for("another authority", GENEROUS, async || {
        let now = secret(node).await.map_err(not_yet)?["data"]["ca.crt"].clone();
        if now.is_string() && now != *before { Ok(now) } else { Err("the same authority".to_owned()) }
    })
    .await
}

/// Certificate and token are rotated every 10 s; the Secret is damaged and deleted.
pub(crate) async fn rotated(by_endpoint: bool) -> Result<String> {
    Cluster::connect().await?.route_by_endpoint(by_endpoint).await?;
    let stage = Stage::begin("row-keys", &json!({ "certificate": { "lifetime": LIFETIME } }), 3).await?;
    let mut counters = stage.wait_for_decisions(Counters::default()).await?;
    let failed = stage.node.cluster.failed_webhook_calls().await?;
    let mut seen = BTreeSet::new();
    let mut authority = Value::Null;
    for _ in 0..4 {
        authority = another(&stage.node, &authority).await?;
        seen.insert(authority.to_string());
        counters = stage.wait_for_decisions(counters).await?;
    }
    let kubectl = stage.node.cluster.kubectl.namespace(SQUELCH);
    let damage = r#"{"data":{"ca.key":"bm90IGEga2V5"}}"#;
    kubectl.run(&["patch", "secret", squelch::SECRET, "--type=merge", "--patch", damage]).await?;
    authority = another(&stage.node, &authority).await?;
    counters = stage.wait_for_decisions(counters).await?;
    kubectl.run(&["delete", "secret", squelch::SECRET]).await?;
    another(&stage.node, &authority).await?;
    stage.wait_for_decisions(counters).await?;
    let failed = stage.node.cluster.failed_webhook_calls().await? - failed;
    let (node, evidence) = stage.end().await?;
    let measured = evidence.nothing_lost()?;
    ensure!(failed == 0, "{failed} calls of the webhook failed");
    node.passed()?;
    Ok(format!("{measured}; {} authorities, 0 calls failed", seen.len() + 2))
}

/// squelch's clock is 400 days ahead, then 400 days behind, then right.
pub(crate) async fn clock_off() -> Result<String> {
    let stage = Stage::begin("row-clock", &json!({}), 3).await?;
    let failed = stage.node.cluster.failed_webhook_calls().await?;
    let mut counters = stage.wait_for_decisions(Counters::default()).await?;
    for offset in ["9600h", "-9600h", "0s"] {
        let argument = format!("--clock-offset={offset}");
        stage.node.helm().upgrade(&values(&json!({ "operator": { "extraArgs": [argument] } }))).await?;
        counters = stage.wait_for_decisions(counters).await?;
    }
    let failed = stage.node.cluster.failed_webhook_calls().await? - failed;
    let (node, evidence) = stage.end().await?;
    let measured = evidence.nothing_lost()?;
    ensure!(failed == 0, "{failed} calls of the webhook failed");
    node.passed()?;
    Ok(format!("{measured}; 0 calls failed"))
}
