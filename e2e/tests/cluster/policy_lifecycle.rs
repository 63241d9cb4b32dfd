//! Policies are created, changed and deleted during a storm: their counters never decrease.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use e2e::policy::Policy;
use e2e::wait::not_yet;
use e2e::{Emission, GENEROUS, Squelch, Test, wait_for};
use futures::TryStreamExt as _;
use kube::Api;
use kube::api::{WatchEvent, WatchParams};
use kube::core::{ApiResource, DynamicObject};
use serde_json::{Value, json};
use squelch::api::EventPolicy;
use tokio::task::JoinHandle;

/// The last counters of each policy by uid, and the first decrease.
#[derive(Default)]
struct CounterHistory {
    counters: BTreeMap<String, BTreeMap<String, i64>>,
    changes: usize,
    fault: Option<String>,
}

impl CounterHistory {
    fn record(&mut self, policy: &DynamicObject) {
        let uid = policy.metadata.uid.clone().unwrap_or_default();
        let said: BTreeMap<String, i64> =
            serde_json::from_value(policy.data["status"]["counters"].clone()).unwrap_or_default();
        let before = self.counters.entry(uid).or_default();
        for (counter, value) in &said {
            let last = before.get(counter).copied().unwrap_or_default();
            if *value < last {
                let name = policy.metadata.name.as_deref().unwrap_or_default();
                self.fault.get_or_insert(format!("{counter} of {name} went from {last} to {value}"));
            }
        }
        self.changes += usize::from(*before != said);
        *before = said;
    }
}

/// Watches every state of the namespace's policies.
struct Watching {
    history: Arc<Mutex<CounterHistory>>,
    task: JoinHandle<()>,
}

impl Watching {
    fn begin(test: &Test) -> Self {
        let resource = ApiResource::erase::<EventPolicy>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(test.client(), &test.namespace, &resource);
        let history = Arc::<Mutex<CounterHistory>>::default();
        let task = tokio::spawn(watch(api, history.clone()));
        Self { history, task }
    }

    fn end(self) -> Result<usize> {
        self.task.abort();
        let history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        match &history.fault {
            Some(fault) => bail!("{fault}"),
            None => Ok(history.changes),
        }
    }
}

async fn watch(api: Api<DynamicObject>, history: Arc<Mutex<CounterHistory>>) {
    let all = async {
        let mut changes = Box::pin(api.watch(&WatchParams::default().timeout(290), "0").await?);
        while let Some(change) = changes.try_next().await? {
            if let WatchEvent::Added(policy) | WatchEvent::Modified(policy) = change {
                history.lock().unwrap_or_else(PoisonError::into_inner).record(&policy);
            }
        }
        anyhow::Ok(())
    };
    let fault = match all.await {
        Ok(()) => "the watch of policies ended".to_owned(),
        Err(error) => not_yet(error),
    };
    history.lock().unwrap_or_else(PoisonError::into_inner).fault.get_or_insert(fault);
}

/// Waits until the policy is effective, and prints how long it took.
async fn settles(policy: &Policy, after: &str) -> Result<()> {
    let began = Instant::now();
    policy.effective().await?;
    eprintln!("{after}: its conditions settled after {} ms", began.elapsed().as_millis());
    Ok(())
}

/// Waits until the metrics have more occurrences of this policy than before, and returns the number.
async fn more(squelch: &Squelch, policy: &Policy, before: i64) -> Result<i64> {
    wait_for("the policy to receive more", GENEROUS, async || {
        let metrics = squelch.metrics().await.map_err(not_yet)?;
        let now = metrics.sum("squelch_occurrences_total", &policy.labels(&policy.namespace)) as i64;
        if now > before { Ok(now) } else { Err(format!("{now}, was {before}")) }
    })
    .await
}

/// Enough occurrences that no later status can lag by all of them: the storm has a hundred per second, and the status
/// is written every second.
const SEVERAL_STATUSES: i64 = 500;

fn spec() -> Value {
    json!({ "aggregation": { "mode": "Disabled" }, "spamFilter": { "burst": 2, "refillInterval": "1s" } })
}

#[tokio::test]
async fn counters_never_decrease_for_the_same_policy() -> Result<()> {
    let test = Test::begin("lives").await?;
    let kubectl = test.kubectl();
    let squelch = test.squelch().await?;
    let policy = test.policy(&spec()).await?;
    let watching = Watching::begin(&test);
    let storm = Emission::creates_core().about("pod", 4).with("--messages", "20").count(5_000).rate(100);
    let storm = test.emit(&storm)?;

    // A restart: the next process continues the counts.
    more(&squelch, &policy, 200).await?;
    squelch.stop().await?;
    let before = policy.counters().await?.received;
    ensure!(before > 200, "the last status has {before}");
    let squelch = test.squelch().await?;
    let life = more(&squelch, &policy, 0).await?;
    wait_for("the status to count further", GENEROUS, async || {
        let now = policy.counters().await.map_err(not_yet)?.received;
        if now >= before + life { Ok(()) } else { Err(format!("{now} of {before} and {life}")) }
    })
    .await?;

    // Another spec.
    let life = more(&squelch, &policy, life).await?;
    let mut changed = spec();
    changed["spamFilter"]["burst"] = json!(3);
    policy.put(&kubectl, &changed).await?;
    settles(&policy, "changed").await?;
    more(&squelch, &policy, life).await?;

    // A new name: the new policy starts at 0, and takes over.
    let renamed = Policy::named(test.client(), &test.namespace, "renamed");
    renamed.put(&kubectl, &spec()).await?;
    kubectl.run(&["delete", "eventpolicy", "policy"]).await?;
    settles(&renamed, "renamed").await?;
    let life = more(&squelch, &renamed, SEVERAL_STATUSES).await?;

    // The same name again: its own status, and one metric, which never decreases.
    kubectl.run(&["delete", "eventpolicy", "renamed"]).await?;
    renamed.put(&kubectl, &spec()).await?;
    settles(&renamed, "created again").await?;
    wait_for("the new policy to have only its own counters", GENEROUS, async || {
        let reported = renamed.counters().await.map_err(not_yet)?.received;
        let both = more(&squelch, &renamed, life).await.map_err(not_yet)?;
        if reported > 0 && reported + life <= both {
            Ok(())
        } else {
            Err(format!("{reported} beside {life} of the policy before it, the metric {both}"))
        }
    })
    .await?;

    let changes = watching.end().context("while policies changed")?;
    ensure!(changes >= 8, "only {changes} changes of counters were seen");
    drop(storm);
    squelch.stop().await?;
    test.passed()
}
