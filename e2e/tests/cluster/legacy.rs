//! client-go's legacy recorder (tools/record), which the kubelet and most controllers use.

use anyhow::{Result, ensure};
use e2e::emitters::Report;
use e2e::policy::idle_after;
use e2e::writes::{every_change_raised, history};
use e2e::{Emission, GENEROUS, STORM, Test, Writes};

/// Maximum writes of a series with this many occurrences: log2 + 1, one at the close, and two to spare.
fn most_writes(occurrences: usize) -> usize {
    occurrences.ilog2() as usize + 4
}

/// The single Event about `object` had few writes for its occurrences, each of which raised its count.
async fn was_written_rarely(writes: &Writes, object: &str, occurrences: usize) -> Result<()> {
    let writes = writes.about(object).await?;
    ensure!(writes.len() <= most_writes(occurrences), "{} writes:\n{}", writes.len(), history(&writes));
    every_change_raised(&writes)
}

/// The client logged no error.
fn was_quiet(report: &Report) -> Result<()> {
    ensure!(report.error_lines().is_empty(), "the client logged {:?}", report.error_lines());
    Ok(())
}

#[tokio::test]
async fn a_thousand_repeats_become_one_event_in_at_most_thirteen_writes() -> Result<()> {
    let test = Test::begin("legacy").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&idle_after("3s")).await?;
    let writes = test.writes().await?;

    let storm = Emission::legacy().about("pod", 1).count(1000).rate(50);
    let report = test.emit(&storm)?.finish(STORM).await?;
    test.one_event("pod-0", 1000).await?;
    squelch.wait_until_idle(GENEROUS).await?;

    was_written_rarely(&writes, "pod-0", 1000).await?;
    was_quiet(&report)?;
    assert_eq!(report.sent(), 1000);
    policy.received(1000).await?;
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn twenty_concurrent_objects_become_twenty_rarely_written_events() -> Result<()> {
    let test = Test::begin("legacy-twenty").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&idle_after("3s")).await?;
    let writes = test.writes().await?;

    // A recorder waits for each answer: one process makes fewer than 1,000 calls per second.
    let prefixes = ["a", "b", "c", "d"];
    let mut storms = Vec::new();
    for prefix in prefixes {
        storms.push(test.emit(&Emission::legacy().about(prefix, 5).count(250).rate(5 * 50))?);
    }
    for storm in storms {
        was_quiet(&storm.finish(STORM).await?)?;
    }
    for prefix in prefixes {
        for number in 0..5 {
            let object = format!("{prefix}-{number}");
            test.one_event(&object, 250).await?;
        }
    }
    squelch.wait_until_idle(GENEROUS).await?;
    for prefix in prefixes {
        for number in 0..5 {
            was_written_rarely(&writes, &format!("{prefix}-{number}"), 250).await?;
        }
    }
    policy.received(5_000).await?;
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn two_processes_with_one_identity_share_one_event_whose_count_never_falls() -> Result<()> {
    let test = Test::begin("legacy-twins").await?;
    let squelch = test.squelch().await?;
    // The second process may start seconds after the first has ended.
    let policy = test.policy(&idle_after("12s")).await?;
    let writes = test.writes().await?;

    let storm = Emission::legacy().about("pod", 1).rate(40);
    let longer = test.emit(&storm.clone().count(300))?;
    let shorter = test.emit(&storm.count(200))?;
    for twin in [longer, shorter] {
        was_quiet(&twin.finish(STORM).await?)?;
    }
    test.one_event("pod-0", 500).await?;
    squelch.wait_until_idle(GENEROUS).await?;

    was_written_rarely(&writes, "pod-0", 500).await?;
    policy.received(500).await?;
    squelch.stop().await?;
    test.passed()
}
