//! A namespace is deleted and created again with the same name, as CI systems do, within the idle timeout of its
//! series. The new namespace starts with no counts.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::user::{Answer, Version};
use e2e::wait::not_yet;
use e2e::writes::history;
use e2e::{GENEROUS, Policy, Squelch, Test, User, Writes, events, wait_for};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Namespace};
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

/// Occurrences of each Event in the old namespace: until its count is flushed, and then those that stay pending.
const BEFORE: usize = 20;
const PENDING: usize = 5;
/// Occurrences in the new namespace: fewer.
const AFTER: i64 = 7;
/// Deadline of the deletion in squelch.
const LOST: Duration = Duration::from_secs(30);
/// `heartbeatInterval`: pending occurrences are flushed soon, or stay pending.
const OFTEN: &str = "1s";
const RARELY: &str = "30m";
const BUILDER: &str = "builder";
const VERBS: [&str; 3] = ["get", "create", "patch"];

/// The policy of the namespace.
#[derive(Clone, Copy, Debug)]
enum Governs {
    ClusterEventPolicy,
    /// An EventPolicy: it is deleted with the namespace, and created with the next one.
    EventPolicy,
}

struct Stage {
    test: Test,
    squelch: Squelch,
    governs: Governs,
    builder: User,
    /// The namespace that is deleted and created again.
    name: String,
}

impl Stage {
    async fn begin(governs: Governs) -> Result<Self> {
        let test = Test::begin("identity").await?;
        let name = format!("pr-42-{}", test.namespace);
        let builder = make(&test, &name).await?;
        let squelch = test.squelch().await?;
        govern(&test, &name, governs, OFTEN).await?;
        Ok(Self { test, squelch, governs, builder, name })
    }

    fn event(&self, name: &str, pod: &str) -> Value {
        Version::Core.event(&self.name, name, pod, "again", Timestamp::now())
    }

    /// Writes one more CREATE about this object.
    async fn creates(&self, pod: &str, number: usize) -> Result<Answer> {
        let answer = self.builder.create(&self.event(&format!("{pod}.{number}"), pod)).await?;
        ensure!(answer.is_success() || answer.is_refused_by_squelch(), "{pod}.{number}: {answer:?}");
        Ok(answer)
    }

    /// Pending and lost occurrences.
    async fn pending_and_lost(&self) -> Result<(i64, i64)> {
        let metrics = self.squelch.metrics().await?;
        let lost = metrics.sum("squelch_lost_occurrences_total", &[]);
        Ok((metrics.sum("squelch_pending_occurrences", &[]) as i64, lost as i64))
    }

    /// Waits until squelch decides on writes in the namespace.
    async fn is_governed(&self) -> Result<()> {
        wait_for("writes in the new namespace to be decided", GENEROUS, async || {
            let mut probe = self.event("", "probe");
            probe["metadata"] = json!({ "generateName": "probe-", "namespace": self.name });
            let answer = self.builder.create(&probe).await.map_err(not_yet)?;
            if answer.is_refused_by_squelch() { Ok(()) } else { Err(answer.text) }
        })
        .await
    }
}

/// Creates the namespace, and lets the builder write Events in it.
async fn make(test: &Test, name: &str) -> Result<User> {
    let namespaces: Api<Namespace> = Api::all(test.client());
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(name.to_owned());
    namespaces.create(&PostParams::default(), &namespace).await?;
    User::with_rights(&test.cluster, BUILDER, name, &VERBS).await
}

/// Applies the policy of the namespace.
async fn govern(test: &Test, name: &str, governs: Governs, heartbeat: &str) -> Result<()> {
    let series = json!({ "idleTimeout": "10m", "heartbeatInterval": heartbeat });
    match governs {
        Governs::ClusterEventPolicy => {
            let selector = json!({ "matchLabels": { "kubernetes.io/metadata.name": name } });
            let spec = json!({ "namespaceSelector": selector, "series": series });
            test.cluster_policy().change(&test.kubectl(), &spec).await
        }
        Governs::EventPolicy => {
            let kubectl = test.cluster.kubectl.namespace(name);
            let spec = json!({ "series": series });
            Policy::apply(test.client(), &kubectl, name, "quiet", &spec).await.map(drop)
        }
    }
}

/// The sum of the last counts of a namespace's Events about these objects.
fn reported(writes: &[e2e::writes::Write], pods: &[&str]) -> i64 {
    let mut last = std::collections::BTreeMap::<&str, i64>::new();
    for write in writes.iter().filter(|write| pods.contains(&events::object(&write.event))) {
        last.insert(events::name(&write.event), events::value(&write.event));
    }
    last.values().sum()
}

impl Stage {
    /// Repeats Events about these pods, and leaves occurrences pending; returns the number of CREATEs.
    async fn fill(&self, pods: [&str; 2]) -> Result<i64> {
        let (mut sent, mut number) = (0, 0);
        for round in [BEFORE, PENDING] {
            for pod in pods {
                for _ in 0..round {
                    number += 1;
                    self.creates(pod, number).await?;
                    sent += 1;
                }
            }
            if round == BEFORE {
                wait_for("the first occurrences to be flushed", GENEROUS, async || {
                    let pending = self.pending_and_lost().await.map_err(not_yet)?.0;
                    if pending == 0 { Ok(()) } else { Err(format!("{pending} are pending")) }
                })
                .await?;
                govern(&self.test, &self.name, self.governs, RARELY).await?;
            }
        }
        Ok(sent)
    }
}

#[tokio::test]
async fn a_recreated_namespace_starts_with_no_counts() -> Result<()> {
    returns(Governs::ClusterEventPolicy).await
}

#[tokio::test]
async fn a_recreated_namespace_with_its_policy_starts_with_no_counts() -> Result<()> {
    returns(Governs::EventPolicy).await
}

async fn returns(governs: Governs) -> Result<()> {
    let stage = Stage::begin(governs).await?;
    let (test, name) = (&stage.test, stage.name.as_str());
    let old = Writes::watch(test.client(), name).await?;
    // The second one is never reported again.
    let pods = ["both", "first-only"];
    stage.is_governed().await?;
    let sent = stage.fill(pods).await?;
    let (pending, lost) = stage.pending_and_lost().await?;
    ensure!(pending > 0 && lost == 0, "{pending} pending and {lost} lost when the namespace is deleted");
    test.cluster.kubectl.run(&["delete", "namespace", name, "--wait", "--timeout=60s"]).await?;
    let of_old = old.so_far().await?;

    make(test, name).await?;
    if let Governs::EventPolicy = stage.governs {
        govern(test, name, stage.governs, RARELY).await?;
    }
    let new = Writes::watch(test.client(), name).await?;
    stage.is_governed().await?;
    let first = stage.creates("both", 0).await?;
    for number in 1..AFTER {
        stage.creates("both", number as usize).await?;
    }
    let expected = sent - reported(&of_old, &pods);
    let all_lost = wait_for("pending occurrences to be lost", LOST, async || {
        let lost = stage.pending_and_lost().await.map_err(not_yet)?.1;
        if lost == expected { Ok(()) } else { Err(format!("{lost} of {expected}")) }
    });
    let all_lost = all_lost.await;
    let (_, lost) = stage.pending_and_lost().await?;
    stage.squelch.stop().await?;

    let of_new = new.so_far().await?;
    let stored: Api<Event> = Api::namespaced(test.client(), name);
    let stored = stored.list(&kube::api::ListParams::default()).await?.items;
    let seen = format!(
        "{sent} in the old namespace, {expected} of them not stored there, {lost} lost; the first CREATE in the new \
         one: {} {:.100}\nstored in the new one:\n{}",
        first.code,
        first.text,
        history(&of_new)
    );
    let from_old = of_new.iter().filter(|write| events::object(&write.event) == "first-only").count();
    ensure!(from_old == 0, "Events of the old namespace were written into the new one: {seen}");
    ensure!(first.is_success(), "the first CREATE in the new namespace was merged: {seen}");
    let counts: Vec<_> =
        stored.iter().filter(|event| events::object(event) == "both").map(events::value).collect();
    ensure!(counts == [AFTER], "{counts:?} are stored of {AFTER}: {seen}");
    all_lost.context(seen.clone())?;
    eprintln!("{seen}");
    test.cluster.kubectl.say(&["delete", "namespace", name, "--wait=false"]);
    stage.test.passed()
}
