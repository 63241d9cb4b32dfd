//! EventPolicies as people write and read them.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::cluster::checkout;
use e2e::policy::{Policy, idle_after};
use e2e::{Emission, Test};
use serde_json::json;

const STORM: Duration = Duration::from_secs(60);

#[tokio::test]
async fn the_quickstart_applies_and_becomes_effective() -> Result<()> {
    let test = Test::begin("quickstart").await?;
    let squelch = test.squelch().await?;
    let file = checkout("examples/quickstart.yaml").display().to_string();
    test.kubectl().run(&["apply", "-f", &file]).await?;
    let policy = Policy::named(test.client(), &test.namespace, "quickstart");
    policy.effective().await?;

    test.emit(&Emission::legacy().about("pod", 1).count(20).rate(50))?.finish(STORM).await?;
    let counters = policy.received(20).await?;
    ensure!(counters.compacted > 10, "{counters:?}");
    let shown = test.kubectl().run(&["get", "eventpolicies"]).await?;
    for column in ["MODE", "ACCEPTED", "RECEIVED", "ADMITTED", "COMPACTED", "AGE"] {
        ensure!(shown.contains(column), "no column {column}:\n{shown}");
    }
    ensure!(shown.contains("Enforce") && shown.contains("20"), "{shown}");
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn every_invalid_example_is_refused_with_its_sentence() -> Result<()> {
    let test = Test::begin("invalid").await?;
    let mut tried = 0;
    for entry in std::fs::read_dir(checkout("examples/invalid"))? {
        let path = entry?.path();
        let text = std::fs::read_to_string(&path)?;
        let file = path.display().to_string();
        let expected = text.lines().next().and_then(|line| line.strip_prefix("# expect: "));
        let expected = expected.with_context(|| format!("{file} does not begin with # expect:"))?;
        let Err(answer) = test.kubectl().run(&["apply", "-f", &file]).await else {
            anyhow::bail!("{file} was accepted");
        };
        ensure!(answer.to_string().contains(expected), "{file}: expected {expected}\nbut was told {answer}");
        tried += 1;
    }
    ensure!(tried > 10, "only {tried} invalid examples");
    test.passed()
}

#[tokio::test]
async fn explain_tells_units_defaults_and_limits_of_series() -> Result<()> {
    let test = Test::begin("explain").await?;
    let explained = test.kubectl().run(&["explain", "eventpolicy.spec.series"]).await?;
    // kubectl breaks lines where it likes.
    let words = explained.split_whitespace().collect::<Vec<_>>().join(" ");
    for told in ["units h, m, s, ms", "from 1s to 8760h", "Default: 6m", "Default: 30m", "Default: false"] {
        ensure!(words.contains(told), "{told:?} is not explained:\n{explained}");
    }
    test.passed()
}

#[tokio::test]
async fn observe_counts_the_same_and_holds_nothing_back() -> Result<()> {
    let test = Test::begin("observe").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&json!({ "mode": "Observe", "series": { "idleTimeout": "3s" } })).await?;
    let writes = test.writes().await?;

    let core = test.emit(&Emission::legacy().about("core", 1).count(100).rate(50))?;
    let new = test.emit(&Emission::kube().about("new", 1).count(100).rate(50))?;
    let creates = test.emit(&Emission::creates_core().about("creates", 1).count(50).rate(50))?;
    for storm in [core, new, creates] {
        let told = storm.finish(STORM).await?;
        ensure!(told.refused().is_empty(), "refused under Observe: {:?}", told.refused());
    }
    let counters = policy.received(250).await?;
    ensure!(counters.compacted > 200, "{counters:?}");
    let written = writes.so_far().await?;
    assert_eq!(written.len(), 250, "every write reaches etcd under Observe, and squelch adds none");
    test.one_event("core-0", 100).await?;
    test.one_event("new-0", 100).await?;
    assert_eq!(test.events(Some("creates-0")).await?.len(), 50);

    let metrics = squelch.metrics().await?;
    let of =
        |mode| metrics.sum("squelch_events_total", &[("event_namespace", &test.namespace), ("mode", mode)]);
    assert_eq!((of("Observe") as i64, of("Enforce") as i64), (250, 0));
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn a_policy_that_is_changed_or_deleted_pays_what_it_owes() -> Result<()> {
    let test = Test::begin("change").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&idle_after("10m")).await?;
    let storm = Emission::legacy().about("pod", 1).count(100).rate(100);
    test.emit(&storm)?.finish(STORM).await?;
    policy.received(100).await?;
    // Another mode: what was folded under Enforce is paid at once.
    policy.change(&test.kubectl(), &json!({ "mode": "Observe" })).await?;
    test.one_event("pod-0", 100).await?;

    policy.change(&test.kubectl(), &idle_after("10m")).await?;
    let storm = Emission::creates_core().about("other", 1).count(100).rate(100);
    test.emit(&storm)?.finish(STORM).await?;
    policy.received(200).await?;
    test.kubectl().run(&["delete", "eventpolicy", "policy"]).await?;
    test.one_event("other-0", 100).await?;
    squelch.stop().await?;
    test.passed()
}
