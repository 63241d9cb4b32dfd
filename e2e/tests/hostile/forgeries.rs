//! Events that imitate squelch's own, and invalid counts.

use anyhow::{Context, Result, ensure};
use e2e::events::{self, value};
use e2e::wait::not_yet;
use e2e::{GENEROUS, wait_for};
use serde_json::{Value, json};

use crate::script::is_summary;
use crate::tenancy::{Ending, Tenancy};
use crate::tenant::{WriteResult, event};

const EACH: usize = 60;

/// The largest count.
pub(crate) const LARGEST: i64 = i32::MAX as i64;

/// Events with the labels, annotations and reporters of squelch's own.
pub(crate) async fn marks() -> Result<String> {
    let tenancy = Tenancy::begin("marks").await?;
    let namespace = tenancy.namespace().to_owned();
    let marks: [Value; 4] = [
        json!({ "labels": { "squelch.dev/summary": "true" }, "annotations": { "squelch.dev/policy": "o/p" } }),
        json!({ "annotations": { "squelch.dev/probe": "4711", "squelch.dev/probe-signature": "mark" } }),
        json!({ "labels": { "squelch.dev/role": "active" }, "annotations": { "squelch.dev/disarm": "now" } }),
        json!({ "labels": { "app.kubernetes.io/managed-by": "squelch" }, "finalizers": ["squelch.dev/x"] }),
    ];
    for (at, mark) in marks.iter().enumerate() {
        for number in 0..EACH {
            let mut forged =
                event(&namespace, &format!("m.{at}.{number}"), &format!("pod-{at}"), "Forged", "again");
            if let (Some(metadata), Some(mark)) = (forged["metadata"].as_object_mut(), mark.as_object()) {
                metadata.extend(mark.clone());
            }
            for component in ["reportingComponent", "reportingInstance"] {
                forged[component] = "squelch".into();
            }
            forged["source"] = json!({ "component": "squelch.dev/squelch", "host": "squelch" });
            let said = tenancy.creates(&forged).await?;
            let expected = if number == 0 { WriteResult::Stored } else { WriteResult::Refused };
            ensure!(said == expected, "{mark}, {number}: {said:?}");
        }
        // Otherwise the namespace cannot be deleted.
        if at == 3 {
            tenancy
                .hostile
                .patch(&namespace, "m.3.0", &json!({ "metadata": { "finalizers": null } }))
                .await?;
        }
    }
    tenancy.ends(Ending::AddsUp).await
}

/// Names of summaries are random per process, so they cannot be predicted: the hostile user waits for a summary,
/// deletes it, and creates an Event with its name. The other user's occurrences are still reported in the summary.
pub(crate) async fn summary_taken() -> Result<String> {
    let tenancy = Tenancy::begin("taken").await?;
    let namespace = tenancy.namespace().to_owned();
    let reports = async |from: usize, to: usize| {
        for number in from..to {
            let message = format!("message {number}");
            let event = event(&namespace, &format!("other-user.own.{number}"), "own", "BackOff", &message);
            tenancy.other_user_creates(&event).await?;
        }
        anyhow::Ok(())
    };
    reports(0, 29).await?;
    let shown = async |least: i64| {
        wait_for("the summary", GENEROUS, async || {
            let stored = tenancy.test.events(Some("own")).await.map_err(not_yet)?;
            let summary = stored.iter().find(|event| is_summary(event) && value(event) >= least);
            summary.cloned().ok_or_else(|| events::list(&stored))
        })
        .await
    };
    // Of 20 and of 120 merged occurrences, more than half are stored at any time.
    let name = shown(11).await?.metadata.name.context("a summary without a name")?;
    ensure!(tenancy.hostile.delete(&namespace, &name).await? == WriteResult::Stored, "it was not deleted");
    let mut taken = event(&namespace, &name, "elsewhere", "Taken", "this name is mine");
    taken["count"] = 7.into();
    let said = tenancy.hostile.create(&namespace, &taken).await?;
    tenancy.add_received(7);
    reports(29, 129).await?;
    let summary = shown(61).await?;
    ensure!(events::name(&summary) == name, "{} instead of {name}", events::name(&summary));
    let ended = tenancy.ends(Ending::Counted).await?;
    Ok(format!("{said:?}, then reported in the summary again, ×{}; {ended}", value(&summary)))
}

/// Counts of new Events, of a stored Event, and of many Events of a series.
pub(crate) async fn jumping_counts() -> Result<String> {
    let tenancy = Tenancy::begin("jumping").await?;
    let namespace = tenancy.namespace().to_owned();
    for number in 0..EACH {
        let mut huge = event(&namespace, &format!("m.{number}"), "pod", "Jumped", "again");
        huge["count"] = LARGEST.into();
        tenancy.hostile.create(&namespace, &huge).await?;
        tenancy.add_received(LARGEST);
    }
    let small = event(&namespace, "m.small", "other", "Jumped", "again");
    ensure!(tenancy.creates(&small).await? == WriteResult::Stored, "it is not stored");
    for count in [LARGEST, 1, -5, LARGEST, LARGEST - 1] {
        tenancy.hostile.patch(&namespace, "m.small", &json!({ "count": count })).await?;
    }
    tenancy.add_received(LARGEST - 1);
    let ended = tenancy.ends(Ending::Unstorable).await?;
    Ok(ended)
}

/// Events are created, deleted, and created again under the same and under other names.
pub(crate) async fn deletes() -> Result<String> {
    let tenancy = Tenancy::begin("deletes").await?;
    let namespace = tenancy.namespace().to_owned();
    let (mut stored, mut deleted) = (0, 0);
    for number in 0..4 * EACH {
        let mut own = event(&namespace, "m.same", "pod", "Deleted", "again");
        own["count"] = (number + 1).into();
        let other = event(&namespace, &format!("m.{number}"), "other", "Deleted", "again");
        for (event, name) in [(own, "m.same".to_owned()), (other, format!("m.{number}"))] {
            stored += usize::from(tenancy.creates(&event).await? == WriteResult::Stored);
            deleted += usize::from(tenancy.hostile.delete(&namespace, &name).await? == WriteResult::Stored);
        }
    }
    ensure!(deleted > 0, "no Event was deleted");
    let writes = tenancy.squelch.metrics().await?.sum("squelch_flushes_total", &[]);
    let said = format!("{stored} stored, {deleted} deleted, {writes} own writes of squelch");
    Ok(format!("{said}; {}", tenancy.ends(Ending::Counted).await?))
}
