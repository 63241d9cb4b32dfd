//! Certificate, authority and token, turned round while Events are written.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use e2e::node::SQUELCH;
use e2e::policy::Counters;
use e2e::wait::told;
use e2e::{GENEROUS, Node, wait_for};
use serde_json::{Value, json};

use e2e::stage::{Stage, values};

/// So short that authority and token are rotated each 10 s.
const LIFETIME: &str = "5s";

pub(crate) async fn secret(node: &Node) -> Result<Value> {
    let kubectl = node.cluster.kubectl.namespace(SQUELCH);
    Ok(serde_json::from_str(&kubectl.run(&["get", "secret", squelch::SECRET, "--output=json"]).await?)?)
}

/// Waits until the Secret has another authority than `before`.
async fn another(node: &Node, before: &Value) -> Result<Value> {
    wait_for("another authority", GENEROUS, async || {
        let now = secret(node).await.map_err(told)?["data"]["ca.crt"].clone();
        if now.is_string() && now != *before { Ok(now) } else { Err("the same".to_owned()) }
    })
    .await
}

/// Certificate and token rotated each 10 s; the Secret damaged and deleted.
pub(crate) async fn rotated() -> Result<String> {
    let stage = Stage::begin("row-keys", &json!({ "certificate": { "lifetime": LIFETIME } }), 3).await?;
    let mut counters = stage.decides(Counters::default()).await?;
    let failed = stage.node.cluster.given_up().await?;
    let mut seen = BTreeSet::new();
    let mut authority = Value::Null;
    for _ in 0..4 {
        authority = another(&stage.node, &authority).await?;
        seen.insert(authority.to_string());
        counters = stage.decides(counters).await?;
    }
    let kubectl = stage.node.cluster.kubectl.namespace(SQUELCH);
    let damage = r#"{"data":{"ca.key":"bm90IGEga2V5"}}"#;
    kubectl.run(&["patch", "secret", squelch::SECRET, "--type=merge", "--patch", damage]).await?;
    authority = another(&stage.node, &authority).await?;
    counters = stage.decides(counters).await?;
    kubectl.run(&["delete", "secret", squelch::SECRET]).await?;
    another(&stage.node, &authority).await?;
    stage.decides(counters).await?;
    let failed = stage.node.cluster.given_up().await? - failed;
    let (node, evidence) = stage.end().await?;
    let measured = evidence.nothing_lost()?;
    ensure!(failed == 0, "{failed} calls of the webhook failed");
    node.passed()?;
    Ok(format!("{measured}; {} authorities, 0 calls failed", seen.len() + 2))
}

/// squelch's own clock 400 days ahead, then 400 behind, then right.
pub(crate) async fn clock_off() -> Result<String> {
    let stage = Stage::begin("row-clock", &json!({}), 3).await?;
    let failed = stage.node.cluster.given_up().await?;
    let mut counters = stage.decides(Counters::default()).await?;
    for offset in ["9600h", "-9600h", "0s"] {
        let argument = format!("--clock-offset={offset}");
        stage.node.helm().upgrade(&values(&json!({ "operator": { "extraArgs": [argument] } }))).await?;
        counters = stage.decides(counters).await?;
    }
    let failed = stage.node.cluster.given_up().await? - failed;
    let (node, evidence) = stage.end().await?;
    let measured = evidence.nothing_lost()?;
    ensure!(failed == 0, "{failed} calls of the webhook failed");
    node.passed()?;
    Ok(format!("{measured}; 0 calls failed"))
}
