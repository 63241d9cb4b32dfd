//! Clients that read an Event, increment its count and write it back: each write is one occurrence, although the
//! count that they read lags by the pending occurrences.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::policy::idle_after;
use e2e::user::{Answer, Version};
use e2e::wait::not_yet;
use e2e::{Policy, Squelch, Test, User, wait_for};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

const TIMES: i64 = 100;
/// Rounds with kubectl, each of which takes a tenth of a second.
const TIMES_BY_KUBECTL: i64 = 12;
/// Deadline of a running flush.
const SETTLED: Duration = Duration::from_secs(30);
/// Allowed number of conflicts with flushes.
const TRIES: usize = 10;
const POD: &str = "cart";
const NAME: &str = "cart.1";
const OPERATOR: &str = "operator";

/// An operator that has written one Event, which squelch has counted.
struct Stage {
    test: Test,
    squelch: Squelch,
    policy: Policy,
    version: Version,
    operator: User,
    first: Value,
    began: Timestamp,
}

/// The outcome of the writes.
#[derive(Debug, Default)]
struct Outcome {
    stored: usize,
    merged: usize,
    conflicts: usize,
    /// The first step after which stored and pending counts were wrong.
    first_miss: Option<String>,
}

impl Stage {
    async fn begin(label: &str, version: Version) -> Result<Self> {
        let test = Test::begin(label).await?;
        let squelch = test.squelch().await?;
        let policy = test.policy(&idle_after("10m")).await?;
        let rights = ["get", "create", "update"];
        let operator = User::with_rights(&test.cluster, OPERATOR, &test.namespace, &rights).await?;
        // The last occurrence is in the past too.
        let began = Timestamp::now() - SignedDuration::from_secs(2 * TIMES);
        let first = version.event(&test.namespace, NAME, POD, "again", began);
        let answer = operator.create(&first).await?;
        ensure!(answer.is_success(), "the first CREATE: {answer:?}");
        Ok(Self { test, squelch, policy, version, operator, first, began })
    }

    /// The time of an occurrence, one second after the previous one.
    fn time(&self, number: i64) -> Timestamp {
        self.began + SignedDuration::from_secs(number)
    }

    /// The read Event with one more occurrence.
    fn incremented(&self, mut event: Value, number: i64) -> Result<Value> {
        let changes = self.version.counted(self.version.count(&event) + 1, self.time(number));
        let changes = changes.as_object().context("fields")?.clone();
        event.as_object_mut().context("an Event")?.extend(changes);
        Ok(event)
    }

    /// Checks that stored plus pending equals `expected`, once no flush is running.
    async fn adds_up(&self, expected: i64, deadline: Duration) -> Result<(), String> {
        let what = format!("stored + pending = {expected}");
        let checked = wait_for(&what, deadline, async || {
            let event = self.operator.get(&self.first, NAME).await.and_then(|answer| answer.object());
            let stored = self.version.count(&event.map_err(not_yet)?);
            let metrics = self.squelch.metrics().await.map_err(not_yet)?;
            let pending = metrics.sum("squelch_pending_occurrences", &[]) as i64;
            if stored + pending == expected { Ok(()) } else { Err(format!("{stored} + {pending}")) }
        });
        checked.await.map_err(not_yet)
    }

    /// Increments `times` times, and checks stored and pending after each.
    async fn increments(
        &self,
        times: i64,
        mut replace: impl AsyncFnMut(i64) -> Result<Answer>,
    ) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        for number in 1..=times {
            let mut answer = replace(number).await?;
            for _ in 0..TRIES {
                if answer.code != 409 || answer.is_refused_by_squelch() {
                    break;
                }
                // A flush between the read and the write.
                outcome.conflicts += 1;
                answer = replace(number).await?;
            }
            match (answer.is_success(), answer.is_refused_by_squelch()) {
                (true, _) => outcome.stored += 1,
                (false, true) => outcome.merged += 1,
                _ => anyhow::bail!("write {number}: {answer:?}"),
            }
            if outcome.first_miss.is_none()
                && let Err(miss) = self.adds_up(number + 1, SETTLED).await
            {
                outcome.first_miss = Some(format!("after {number} writes: {miss}"));
            }
        }
        Ok(outcome)
    }

    /// Checks the final counts in the status and in the stored Event.
    async fn ends(self, times: i64, outcome: Outcome) -> Result<()> {
        let event = self.operator.get(&self.first, NAME).await?.object()?;
        let (stored, received) = (self.version.count(&event), self.policy.counters().await?.received);
        let seen = format!("{outcome:?}; {stored} stored, {received} received of {}", times + 1);
        eprintln!("{seen}");
        ensure!(outcome.first_miss.is_none(), "{seen}");
        self.policy.received(times + 1).await?;
        self.squelch.stop().await?;
        self.test.one_event(POD, times + 1).await?;
        self.test.passed()
    }
}

/// With an API client.
async fn is_counted(label: &str, version: Version) -> Result<()> {
    let stage = Stage::begin(label, version).await?;
    let replace = async |number| {
        let event = stage.operator.get(&stage.first, NAME).await?.object()?;
        stage.operator.replace(&stage.incremented(event, number)?).await
    };
    let outcome = stage.increments(TIMES, replace).await?;
    stage.ends(TIMES, outcome).await
}

/// With kubectl: `kubectl get --output=json`, and `kubectl replace` of that with one more.
async fn is_counted_by_kubectl(label: &str, version: Version, resource: &str) -> Result<()> {
    let stage = Stage::begin(label, version).await?;
    let kubectl = stage.test.kubectl().user(OPERATOR);
    let replace = async |number| {
        let read = kubectl.run(&["get", resource, NAME, "--output=json"]).await?;
        let event = stage.incremented(serde_json::from_str(&read)?, number)?;
        Ok(match kubectl.run_with(&["replace", "-f", "-"], event.to_string()).await {
            Ok(text) => Answer { code: 200, text },
            Err(error) if format!("{error:#}").contains("Error from server") => {
                let text = format!("{error:#}");
                let conflict = text.contains("(Conflict)") || text.contains("(AlreadyExists)");
                Answer { code: if conflict { 409 } else { 500 }, text }
            }
            Err(error) => return Err(error),
        })
    };
    let outcome = stage.increments(TIMES_BY_KUBECTL, replace).await?;
    stage.ends(TIMES_BY_KUBECTL, outcome).await
}

#[tokio::test]
async fn every_increment_through_core_is_counted() -> Result<()> {
    is_counted("increments-core", Version::Core).await
}

#[tokio::test]
async fn every_increment_through_events_k8s_io_is_counted() -> Result<()> {
    is_counted("increments-new", Version::New).await
}

#[tokio::test]
async fn every_increment_by_kubectl_replace_is_counted() -> Result<()> {
    is_counted_by_kubectl("increments-kubectl", Version::Core, "events.v1.").await
}

#[tokio::test]
async fn every_increment_by_kubectl_replace_through_events_k8s_io_is_counted() -> Result<()> {
    is_counted_by_kubectl("increments-kubectl-new", Version::New, "events.v1.events.k8s.io").await
}
