//! client-go's legacy recorder (tools/record): what the kubelet and most controllers use.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::emitters::Told;
use e2e::policy::idle_after;
use e2e::writes::{every_change_raised, history};
use e2e::{Emission, GENEROUS, Test, Writes};

/// log2(1,000) + 1, and one for the closing and one to spare.
const MOST_WRITES: usize = 13;
/// 1,000 occurrences at 50 a second take 20 s on an idle machine.
const STORM: Duration = Duration::from_secs(120);

/// The one Event about `object` was written rarely, and never in vain.
async fn was_written_rarely(writes: &Writes, object: &str) -> Result<()> {
    let writes = writes.about(object).await?;
    ensure!(writes.len() <= MOST_WRITES, "{} writes:\n{}", writes.len(), history(&writes));
    every_change_raised(&writes)
}

/// The client saw nothing that it would bother anyone with.
fn was_quiet(told: &Told) -> Result<()> {
    ensure!(told.error_lines().is_empty(), "the client logged {:?}", told.error_lines());
    Ok(())
}

#[tokio::test]
async fn a_thousand_repeats_are_one_event_and_at_most_thirteen_writes() -> Result<()> {
    let test = Test::begin("legacy").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&idle_after("3s")).await?;
    let writes = test.writes().await?;

    let storm = Emission::legacy().about("pod", 1).count(1000).rate(50);
    let told = test.emit(&storm)?.finish(STORM).await?;
    test.one_event("pod-0", 1000).await?;
    squelch.is_quiet(GENEROUS).await?;

    was_written_rarely(&writes, "pod-0").await?;
    was_quiet(&told)?;
    assert_eq!(told.sent(), 1000);
    policy.received(1000).await?;
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn twenty_objects_at_once_are_twenty_events_and_each_at_most_thirteen_writes() -> Result<()> {
    let test = Test::begin("legacy-twenty").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&idle_after("3s")).await?;
    let writes = test.writes().await?;

    // A recorder waits for each answer: of one process alone the API server would see fewer than 1,000 a second.
    let prefixes = ["a", "b", "c", "d"];
    let mut storms = Vec::new();
    for prefix in prefixes {
        storms.push(test.emit(&Emission::legacy().about(prefix, 5).count(1000).rate(5 * 50))?);
    }
    for storm in storms {
        was_quiet(&storm.finish(STORM).await?)?;
    }
    for prefix in prefixes {
        for number in 0..5 {
            let object = format!("{prefix}-{number}");
            test.one_event(&object, 1000).await?;
        }
    }
    squelch.is_quiet(GENEROUS).await?;
    for prefix in prefixes {
        for number in 0..5 {
            was_written_rarely(&writes, &format!("{prefix}-{number}")).await?;
        }
    }
    policy.received(20_000).await?;
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn two_processes_with_one_identity_share_one_event_that_neither_lowers() -> Result<()> {
    let test = Test::begin("legacy-twins").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&idle_after("3s")).await?;
    let writes = test.writes().await?;

    let storm = Emission::legacy().about("pod", 1).rate(40);
    let longer = test.emit(&storm.clone().count(300))?;
    let shorter = test.emit(&storm.count(200))?;
    for twin in [longer, shorter] {
        was_quiet(&twin.finish(STORM).await?)?;
    }
    test.one_event("pod-0", 500).await?;
    squelch.is_quiet(GENEROUS).await?;

    was_written_rarely(&writes, "pod-0").await?;
    policy.received(500).await?;
    squelch.stop().await?;
    test.passed()
}
