//! `maxMessageBytes`: longer messages of core/v1 are stored cut, and clients go on with what they read.

use anyhow::{Context, Result, ensure};
use e2e::policy::series_alone;
use e2e::user::Version;
use e2e::{Emission, STORM, Test, User, conservation};
use jiff::Timestamp;
use serde_json::json;

#[tokio::test]
async fn long_messages_are_stored_cut_except_through_the_new_api() -> Result<()> {
    let test = Test::begin("message-bytes").await?;
    let squelch = test.squelch().await?;
    let spec = series_alone(&json!({ "maxMessageBytes": 257, "exempt": [{ "reasons": ["Kept"] }] }));
    let policy = test.policy(&spec).await?;
    // Two bytes for each character, so that byte 257 is the first of two. events.k8s.io accepts 1,024.
    let long = "ä".repeat(500);
    let mut sent = 0;
    for (object, emission) in Emission::of_each_kind() {
        let storm = emission.about(object, 1).message(&long).count(20).rate(50);
        let report = test.emit(&storm)?.finish(STORM).await?;
        ensure!(report.error_lines().is_empty(), "{object} logged {:?}", report.error_lines());
        sent += report.sent();
    }
    let exempt = Emission::creates_core().about("exempt", 1).reason("Kept").message(&long).count(1);
    sent += test.emit(&exempt)?.finish(STORM).await?.sent();
    conservation::holds(&test, squelch, &policy, sent).await?;
    // Without squelch, the API server would refuse the next write of a client of events.k8s.io, which has the whole message.
    let cut = "ä".repeat(128);
    for (object, _) in Emission::of_each_kind() {
        let expected = if ["legacy", "core"].contains(&object) { &cut } else { &long };
        for stored in test.events(Some(&format!("{object}-0"))).await? {
            let message = stored.message.context("a message")?;
            ensure!(message == *expected, "{object}: {} bytes", message.len());
        }
    }
    let kept = test.one_event("exempt-0", 1).await?.message.context("a message")?;
    ensure!(kept == long, "an exempt Event has {} bytes", kept.len());
    test.passed()
}

#[tokio::test]
async fn a_message_that_an_update_keeps_is_not_cut() -> Result<()> {
    let test = Test::begin("older-message").await?;
    let _squelch = test.squelch().await?;
    let long = "ä".repeat(500);
    let client = User::with_rights(&test.cluster, "client", &test.namespace, &["*"]).await?;
    let older = [(Version::Core, "core-before"), (Version::New, "new-before")].map(|(version, name)| {
        (version, name, version.event(&test.namespace, name, name, &long, Timestamp::now()))
    });
    for (_, _, event) in &older {
        client.create(event).await?.object()?;
    }
    let policy = test.policy(&series_alone(&json!({ "maxMessageBytes": 256 }))).await?;
    // The API server accepts no other message of an Event of events.k8s.io.
    for (version, name, event) in &older {
        let repeat = version.counted(2, Timestamp::now());
        let stored = client.patch(event, name, &repeat).await?.object()?;
        ensure!(version.message(&stored) == Some(&long) && version.count(&stored) == 2, "{stored}");
    }
    policy.received(2).await?;
    test.passed()
}
