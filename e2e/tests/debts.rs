//! What is owed when squelch ends.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::matrix::Row;
use e2e::squelch::Way;
use e2e::{Emission, Squelch, Test};
use squelch::clock;

/// As fast as the API server takes them.
const STORM: Duration = Duration::from_secs(300);
/// `--shutdown-timeout`, as it is by default.
const END: Duration = Duration::from_secs(30);
/// What ends besides the payments: the rules taken away, the last status written.
const REST: Duration = Duration::from_secs(10);
const DEBTS: usize = 5_000;

/// Debts grow, because almost nothing is paid.
const IN_ARREARS: Way<'_> = Way { by: None, flags: &["--flush-qps", "1"] };

/// Two occurrences of each of so many objects: the second is owed. What squelch says it owes.
async fn owing(test: &Test, squelch: &Squelch, objects: usize) -> Result<i64> {
    let mut spec = Row::Series.policy();
    spec["series"] = serde_json::json!({ "idleTimeout": "5m" });
    test.policy(&spec).await?;
    let storm = Emission::creates_core().about("pod", objects).count(2).rate(0);
    let sent = test.emit(&storm)?.finish(STORM).await?.sent();
    assert_eq!(sent, 2 * objects as i64);
    let owed = squelch.metrics().await?.sum("squelch_owed_occurrences", &[]);
    Ok(owed as i64)
}

async fn stored(test: &Test) -> Result<i64> {
    Ok(test.events(None).await?.iter().map(e2e::events::value).sum())
}

#[tokio::test]
async fn five_thousand_open_debts_are_paid_within_thirty_seconds() -> Result<()> {
    let test = Test::begin("debts").await?;
    let squelch = test.squelch_by(IN_ARREARS).await?;
    let owed = owing(&test, &squelch, DEBTS + DEBTS / 20).await?;
    ensure!(owed >= DEBTS as i64, "only {owed} are owed");
    let began = clock::now();
    // It complains of what it could not pay in time.
    squelch.stop_within(END + REST).await?;
    eprintln!("{owed} debts were paid within {:.1} s", clock::now().since(began).as_secs_f64());
    assert_eq!(stored(&test).await?, 2 * (DEBTS + DEBTS / 20) as i64);
    test.passed()
}

#[tokio::test]
async fn a_crash_loses_at_most_what_was_owed() -> Result<()> {
    let test = Test::begin("lost").await?;
    let squelch = test.squelch_by(IN_ARREARS).await?;
    let sent = 2 * 300;
    let owed = owing(&test, &squelch, 300).await?;
    ensure!(owed > 0, "nothing was owed");
    squelch.crash()?;
    let lost = sent - stored(&test).await?;
    eprintln!("{owed} were owed at the crash, {lost} are lost");
    ensure!((1..=owed).contains(&lost), "{owed} were owed and {lost} are lost");

    // The next life owes nothing of it, and counts on from what is stored.
    let squelch = test.squelch().await?;
    test.policy(&Row::Series.policy()).await?;
    let storm = Emission::creates_core().about("pod", 300).count(1).rate(0);
    test.emit(&storm)?.finish(STORM).await?;
    squelch.stop().await?;
    assert_eq!(stored(&test).await?, sent - lost + 300);
    test.passed()
}
