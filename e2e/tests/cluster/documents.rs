//! The commands of the documents that need no pods. (`e2e/tests/node/documents.rs` has others.)

use anyhow::{Context, Result, ensure};
use e2e::documents::{block_with, lines, pasted};
use e2e::wait::told;
use e2e::{GENEROUS, Policy, Squelch, Test, wait_for};

/// What Helm prints after an installation: the part behind `NOTES:`.
async fn notes(test: &Test) -> Result<String> {
    let install = "helm install squelch charts/squelch --namespace squelch --dry-run=client";
    let printed = pasted(&test.cluster, install).await?;
    let (_, notes) = printed.split_once("\nNOTES:\n").context("Helm prints no notes")?;
    Ok(notes.to_owned())
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
    pasted(&test.cluster, applied).await?;
    made.governs().await?;
    let seen = paragraphs.iter().find(|text| text.contains("kubectl get")).context("nothing is looked at")?;
    let seen = pasted(&test.cluster, seen).await?;
    ensure!(seen.contains("quickstart") && seen.contains("RECEIVED"), "{seen}");
    let glass =
        paragraphs.iter().find(|text| text.contains("squelch.dev/disarm")).context("no break glass")?;
    for (line, armed) in lines(glass, "kubectl annotate").iter().zip([false, true]) {
        pasted(&test.cluster, line).await?;
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
        pasted(&test.cluster, command).await?;
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
        pasted(&test.cluster, line).await?;
        is_armed(&squelch, armed).await?;
        if armed {
            policy.effective().await?;
        } else {
            policy.says("Effective", "Unknown", "WebhookNotArmed", "").await?;
        }
        wait_for(&format!("the metric of effective policies, armed {armed}"), GENEROUS, async || {
            let metrics = squelch.metrics().await.map_err(|error| error.to_string())?;
            let effective = metrics.sum("squelch_policies", &[("condition", "Effective")]);
            if (effective > 0.0) == armed { Ok(()) } else { Err(metrics.show("squelch_policies")) }
        })
        .await?;
        let mut seen = Vec::new();
        for line in looks.lines().filter(|line| armed == line.contains("jsonpath") || !armed) {
            seen.push(pasted(&test.cluster, line).await?);
        }
        let rules = seen.first().context("nothing is looked at")?;
        ensure!(rules.contains("events") == armed, "armed {armed}, and the rules: {rules:?}");
    }
    drop(guard);
    squelch.stop().await?;
    test.passed()
}
