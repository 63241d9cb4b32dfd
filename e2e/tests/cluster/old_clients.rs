//! The recorders of older client-go: programs are rebuilt more rarely than clusters are upgraded.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::emitters::{Call, OldClientGo, Told};
use e2e::policy::idle_after;
use e2e::writes::{history, never_lowered};
use e2e::{Emission, GENEROUS, Test};
use k8s_openapi::api::core::v1::Event;

const OCCURRENCES: i64 = 400;
/// They take 8 s on an idle machine.
const STORM: Duration = Duration::from_secs(120);
/// A series of the new recorder with shortened timers is over 3 s after its last occurrence, which is looked at
/// every 3 s.
const LAST_PATCH: Duration = Duration::from_secs(8);
/// log2(400) + 1, and one for the closing and one to spare.
const MOST_WRITES: usize = 11;

/// What a recorder told, and the one Event that is stored of it.
struct Kept {
    told: Told,
    event: Event,
}

/// A hot loop of both recorders of an older client-go under a policy: each ends in one Event that shows all that it
/// told, and neither logs an error.
async fn hot_loops(label: &str, old: OldClientGo) -> Result<(Kept, Kept)> {
    let test = Test::begin(label).await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&idle_after("3s")).await?;
    let writes = test.writes().await?;

    let legacy = Emission::legacy().of(old).about("legacy", 1).count(OCCURRENCES).rate(50);
    let new = Emission::new_style_fast().of(old).about("new", 1).count(OCCURRENCES).rate(50);
    let (legacy, new) = (test.emit(&legacy)?, test.emit(&new.in_turn().linger(LAST_PATCH))?);
    let (legacy, new) = (legacy.finish(STORM).await?, new.finish(STORM).await?);
    squelch.is_quiet(GENEROUS).await?;
    for told in [&legacy, &new] {
        is_of(told, old)?;
        ensure!(told.error_lines().is_empty(), "the client logged {:?}", told.error_lines());
    }
    let legacy = Kept { event: test.one_event("legacy-0", legacy.sent()).await?, told: legacy };
    let new = Kept { event: test.one_event("new-0", new.sent()).await?, told: new };
    policy.received(legacy.told.sent() + new.told.sent()).await?;

    for object in ["legacy-0", "new-0"] {
        let writes = writes.about(object).await?;
        ensure!(writes.len() <= MOST_WRITES, "{} writes:\n{}", writes.len(), history(&writes));
        never_lowered(&writes)?;
    }
    squelch.stop().await?;
    test.passed()?;
    Ok((legacy, new))
}

/// It was this client-go that told it, and not the one of the other tests.
fn is_of(told: &Told, old: OldClientGo) -> Result<()> {
    let emitter = &told.summary.as_ref().context("no summary")?.emitter;
    ensure!(emitter.starts_with(old.says()), "{emitter} was used for {old:?}");
    Ok(())
}

fn patches(told: &Told) -> Vec<&Call> {
    told.calls.iter().filter(|call| call.verb == "patch").collect()
}

fn component(event: &Event) -> &str {
    event.reporting_component.as_deref().unwrap_or_default()
}

#[tokio::test]
async fn of_client_go_v0_24_everything_told_is_stored_without_an_error_line() -> Result<()> {
    let (legacy, new) = hot_loops("v0-24", OldClientGo::V0_24).await?;
    assert_eq!(legacy.told.sent(), OCCURRENCES);
    assert_eq!(component(&legacy.event), "");

    // It counts from 1 at the first repeat: it tells one less than there was, and where an answer comes late some
    // more. Had it taken up a restored Event, it would have begun anew each time, and told nothing.
    let sent = new.told.sent();
    ensure!(sent > OCCURRENCES / 2 && sent < OCCURRENCES, "it told {sent}");
    let patches = patches(&new.told);
    assert_eq!(patches.first().and_then(|first| first.sent_series_count), Some(1));
    for call in new.told.refused() {
        ensure!(call.sent_series_count == Some(1) && call.status == 409, "{call:?}");
    }
    Ok(())
}

#[tokio::test]
async fn of_client_go_v0_32_everything_told_is_stored_without_an_error_line() -> Result<()> {
    let (legacy, new) = hot_loops("v0-32", OldClientGo::V0_32).await?;
    assert_eq!(legacy.told.sent(), OCCURRENCES);
    assert_eq!(component(&legacy.event), "emitter");

    assert_eq!(new.told.sent(), OCCURRENCES);
    assert_eq!(patches(&new.told).first().and_then(|first| first.sent_series_count), Some(2));
    ensure!(new.told.refused().is_empty(), "not every call succeeded: {:?}", new.told.refused());
    Ok(())
}

/// What squelch spares it: `begins_at_one` in `crates/engine/src/model/observation.rs`.
#[tokio::test]
async fn without_squelch_the_first_repeat_of_client_go_v0_24_is_an_error_line() -> Result<()> {
    let test = Test::begin("v0-24-alone").await?;
    let storm = Emission::new_style().of(OldClientGo::V0_24).about("pod", 1).count(2).rate(50).in_turn();
    let told = test.emit(&storm)?.finish(STORM).await?;
    is_of(&told, OldClientGo::V0_24)?;
    let [refused] = told.refused()[..] else { panic!("not one call was refused: {:?}", told.calls) };
    assert_eq!((&*refused.verb, refused.sent_series_count, refused.status), ("patch", Some(1), 422));
    ensure!(refused.error.contains("should be at least 2"), "{}", refused.error);
    assert_eq!(told.error_lines().len(), 1);
    test.passed()
}
