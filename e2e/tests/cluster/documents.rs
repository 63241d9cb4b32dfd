//! The commands of the documents that need no pods. (Others: `e2e/tests/node/documents.rs`.)

use anyhow::{Context, Result, ensure};
use e2e::documents::{block_with, lines, pasted};
use e2e::wait::not_yet;
use e2e::{GENEROUS, Policy, Squelch, Test, wait_for};

/// Helm's output after an installation: the part after `NOTES:`.
async fn notes(test: &Test) -> Result<String> {
    let install = "helm install squelch charts/squelch --namespace squelch --set image.repository=registry.example/squelch --dry-run=client";
    let printed = pasted(&test.cluster, install).await?;
    let (_, notes) = printed.split_once("\nNOTES:\n").context("Helm prints no notes")?;
    Ok(notes.to_owned())
}

async fn wait_until_armed(squelch: &Squelch, armed: bool) -> Result<()> {
    wait_for(&format!("squelch_armed to be {armed}"), GENEROUS, async || {
        let metrics = squelch.metrics().await.map_err(not_yet)?;
        let now = (metrics.is_armed(), metrics.sum("squelch_break_glass", &[]) > 0.0);
        if now == (armed, !armed) { Ok(()) } else { Err(format!("(armed, break glass): {now:?}")) }
    })
    .await
}

/// The policy `quickstart` of a document; its namespace is deleted on drop.
struct Made<'a> {
    test: &'a Test,
    namespace: String,
}

impl<'a> Made<'a> {
    /// Created by commands whose last `--namespace` names the namespace.
    fn by(test: &'a Test, commands: &str) -> Result<Self> {
        let (_, rest) = commands.rsplit_once("--namespace ").context("no namespace in the command")?;
        let namespace = rest.split_whitespace().next();
        Ok(Self { test, namespace: namespace.context("no namespace")?.to_owned() })
    }

    async fn governs(&self) -> Result<()> {
        Policy::named(self.test.client(), &self.namespace, "quickstart").effective().await
    }
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        // Other documents create the same policy.
        self.test.cluster.kubectl.say(&["delete", "namespace", &self.namespace, "--wait", "--timeout=60s"]);
    }
}

/// Removes the annotation from the configuration on drop.
struct RemoveAnnotation<'a>(&'a Test);

impl Drop for RemoveAnnotation<'_> {
    fn drop(&mut self) {
        self.0.cluster.kubectl.say(&[
            "annotate",
            "mutatingwebhookconfiguration",
            "squelch",
            "squelch.dev/disarm-",
        ]);
    }
}

#[tokio::test]
async fn the_chart_notes_create_a_policy_in_force() -> Result<()> {
    let test = Test::begin("notes").await?;
    let squelch = test.squelch().await?;
    let guard = RemoveAnnotation(&test);
    let notes = notes(&test).await?;
    // Paragraphs of commands, with their indentation.
    let paragraphs: Vec<_> =
        notes.split("\n\n").filter(|text| text.trim_start().starts_with("kubectl ")).collect();
    let applied = paragraphs
        .iter()
        .find(|text| text.contains("kubectl apply"))
        .context("no command that applies a policy")?;
    let made = Made::by(&test, applied)?;
    pasted(&test.cluster, applied).await?;
    made.governs().await?;
    let seen =
        paragraphs.iter().find(|text| text.contains("kubectl get")).context("no command to inspect")?;
    let seen = pasted(&test.cluster, seen).await?;
    ensure!(seen.contains("quickstart") && seen.contains("RECEIVED"), "{seen}");
    let enforces =
        paragraphs.iter().find(|text| text.contains("kubectl --namespace") && text.contains("patch"));
    pasted(&test.cluster, enforces.context("no command to enforce it")?).await?;
    made.governs().await?;
    let break_glass =
        paragraphs.iter().find(|text| text.contains("squelch.dev/disarm")).context("no break glass")?;
    for (line, armed) in lines(break_glass, "kubectl annotate").iter().zip([false, true]) {
        pasted(&test.cluster, line).await?;
        wait_until_armed(&squelch, armed).await?;
    }
    drop((made, guard));
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn the_readme_quickstart_creates_a_policy_in_force() -> Result<()> {
    let test = Test::begin("readme").await?;
    let squelch = test.squelch().await?;
    let block = block_with("README.md", "helm install squelch")?;
    // squelch runs, but the chart is not installed, and there is no Deployment to wait for.
    let mut commands = lines(&block, "kubectl ");
    commands.retain(|command| !command.contains("rollout status"));
    ensure!(commands.len() >= 2, "{block}");
    let made = Made::by(&test, &commands.join("\n"))?;
    for command in &commands {
        pasted(&test.cluster, command).await?;
    }
    made.governs().await?;
    drop(made);
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn the_break_glass_commands_of_the_runbook_disarm() -> Result<()> {
    let test = Test::begin("runbook").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&serde_json::json!({})).await?;
    let guard = RemoveAnnotation(&test);
    let break_glass = block_with("docs/runbooks.md", "squelch.dev/disarm=")?;
    let inspections = block_with("docs/runbooks.md", "output jsonpath='{.webhooks[")?;
    for (line, armed) in lines(&break_glass, "kubectl annotate").iter().zip([false, true]) {
        pasted(&test.cluster, line).await?;
        wait_until_armed(&squelch, armed).await?;
        if armed {
            policy.effective().await?;
        } else {
            policy.says("Effective", "False", "WebhookNotArmed", "").await?;
        }
        wait_for(&format!("squelch_policies to follow armed {armed}"), GENEROUS, async || {
            let metrics = squelch.metrics().await.map_err(|error| error.to_string())?;
            let effective = metrics.sum("squelch_policies", &[("state", "effective")]);
            if (effective > 0.0) == armed { Ok(()) } else { Err(metrics.show("squelch_policies")) }
        })
        .await?;
        let mut seen = Vec::new();
        for line in inspections.lines().filter(|line| armed == line.contains("jsonpath") || !armed) {
            seen.push(pasted(&test.cluster, line).await?);
        }
        let rules = seen.first().context("no command to inspect")?;
        ensure!(rules.contains("events") == armed, "armed {armed}, but the rules are {rules:?}");
    }
    drop(guard);
    squelch.stop().await?;
    test.passed()
}
