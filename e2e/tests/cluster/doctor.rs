//! `squelch doctor` on a real API server: it reports healthy parts, names faults, and prints no secret.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use e2e::accounts::SQUELCH;
use e2e::cluster::given;
use e2e::process::run_with_input;
use e2e::wait::not_yet;
use e2e::{GENEROUS, Policy, Test, wait_for};
use serde_json::{Value, json};
use squelch::SECRET;

const KEYS: [&str; 2] = ["--secret", SECRET];

/// The output and the exit code of a run.
struct DoctorOutput {
    code: Option<i32>,
    findings: Vec<Value>,
    text: String,
}

impl DoctorOutput {
    /// The levels of the findings about `what`.
    fn levels(&self, what: &str) -> Vec<&str> {
        self.about(what).iter().filter_map(|finding| finding["level"].as_str()).collect()
    }

    /// Whether all findings are `ok` that do not depend on a Deployment, or on API server metrics of earlier tests.
    fn is_healthy(&self) -> bool {
        let others = self.findings.iter().filter(|finding| {
            let check = finding["check"].as_str().unwrap_or_default();
            !["replicas", "active", "fairness", "unreviewed"].contains(&check)
        });
        let levels: Vec<_> = others.map(|finding| &finding["level"]).collect();
        let all_ok = levels.len() >= 13 && levels.iter().all(|level| *level == "ok");
        self.code == Some(0) && all_ok && self.levels("certificate") == ["ok", "ok"]
    }

    fn about(&self, what: &str) -> Vec<&Value> {
        self.findings.iter().filter(|finding| finding["check"] == what).collect()
    }
}

async fn doctor(kubeconfig: &str, more: &[&str]) -> Result<DoctorOutput> {
    asked(Command::new(given("SQUELCH_BIN")?), kubeconfig, more).await
}

async fn asked(mut command: Command, kubeconfig: &str, more: &[&str]) -> Result<DoctorOutput> {
    command.args(["doctor", "--output=json", "--kubeconfig", kubeconfig]).args(more).env_remove("KUBECONFIG");
    let output = tokio::task::spawn_blocking(move || run_with_input(&mut command, "")).await??;
    let text = String::from_utf8(output.stdout)? + &String::from_utf8(output.stderr)?;
    let report: Value = serde_json::from_str(&text).unwrap_or_default();
    let findings = report["findings"].as_array().cloned().unwrap_or_default();
    Ok(DoctorOutput { code: output.status.code(), findings, text })
}

/// Runs doctor as the administrator until it has this finding: squelch reacts to changes with a delay.
async fn says(test: &Test, what: &str, level: &str) -> Result<DoctorOutput> {
    let admin = test.cluster.kubeconfig.display().to_string();
    let says_so = |output: &DoctorOutput| output.levels(what).contains(&level);
    until(&admin, &format!("a finding of level {level} about {what}"), says_so).await
}

/// Runs doctor until its output is as described.
async fn until(kubeconfig: &str, what: &str, is_so: impl Fn(&DoctorOutput) -> bool) -> Result<DoctorOutput> {
    wait_for(what, GENEROUS, async || {
        let output = doctor(kubeconfig, &[]).await.map_err(not_yet)?;
        if is_so(&output) { Ok(output) } else { Err(output.text) }
    })
    .await
}

#[tokio::test]
async fn a_healthy_installation_has_only_ok_findings() -> Result<()> {
    let test = Test::begin("doctor").await?;
    let squelch = test.squelch_with(&KEYS).await?;
    let policy = test.policy(&json!({ "mode": "Enforce" })).await?;
    policy.effective().await?;
    let admin = test.cluster.kubeconfig.display().to_string();
    // A slow probe or handshake is a finding of its own.
    let output = until(&admin, "only findings of level ok", DoctorOutput::is_healthy).await?;
    let of_squelch = test.cluster.kubectl.namespace(SQUELCH.namespace);
    let token = of_squelch
        .run(&["get", "secret", SECRET, "--output=go-template={{.data.token | base64decode}}"])
        .await?;
    ensure!(token.len() == 64 && !output.text.contains(&token), "the output contains the token");

    // squelch's own ServiceAccount sees less, and the findings say so.
    let output = until(&test.squelch_kubeconfig(), "findings with squelch's own rights", |output| {
        output.code == Some(0) && ["probe", "rights"].iter().all(|what| output.levels(what) == ["ok"])
    })
    .await?;
    let definitions = output.about("definitions");
    let why = definitions.first().context("no finding about the definitions")?["message"].to_string();
    ensure!(why.contains("may not read"), "{}", output.text);
    squelch.stop().await?;
    of_squelch.run(&["delete", "secret", SECRET]).await?;
    test.passed()
}

#[tokio::test]
async fn each_fault_has_a_finding() -> Result<()> {
    let test = Test::begin("doctor-broken").await?;
    let kubectl = test.kubectl();
    kubectl.run(&["delete", "mutatingwebhookconfiguration", "squelch", "--ignore-not-found"]).await?;
    ensure!(says(&test, "webhook", "error").await?.code == Some(1));

    let squelch = test.squelch_with(&KEYS).await?;
    test.policy(&json!({ "mode": "Enforce" })).await?.effective().await?;
    says(&test, "armed", "ok").await?;
    let configuration = "mutatingwebhookconfiguration/squelch";
    kubectl.run(&["annotate", configuration, "squelch.dev/disarm=INC-7"]).await?;
    let output = says(&test, "armed", "warning").await?;
    ensure!(output.code == Some(0) && output.text.contains("INC-7"), "{}", output.text);
    kubectl.run(&["annotate", configuration, "squelch.dev/disarm-"]).await?;
    says(&test, "armed", "ok").await?;

    kubectl.run(&["delete", "clusterrolebinding", "squelch"]).await?;
    let output = says(&test, "rights", "error").await?;
    ensure!(output.code == Some(1) && output.text.contains("patch events"), "{}", output.text);
    test.cluster.install().await?;
    says(&test, "rights", "ok").await?;

    let drop_a_rule = json!([{ "op": "remove",
        "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/rejection" }]);
    let patch =
        ["patch", "crd/eventpolicies.squelch.dev", "--type=json", "--patch", &drop_a_rule.to_string()];
    kubectl.run(&patch).await?;
    let output = says(&test, "definitions", "warning").await?;
    ensure!(output.text.contains("spec.rejection"), "{}", output.text);
    test.cluster.install().await?;
    ensure!(says(&test, "probe", "ok").await?.levels("definitions") == ["ok"; 3]);

    squelch.crash()?;
    let output = says(&test, "probe", "error").await?;
    ensure!(output.code == Some(1), "{}", output.text);
    kubectl.run(&["delete", "mutatingwebhookconfiguration", "squelch"]).await?;
    kubectl.namespace(SQUELCH.namespace).run(&["delete", "secret", SECRET]).await?;
    test.passed()
}

/// As by `kubectl exec`: with squelch's own ServiceAccount, which may read no Deployment, in a squelch pod.
#[tokio::test]
async fn a_doctor_in_a_squelch_pod_knows_its_flags() -> Result<()> {
    let test = Test::begin("doctor-pod").await?;
    let (kubectl, owner) = (&test.cluster.kubectl, format!("owner-{}", test.namespace));
    let role = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": owner },
        "rules": [{ "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"],
            "resourceNames": [owner], "verbs": ["get"] }] });
    kubectl.apply(&role).await?;
    let (of, account) = (
        format!("--clusterrole={owner}"),
        format!("--serviceaccount={}:{}", SQUELCH.namespace, SQUELCH.name),
    );
    kubectl.run(&["create", "clusterrolebinding", &owner, &of, &account]).await?;
    let flags = [&KEYS[..], &["--disarm", "--owner-cluster-role", &owner]].concat();
    let squelch = test.squelch_with(&flags).await?;
    let policy = Policy::named(test.client(), &test.namespace, "policy");
    policy.put(&test.kubectl(), &json!({})).await?;
    policy.says("Effective", "False", "WebhookNotArmed", "").await?;

    // The owner is in the configuration.
    let output = doctor(&test.squelch_kubeconfig(), &[]).await?;
    ensure!(output.levels("owner") == ["ok"] && output.text.contains(&owner), "{}", output.text);
    // The flags are in the pod.
    let of_squelch = kubectl.namespace(SQUELCH.namespace);
    of_squelch.apply(&pod("squelch-c", &["run", "--disarm", "--secret", SECRET])).await?;
    let mut in_pod = Command::new(given("SQUELCH_BIN")?);
    in_pod.env("SQUELCH_POD_NAME", "squelch-c");
    let output = asked(in_pod, &test.squelch_kubeconfig(), &[]).await?;
    let why = output.about("armed").first().context("no finding about armed")?.to_string();
    ensure!(output.levels("armed") == ["warning"] && why.contains("--disarm"), "{}", output.text);
    squelch.stop().await?;
    of_squelch.run(&["delete", "pod", "squelch-c", "--grace-period=0", "--force"]).await?;
    of_squelch.run(&["delete", "secret", SECRET]).await?;
    kubectl.run(&["delete", "clusterrolebinding,clusterrole", &owner]).await?;
    test.passed()
}

/// A pod as of a kubelet, without a container.
fn pod(name: &str, arguments: &[&str]) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": SQUELCH.namespace },
        "spec": {
            "automountServiceAccountToken": false,
            "containers": [{ "name": "squelch", "image": "none", "args": arguments }],
        },
    })
}

#[tokio::test]
async fn an_unreachable_api_server_is_reported() -> Result<()> {
    let test = Test::begin("doctor-blind").await?;
    let unreachable = test.kubeconfig_of("https://127.0.0.1:1")?;
    let output = doctor(&unreachable, &[]).await?;
    ensure!(output.code == Some(3) && output.text.contains("cannot be reached"), "{}", output.text);
    let output = doctor("/nonexistent/file", &[]).await?;
    ensure!(output.code == Some(3) && output.text.contains("/nonexistent/file"), "{}", output.text);
    test.passed()
}
