//! squelch is never asked about its own writes; where it is, it lets them pass uncounted; and none of them is ever
//! answered by another.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::matrix::Row;
use e2e::squelch::Way;
use e2e::{Detour, Emission, GENEROUS, Policy, Squelch, Test};
use serde_json::json;

const STORM: Duration = Duration::from_secs(60);
const OCCURRENCES: i64 = 200;

/// squelch's own writes of Events so far.
async fn own_writes(squelch: &Squelch) -> Result<u64> {
    let metrics = squelch.metrics().await?;
    let of = |result| metrics.sum("squelch_flushes_total", &[("result", result)]) as u64;
    Ok(of("written") + of("created"))
}

async fn storm(test: &Test) -> Result<i64> {
    let storm = Emission::legacy().about("pod", 1).count(OCCURRENCES).rate(50).with("--messages", "8");
    Ok(test.emit(&storm)?.finish(STORM).await?.sent())
}

/// A storm under a policy with summaries; what squelch was asked and has counted.
async fn asked_about_own(configure: impl FnOnce(&Detour)) -> Result<(u64, u64)> {
    let test = Test::begin("own").await?;
    let detour = Detour::start(&test.cluster).await?;
    configure(&detour);
    let squelch = test.squelch_by(Way { by: Some(&detour), ..Way::default() }).await?;
    let policy = test.policy(&Row::ByObject.policy()).await?;
    let sent = storm(&test).await?;
    squelch.is_quiet(GENEROUS).await?;

    let own = own_writes(&squelch).await?;
    ensure!(own > 0, "squelch wrote nothing");
    let counters = policy.received(sent).await?;
    ensure!(counters.aggregated > 0 && counters.compacted > 0, "{counters:?}");
    let stored: i64 = test.events(None).await?.iter().map(e2e::events::value).sum();
    assert_eq!((sent, stored), (OCCURRENCES, OCCURRENCES));
    let asked = detour.reviews(&test.namespace);
    squelch.stop().await?;
    test.passed()?;
    Ok((asked.own, own))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_api_server_does_not_ask_about_squelchs_own_writes() -> Result<()> {
    let (asked, _) = asked_about_own(|_| {}).await?;
    assert_eq!(asked, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_writes_pass_uncounted_where_it_is_asked_all_the_same() -> Result<()> {
    let (asked, written) = asked_about_own(Detour::ask_about_own_writes).await?;
    ensure!(asked >= written, "asked about {asked} of {written} own writes");
    Ok(())
}

/// Two policies, each of which would merge what the other has written, and a client whose Events are summaries
/// already. After the last payment squelch writes nothing more, whatever else it has to do.
#[tokio::test]
async fn no_write_of_squelchs_is_answered_by_another() -> Result<()> {
    let test = Test::begin("loop").await?;
    let neighbour = test.neighbour().await?;
    let squelch = test.squelch().await?;
    let mut some = Row::ByObject.policy();
    some["match"] = json!({ "reasons": ["Back*"] });
    test.policy(&some).await?;
    let others = Row::ByKind.policy();
    Policy::apply(test.client(), &test.kubectl(), &test.namespace, "others", &others).await?;
    let policy = neighbour.policy(&Row::ByObject.policy()).await?;

    let noisy = |reason: &str| Emission::creates_core().about("pod", 3).count(40).rate(60).reason(reason);
    let summaries = "(combined from similar events): Back-off";
    let emissions = [
        noisy("BackOff").with("--messages", "distinct"),
        noisy("Unhealthy").with("--messages", "distinct"),
        noisy("BackOff").message(summaries).with("--messages", "distinct"),
        noisy("Unhealthy").message(summaries),
    ];
    let mut storms = Vec::new();
    for emission in &emissions {
        storms.push(test.emit(emission)?);
    }
    let mut sent = 0;
    for emitting in storms {
        sent += emitting.finish(STORM).await?.sent();
    }
    squelch.is_quiet(GENEROUS).await?;
    let stored = test.events(None).await?;
    assert_eq!(stored.iter().map(e2e::events::value).sum::<i64>(), sent);
    for event in &stored {
        let message = event.message.as_deref().unwrap_or_default();
        ensure!(
            message.matches("(combined from similar events)").count() <= 1,
            "a summary of a summary: {message}"
        );
    }

    // A whole storm elsewhere, folded and paid, is time enough for an answer.
    let writes = test.writes().await?;
    let sent = storm(&neighbour).await?;
    squelch.is_quiet(GENEROUS).await?;
    policy.received(sent).await?;
    let late = writes.so_far().await?;
    ensure!(late.is_empty(), "written after all was paid:\n{}", e2e::writes::history(&late));
    squelch.stop().await?;
    neighbour.passed()?;
    test.passed()
}
