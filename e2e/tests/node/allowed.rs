//! Every right that the chart gives is used, and nothing was asked for that it does not give: by the API server's audit
//! log of all that the other rows had squelch do.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use e2e::rights::{Right, allowed, asked};
use e2e::{Node, Policy};
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde::Deserialize;
use serde_json::{Value, json};

use e2e::stage::values;

/// Comes after the other rows.
pub(crate) async fn rights() -> Result<String> {
    let node = Node::begin("row-rights").await?;
    seldom(&node).await?;
    let rendered = node.helm().template(&values(&json!({}))).await?;
    let log = node.cluster.folder.join("logs/audit.log");
    let mut told = Vec::new();
    // The doctor has no account of its own.
    for (role, account) in
        [("squelch", "squelch"), ("squelch-drain", "squelch-drain"), ("squelch-doctor", "squelch")]
    {
        let granted = granted(&rendered, role)?;
        let asked = asked(&log, &format!("system:serviceaccount:squelch:{account}"))?;
        ensure!(asked.refused.is_empty(), "{account} asked for what it may not: {}", list(&asked.refused));
        let unused: BTreeSet<_> = granted.difference(&asked.used).cloned().collect();
        ensure!(unused.is_empty(), "{role} has rights that it never used: {}", list(&unused));
        told.push(format!("{role}: {} rights, each used, nothing refused", granted.len()));
    }
    node.passed()?;
    Ok(told.join("; "))
}

/// What the other rows have no need of: a ClusterEventPolicy, and news that come twice.
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

/// What the rendered roles of this name allow.
fn granted(rendered: &str, name: &str) -> Result<BTreeSet<Right>> {
    let mut rules = Vec::new();
    for text in rendered.split("---\n").filter(|text| text.contains("\nkind:")) {
        let object: Value = serde_saphyr::from_str(text).context("a rendered object")?;
        let role = object["kind"] == "Role" || object["kind"] == "ClusterRole";
        if role && object["metadata"]["name"] == name {
            rules.extend(Vec::<PolicyRule>::deserialize(&object["rules"])?);
        }
    }
    ensure!(!rules.is_empty(), "the chart gives {name} nothing");
    Ok(allowed(&rules))
}
