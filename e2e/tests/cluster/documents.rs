//! The commands that the documents print, run as a reader pastes them: by bash, in the root of the checkout. (Those that
//! need pods are run on a node.)

use std::process::Command;

use anyhow::{Context, Result, ensure};
use e2e::cluster::checkout;
use e2e::process::run_with_input;
use e2e::wait::told;
use e2e::{GENEROUS, Policy, Squelch, Test, wait_for};

/// Runs a text as it stands. A warning of bash's, such as that of a here-document without an end, is a failure.
async fn pasted(test: &Test, text: &str) -> Result<String> {
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", text]).current_dir(checkout("."));
    command.env("KUBECONFIG", &test.cluster.kubeconfig);
    let output = tokio::task::spawn_blocking(move || run_with_input(&mut command, "")).await??;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success() && !errors.contains("bash: "), "pasted:\n{text}\nanswered:\n{errors}");
    Ok(String::from_utf8(output.stdout)?)
}

/// What Helm prints after an installation: the part behind `NOTES:`.
async fn notes(test: &Test) -> Result<String> {
    let install = "helm install squelch charts/squelch --namespace squelch --dry-run=client";
    let printed = pasted(test, install).await?;
    let (_, notes) = printed.split_once("\nNOTES:\n").context("Helm prints no notes")?;
    Ok(notes.to_owned())
}

/// The blocks of shell commands in a document.
fn blocks(file: &str) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(checkout(file))?;
    let blocks = text.split("```sh\n").skip(1).filter_map(|rest| rest.split_once("```"));
    Ok(blocks.map(|(block, _)| block.to_owned()).collect())
}

/// The only block of a document that has this text in it.
fn block_with(file: &str, part: &str) -> Result<String> {
    let found: Vec<_> = blocks(file)?.into_iter().filter(|block| block.contains(part)).collect();
    let [block] = &found[..] else { anyhow::bail!("{} blocks of {file} have {part:?}", found.len()) };
    Ok(block.clone())
}

/// The lines of a block that begin so.
fn lines(block: &str, beginning: &str) -> Vec<String> {
    block.lines().filter(|line| line.trim_start().starts_with(beginning)).map(str::to_owned).collect()
}

async fn is_armed(squelch: &Squelch, armed: bool) -> Result<()> {
    wait_for(&format!("squelch_armed to be {armed}"), GENEROUS, async || {
        let metrics = squelch.metrics().await.map_err(told)?;
        let now = (metrics.sum("squelch_armed", &[]) > 0.0, metrics.sum("squelch_break_glass", &[]) > 0.0);
        if now == (armed, !armed) { Ok(()) } else { Err(format!("(armed, break glass): {now:?}")) }
    })
    .await
}

/// The policy `quickstart` that a document has its reader make; its namespace is deleted with this value.
struct Made<'a> {
    test: &'a Test,
    namespace: String,
}

impl<'a> Made<'a> {
    /// By commands of which the last `--namespace` names where it is.
    fn by(test: &'a Test, commands: &str) -> Result<Self> {
        let (_, rest) = commands.rsplit_once("--namespace ").context("no namespace is named")?;
        let namespace = rest.split_whitespace().next();
        Ok(Self { test, namespace: namespace.context("no namespace")?.to_owned() })
    }

    async fn governs(&self) -> Result<()> {
        Policy::named(self.test.client(), &self.namespace, "quickstart").effective().await
    }
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        // Other documents make the same one.
        self.test.cluster.kubectl.say(&["delete", "namespace", &self.namespace, "--wait", "--timeout=60s"]);
    }
}

/// However a test ends, the configuration carries no annotation of its.
struct Glass<'a>(&'a Test);

impl Drop for Glass<'_> {
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
async fn the_notes_of_the_chart_make_a_policy_that_governs() -> Result<()> {
    let test = Test::begin("notes").await?;
    let squelch = test.squelch().await?;
    let guard = Glass(&test);
    let notes = notes(&test).await?;
    // Paragraphs of commands, with the blanks that stand before them.
    let paragraphs: Vec<_> =
        notes.split("\n\n").filter(|text| text.trim_start().starts_with("kubectl ")).collect();
    let applied =
        paragraphs.iter().find(|text| text.contains("kubectl apply")).context("no policy is applied")?;
    let made = Made::by(&test, applied)?;
    pasted(&test, applied).await?;
    made.governs().await?;
    let seen = paragraphs.iter().find(|text| text.contains("kubectl get")).context("nothing is looked at")?;
    let seen = pasted(&test, seen).await?;
    ensure!(seen.contains("quickstart") && seen.contains("RECEIVED"), "{seen}");
    let glass =
        paragraphs.iter().find(|text| text.contains("squelch.dev/disarm")).context("no break glass")?;
    for (line, armed) in lines(glass, "kubectl annotate").iter().zip([false, true]) {
        pasted(&test, line).await?;
        is_armed(&squelch, armed).await?;
    }
    drop((made, guard));
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn the_readmes_quickstart_makes_a_policy_that_governs() -> Result<()> {
    let test = Test::begin("readme").await?;
    let squelch = test.squelch().await?;
    let block = block_with("README.md", "helm install squelch")?;
    // The chart has been installed: squelch runs.
    let commands = lines(&block, "kubectl ");
    ensure!(commands.len() >= 2, "{block}");
    let made = Made::by(&test, &commands.join("\n"))?;
    for command in &commands {
        pasted(&test, command).await?;
    }
    made.governs().await?;
    drop(made);
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn the_runbooks_break_glass_disarms_and_shows_it() -> Result<()> {
    let test = Test::begin("runbook").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&serde_json::json!({})).await?;
    let guard = Glass(&test);
    let glass = block_with("docs/runbooks.md", "squelch.dev/disarm=")?;
    let looks = block_with("docs/runbooks.md", "output jsonpath='{.webhooks[")?;
    for (line, armed) in lines(&glass, "kubectl annotate").iter().zip([false, true]) {
        pasted(&test, line).await?;
        is_armed(&squelch, armed).await?;
        if armed {
            policy.effective().await?;
        } else {
            policy.says("Effective", "Unknown", "WebhookNotArmed", "").await?;
        }
        let mut seen = Vec::new();
        for line in looks.lines().filter(|line| armed == line.contains("jsonpath") || !armed) {
            seen.push(pasted(&test, line).await?);
        }
        let rules = seen.first().context("nothing is looked at")?;
        ensure!(rules.contains("events") == armed, "armed {armed}, and the rules: {rules:?}");
    }
    drop(guard);
    squelch.stop().await?;
    test.passed()
}
