//! `helm test`: squelch doctor as a pod beside squelch.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};
use e2e::cluster::given;
use e2e::node::SQUELCH;
use e2e::policy::Counters;
use e2e::process::run_with_input;
use serde_json::json;

use e2e::stage::Stage;

/// What every finding of an installation that is well is about.
const LOOKED_AT: [&str; 14] = [
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
    "proof",
    "armed",
];

/// By either Helm, its log is told, nothing is left of it; and what is broken fails it.
pub(crate) async fn looks() -> Result<String> {
    let stage = Stage::begin("row-doctor", &json!({}), 1).await?;
    let node = &stage.node;
    stage.decides(Counters::default()).await?;
    let kubeconfig = node.cluster.kubeconfig.display().to_string();
    let test = async |helm: PathBuf, more: &[&str]| {
        let mut command = Command::new(&helm);
        command.args(["--kubeconfig", &kubeconfig, "--namespace", SQUELCH, "test", SQUELCH]).args(more);
        let output = tokio::task::spawn_blocking(move || run_with_input(&mut command, "")).await??;
        let told = String::from_utf8(output.stdout)? + &String::from_utf8(output.stderr)?;
        ensure!(output.status.success(), "{}: {told}", helm.display());
        anyhow::Ok(told)
    };
    let told = test("helm".into(), &["--logs"]).await?;
    for what in LOOKED_AT {
        let found =
            told.lines().any(|line| line.starts_with("ok") && line.split_whitespace().nth(1) == Some(what));
        ensure!(found, "nothing of {what}: {told}");
    }
    let unlooked = told.lines().find(|line| line.contains("not looked at"));
    ensure!(unlooked.is_none(), "{unlooked:?}");
    // Helm 3 asks for the log when the pod that found nothing is gone.
    test(given("SQUELCH_HELM3")?, &[]).await?;
    let kubectl = node.cluster.kubectl.namespace(SQUELCH);
    let left = kubectl
        .run(&["get", "pods,roles,rolebindings,clusterroles,clusterrolebindings", "--output=name"])
        .await?;
    ensure!(!left.contains("doctor"), "left: {left}");

    // Without a pod the test fails, and says why.
    let before = stage.decides(Counters::default()).await?;
    let wanted = kubectl.run(&["get", "deployment", SQUELCH, "--output=jsonpath={.spec.replicas}"]).await?;
    kubectl.run(&["scale", "deployment", SQUELCH, "--replicas=0"]).await?;
    node.rolled_out(SQUELCH, SQUELCH).await?;
    ensure!(node.helm().run(&["test", SQUELCH]).await.is_err(), "helm test is content without a pod");
    let told = kubectl.run(&["logs", "squelch-doctor"]).await?;
    let lines = told.lines().filter(|line| line.starts_with("error")).count();
    ensure!(lines > 0 && told.contains("is scaled to 0"), "{told}");
    kubectl.run(&["delete", "pod", "squelch-doctor"]).await?;
    kubectl.run(&["scale", "deployment", SQUELCH, &format!("--replicas={wanted}")]).await?;
    node.rolled_out(SQUELCH, SQUELCH).await?;
    stage.decides(before).await?;
    let (node, evidence) = stage.end().await?;
    let measured = evidence.nothing_lost()?;
    node.passed()?;
    Ok(format!("well by Helm 4 and Helm 3; {lines} errors without a pod; {measured}"))
}
