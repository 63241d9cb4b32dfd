//! Emitters that nobody here wrote: each library writes Events in its own way through squelch, and the oracle compares
//! what it asked the API server for with what squelch received and what is stored.

mod cases;
mod effect;
mod kinds;
mod record;

use anyhow::{Result, ensure};
use e2e::Test;
use e2e::accounts::EMITTER;
use e2e::documents::replace_block;
use e2e::rows::Wanted;

use serde_json::json;

use cases::{Case, Seen};

/// The line before the table of docs/emitters.md.
const BEGIN: &str = "<!-- begin: written by `just test-oracle --write` -->\n";

#[tokio::test]
async fn every_occurrence_that_an_emitter_asks_for_is_received() -> Result<()> {
    let wanted = Wanted::asked();
    let test = Test::begin("emitters").await?;
    may_reconcile(&test).await?;
    let squelch = test.squelch().await?;
    let (mut rows, mut misses) = (Vec::new(), Vec::new());
    for kind in kinds::all().into_iter().filter(|kind| wanted.is(kind.name)) {
        let runs = Case::ALL.map(|case| cases::run(&test, &kind, case));
        let mut seen: Vec<Seen> = Vec::new();
        for (case, run) in Case::ALL.into_iter().zip(futures::future::join_all(runs).await) {
            match run.and_then(|run| run.holds(case).map(|()| run)) {
                Ok(run) => seen.push(run),
                Err(miss) => {
                    let miss = format!("{}, {case:?}: {miss:#}", kind.name);
                    eprintln!("MISS {miss}");
                    misses.push(miss);
                }
            }
        }
        for run in &seen {
            eprintln!("{}", effect::numbers(kind.name, run));
        }
        if let Some((free, others)) = seen.split_first()
            && seen.len() == Case::ALL.len()
        {
            rows.push(effect::row(&kind, free, others));
        }
        for run in seen {
            run.test.passed()?;
        }
    }
    ensure!(misses.is_empty(), "{}", misses.join("\n"));
    squelch.stop().await?;
    let table = effect::table(&rows);
    println!("{table}");
    if wanted == Wanted::default() {
        replace_block("docs/emitters.md", BEGIN, &table, "just test-oracle --write")?;
    }
    test.passed()
}

/// Gives the emitters the permissions of operators that reconcile ConfigMaps.
async fn may_reconcile(test: &Test) -> Result<()> {
    let rules = json!([
        { "apiGroups": [""], "resources": ["configmaps", "pods", "pods/status", "nodes", "nodes/status"],
            "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"] },
        { "apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "watch"] },
        { "apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"],
            "verbs": ["get", "list", "watch"] },
    ]);
    EMITTER.allow(&test.cluster, "e2e-operator", &rules).await
}
