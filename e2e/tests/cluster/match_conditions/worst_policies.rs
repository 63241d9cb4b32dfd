//! Policies whose match condition would be too long: the API server sends every write of their namespaces to squelch.

use anyhow::{Context, Result, ensure};
use e2e::wait::not_yet;
use e2e::{GENEROUS, Test, other_writer, wait_for};
use serde_json::{Value, json};

use super::{calls_and_exclusions, create, evaluation_errors, event};
use crate::many_policies::{delete, make_policies};

const POLICIES: usize = 1_000;
/// Texts of each policy. The conditions of two policies are longer than the longest match condition.
const TEXTS: usize = 31;
/// Maximum bytes of the match condition: docs/semantics.md.
const MAX_BYTES: usize = 2 << 10;

/// The reason of a policy, and others.
fn worst(number: usize) -> Value {
    let reasons = (0..TEXTS).map(|text| format!("Reason{number:04}{text:02}{}", "x".repeat(48)));
    json!({ "mode": "Observe", "match": [{ "reasons": reasons.collect::<Vec<_>>() }] })
}

/// The match condition of the webhook for the writes that a policy can match.
async fn matched_by_a_policy(test: &Test) -> Result<String> {
    let configuration = other_writer::stored(&test.cluster).await?;
    let mut entries = configuration["webhooks"].as_array().into_iter().flatten();
    let entry = entries.find(|it| it["name"] == "events.squelch.dev").context("no entry")?;
    let mut conditions = entry["matchConditions"].as_array().into_iter().flatten();
    let matched = conditions.find(|it| it["name"] == "matched-by-a-policy");
    let expression = matched.and_then(|it| it["expression"].as_str());
    Ok(expression.context("no such condition")?.to_owned())
}

#[tokio::test]
async fn every_write_of_a_thousand_worst_policies_reaches_squelch() -> Result<()> {
    let test = Test::begin("matched-worst").await?;
    let squelch = test.squelch().await?;
    let policies = make_policies(&test, POLICIES, worst).await?;
    wait_for("all policies to be in force", GENEROUS, async || {
        let metrics = squelch.metrics().await.map_err(not_yet)?;
        let effective = metrics.sum("squelch_policies", &[("kind", "EventPolicy"), ("state", "effective")]);
        if effective >= POLICIES as f64 { Ok(()) } else { Err(format!("{effective}")) }
    })
    .await?;
    let condition = matched_by_a_policy(&test).await?;
    let length = condition.len();
    ensure!(length <= MAX_BYTES, "a match condition of {length} bytes: {condition}");
    ensure!(!condition.contains("Reason"), "{condition}");

    let client = test.emitter_client().await?;
    let errors = evaluation_errors(&test.cluster).await?;
    let [calls, _] = calls_and_exclusions(&test.cluster).await?;
    let reason = worst(0)["match"][0]["reasons"][TEXTS - 1].as_str().unwrap_or_default().to_owned();
    let last = worst(POLICIES - 1)["match"][0]["reasons"][0].as_str().unwrap_or_default().to_owned();
    let of_last = format!("{}-{}", test.namespace, policies.len() - 1);
    for number in 0..5 {
        let message = format!("{number}");
        create(&client, &event(&test.namespace, &reason, &message), "").await?;
        create(&client, &event(&of_last, &last, &message), "").await?;
        create(&client, &event(&test.namespace, "Other", &message), "").await?;
    }
    let [called, _] = calls_and_exclusions(&test.cluster).await?;
    assert_eq!(called - calls, 15, "a governed write was skipped");
    wait_for("10 observed occurrences in a scrape", GENEROUS, async || {
        let metrics = squelch.metrics().await.map_err(not_yet)?;
        let observed = metrics.sum("squelch_observed_occurrences_total", &[]);
        if observed == 10.0 { Ok(()) } else { Err(format!("{observed}")) }
    })
    .await?;
    assert_eq!(evaluation_errors(&test.cluster).await?, errors, "a failed evaluation skips squelch silently");
    eprintln!("{POLICIES} policies, a match condition of {length} bytes, 15 of 15 writes sent to squelch");
    delete(&test, &squelch, &policies).await?;
    squelch.stop().await?;
    test.passed()
}
