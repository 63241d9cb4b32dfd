//! Events that pretend to be squelch's, and counts that nobody has counted.

use anyhow::{Context, Result, ensure};
use e2e::events::{self, value};
use e2e::wait::told;
use e2e::{GENEROUS, wait_for};
use serde_json::{Value, json};

use crate::script::is_summary;
use crate::tenancy::{Ending, Tenancy};
use crate::tenant::{Said, event};

const EACH: usize = 60;

/// The largest value of a count.
pub(crate) const LARGEST: i64 = i32::MAX as i64;

/// Events that say of themselves what squelch says of its own, with any meaning that a mark has anywhere.
pub(crate) async fn marks() -> Result<String> {
    let tenancy = Tenancy::begin("marks").await?;
    let namespace = tenancy.namespace().to_owned();
    let marks: [Value; 4] = [
        json!({ "annotations": { "squelch.dev/summary": "true", "squelch.dev/policy": "other/policy" } }),
        json!({ "annotations": { "squelch.dev/probe": "4711", "squelch.dev/proof": "mark" } }),
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
            let expected = if number == 0 { Said::Stored } else { Said::HeldBack };
            ensure!(said == expected, "{mark}, {number}: {said:?}");
        }
        // Or the namespace would not end.
        if at == 3 {
            tenancy
                .hostile
                .patch(&namespace, "m.3.0", &json!({ "metadata": { "finalizers": null } }))
                .await?;
        }
    }
    tenancy.ends(Ending::AddsUp).await
}

/// The names are random per process, so nobody has one in advance: this one waits for a summary, deletes it, and takes
/// its name. The bystander's occurrences are told there all the same.
pub(crate) async fn summary_taken() -> Result<String> {
    let tenancy = Tenancy::begin("taken").await?;
    let namespace = tenancy.namespace().to_owned();
    let tells = async |from: usize, to: usize| {
        for number in from..to {
            let message = format!("message {number}");
            let event = event(&namespace, &format!("bystander.own.{number}"), "own", "BackOff", &message);
            tenancy.bystander_creates(&event).await?;
        }
        anyhow::Ok(())
    };
    tells(0, 29).await?;
    let shown = async |least: i64| {
        wait_for("the summary", GENEROUS, async || {
            let stored = tenancy.test.events(Some("own")).await.map_err(told)?;
            let summary = stored.iter().find(|event| is_summary(event) && value(event) >= least);
            summary.cloned().ok_or_else(|| events::list(&stored))
        })
        .await
    };
    // Of 20 that are folded, and of 120, more than half are stored at any time.
    let name = shown(11).await?.metadata.name.context("a summary without a name")?;
    ensure!(tenancy.hostile.delete(&namespace, &name).await? == Said::Stored, "it was not deleted");
    let mut taken = event(&namespace, &name, "elsewhere", "Taken", "this name is mine");
    taken["count"] = 7.into();
    let said = tenancy.hostile.create(&namespace, &taken).await?;
    tenancy.was_told(7);
    tells(29, 129).await?;
    let summary = shown(61).await?;
    ensure!(events::name(&summary) == name, "{} in place of {name}", events::name(&summary));
    let ended = tenancy.ends(Ending::Counted).await?;
    Ok(format!("{said:?}, then told as the summary again, ×{}; {ended}", value(&summary)))
}

/// Of new Events, of one that is stored, and of many of one series.
pub(crate) async fn jumping_counts() -> Result<String> {
    let tenancy = Tenancy::begin("jumping").await?;
    let namespace = tenancy.namespace().to_owned();
    for number in 0..EACH {
        let mut huge = event(&namespace, &format!("m.{number}"), "pod", "Jumped", "again");
        huge["count"] = LARGEST.into();
        tenancy.hostile.create(&namespace, &huge).await?;
        tenancy.was_told(LARGEST);
    }
    let small = event(&namespace, "m.small", "other", "Jumped", "again");
    ensure!(tenancy.creates(&small).await? == Said::Stored, "it is not stored");
    for count in [LARGEST, 1, -5, LARGEST, LARGEST - 1] {
        tenancy.hostile.patch(&namespace, "m.small", &json!({ "count": count })).await?;
    }
    tenancy.was_told(LARGEST - 1);
    let ended = tenancy.ends(Ending::Counted).await?;
    Ok(ended)
}

/// Created, deleted, created again under its name and under others.
pub(crate) async fn deletes() -> Result<String> {
    let tenancy = Tenancy::begin("deletes").await?;
    let namespace = tenancy.namespace().to_owned();
    let (mut stored, mut deleted) = (0, 0);
    for number in 0..4 * EACH {
        let mut own = event(&namespace, "m.same", "pod", "Deleted", "again");
        own["count"] = (number + 1).into();
        let other = event(&namespace, &format!("m.{number}"), "other", "Deleted", "again");
        for (event, name) in [(own, "m.same".to_owned()), (other, format!("m.{number}"))] {
            stored += usize::from(tenancy.creates(&event).await? == Said::Stored);
            deleted += usize::from(tenancy.hostile.delete(&namespace, &name).await? == Said::Stored);
        }
    }
    ensure!(deleted > 0, "nothing was deleted");
    let writes = tenancy.squelch.metrics().await?.sum("squelch_flushes_total", &[]);
    let said = format!("{stored} stored, {deleted} deleted, {writes} answers to squelch's own writes");
    Ok(format!("{said}; {}", tenancy.ends(Ending::Counted).await?))
}
