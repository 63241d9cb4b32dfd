//! `squelch why` on a real API server: a tenant finds dropped Events, and a user without rights reads which ones are
//! missing.

use std::process::Command;

use anyhow::{Result, ensure};
use e2e::cluster::given;
use e2e::process::run_with_input;
use e2e::wait::not_yet;
use e2e::{GENEROUS, Test, wait_for};
use serde_json::Value;

use crate::drop_reports::grant_view;
use crate::top_dropped::{BURST, filtering, storm};

/// The exit code and the output of a run.
struct WhyOutput {
    code: Option<i32>,
    text: String,
}

impl WhyOutput {
    fn json(&self) -> Result<Value> {
        ensure!(self.code == Some(0), "{:?}: {}", self.code, self.text);
        Ok(serde_json::from_str(&self.text)?)
    }
}

/// Runs `squelch why` in the namespace of the test.
async fn why(test: &Test, kubeconfig: &str, arguments: &[&str]) -> Result<WhyOutput> {
    why_in(&test.namespace, kubeconfig, arguments).await
}

async fn why_in(namespace: &str, kubeconfig: &str, arguments: &[&str]) -> Result<WhyOutput> {
    let mut command = Command::new(given("SQUELCH_BIN")?);
    command.args(["why", "--kubeconfig", kubeconfig, "--namespace", namespace]).args(arguments);
    command.env_remove("KUBECONFIG");
    let output = tokio::task::spawn_blocking(move || run_with_input(&mut command, "")).await??;
    let text = String::from_utf8(output.stdout)? + &String::from_utf8(output.stderr)?;
    Ok(WhyOutput { code: output.status.code(), text })
}

/// A kubeconfig of the administrator that impersonates this user.
async fn kubeconfig(test: &Test, user: &str) -> Result<String> {
    let view = ["config", "view", "--raw", "--flatten", "--output=json"];
    let mut config: Value = serde_json::from_str(&test.cluster.kubectl.run(&view).await?)?;
    for entry in config["users"].as_array_mut().into_iter().flatten() {
        entry["user"]["as"] = user.into();
    }
    let path = test.folder().join(format!("{user}.kubeconfig"));
    std::fs::write(&path, config.to_string())?;
    Ok(path.display().to_string())
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_default()
}

/// The missing rights as one text.
fn missing(found: &Value) -> String {
    found["missingRights"].to_string()
}

#[tokio::test]
async fn a_tenant_finds_the_dropped_events_of_an_object() -> Result<()> {
    let test = Test::begin("why").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&filtering()).await?;
    storm(&test, "loud", "BackOff", "Warning", 100).await?;
    storm(&test, "quiet", "Pulled", "Normal", 20).await?;
    policy.received(120).await?;

    let tenant = "tenant-of-why";
    grant_view(&test, tenant).await?;
    let user = format!("--user={tenant}");
    test.kubectl().run(&["create", "rolebinding", "sees-objects", "--clusterrole=view", &user]).await?;
    let config = kubeconfig(&test, tenant).await?;
    let asked = ["pods/loud-0", "--reason=BackOff", "--output=json"];
    let found = wait_for("the dropped Events in the report", GENEROUS, async || {
        let output = why(&test, &config, &asked).await.map_err(not_yet)?;
        let found = output.json().map_err(not_yet)?;
        let is_there =
            number(&found["report"]["occurrences"]) == 100 - BURST && found["storedEvents"]["number"] != 0;
        // The roles of the tenant take effect with a delay.
        if is_there && missing(&found).matches("you may not").count() == 1 {
            Ok(found)
        } else {
            Err(output.text)
        }
    })
    .await?;
    assert_eq!((&found["object"]["kind"], &found["object"]["apiGroup"]), (&"Pod".into(), &"".into()));
    ensure!(missing(&found).contains("you may not list clustereventpolicies.squelch.dev"), "{found}");
    let governing = &found["policies"][0];
    assert_eq!((&governing["name"], &governing["governs"]), (&"policy".into(), &"Always".into()), "{found}");
    assert_eq!(governing["stages"][6]["field"], "spamFilter");
    let dropped = &found["report"]["dropped"][0];
    assert_eq!((&dropped["exampleObject"], &dropped["isAboutObject"]), (&"loud-0".into(), &true.into()));
    assert_eq!((&dropped["disposition"], &dropped["policyName"]), (&"filtered".into(), &"policy".into()));
    assert_eq!(found["report"]["dropped"].as_array().map(Vec::len), Some(1), "BackOff only");
    assert_eq!(number(&found["storedEvents"]["occurrences"]), BURST, "{found}");

    let shown = why(&test, &config, &["pod/loud-0", "--reason", "BackOff"]).await?;
    let expected = format!("{} filtered by EventPolicy policy", 100 - BURST);
    ensure!(shown.code == Some(0) && shown.text.contains(&expected), "{}", shown.text);
    // Without a stored Event, and of an object that does not exist.
    let other = why(&test, &config, &["po/absent", "-o", "json"]).await?.json()?;
    assert_eq!(number(&other["storedEvents"]["number"]), 0);
    assert_eq!(number(&other["report"]["occurrences"]), 120 - 2 * BURST, "the report counts by kind");
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn a_user_without_rights_reads_which_ones_are_missing() -> Result<()> {
    let test = Test::begin("why-rights").await?;
    let config = kubeconfig(&test, "no-rights-of-why").await?;
    let output = why(&test, &config, &["deployment/web"]).await?;
    ensure!(output.code == Some(0), "{:?}: {}", output.code, output.text);
    let here = format!("in namespace {}", test.namespace);
    for right in [
        format!("you may not list events {here}"),
        format!("you may not list eventpolicies.squelch.dev {here}"),
        "you may not list clustereventpolicies.squelch.dev".to_owned(),
        format!("you may not get namespaces {here}"),
        format!("you may not get eventdropreports.squelch.dev {here}"),
    ] {
        ensure!(output.text.contains(&right), "{right} is missing: {}", output.text);
    }
    let found = why(&test, &config, &["deployment/web", "--output=json"]).await?.json()?;
    assert_eq!(found["object"]["kind"], "Deployment", "every user may read discovery");
    assert_eq!(found["policies"], Value::Null);

    let unreachable = test.kubeconfig_of("https://127.0.0.1:1")?;
    let output = why(&test, &unreachable, &["pod/web"]).await?;
    ensure!(output.code == Some(1), "{:?}: {}", output.code, output.text);
    ensure!(output.text.contains("cannot read API discovery"), "{}", output.text);
    let admin = test.cluster.kubeconfig.display().to_string();
    let output = why_in("absent-of-why", &admin, &["pod/web"]).await?;
    ensure!(output.code == Some(1), "{:?}: {}", output.code, output.text);
    ensure!(output.text.contains("namespace absent-of-why does not exist"), "{}", output.text);
    test.passed()
}
