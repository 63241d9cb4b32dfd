//! What a crash may lose.

use anyhow::{Result, ensure};
use e2e::matrix::Row;
use e2e::{Emission, GENEROUS, Squelch, Test, events};

const OBJECTS: i64 = 300;

/// One occurrence more of each object, as fast as the API server takes them; how many there were.
async fn once_more(test: &Test) -> Result<i64> {
    let once = Emission::creates_core().about("pod", OBJECTS as usize).count(1).rate(0);
    Ok(test.emit(&once)?.finish(GENEROUS).await?.sent())
}

async fn owed(squelch: &Squelch) -> Result<i64> {
    Ok(squelch.metrics().await?.sum("squelch_owed_occurrences", &[]) as i64)
}

async fn stored(test: &Test) -> Result<i64> {
    Ok(test.events(None).await?.iter().map(events::value).sum())
}

#[tokio::test]
async fn a_crash_loses_at_most_what_was_owed() -> Result<()> {
    let test = Test::begin("lost").await?;
    // It pays too slowly to keep up.
    let squelch = test.squelch_with(&["--flush-qps", "5"]).await?;
    test.policy(&Row::Series.policy()).await?;
    let sent = once_more(&test).await? + once_more(&test).await? + once_more(&test).await?;
    assert_eq!(sent, 3 * OBJECTS);
    let owed = owed(&squelch).await?;
    squelch.crash()?;
    let lost = sent - stored(&test).await?;
    eprintln!("{owed} of {sent} were owed at the crash, {lost} are lost");
    ensure!((1..=owed).contains(&lost), "{owed} were owed and {lost} are lost");

    // The next life owes nothing of it, and loses nothing more.
    let squelch = test.squelch().await?;
    let sent = sent + once_more(&test).await? + once_more(&test).await?;
    squelch.stop().await?;
    assert_eq!(stored(&test).await?, sent - lost);
    test.passed()
}
