//! `status.topDropped` and the metric of dropped Warnings.

use anyhow::Result;
use e2e::{Emission, Policy, STORM, Test};
use serde_json::{Value, json};

/// Events of an object that pass the filter.
pub(crate) const BURST: i64 = 5;

/// One CREATE per occurrence about one object, each with another message: beyond the burst all are filtered.
pub(crate) async fn storm(
    test: &Test,
    object: &str,
    reason: &str,
    event_type: &str,
    occurrences: i64,
) -> Result<()> {
    let storm = Emission::creates_core().about(object, 1).reason(reason).with("--type", event_type);
    let storm = storm.with("--messages", "distinct").count(occurrences).rate(200);
    test.emit(&storm)?.finish(STORM).await?;
    Ok(())
}

/// The entries of `status.topDropped` as reason and count, after a check of their other fields.
async fn top_dropped(test: &Test, policy: &Policy) -> Result<Vec<(String, i64)>> {
    let listed = policy.top_dropped().await?;
    let entries = listed.iter().map(|entry| {
        let expected = json!({
            "namespace": test.namespace, "reason": entry["reason"], "kind": "Pod", "component": "emitter",
            "disposition": "filtered", "count": entry["count"],
        });
        assert_eq!(entry, &expected);
        (entry["reason"].as_str().unwrap_or_default().to_owned(), entry["count"].as_i64().unwrap_or_default())
    });
    Ok(entries.collect())
}

/// A policy that drops Warnings too, and that starts no new bucket in the time of the test.
pub(crate) fn filtering() -> Value {
    json!({
        "warningPolicy": "Limit",
        "series": { "idleTimeout": "3s" },
        "aggregation": { "mode": "Disabled" },
        "spamFilter": { "burst": BURST, "refillInterval": "720h" },
    })
}

#[tokio::test]
async fn top_dropped_is_reported_and_survives_a_restart() -> Result<()> {
    let test = Test::begin("top-dropped").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&filtering()).await?;
    storm(&test, "loud", "BackOff", "Warning", 100).await?;
    storm(&test, "quiet", "Pulled", "Normal", 20).await?;
    // core/v1 accepts any type.
    storm(&test, "hostile", &format!("Red\u{1b}[31m{}", "x".repeat(100)), "Warning", 30).await?;

    policy.received(100 + 20 + 30).await?;
    let cut = format!("Red [31m{}", "x".repeat(64 - "Red [31m".len()));
    let expected = [("BackOff", 100 - BURST), (&*cut, 30 - BURST), ("Pulled", 20 - BURST)];
    assert_eq!(
        top_dropped(&test, &policy).await?,
        expected.map(|(reason, count)| (reason.to_owned(), count))
    );
    let warnings = squelch
        .metrics()
        .await?
        .sum("squelch_dropped_warnings_total", &[("event_namespace", test.namespace.as_str())]);
    assert_eq!(warnings as i64, (100 - BURST) + (30 - BURST), "Pulled is Normal");

    squelch.stop().await?;
    let squelch = test.squelch().await?;
    policy.effective().await?;
    storm(&test, "later", "Pulled", "Normal", 100).await?;
    policy.received(100 + 20 + 30 + 100).await?;
    let expected = [("Pulled", 120 - 2 * BURST), ("BackOff", 100 - BURST), (&*cut, 30 - BURST)];
    assert_eq!(
        top_dropped(&test, &policy).await?,
        expected.map(|(reason, count)| (reason.to_owned(), count))
    );
    squelch.stop().await?;
    test.passed()
}
