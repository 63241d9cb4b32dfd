//! The recorders of older client-go versions, which are in use longer than clusters stay on a version.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::emitters::{Call, OldClientGo, Report};
use e2e::policy::idle_after;
use e2e::writes::{history, never_lowered};
use e2e::{Emission, GENEROUS, STORM, Test};
use k8s_openapi::api::core::v1::Event;

const OCCURRENCES: i64 = 400;
/// A series of the new recorder with shortened timers ends 3 s after its last occurrence, checked every 3 s.
const LAST_PATCH: Duration = Duration::from_secs(12);
/// log2(400) + 1, one at the close, and one to spare.
const MOST_WRITES: usize = 11;

/// The report of a recorder, and the single Event stored from it.
struct Kept {
    report: Report,
    event: Event,
}

/// Runs a hot loop of both recorders of an older client-go under a policy: each becomes one Event with the reported
/// count, and neither logs an error.
async fn hot_loops(label: &str, old: OldClientGo) -> Result<(Kept, Kept)> {
    let test = Test::begin(label).await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&idle_after("3s")).await?;
    let writes = test.writes().await?;

    let legacy = Emission::legacy().of(old).about("legacy", 1).count(OCCURRENCES).rate(50);
    let new = Emission::new_style_fast().of(old).about("new", 1).count(OCCURRENCES).rate(50);
    let (legacy, new) = (test.emit(&legacy)?, test.emit(&new.in_turn().linger(LAST_PATCH))?);
    let (legacy, new) = (legacy.finish(STORM).await?, new.finish(STORM).await?);
    squelch.wait_until_idle(GENEROUS).await?;
    for report in [&legacy, &new] {
        is_of(report, old)?;
        ensure!(report.error_lines().is_empty(), "the client logged {:?}", report.error_lines());
    }
    let legacy = Kept { event: test.one_event("legacy-0", legacy.sent()).await?, report: legacy };
    let new = Kept { event: test.one_event("new-0", new.sent()).await?, report: new };
    policy.received(legacy.report.sent() + new.report.sent()).await?;

    for object in ["legacy-0", "new-0"] {
        let writes = writes.about(object).await?;
        ensure!(writes.len() <= MOST_WRITES, "{} writes:\n{}", writes.len(), history(&writes));
        never_lowered(&writes)?;
    }
    squelch.stop().await?;
    test.passed()?;
    Ok((legacy, new))
}

/// Checks the client-go version of the report.
fn is_of(report: &Report, old: OldClientGo) -> Result<()> {
    let emitter = &report.summary.as_ref().context("no summary")?.emitter;
    ensure!(emitter.starts_with(old.says()), "{emitter} was used for {old:?}");
    Ok(())
}

fn patches(report: &Report) -> Vec<&Call> {
    report.calls.iter().filter(|call| call.verb == "patch").collect()
}

fn component(event: &Event) -> &str {
    event.reporting_component.as_deref().unwrap_or_default()
}

#[tokio::test]
async fn client_go_v0_24_reports_are_stored_without_an_error_line() -> Result<()> {
    let (legacy, new) = hot_loops("v0-24", OldClientGo::V0_24).await?;
    assert_eq!(legacy.report.sent(), OCCURRENCES);
    assert_eq!(component(&legacy.event), "");

    // It counts from 1 at the first repeat: it reports one occurrence less, and more of them less after a late
    // answer. If it had used a restored Event, it would have restarted each time and reported nothing.
    let sent = new.report.sent();
    ensure!(sent > OCCURRENCES / 2 && sent < OCCURRENCES, "it reported {sent}");
    let patches = patches(&new.report);
    assert_eq!(patches.first().and_then(|first| first.sent_series_count), Some(1));
    for call in new.report.refused() {
        ensure!(call.sent_series_count == Some(1) && call.status == 409, "{call:?}");
    }
    Ok(())
}

#[tokio::test]
async fn client_go_v0_32_reports_are_stored_without_an_error_line() -> Result<()> {
    every_report_is_stored("v0-32", OldClientGo::V0_32).await
}

#[tokio::test]
async fn client_go_v0_35_reports_are_stored_without_an_error_line() -> Result<()> {
    every_report_is_stored("v0-35", OldClientGo::V0_35).await
}

async fn every_report_is_stored(label: &str, old: OldClientGo) -> Result<()> {
    let (legacy, new) = hot_loops(label, old).await?;
    assert_eq!(legacy.report.sent(), OCCURRENCES);
    assert_eq!(component(&legacy.event), "emitter");

    assert_eq!(new.report.sent(), OCCURRENCES);
    assert_eq!(patches(&new.report).first().and_then(|first| first.sent_series_count), Some(2));
    ensure!(new.report.refused().is_empty(), "not every call succeeded: {:?}", new.report.refused());
    Ok(())
}

/// The error that squelch avoids: `begins_at_one` in `crates/engine/src/model/observation.rs`.
#[tokio::test]
async fn without_squelch_the_first_repeat_of_client_go_v0_24_logs_an_error() -> Result<()> {
    let test = Test::begin("v0-24-alone").await?;
    let storm = Emission::new_style().of(OldClientGo::V0_24).about("pod", 1).count(2).rate(50).in_turn();
    let report = test.emit(&storm)?.finish(STORM).await?;
    is_of(&report, OldClientGo::V0_24)?;
    let [refused] = report.refused()[..] else {
        panic!("not exactly one call was refused: {:?}", report.calls)
    };
    assert_eq!((&*refused.verb, refused.sent_series_count, refused.status), ("patch", Some(1), 422));
    ensure!(refused.error.contains("should be at least 2"), "{}", refused.error);
    assert_eq!(report.error_lines().len(), 1);
    test.passed()
}
