//! Continuously edited policies must not delay the counters of another one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::squelch::StartOptions;
use e2e::{Emission, Policy, Test};
use futures::TryStreamExt as _;
use kube::Api;
use kube::api::{Patch, PatchParams, WatchEvent, WatchParams};
use kube::core::{ApiResource, DynamicObject};
use serde_json::{Value, json};
use squelch::api::EventPolicy;
use tokio::task::JoinSet;
use tokio::time::{interval, timeout_at};

const EDITED: usize = 6;
const STATUS_INTERVAL: Duration = Duration::from_secs(3);
/// The designed bound, twice the interval; and room for a busy machine.
const BOUND: Duration = Duration::from_secs(2 * 3 + 1);
/// Duration of the measurement.
const TIME: Duration = Duration::from_secs(25);

/// Edits one policy every second, until the task ends.
async fn edit(api: Api<DynamicObject>, name: String, edits: Arc<AtomicUsize>) -> Result<()> {
    let mut ticks = interval(Duration::from_secs(1));
    for priority in 0.. {
        ticks.tick().await;
        let change = Patch::Merge(json!({ "spec": { "priority": 1 + priority % 100 } }));
        api.patch(&name, &PatchParams::default(), &change).await?;
        edits.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// The times since `began` at which the counters of the policy changed, and the received occurrences.
async fn counted(api: &Api<DynamicObject>, name: &str, began: Instant) -> Result<Vec<(Duration, i64)>> {
    let only = WatchParams::default().fields(&format!("metadata.name={name}")).timeout(290);
    let mut changes = Box::pin(api.watch(&only, "0").await?);
    let (mut seen, mut last) = (Vec::new(), None);
    while let Ok(change) = timeout_at((began + TIME).into(), changes.try_next()).await {
        let Some(WatchEvent::Added(policy) | WatchEvent::Modified(policy)) = change? else { continue };
        let received = policy.data["status"]["counters"]["received"].as_i64().unwrap_or_default();
        if last.replace(received) != Some(received) {
            seen.push((began.elapsed(), received));
        }
    }
    Ok(seen)
}

#[tokio::test]
async fn edited_policies_do_not_delay_the_counters_of_another() -> Result<()> {
    let test = Test::begin("fairness").await?;
    let interval = format!("{}s", STATUS_INTERVAL.as_secs());
    let flags = ["--status-interval", &interval, "--log-level", "info,squelch=debug"];
    let squelch = test
        .squelch_with_options(StartOptions { flags: &flags, as_installed: true, ..StartOptions::default() })
        .await?;
    let policy = test.policy(&json!({})).await?;
    let resource = ApiResource::erase::<EventPolicy>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(test.client(), &test.namespace, &resource);
    // Each has its own reason: none overrides another.
    let never = |number: usize| -> Value {
        json!({ "priority": 1, "match": [{ "reasons": [format!("Never{number}")] }] })
    };
    let (mut editing, edits) = (JoinSet::new(), Arc::<AtomicUsize>::default());
    for number in 0..EDITED {
        let name = format!("edited-{number}");
        Policy::apply(test.client(), &test.kubectl(), &test.namespace, &name, &never(number)).await?;
        editing.spawn(edit(api.clone(), name, edits.clone()));
    }
    let rate = 20;
    let occurrences = (TIME.as_secs() as i64 + 10) * i64::from(rate);
    let storm = test.emit(&Emission::creates_core().about("pod", 1).count(occurrences).rate(rate))?;
    storm.wait_for_calls(20, Duration::from_secs(60)).await?;
    let began = Instant::now();
    let seen = counted(&api, &policy.name, began).await?;
    let edits = edits.load(Ordering::Relaxed);
    editing.shutdown().await;
    drop(storm);

    let times = [Duration::ZERO].into_iter().chain(seen.iter().map(|(after, _)| *after)).chain([TIME]);
    let times: Vec<_> = times.collect();
    let longest = times.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).max().context("no time")?;
    let said = format!("{edits} edits in {TIME:?}; counters {seen:?}; {longest:.1?} without a change");
    eprintln!("{said}");
    ensure!(edits >= EDITED * 15, "the edits did not keep their pace: {said}");
    ensure!(longest <= BOUND, "{said}");
    squelch.stop().await?;
    test.passed()
}
