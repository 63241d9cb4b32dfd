//! Events that expire while their series is live. Needs an API server with `--event-ttl=2m`.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::matrix::Row;
use e2e::wait::not_yet;
use e2e::{Emission, GENEROUS, STORM, Test, events, wait_for};
use serde_json::json;

/// Longer than the TTL of an Event.
const HEARTBEAT: Duration = Duration::from_secs(170);
/// The API server shares etcd leases among Events of a few seconds.
const TTL: Duration = Duration::from_secs(120 + 30);
const BURST: i64 = 900;
/// One occurrence per 4 s: the series stays live, and its count does not double.
const TRICKLE: i64 = 60;

#[tokio::test]
#[ignore = "long, and needs --event-ttl=2m: just test-nothing-lost"]
async fn an_expired_event_of_a_live_series_is_created_again_with_its_full_count() -> Result<()> {
    let test = Test::begin("expiry").await?;
    let squelch = test.squelch().await?;
    let mut spec = Row::Series.policy();
    let heartbeat = format!("{}s", HEARTBEAT.as_secs());
    spec["series"] = json!({ "idleTimeout": "30s", "heartbeatInterval": heartbeat });
    let policy = test.policy(&spec).await?;
    // Without a recorder only squelch can create the Event again.
    let emission = Emission::creates_core().about("pod", 1);
    let burst = test.emit(&emission.clone().count(BURST).rate(100))?;
    let trickle = test.emit(&emission.count(TRICKLE).with("--rate", "0.25"))?;
    burst.finish(STORM).await?;

    let stored = async || test.events(Some("pod-0")).await.map_err(not_yet);
    wait_for("the Event to expire", GENEROUS + TTL, async || {
        let events = stored().await?;
        if events.is_empty() { Ok(()) } else { Err(events::list(&events)) }
    })
    .await?;
    ensure!(trickle.so_far()?.summary.is_none(), "the series ended before its Event expired");
    let back = wait_for("the Event to be created again", HEARTBEAT, async || {
        stored().await?.pop().ok_or_else(|| "none".to_owned())
    })
    .await?;
    let counters = policy.counters().await?;
    eprintln!("it was created again with {} of {} received", events::value(&back), counters.received);
    ensure!(events::value(&back) > BURST, "it was created again with only {}", events::value(&back));

    let sent = BURST + trickle.finish(STORM).await?.sent();
    squelch.wait_until_idle(GENEROUS).await?;
    test.one_event("pod-0", sent).await?;
    policy.received(sent).await?;
    squelch.stop().await?;
    test.passed()
}
