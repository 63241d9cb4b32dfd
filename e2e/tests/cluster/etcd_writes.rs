//! The etcd writes of ten thousand occurrences.

use anyhow::{Result, ensure};
use e2e::matrix::Row;
use e2e::writes::{every_change_raised, history};
use e2e::{Emission, GENEROUS, STORM, Test};

const OCCURRENCES: i64 = 10_000;
/// log2(10,000) + 1, one at the close, and one to spare.
const MOST_WRITES: usize = 16;
/// Maximum writes without a decision: the test is about the others.
const MOST_UNDECIDED: usize = 100;
/// `maxEvents` 10: nine messages are stored, the others are one summary.
const REMEMBERED: usize = 9;

#[tokio::test]
async fn a_hot_loop_of_ten_thousand_takes_at_most_sixteen_writes() -> Result<()> {
    let test = Test::begin("hot-loop").await?;
    let squelch = test.squelch().await?;
    let mut spec = Row::Series.policy();
    // A client that gets no processor for seconds must not end the series.
    spec["series"]["idleTimeout"] = "10s".into();
    let policy = test.policy(&spec).await?;
    let writes = test.writes().await?;
    let storm = Emission::legacy().about("pod", 1).count(OCCURRENCES).rate(0);
    test.emit(&storm)?.finish(STORM).await?;
    squelch.wait_until_idle(GENEROUS).await?;
    test.one_event("pod-0", OCCURRENCES).await?;
    // On a busy machine a decision may take more than half a second. Such a write is stored as it is.
    let undecided = usize::try_from(policy.received(OCCURRENCES).await?.failed_open)?;
    ensure!(undecided <= MOST_UNDECIDED, "{undecided} undecided");
    let written = writes.so_far().await?;
    eprintln!("{} writes of {OCCURRENCES} occurrences, {undecided} undecided", written.len());
    let most = MOST_WRITES + undecided;
    ensure!(written.len() <= most, "{} writes:\n{}", written.len(), history(&written));
    every_change_raised(&written)?;
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn ten_thousand_distinct_messages_become_nine_events_and_a_summary() -> Result<()> {
    let test = Test::begin("distinct").await?;
    let squelch = test.squelch().await?;
    let mut spec = Row::ByObject.policy();
    spec["aggregation"]["maxEvents"] = (REMEMBERED + 1).into();
    let policy = test.policy(&spec).await?;
    let writes = test.writes().await?;
    let storm =
        Emission::creates_core().about("pod", 1).count(OCCURRENCES).rate(0).with("--messages", "distinct");
    test.emit(&storm)?.finish(STORM).await?;
    squelch.wait_until_idle(GENEROUS).await?;
    let counters = policy.received(OCCURRENCES).await?;
    let undecided = usize::try_from(counters.failed_open)?;
    ensure!(undecided <= MOST_UNDECIDED, "{counters:?}");
    assert_eq!(counters.aggregated, OCCURRENCES - (REMEMBERED + undecided) as i64, "{counters:?}");
    let stored = test.events(None).await?;
    assert_eq!(stored.len(), REMEMBERED + 1 + undecided, "{}", e2e::events::list(&stored));
    assert_eq!(stored.iter().map(e2e::events::value).sum::<i64>(), OCCURRENCES);
    let written = writes.so_far().await?;
    eprintln!("{} writes of {OCCURRENCES} distinct messages", written.len());
    let most = REMEMBERED + MOST_WRITES + undecided;
    ensure!(written.len() <= most, "{} writes:\n{}", written.len(), history(&written));
    every_change_raised(&written)?;
    squelch.stop().await?;
    test.passed()
}
