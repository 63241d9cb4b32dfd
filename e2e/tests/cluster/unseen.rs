//! What a client writes while the webhook is disarmed, squelch sees with the next count that it is told: it counts it once,
//! whether the series has lived on meanwhile or not.

use std::time::Duration;

use anyhow::Result;
use e2e::wait::told;
use e2e::{Emission, GENEROUS, Test, wait_for};
use serde_json::json;

const WEBHOOK: &str = "mutatingwebhookconfiguration/squelch";
const OBJECTS: usize = 4;
/// Of each object, two a second.
const OCCURRENCES: i64 = 60;
const RATE: u32 = 8;
const STORM: Duration = Duration::from_secs(180);

#[tokio::test]
async fn what_is_written_unseen_into_a_series_that_lives_is_counted_once() -> Result<()> {
    counted_once("unseen-live", "30s", false).await
}

#[tokio::test]
async fn what_is_written_unseen_after_a_series_has_ended_is_counted_once() -> Result<()> {
    counted_once("unseen-ended", "2s", true).await
}

async fn counted_once(label: &str, idle_timeout: &str, series_end: bool) -> Result<()> {
    let test = Test::begin(label).await?;
    let squelch = test.squelch().await?;
    let off = json!({ "disabled": true });
    let series = json!({ "idleTimeout": idle_timeout });
    let policy = test.policy(&json!({ "series": series, "aggregation": off, "spamFilter": off })).await?;
    let storm = test.emit(&Emission::legacy().about("pod", OBJECTS).count(OCCURRENCES).rate(RATE))?;
    let seen = storm.has_called(15 * OBJECTS, STORM).await?.calls.len();
    let kubectl = &test.cluster.kubectl;
    kubectl.run(&["annotate", WEBHOOK, "squelch.dev/disarm=a test"]).await?;
    storm.has_called(seen + 20 * OBJECTS, STORM).await?;
    if series_end {
        wait_for("all series to end", GENEROUS, async || {
            match squelch.metrics().await.map_err(told)?.sum("squelch_series", &[]) {
                0.0 => Ok(()),
                live => Err(live.to_string()),
            }
        })
        .await?;
    }
    kubectl.run(&["annotate", WEBHOOK, "squelch.dev/disarm-"]).await?;
    let said = storm.finish(STORM).await?;
    squelch.is_quiet(GENEROUS).await?;
    for object in 0..OBJECTS {
        test.one_event(&format!("pod-{object}"), OCCURRENCES).await?;
    }
    // It has seen the counts of before and after, and so all that was told.
    policy.received(said.sent()).await?;
    squelch.stop().await?;
    test.passed()
}
