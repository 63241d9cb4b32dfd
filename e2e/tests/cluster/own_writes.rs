//! squelch's own writes are not reviewed; if they are, they pass uncounted; and none of them causes another.

use anyhow::{Result, ensure};
use e2e::matrix::Row;
use e2e::squelch::StartOptions;
use e2e::{Emission, FaultProxy, GENEROUS, Policy, STORM, Squelch, Test};
use serde_json::json;

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

/// Runs a storm under a policy with summaries; returns the number of reviewed own writes and of own writes.
async fn asked_about_own(configure: impl FnOnce(&FaultProxy)) -> Result<(u64, u64)> {
    let test = Test::begin("own").await?;
    let proxy = FaultProxy::start(&test.cluster).await?;
    configure(&proxy);
    let squelch =
        test.squelch_with_options(StartOptions { proxy: Some(&proxy), ..StartOptions::default() }).await?;
    let policy = test.policy(&Row::ByObject.policy()).await?;
    let sent = storm(&test).await?;
    squelch.wait_until_idle(GENEROUS).await?;

    let own = own_writes(&squelch).await?;
    ensure!(own > 0, "squelch wrote nothing");
    let counters = policy.received(sent).await?;
    ensure!(counters.aggregated > 0 && counters.compacted > 0, "{counters:?}");
    let stored: i64 = test.events(None).await?.iter().map(e2e::events::value).sum();
    assert_eq!((sent, stored), (OCCURRENCES, OCCURRENCES));
    let asked = proxy.reviews(&test.namespace);
    squelch.stop().await?;
    test.passed()?;
    Ok((asked.own, own))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_writes_are_not_reviewed() -> Result<()> {
    let (asked, _) = asked_about_own(|_| {}).await?;
    assert_eq!(asked, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reviewed_own_writes_pass_uncounted() -> Result<()> {
    let (asked, written) = asked_about_own(FaultProxy::ask_about_own_writes).await?;
    ensure!(asked >= written, "{asked} of {written} own writes were reviewed");
    Ok(())
}

/// Two policies, each of which would merge the other's summaries, and a client whose Events look like summaries.
/// After the last flush squelch writes nothing more.
#[tokio::test]
async fn an_own_write_never_causes_another() -> Result<()> {
    let test = Test::begin("loop").await?;
    let neighbour = test.neighbour().await?;
    let squelch = test.squelch().await?;
    let mut some = Row::ByObject.policy();
    some["match"] = json!([{ "reasons": ["Back*"] }]);
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
    squelch.wait_until_idle(GENEROUS).await?;
    let stored = test.events(None).await?;
    assert_eq!(stored.iter().map(e2e::events::value).sum::<i64>(), sent);
    for event in &stored {
        let message = event.message.as_deref().unwrap_or_default();
        ensure!(
            message.matches("(combined from similar events)").count() <= 1,
            "a summary of a summary: {message}"
        );
    }

    // A whole storm in another namespace is enough time for a reaction.
    let writes = test.writes().await?;
    let sent = storm(&neighbour).await?;
    squelch.wait_until_idle(GENEROUS).await?;
    policy.received(sent).await?;
    let late = writes.so_far().await?;
    ensure!(late.is_empty(), "written after the last flush:\n{}", e2e::writes::history(&late));
    squelch.stop().await?;
    neighbour.passed()?;
    test.passed()
}
