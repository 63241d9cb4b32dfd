//! The metrics of squelch.

use anyhow::{Result, ensure};
use e2e::policy::idle_after;
use e2e::process::run_with_input;
use e2e::wait::not_yet;
use e2e::{Emission, GENEROUS, STORM, Test, conservation, wait_for};
use std::process::Command;

#[tokio::test]
async fn status_and_metrics_match_what_the_emitters_sent() -> Result<()> {
    let test = Test::begin("conserved").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&idle_after("3s")).await?;

    let emissions = [
        Emission::legacy().about("legacy", 3).count(100).rate(150),
        Emission::kube().about("kube", 2).count(100).rate(100),
        Emission::new_style().about("new", 2).count(20).rate(10),
        Emission::creates_core().about("core", 1).count(100).rate(50),
        Emission::creates_new_style().about("generated", 1).count(100).rate(50).generate_name(),
    ];
    let mut storms = Vec::new();
    for emission in &emissions {
        storms.push(test.emit(emission)?);
    }
    let mut sent = 0;
    for storm in storms {
        sent += storm.finish(STORM).await?.sent();
    }
    assert_eq!(sent, 300 + 200 + 2 * 2 + 100 + 100);
    conservation::holds(&test, squelch, &policy, sent).await?;
    test.passed()
}

#[tokio::test]
async fn metric_children_exist_before_the_first_count() -> Result<()> {
    let test = Test::begin("children").await?;
    let squelch = test.squelch().await?;
    test.policy(&idle_after("3s")).await?;
    let namespace = test.namespace.as_str();
    wait_for("the policy's children of squelch_occurrences_total", GENEROUS, async || {
        let metrics = squelch.metrics().await.map_err(not_yet)?;
        let labels = [("event_namespace", namespace), ("policy_kind", "EventPolicy")];
        match metrics.count("squelch_occurrences_total", &labels) {
            7 => Ok(()),
            _ => Err(metrics.show("squelch_occurrences_total")),
        }
    })
    .await?;
    let metrics = squelch.metrics().await?;
    assert_eq!(metrics.sum("squelch_armed", &[]) as i64, 1);
    assert_eq!(metrics.count("squelch_build_info", &[]), 1);
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn promtool_accepts_the_metrics() -> Result<()> {
    let test = Test::begin("promtool").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&idle_after("3s")).await?;
    test.emit(&Emission::legacy().about("pod", 1).count(20).rate(50))?.finish(STORM).await?;
    policy.received(20).await?;

    let page = squelch.get("/metrics").await?;
    let checked = run_with_input(Command::new("promtool").args(["check", "metrics"]), &page)?;
    ensure!(
        checked.status.success() && checked.stderr.is_empty() && checked.stdout.is_empty(),
        "{checked:?}"
    );
    squelch.stop().await?;
    test.passed()
}
