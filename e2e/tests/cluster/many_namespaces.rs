//! Namespaces are created and deleted, as by a CI system: squelch releases the memory of deleted ones.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::metrics::Samples;
use e2e::user::Version;
use e2e::wait::not_yet;
use e2e::{Squelch, Test, User, wait_for};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::json;

/// Total number of namespaces in the short form.
const SOME: usize = 100;
/// Number of concurrent namespaces.
const AT_ONCE: usize = 50;
/// Events per namespace, and occurrences per Event.
const EVENTS: usize = 4;
const OCCURRENCES: usize = 3;
/// Allowed growth in MiB: for the allocator. 10,000 namespaces with 1 KiB each would exceed it.
const TOLERANCE: f64 = 8.0;
/// Deadline: the namespace controller deletes a few namespaces per second.
const GONE: Duration = Duration::from_secs(300);
const LABEL: &str = "e2e.example.com/batch";
/// Members of this group have all permissions.
const BUILDER: &str = "builder";

/// Gauges of squelch's tables and of its memory.
const GAUGES: [&str; 5] = [
    "squelch_series",
    "squelch_ended_series",
    "squelch_pending_occurrences",
    "squelch_table_entries",
    "squelch_text_bytes",
];

fn memory(metrics: &Samples) -> f64 {
    metrics.sum("process_resident_memory_bytes", &[]) / 1024.0 / 1024.0
}

/// Creates a batch of namespaces, writes Events in each, and deletes them.
async fn batch(test: &Test, builder: &User, number: usize) -> Result<usize> {
    let namespaces: Api<Namespace> = Api::all(test.client());
    let each = |at: usize| {
        let (namespaces, builder) = (namespaces.clone(), builder.clone());
        let name = format!("pr-{number}-{at}-{}", test.namespace);
        let label = test.namespace.clone();
        async move {
            let object = json!({ "apiVersion": "v1", "kind": "Namespace",
                "metadata": { "name": name, "labels": { LABEL: label } } });
            namespaces.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
            let mut merged = 0;
            for occurrence in 0..OCCURRENCES {
                for event in 0..EVENTS {
                    let pod = format!("pod-{event}");
                    let event = Version::Core.event(
                        &name,
                        &format!("{pod}.{occurrence}"),
                        &pod,
                        "again",
                        Timestamp::now(),
                    );
                    let answer = builder.create(&event).await?;
                    ensure!(answer.is_success() || answer.is_refused_by_squelch(), "{answer:?}");
                    merged += usize::from(answer.is_refused_by_squelch());
                }
            }
            namespaces.delete(&name, &DeleteParams::default()).await?;
            anyhow::Ok(merged)
        }
    };
    let merged = stream::iter((0..AT_ONCE).map(each)).buffer_unordered(16);
    let merged: Vec<_> = merged.try_collect().await?;
    let of_batch = ListParams::default().labels(&format!("{LABEL}={}", test.namespace));
    wait_for("a batch of namespaces to be gone", GONE, async || {
        let left = namespaces.list_metadata(&of_batch).await.map_err(not_yet)?.items.len();
        if left == 0 { Ok(()) } else { Err(format!("{left} are left")) }
    })
    .await?;
    Ok(merged.iter().sum())
}

/// Waits until every gauge is at most its previous value.
async fn gauges_are_back(squelch: &Squelch, before: &Samples) -> Result<Samples> {
    wait_for("the gauges to return to their previous values", Duration::from_secs(30), async || {
        let now = squelch.metrics().await.map_err(not_yet)?;
        let above = GAUGES.iter().find(|gauge| now.sum(gauge, &[]) > before.sum(gauge, &[]));
        match above {
            None => Ok(now),
            Some(gauge) => {
                Err(format!("{gauge} is {} and was {}", now.sum(gauge, &[]), before.sum(gauge, &[])))
            }
        }
    })
    .await
}

async fn come_and_go(label: &str, namespaces: usize) -> Result<()> {
    let test = Test::begin(label).await?;
    let squelch = test.squelch().await?;
    // The series would outlive its namespace. The policy selects every namespace, so that a new one is governed from its
    // first Event on.
    let spec = json!({ "series": { "idleTimeout": "24h" }, "match": [{ "users": [BUILDER] }] });
    let builder = User::in_group(&test.cluster, BUILDER, "system:masters").await?;
    let policy = test.cluster_policy();
    policy.change(&test.kubectl(), &spec).await?;
    let empty = squelch.metrics().await?;
    // A first batch fills the tables and buffers.
    batch(&test, &builder, 0).await?;
    let before = squelch.metrics().await?;
    let mut merged = 0;
    let batches = namespaces / AT_ONCE;
    for number in 1..=batches {
        merged += batch(&test, &builder, number).await?;
        if number % 20 == 0 {
            let now = squelch.metrics().await?;
            eprintln!(
                "{} namespaces: {:.1} MiB, {} series",
                number * AT_ONCE,
                memory(&now),
                now.sum("squelch_series", &[])
            );
        }
    }
    ensure!(merged > 0, "nothing was merged: no policy governed these namespaces");
    let now = squelch.metrics().await?;
    let seen = format!(
        "{} namespaces, {merged} writes merged in them; {:.1} MiB, then {:.1}; {} series, then {}",
        batches * AT_ONCE,
        memory(&before),
        memory(&now),
        empty.sum("squelch_series", &[]),
        now.sum("squelch_series", &[])
    );
    eprintln!("{seen}");
    let after = gauges_are_back(&squelch, &empty).await.context(seen.clone())?;
    ensure!(memory(&after) <= memory(&before) + TOLERANCE, "{seen}");
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn a_deleted_namespace_releases_its_memory() -> Result<()> {
    come_and_go("come-and-go", SOME).await
}

#[tokio::test]
#[ignore = "long: just test-namespaces"]
async fn ten_thousand_deleted_namespaces_release_their_memory() -> Result<()> {
    come_and_go("ten-thousand", e2e::cluster::namespaces()?).await
}
