//! `squelch doctor` on a real API server: what is well is told as well, what is broken is named, and no secret is told.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use e2e::accounts::SQUELCH;
use e2e::cluster::given;
use e2e::process::run_with_input;
use e2e::wait::told;
use e2e::{GENEROUS, Policy, Test, wait_for};
use serde_json::{Value, json};
use squelch::SECRET;

const KEYS: [&str; 2] = ["--secret", SECRET];

/// What a doctor said, and with which exit code it ended.
struct Said {
    code: Option<i32>,
    findings: Vec<Value>,
    text: String,
}

impl Said {
    /// The levels of the findings about `what`.
    fn levels(&self, what: &str) -> Vec<&str> {
        self.about(what).iter().filter_map(|finding| finding["level"].as_str()).collect()
    }

    fn about(&self, what: &str) -> Vec<&Value> {
        self.findings.iter().filter(|finding| finding["what"] == what).collect()
    }
}

async fn doctor(kubeconfig: &str, more: &[&str]) -> Result<Said> {
    asked(Command::new(given("SQUELCH_BIN")?), kubeconfig, more).await
}

async fn asked(mut command: Command, kubeconfig: &str, more: &[&str]) -> Result<Said> {
    command.args(["doctor", "--output=json", "--kubeconfig", kubeconfig]).args(more).env_remove("KUBECONFIG");
    let output = tokio::task::spawn_blocking(move || run_with_input(&mut command, "")).await??;
    let text = String::from_utf8(output.stdout)? + &String::from_utf8(output.stderr)?;
    let told: Value = serde_json::from_str(&text).unwrap_or_default();
    let findings = told["findings"].as_array().cloned().unwrap_or_default();
    Ok(Said { code: output.status.code(), findings, text })
}

/// Asked as the administrator, until it says so: what squelch does about a change takes it a moment.
async fn says(test: &Test, what: &str, level: &str) -> Result<Said> {
    let admin = test.cluster.kubeconfig.display().to_string();
    wait_for(&format!("the doctor to say {level} of {what}"), GENEROUS, async || {
        let said = doctor(&admin, &[]).await.map_err(told)?;
        if said.levels(what).contains(&level) { Ok(said) } else { Err(said.text) }
    })
    .await
}

#[tokio::test]
async fn an_installation_that_is_well_is_told_so() -> Result<()> {
    let test = Test::begin("doctor").await?;
    let squelch = test.squelch_with(&KEYS).await?;
    let policy = test.policy(&json!({ "mode": "Enforce" })).await?;
    policy.effective().await?;
    let said = says(&test, "armed", "ok").await?;
    ensure!(said.code == Some(0), "{}", said.text);
    // There is no Deployment, and what the API server counts are the tests before this one, too.
    let known = ["replicas", "active", "fairness", "unreviewed"];
    let others =
        said.findings.iter().filter(|finding| !known.contains(&finding["what"].as_str().unwrap_or_default()));
    let mut well = 0;
    for finding in others {
        ensure!(finding["level"] == "ok", "{finding}");
        well += 1;
    }
    ensure!(well >= 13, "only {well} findings: {}", said.text);
    ensure!(said.levels("certificate") == ["ok", "ok"], "{}", said.text);
    let of_squelch = test.cluster.kubectl.namespace(SQUELCH.namespace);
    let token = of_squelch
        .run(&["get", "secret", SECRET, "--output=go-template={{.data.token | base64decode}}"])
        .await?;
    ensure!(token.len() == 64 && !said.text.contains(&token), "the token is told");

    // squelch's own account sees less, and says of what.
    let said = doctor(&test.squelch_kubeconfig(), &[]).await?;
    ensure!(
        said.code == Some(0) && said.levels("proof") == ["ok"] && said.levels("rights") == ["ok"],
        "{}",
        said.text
    );
    let definitions = said.about("definitions");
    let why = definitions.first().context("nothing of the definitions")?["why"].to_string();
    ensure!(why.contains("may not read"), "{}", said.text);
    squelch.stop().await?;
    of_squelch.run(&["delete", "secret", SECRET]).await?;
    test.passed()
}

#[tokio::test]
async fn what_is_broken_is_named() -> Result<()> {
    let test = Test::begin("doctor-broken").await?;
    let kubectl = test.kubectl();
    kubectl.run(&["delete", "mutatingwebhookconfiguration", "squelch", "--ignore-not-found"]).await?;
    ensure!(says(&test, "webhook", "error").await?.code == Some(1));

    let squelch = test.squelch_with(&KEYS).await?;
    test.policy(&json!({ "mode": "Enforce" })).await?.effective().await?;
    says(&test, "armed", "ok").await?;
    let configuration = "mutatingwebhookconfiguration/squelch";
    kubectl.run(&["annotate", configuration, "squelch.dev/disarm=INC-7"]).await?;
    let said = says(&test, "armed", "warning").await?;
    ensure!(said.code == Some(0) && said.text.contains("INC-7"), "{}", said.text);
    kubectl.run(&["annotate", configuration, "squelch.dev/disarm-"]).await?;
    says(&test, "armed", "ok").await?;

    kubectl.run(&["delete", "clusterrolebinding", "squelch"]).await?;
    let said = says(&test, "rights", "error").await?;
    ensure!(said.code == Some(1) && said.text.contains("patch events"), "{}", said.text);
    test.cluster.install().await?;
    says(&test, "rights", "ok").await?;

    let drop_a_rule = json!([{ "op": "remove",
        "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/rejection" }]);
    let patch =
        ["patch", "crd/eventpolicies.squelch.dev", "--type=json", "--patch", &drop_a_rule.to_string()];
    kubectl.run(&patch).await?;
    let said = says(&test, "definitions", "warning").await?;
    ensure!(said.text.contains("spec.rejection"), "{}", said.text);
    test.cluster.install().await?;
    ensure!(says(&test, "proof", "ok").await?.levels("definitions") == ["ok", "ok"]);

    squelch.crash()?;
    let said = says(&test, "proof", "error").await?;
    ensure!(said.code == Some(1), "{}", said.text);
    kubectl.run(&["delete", "mutatingwebhookconfiguration", "squelch"]).await?;
    kubectl.namespace(SQUELCH.namespace).run(&["delete", "secret", SECRET]).await?;
    test.passed()
}

/// As by `kubectl exec`: with squelch's own account, which may read no Deployment, in a pod of squelch's.
#[tokio::test]
async fn a_doctor_in_a_pod_of_squelch_knows_how_that_was_started() -> Result<()> {
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
    let flags = [&KEYS[..], &["--enforce=false", "--owner-cluster-role", &owner]].concat();
    let squelch = test.squelch_with(&flags).await?;
    let policy = Policy::named(test.client(), &test.namespace, "policy");
    policy.put(&test.kubectl(), &json!({})).await?;
    policy.says("Effective", "Unknown", "WebhookNotArmed", "").await?;

    // Whom the configuration belongs to stands in it.
    let said = doctor(&test.squelch_kubeconfig(), &[]).await?;
    ensure!(said.levels("owner") == ["ok"] && said.text.contains(&owner), "{}", said.text);
    // The rest stands in the pod.
    let of_squelch = kubectl.namespace(SQUELCH.namespace);
    of_squelch.apply(&pod("squelch-c", &["run", "--enforce=false", "--secret", SECRET])).await?;
    let mut in_pod = Command::new(given("SQUELCH_BIN")?);
    in_pod.env("SQUELCH_POD_NAME", "squelch-c");
    let said = asked(in_pod, &test.squelch_kubeconfig(), &[]).await?;
    let why = said.about("armed").first().context("nothing of armed")?.to_string();
    ensure!(said.levels("armed") == ["warning"] && why.contains("--enforce=false"), "{}", said.text);
    squelch.stop().await?;
    of_squelch.run(&["delete", "pod", "squelch-c", "--grace-period=0", "--force"]).await?;
    of_squelch.run(&["delete", "secret", SECRET]).await?;
    kubectl.run(&["delete", "clusterrolebinding,clusterrole", &owner]).await?;
    test.passed()
}

/// What a kubelet would have made: nothing runs in it.
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
async fn a_doctor_who_cannot_look_says_so() -> Result<()> {
    let test = Test::begin("doctor-blind").await?;
    let nobody = test.kubeconfig_of("https://127.0.0.1:1")?;
    let said = doctor(&nobody, &[]).await?;
    ensure!(said.code == Some(2) && said.text.contains("cannot be reached"), "{}", said.text);
    let said = doctor("/nonexistent/file", &[]).await?;
    ensure!(said.code == Some(2) && said.text.contains("/nonexistent/file"), "{}", said.text);
    test.passed()
}
