//! Every permission that the chart grants is used, and no request lacked one, by the audit log of all other rows.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use e2e::rights::{Right, allowed, asked};
use e2e::{Node, Policy};
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde::Deserialize;
use serde_json::{Value, json};

use e2e::stage::values;

/// Must run after the other rows.
pub(crate) async fn rights() -> Result<String> {
    let node = Node::begin("row-rights").await?;
    seldom(&node).await?;
    let rendered = node.helm().template(&values(&json!({}))).await?;
    let log = node.cluster.folder.join("logs/audit.log");
    let mut summaries = Vec::new();
    // doctor has no ServiceAccount of its own.
    for (role, account) in
        [("squelch", "squelch"), ("squelch-uninstall", "squelch-uninstall"), ("squelch-doctor", "squelch")]
    {
        let granted = granted(&rendered, role)?;
        let asked = asked(&log, &format!("system:serviceaccount:squelch:{account}"))?;
        ensure!(asked.refused.is_empty(), "{account} lacked permissions: {}", list(&asked.refused));
        let unused: BTreeSet<_> = granted.difference(&asked.used).cloned().collect();
        ensure!(unused.is_empty(), "{role} has unused permissions: {}", list(&unused));
        summaries.push(format!("{role}: {} permissions, all used, none missing", granted.len()));
    }
    node.passed()?;
    Ok(summaries.join("; "))
}

/// Uses permissions that no other row needs: a ClusterEventPolicy, and a repeated Event of squelch.
async fn seldom(node: &Node) -> Result<()> {
    node.helm().install(&values(&json!({}))).await?;
    let (client, namespace) = (node.cluster.client.clone(), &node.namespace);
    let kubectl = node.cluster.kubectl.namespace(namespace);
    let policy =
        Policy::apply(client.clone(), &kubectl, namespace, "policy", &json!({ "mode": "Enforce" })).await?;
    let over = Policy::cluster(client, namespace);
    let here = json!({ "matchLabels": { "kubernetes.io/metadata.name": namespace } });
    for _ in 0..2 {
        over.change(&kubectl, &json!({ "precedence": "Override", "namespaceSelector": here })).await?;
        policy.says("Effective", "False", "Overridden", "").await?;
        kubectl.run(&["delete", "clustereventpolicy", &over.name]).await?;
        policy.effective().await?;
    }
    node.helm().uninstall().await?;
    Ok(())
}

fn list(rights: &BTreeSet<Right>) -> String {
    rights.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The permissions of the rendered roles of this name.
fn granted(rendered: &str, name: &str) -> Result<BTreeSet<Right>> {
    let mut rules = Vec::new();
    for text in rendered.split("---\n").filter(|text| text.contains("\nkind:")) {
        let object: Value = serde_saphyr::from_str(text).context("a rendered object")?;
        let role = object["kind"] == "Role" || object["kind"] == "ClusterRole";
        if role && object["metadata"]["name"] == name {
            rules.extend(Vec::<PolicyRule>::deserialize(&object["rules"])?);
        }
    }
    ensure!(!rules.is_empty(), "the chart grants {name} no permissions");
    Ok(allowed(&rules))
}
