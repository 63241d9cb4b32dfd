//! A tenant that may create Events and nothing else, and the Event of another user: squelch must not change it for
//! the tenant.

use anyhow::{Context, Result, ensure};
use e2e::policy::{idle_after, series_alone};
use e2e::user::Version;
use e2e::wait::not_yet;
use e2e::writes::history;
use e2e::{GENEROUS, Squelch, Test, User, wait_for};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

const OWNER: &str = "system:node:node-1";
const TENANT: &str = "tenant";
/// The owner's Event, and its object.
const NAME: &str = "cart.1";
const POD: &str = "cart";
/// The tenant's count.
const FORGED: i64 = 2_000_000_000;

/// Waits until nothing is pending: the flush writer has read the Event.
async fn nothing_is_pending(squelch: &Squelch) -> Result<()> {
    wait_for("nothing to be pending", GENEROUS, async || {
        let pending = squelch.metrics().await.map_err(not_yet)?.sum("squelch_pending_occurrences", &[]);
        if pending == 0.0 { Ok(()) } else { Err(format!("{pending} are pending")) }
    })
    .await
}

/// Waits until the age of the Event distinguishes it from a new one: squelch tolerates clock differences of up to 60
/// s between API servers.
async fn wait_until_old(event: &Value) -> Result<()> {
    let created: Timestamp = event["metadata"]["creationTimestamp"].as_str().context("a time")?.parse()?;
    wait_for("the Event to be 65 seconds old", GENEROUS * 2, async || {
        let age = Timestamp::now().duration_since(created);
        if age >= SignedDuration::from_secs(65) { Ok(()) } else { Err(format!("{age}")) }
    })
    .await
}

/// The tenant's writes: the owner's name with another count and text, the same under another name, and the owner's
/// Event with another count.
fn forgeries(version: Version, test: &Test, time: Timestamp) -> Result<Vec<Value>> {
    let forged = |name: &str, message: &str, count: i64| {
        let mut event = version.event(&test.namespace, name, POD, message, time);
        if count > 1 {
            let fields = version.counted(count, time).as_object().context("fields")?.clone();
            event.as_object_mut().context("an Event")?.extend(fields);
        }
        anyhow::Ok(event)
    };
    Ok(vec![
        forged(NAME, "forged", FORGED)?,
        forged("tenant.1", "forged", 1)?,
        forged(NAME, "again", FORGED)?,
        forged("tenant.2", "again", 1)?,
    ])
}

/// Whether squelch remembers the owner's Event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Memory {
    Kept,
    /// squelch has restarted in between.
    Lost,
}

async fn is_left_alone(label: &str, version: Version, memory: Memory) -> Result<()> {
    let test = Test::begin(label).await?;
    let mut squelch = test.squelch().await?;
    let policy = test.policy(&idle_after("10m")).await?;
    let verbs = ["get", "create", "patch"];
    let owner = User::with_rights(&test.cluster, OWNER, &test.namespace, &verbs).await?;
    let tenant = User::with_rights(&test.cluster, TENANT, &test.namespace, &["create"]).await?;

    let began = Timestamp::now() - SignedDuration::from_secs(60);
    let time = |number: i64| began + SignedDuration::from_secs(number);
    let event = version.event(&test.namespace, NAME, POD, "again", time(0));
    let answer = owner.create(&event).await?;
    ensure!(answer.is_success(), "{answer:?}");
    let answer = owner.patch(&event, NAME, &version.counted(2, time(2))).await?;
    ensure!(answer.is_success() || answer.is_refused_by_squelch(), "{answer:?}");
    nothing_is_pending(&squelch).await?;
    if memory == Memory::Lost {
        squelch.stop().await?;
        squelch = test.squelch().await?;
        policy.effective().await?;
        wait_until_old(&owner.get(&event, NAME).await?.object()?).await?;
    }
    let before = owner.get(&event, NAME).await?;
    ensure!(version.count(&before.object()?) == 2, "{before:?}");
    let writes = test.writes().await?;

    let forgeries = forgeries(version, &test, time(10))?;
    let mut answers = Vec::new();
    for forged in &forgeries {
        let answer = tenant.create(forged).await?;
        answers.push(format!("{} {:.90}", answer.code, answer.text));
    }
    nothing_is_pending(&squelch).await?;
    let after = owner.get(&event, NAME).await?;
    let seen = format!("answers {answers:#?}\n{}", history(&writes.so_far().await?));
    ensure!(after.text == before.text, "{}\nwas changed to\n{}\n{seen}", before.text, after.text);

    // The owner continues.
    let answer = owner.patch(&event, NAME, &version.counted(3, time(20))).await?;
    ensure!(answer.is_success() || answer.is_refused_by_squelch(), "{answer:?}");
    // After a restart squelch attributes the name to the tenant, and the third forgery is a retry of the first.
    let retries = if memory == Memory::Lost { 1 } else { 0 };
    let counters = policy.received(2 + forgeries.len() as i64 - retries + 1).await?;
    squelch.stop().await?;
    let stored = owner.get(&event, NAME).await?.object()?;
    ensure!(version.count(&stored) == 3, "{stored} after the owner's third; {counters:?}\n{seen}");
    test.passed()
}

#[tokio::test]
async fn an_event_of_another_user_is_not_changed_through_core() -> Result<()> {
    is_left_alone("taken-core", Version::Core, Memory::Kept).await
}

#[tokio::test]
async fn an_event_of_another_user_is_not_changed_through_events_k8s_io() -> Result<()> {
    is_left_alone("taken-new", Version::New, Memory::Kept).await
}

#[tokio::test]
async fn an_event_of_another_user_is_not_changed_after_a_restart() -> Result<()> {
    is_left_alone("taken-restart", Version::Core, Memory::Lost).await
}

/// The owner's Event is younger than the tolerance for clock differences, and squelch has not seen its CREATE. The tenant's
/// messages differ from it only in parts that the policy masks.
#[tokio::test]
async fn the_message_of_an_event_that_squelch_has_not_seen_is_not_changed() -> Result<()> {
    let test = Test::begin("taken-message").await?;
    let squelch = test.squelch().await?;
    let owner = User::with_rights(&test.cluster, OWNER, &test.namespace, &["get", "create"]).await?;
    let tenant = User::with_rights(&test.cluster, TENANT, &test.namespace, &["create"]).await?;
    let time = Timestamp::now();
    let events = [(Version::Core, "core"), (Version::New, "new")].map(|(version, pod)| {
        let event = |name: &str, message: &str, time| {
            version.event(&test.namespace, &format!("{pod}.{name}"), pod, message, time)
        };
        // Only with the same time could the tenant change the masked parts (docs/promises.md).
        let later = time + SignedDuration::from_secs(1);
        let repeats = ["2", "3", "4", "5"].map(|name| event(name, &format!("finished in 9{name}s"), later));
        let claim = event("1", "finished in 1.5s", later);
        (version, event("1", "finished in 1.5s", time), claim, repeats, format!("{pod}.1"))
    });
    for (_, event, ..) in &events {
        owner.create(event).await?.object()?;
    }
    let policy = test.policy(&series_alone(&json!({ "normalize": ["Durations"] }))).await?;
    for round in 0..2 {
        let mut answers = Vec::new();
        for (_, _, claim, repeats, _) in &events {
            answers.push(tenant.create(claim).await?);
            for repeat in &repeats[2 * round..2 * round + 2] {
                answers.push(tenant.create(repeat).await?);
            }
        }
        ensure!(answers.iter().filter(|answer| answer.is_refused_by_squelch()).count() >= 4, "{answers:?}");
        nothing_is_pending(&squelch).await?;
        for (version, event, .., name) in &events {
            let stored = owner.get(event, name).await?.object()?;
            ensure!(version.message(&stored) == Some("finished in 1.5s"), "{stored}\n{answers:?}");
        }
    }
    policy.received(2 * 5).await?;
    test.passed()
}
