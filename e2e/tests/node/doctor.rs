//! `helm test`: squelch doctor as a pod.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use e2e::Node;
use e2e::cluster::given;
use e2e::node::SQUELCH;
use e2e::policy::Counters;
use e2e::process::run_with_input;
use serde_json::json;

use e2e::stage::{Stage, values};

/// The checks that a healthy installation passes.
const CHECKS: [&str; 14] = [
    "kubernetes",
    "definitions",
    "rights",
    "replicas",
    "watches",
    "endpoints",
    "certificate",
    "trust",
    "token",
    "webhook",
    "entries",
    "owner",
    "probe",
    "armed",
];

/// Succeeds at once after the first installation, before a replica is active.
pub(crate) async fn first_installation() -> Result<String> {
    let node = Node::begin("row-first-doctor").await?;
    let helm = node.helm();
    helm.install(&values(&json!({}))).await?;
    helm.run(&["test", SQUELCH]).await.context("helm test at once after helm install --wait")?;
    helm.uninstall().await?;
    node.passed()?;
    Ok("no error".to_owned())
}

/// Succeeds and prints its log with Helm 4 and Helm 3, leaves no objects, and fails for a fault.
pub(crate) async fn helm_test() -> Result<String> {
    let stage = Stage::begin("row-doctor", &json!({}), 1).await?;
    let node = &stage.node;
    stage.wait_for_decisions(Counters::default()).await?;
    let kubeconfig = node.cluster.kubeconfig.display().to_string();
    let test = async |helm: PathBuf, more: &[&str]| {
        let mut command = Command::new(&helm);
        command.args(["--kubeconfig", &kubeconfig, "--namespace", SQUELCH, "test", SQUELCH]).args(more);
        let output = tokio::task::spawn_blocking(move || run_with_input(&mut command, "")).await??;
        let text = String::from_utf8(output.stdout)? + &String::from_utf8(output.stderr)?;
        ensure!(output.status.success(), "{}: {text}", helm.display());
        anyhow::Ok(text)
    };
    let output = test("helm".into(), &["--logs"]).await?;
    for what in CHECKS {
        let found =
            output.lines().any(|line| line.starts_with("ok") && line.split_whitespace().nth(1) == Some(what));
        ensure!(found, "no finding about {what}: {output}");
    }
    let unchecked =
        output.lines().find(|line| line.contains("check not run") || line.contains("probe not sent"));
    ensure!(unchecked.is_none(), "{unchecked:?}");
    // Helm 3 reads the log after the deletion of a successful pod.
    test(given("SQUELCH_HELM3")?, &[]).await?;
    let kubectl = node.cluster.kubectl.namespace(SQUELCH);
    let left = kubectl
        .run(&["get", "pods,roles,rolebindings,clusterroles,clusterrolebindings", "--output=name"])
        .await?;
    ensure!(!left.contains("doctor"), "left: {left}");

    // Without a squelch pod the test fails with the reason.
    let before = stage.wait_for_decisions(Counters::default()).await?;
    let wanted = kubectl.run(&["get", "deployment", SQUELCH, "--output=jsonpath={.spec.replicas}"]).await?;
    kubectl.run(&["scale", "deployment", SQUELCH, "--replicas=0"]).await?;
    node.rolled_out(SQUELCH, SQUELCH).await?;
    ensure!(node.helm().run(&["test", SQUELCH]).await.is_err(), "helm test succeeds without a pod");
    let output = kubectl.run(&["logs", "squelch-doctor"]).await?;
    let lines = output.lines().filter(|line| line.starts_with("error")).count();
    ensure!(lines > 0 && output.contains("is scaled to 0"), "{output}");
    kubectl.run(&["delete", "pod", "squelch-doctor"]).await?;
    kubectl.run(&["scale", "deployment", SQUELCH, &format!("--replicas={wanted}")]).await?;
    node.rolled_out(SQUELCH, SQUELCH).await?;
    stage.wait_for_decisions(before).await?;
    let measured = stage.passed().await?;
    Ok(format!("healthy with Helm 4 and Helm 3; {lines} errors without a pod; {measured}"))
}
