//! Writes while the webhook is disarmed are counted once, with the next reported count, whether the series is still
//! live or not.

use anyhow::Result;
use e2e::wait::not_yet;
use e2e::{Emission, GENEROUS, STORM, Test, wait_for};
use serde_json::json;

const WEBHOOK: &str = "mutatingwebhookconfiguration/squelch";
const OBJECTS: usize = 4;
/// Occurrences per object, two per second.
const OCCURRENCES: i64 = 60;
const RATE: u32 = 8;

#[tokio::test]
async fn disarmed_writes_into_a_live_series_are_counted_once() -> Result<()> {
    counted_once("unseen-live", "30s", false).await
}

#[tokio::test]
async fn disarmed_writes_into_a_closed_series_are_counted_once() -> Result<()> {
    counted_once("unseen-ended", "2s", true).await
}

async fn counted_once(label: &str, idle_timeout: &str, series_end: bool) -> Result<()> {
    let test = Test::begin(label).await?;
    let squelch = test.squelch().await?;
    let off = json!({ "mode": "Disabled" });
    let series = json!({ "idleTimeout": idle_timeout });
    let policy = test.policy(&json!({ "series": series, "aggregation": off, "spamFilter": off })).await?;
    let storm = test.emit(&Emission::legacy().about("pod", OBJECTS).count(OCCURRENCES).rate(RATE))?;
    let seen = storm.wait_for_calls(15 * OBJECTS, STORM).await?.calls.len();
    let kubectl = &test.cluster.kubectl;
    kubectl.run(&["annotate", WEBHOOK, "squelch.dev/disarm=a test"]).await?;
    storm.wait_for_calls(seen + 20 * OBJECTS, STORM).await?;
    if series_end {
        wait_for("all series to end", GENEROUS, async || {
            match squelch.metrics().await.map_err(not_yet)?.sum("squelch_series", &[]) {
                0.0 => Ok(()),
                live => Err(live.to_string()),
            }
        })
        .await?;
    }
    kubectl.run(&["annotate", WEBHOOK, "squelch.dev/disarm-"]).await?;
    let said = storm.finish(STORM).await?;
    squelch.wait_until_idle(GENEROUS).await?;
    for object in 0..OBJECTS {
        test.one_event(&format!("pod-{object}"), OCCURRENCES).await?;
    }
    // It has reviewed the counts before and after, and so all reported occurrences.
    policy.received(said.sent()).await?;
    squelch.stop().await?;
    test.passed()
}
