//! `export`: the writes that a policy includes, in the file of `--export-file`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use e2e::collector::Exports;
use e2e::{Emission, STORM, Test};
use serde_json::{Value, json};

/// A policy whose stages all have something to do. Warnings are limited too.
fn policy(export: &str) -> Value {
    json!({
        "warningPolicy": "Limit",
        "export": { "include": export },
        "mute": [{ "reasons": ["Muted"] }],
        "exempt": [{ "reasons": ["Exempt"] }],
        "series": { "idleTimeout": "3s" },
        "aggregation": { "maxEvents": 3 },
        "spamFilter": { "burst": 8, "refillInterval": "720h", "per": ["Emitter"] },
    })
}

/// Events for every stage, each from an emitter of its own. Only the last one stores more than the filter lets pass.
fn emissions() -> [Emission; 5] {
    let creates = Emission::creates_core;
    let emissions = [
        Emission::legacy().about("repeats", 2).count(60).rate(40),
        Emission::creates_new_style().about("messages", 2).with("--messages", "distinct").count(30).rate(20),
        creates().about("muted", 10).reason("Muted").count(2).rate(20),
        creates().about("exempt", 10).reason("Exempt").count(1).rate(20),
        creates().about("bursty", 12).count(1).rate(20),
    ];
    let mut number = 0;
    emissions.map(|emission| {
        number += 1;
        emission.instance(&format!("emitter-{number}"))
    })
}

/// The exported occurrences of a namespace by disposition.
fn exported(file: &Path, namespace: &str) -> Result<BTreeMap<String, i64>> {
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let mut occurrences = BTreeMap::new();
    let mut uids = BTreeSet::new();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
        let attributes = &line["attributes"];
        let text = |name: &str| attributes[name].as_str().unwrap_or_default().to_owned();
        ensure!(uids.insert(text("log.record.uid")), "exported twice: {line}");
        if text("k8s.namespace.name") != namespace {
            continue;
        }
        ensure!(text("squelch.policy.namespace") == namespace && text("squelch.mode") == "Enforce", "{line}");
        ensure!(text("k8s.object.kind") == "Pod" && line["severityNumber"].is_i64(), "{line}");
        *occurrences.entry(text("squelch.disposition")).or_default() +=
            attributes["squelch.occurrences"].as_i64().with_context(|| line.to_string())?;
    }
    Ok(occurrences)
}

#[tokio::test]
async fn the_file_has_the_occurrences_that_each_policy_includes() -> Result<()> {
    let test = Test::begin("export").await?;
    let file = test.folder().join("events.jsonl");
    let squelch = test.squelch_with(&["--export-file", &file.display().to_string()]).await?;
    let mut parts = Vec::new();
    for include in ["None", "Dropped", "Suppressed", "All"] {
        let part = test.neighbour().await?;
        let policy = part.policy(&policy(include)).await?;
        let running: Result<Vec<_>> = emissions().iter().map(|emission| part.emit(emission)).collect();
        parts.push((include, part, policy, running?));
    }
    let mut governed = Vec::new();
    for (include, part, policy, running) in parts {
        let mut sent = 0;
        for emitter in running {
            sent += emitter.finish(STORM).await?.sent();
        }
        governed.push((include, part, policy, sent));
    }
    Exports::finished(&squelch).await?;
    for (include, part, policy, sent) in governed {
        let counters = policy.received(sent).await?;
        println!("{include}: {counters:?}");
        ensure!(counters.compacted > 0 && counters.aggregated > 0, "{counters:?}");
        ensure!(counters.filtered > 0 && counters.muted == 20, "{counters:?}");
        let included = |disposition: &str| match include {
            "None" => false,
            "Dropped" => matches!(disposition, "filtered" | "throttled" | "muted"),
            "Suppressed" => !matches!(disposition, "admitted" | "failed_open"),
            _ => true,
        };
        assert_eq!(exported(&file, &part.namespace)?, counters.included(included), "{include}");
        part.passed()?;
    }
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn a_full_disk_delays_no_write_and_every_loss_is_counted() -> Result<()> {
    let test = Test::begin("export-full").await?;
    let squelch = test.squelch_with(&["--export-file", "/dev/full"]).await?;
    let policy = test.policy(&json!({ "export": { "include": "All" } })).await?;
    let emitter = test.emit(&Emission::creates_core().about("pod", 10).count(20).rate(40))?;
    let sent = emitter.finish(STORM).await?.sent();
    policy.received(sent).await?;
    let metrics = squelch.metrics().await?;
    assert_eq!(metrics.sum("squelch_export_pending_occurrences", &[("exporter", "file")]) as i64, sent);
    assert_eq!(metrics.sum("squelch_exported_occurrences_total", &[]), 0.0);
    let log = squelch.log()?;
    ensure!(log.contains("cannot write --export-file: No space left on device"), "{log}");
    squelch.stop_after_trouble().await?;
    test.passed()
}
