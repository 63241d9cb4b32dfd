//! The chart applied by other tools: with server-side apply, and with the values of every scenario.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use e2e::cluster::given;
use e2e::node::SQUELCH;
use e2e::policy::Counters;
use serde_json::{Value, json};
use squelch::tls::Authority;

use e2e::stage::{Stage, values};

/// A tool that applies the rendered chart, such as Argo CD or Flux, finds no recurring difference.
pub(crate) async fn applied_by_another_tool() -> Result<String> {
    let stage = Stage::begin("row-apply", &json!({}), 2).await?;
    let counters = stage.wait_for_decisions(Counters::default()).await?;
    let rendered = stage.node.helm().template(&values(&json!({}))).await?;
    // Hooks are run, not applied.
    let objects: Vec<_> = rendered
        .split("---\n")
        .filter(|text| text.contains("\nkind:") && !text.contains("helm.sh/hook:"))
        .collect();
    let manifest = objects.join("---\n");
    let kubectl = stage.node.cluster.kubectl.namespace(SQUELCH);
    let by_tool = ["--server-side", "--field-manager=argocd-controller", "--force-conflicts", "--filename=-"];
    let apply = [&["apply"], &by_tool[..]].concat();
    kubectl.run_with(&apply, manifest.clone()).await?;
    stage.node.rolled_out(SQUELCH, SQUELCH).await?;
    // squelch keeps writing meanwhile.
    let counters = stage.wait_for_decisions(counters).await?;
    let diff = [&["diff"], &by_tool[..]].concat();
    kubectl.run_with(&diff, manifest.clone()).await.context("a difference recurred")?;
    let again = kubectl.run_with(&apply, manifest.clone()).await?;
    stage.wait_for_decisions(counters).await?;
    kubectl.run_with(&diff, manifest).await.context("a difference recurred after the second apply")?;
    let measured = stage.passed().await?;
    Ok(format!("no difference in {} objects; {measured}", again.lines().count()))
}

/// Not available in this tier: another registry.
const RENDERED_ONLY: [&str; 1] = ["private-registry"];

/// Every scenario is installed in turn, and counts occurrences.
pub(crate) async fn scenarios() -> Result<String> {
    let definitions = given("SQUELCH_MONITORING_CRDS")?.display().to_string();
    let stage = Stage::begin("row-scenarios", &json!({}), 1).await?;
    let node = &stage.node;
    // Prerequisites of the scenarios: the CRDs of Prometheus Operator, and an issued certificate.
    node.cluster.kubectl.run(&["apply", "--server-side", "-f", &definitions]).await?;
    node.cluster.kubectl.namespace(SQUELCH).apply(&certificate()?).await?;
    let mut counters = stage.wait_for_decisions(Counters::default()).await?;
    let mut installed = Vec::new();
    for (name, scenario) in every_scenario()? {
        let put = async {
            node.helm().upgrade(&values(&scenario)).await?;
            node.rolled_out(SQUELCH, SQUELCH).await?;
            if scenario["operator"]["disarm"] == true {
                return stage.policy.says("Effective", "False", "WebhookNotArmed", "").await;
            }
            counters = stage.wait_for_decisions(counters).await?;
            anyhow::Ok(())
        };
        put.await.with_context(|| name.clone())?;
        eprintln!("   scenario {name}: installed");
        installed.push(name);
    }
    node.cluster.kubectl.run(&["delete", "-f", &definitions]).await?;
    let (node, evidence) = stage.end().await?;
    let measured = evidence.nothing_lost()?;
    node.cluster.kubectl.namespace(SQUELCH).run(&["delete", "secret", CERTIFICATE]).await?;
    node.passed()?;
    Ok(format!("{} installed; {measured}", installed.len()))
}

fn every_scenario() -> Result<BTreeMap<String, Value>> {
    let mut scenarios = BTreeMap::new();
    for (name, path) in e2e::helm::scenarios()? {
        if !RENDERED_ONLY.contains(&name.as_str()) {
            let mut values: Value =
                serde_saphyr::from_str(&std::fs::read_to_string(&path)?).context(name.clone())?;
            if values["hostNetwork"] == true {
                // There is one node with one set of ports.
                values["replicas"] = json!(1);
            }
            if values["resources"]["requests"]["cpu"].is_string() {
                // A rolling update of pods that request one processor each does not fit on two processors.
                values["resources"]["requests"]["cpu"] = json!("100m");
            }
            if let Some(values) = values.as_object_mut() {
                // The image is loaded into the node under its own name, and the row waits for the Deployment `squelch`.
                // What these values render is checked without a node.
                values.remove("global");
                values.remove("nameOverride");
            }
            scenarios.insert(name, values);
        }
    }
    ensure!(scenarios.len() >= 10, "only {} scenarios", scenarios.len());
    Ok(scenarios)
}

/// The Secret of the cert-manager scenario.
const CERTIFICATE: &str = "squelch-certificate";

/// A Secret in the layout of cert-manager.
fn certificate() -> Result<Value> {
    let (lifetime, now) = (Duration::from_secs(86_400), jiff::Timestamp::now());
    let authority = Authority::generate(lifetime, now)?;
    let leaf = authority.issue(&["squelch.squelch.svc".to_owned()], lifetime, now)?;
    let chain: String = leaf.chain.iter().map(|certificate| pem("CERTIFICATE", certificate)).collect();
    Ok(json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": { "name": CERTIFICATE },
        "stringData": {
            "tls.crt": chain,
            "tls.key": pem("PRIVATE KEY", leaf.key.secret_der()),
            "ca.crt": authority.ca_pem(),
        },
    }))
}

fn pem(label: &str, der: &[u8]) -> String {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der))
}
