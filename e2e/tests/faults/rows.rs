//! The table of faults, and what was measured.

use std::pin::Pin;
use std::time::Instant;

use anyhow::{Result, ensure};
use e2e::Cluster;

use crate::{control, glass, gone, kills, policies, restarts, silent};

type Row = (&'static str, bool, fn() -> Pin<Box<dyn Future<Output = Result<String>>>>);

/// With a word on whether every change goes through it.
const ROWS: [Row; 25] = [
    ("rolling restart, routed by ClusterIP", true, || Box::pin(restarts::rolled(false))),
    ("rolling restart, routed by endpoint", false, || Box::pin(restarts::rolled(true))),
    ("rolling restart with 500 debts", false, || Box::pin(restarts::with_500_debts())),
    ("rolling restart with 10,000 debts", false, || Box::pin(restarts::with_10_000_debts())),
    ("drain of the active pod, routed by ClusterIP", false, || Box::pin(restarts::drained(false))),
    ("drain of the active pod, routed by endpoint", false, || Box::pin(restarts::drained(true))),
    ("SIGKILL of the active pod", false, || Box::pin(kills::pod())),
    ("SIGKILL of its container, which is started in place", true, || Box::pin(kills::container())),
    ("scaled to none", false, || Box::pin(gone::scaled())),
    ("SIGKILL of all, again and again", false, || Box::pin(gone::killed())),
    ("the image is missing", false, || Box::pin(gone::without_image())),
    ("the namespace is deleted", false, || Box::pin(gone::without_namespace())),
    ("SIGSTOP of the active pod, 100 writes a second", true, || Box::pin(silent::frozen())),
    ("SIGSTOP of the active pod, 500 writes a second", false, || Box::pin(silent::frozen_under_a_storm())),
    ("black hole around the active pod, 100 writes a second", false, || Box::pin(silent::unreachable())),
    ("API server restarted", false, || Box::pin(control::api_server(false))),
    ("API server killed", false, || Box::pin(control::api_server(true))),
    ("etcd stopped for 20 s", false, || Box::pin(control::etcd())),
    ("Lease stolen", false, || Box::pin(control::lease_stolen())),
    ("Lease deleted", false, || Box::pin(control::lease_deleted())),
    ("replicas of two images beside each other", false, || Box::pin(restarts::two_versions())),
    ("definitions of the previous version", false, || Box::pin(policies::of_the_previous_version())),
    ("500 policies in a minute", false, || Box::pin(policies::five_hundred())),
    ("the annotation is set, and removed", true, || Box::pin(glass::annotated())),
    ("the configuration is deleted, and put back", false, || Box::pin(glass::deleted())),
];

/// Runs those rows of which a name in `SQUELCH_ROWS` is a part, or all.
async fn run(rows: impl Iterator<Item = Row>) -> Result<()> {
    let wanted = std::env::var("SQUELCH_ROWS").unwrap_or_default();
    let wanted: Vec<_> = wanted.split(',').filter(|name| !name.is_empty()).collect();
    let mut table = Vec::new();
    for (name, _, row) in
        rows.filter(|row| wanted.is_empty() || wanted.iter().any(|part| row.0.contains(part)))
    {
        eprintln!("==> {name}");
        let began = Instant::now();
        let (verdict, measured) = match row().await {
            Ok(measured) => ("ok", measured),
            Err(miss) => ("MISS", format!("{miss:#}")),
        };
        let line = format!("{verdict:<4}  {name:<56} {:>4.0} s  {measured}", began.elapsed().as_secs_f64());
        eprintln!("{line}");
        table.push(line);
        // Whatever a row has had the API server do.
        Cluster::connect().await?.as_it_came_up().await?;
    }
    eprintln!("\n{}", table.join("\n"));
    ensure!(!table.is_empty(), "no row is called so");
    let misses = table.iter().filter(|line| line.starts_with("MISS")).count();
    ensure!(misses == 0, "{misses} of {} rows missed", table.len());
    Ok(())
}

#[tokio::test]
async fn the_short_table() -> Result<()> {
    run(ROWS.into_iter().filter(|row| row.1)).await
}

#[tokio::test]
#[ignore = "takes half an hour: just test-faults"]
async fn the_whole_table() -> Result<()> {
    run(ROWS.into_iter()).await
}
