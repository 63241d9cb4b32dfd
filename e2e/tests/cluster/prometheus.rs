//! squelch's metrics, rules and dashboard in a real Prometheus.

use anyhow::{Context, Result, ensure};
use e2e::policy::Policy;
use e2e::prometheus::dashboard;
use e2e::wait::not_yet;
use e2e::{Emission, GENEROUS, Prometheus, STORM, Squelch, Test, conservation, wait_for};
use serde_json::json;

/// squelch with a Prometheus, under a policy that drops, after a storm with every disposition; and the received
/// occurrences.
async fn after_a_storm(test: &Test) -> Result<(Squelch, Prometheus, Policy, i64)> {
    let squelch = test.squelch().await?;
    let prometheus = test.prometheus(&squelch).await?;
    let policy = test
        .policy(&json!({
            "warningPolicy": "Limit",
            "aggregation": { "maxEvents": 3 },
            "spamFilter": { "burst": 1, "refillInterval": "720h", "per": ["Object"] },
        }))
        .await?;
    // Present from the start with 0, so that rates see the first drop.
    let filtered = format!(
        "squelch_occurrences_total{{event_namespace=\"{}\",disposition=\"filtered\"}}",
        test.namespace
    );
    prometheus.until(&filtered, |value| value == 0.0).await?;

    let mut sent = 0;
    for storm in [
        Emission::creates_core().about("merged", 1).with("--messages", "distinct").count(20).rate(50),
        Emission::legacy().about("merging", 2).count(30).rate(50),
    ] {
        sent += test.emit(&storm)?.finish(STORM).await?.sent();
    }
    Ok((squelch, prometheus, policy, sent))
}

#[tokio::test]
async fn rates_and_sums_in_prometheus_match_the_storm() -> Result<()> {
    let test = Test::begin("scraped").await?;
    let (squelch, prometheus, policy, sent) = after_a_storm(&test).await?;
    let counters = conservation::status_matches_metrics(&test, &squelch, &policy, sent).await?;
    // Of the distinct messages one finds a token, one finds none, and the others are aggregated.
    assert_eq!((counters.filtered, counters.aggregated), (1, 18), "{counters:?}");
    ensure!(counters.compacted > 40, "{counters:?}");

    let of =
        |more: &str| format!("squelch_occurrences_total{{event_namespace=\"{}\"{more}}}", test.namespace);
    let received = prometheus.until(&of(""), |sum| sum as i64 == sent).await?;
    let increased = format!("increase({}[1h])", of(""));
    ensure!(received as i64 == counters.received, "{received} and {counters:?}");
    prometheus.until(&increased, |sum| sum > 0.0).await?;
    let dropped = format!("rate({}[1m])", of(",disposition=~\"aggregated|filtered|throttled\""));
    prometheus.until(&dropped, |rate| rate > 0.0).await?;
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn rules_are_evaluated_and_every_dashboard_query_has_data() -> Result<()> {
    let test = Test::begin("dashboard").await?;
    let (squelch, prometheus, policy, sent) = after_a_storm(&test).await?;
    conservation::status_matches_metrics(&test, &squelch, &policy, sent).await?;
    let queries = dashboard()?;
    ensure!(queries.len() > 20, "only {} queries", queries.len());
    for (panel, query) in queries {
        prometheus.until(&query, |_| true).await.with_context(|| format!("panel {panel}"))?;
    }
    let rules = wait_for("every rule to be evaluated", GENEROUS, async || {
        let rules = prometheus.rules().await.map_err(not_yet)?;
        if rules.iter().all(|(_, health)| health != "unknown") {
            Ok(rules)
        } else {
            Err(format!("{rules:?}"))
        }
    })
    .await?;
    ensure!(rules.len() >= 10, "{rules:?}");
    ensure!(rules.iter().all(|(_, health)| health == "ok"), "{rules:?}");
    squelch.stop().await?;
    test.passed()
}
