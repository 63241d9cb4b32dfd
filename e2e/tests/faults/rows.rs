//! The table of faults.

use anyhow::Result;
use e2e::rows::{Row, run};

use crate::{control, glass, gone, kills, policies, restarts, silent};

const ROWS: [Row; 25] = [
    ("rolling restart, routed by ClusterIP", || Box::pin(restarts::rolled(false))),
    ("rolling restart, routed by endpoint", || Box::pin(restarts::rolled(true))),
    ("rolling restart with 500 debts", || Box::pin(restarts::with_500_debts())),
    ("rolling restart with 10,000 debts", || Box::pin(restarts::with_10_000_debts())),
    ("drain of the active pod, routed by ClusterIP", || Box::pin(restarts::drained(false))),
    ("drain of the active pod, routed by endpoint", || Box::pin(restarts::drained(true))),
    ("SIGKILL of the active pod", || Box::pin(kills::pod())),
    ("SIGKILL of its container, which is started in place", || Box::pin(kills::container())),
    ("scaled to none", || Box::pin(gone::scaled())),
    ("SIGKILL of all, again and again", || Box::pin(gone::killed())),
    ("the image is missing", || Box::pin(gone::without_image())),
    ("the namespace is deleted", || Box::pin(gone::without_namespace())),
    ("SIGSTOP of the active pod, 100 writes a second", || Box::pin(silent::frozen())),
    ("SIGSTOP of the active pod, 500 writes a second", || Box::pin(silent::frozen_under_a_storm())),
    ("black hole around the active pod, 100 writes a second", || Box::pin(silent::unreachable())),
    ("API server restarted", || Box::pin(control::api_server(false))),
    ("API server killed", || Box::pin(control::api_server(true))),
    ("etcd stopped for 20 s", || Box::pin(control::etcd())),
    ("Lease stolen", || Box::pin(control::lease_stolen())),
    ("Lease deleted", || Box::pin(control::lease_deleted())),
    ("replicas of two images beside each other", || Box::pin(restarts::two_versions())),
    ("definitions of the previous version", || Box::pin(policies::of_the_previous_version())),
    ("500 policies in a minute", || Box::pin(policies::five_hundred())),
    ("the annotation is set, and removed", || Box::pin(glass::annotated())),
    ("the configuration is deleted, and put back", || Box::pin(glass::deleted())),
];

/// The rows that every change goes through. (A rolling restart is one of the node's.)
const SHORT: [usize; 3] = [7, 12, 23];

#[tokio::test]
async fn the_short_table() -> Result<()> {
    run(SHORT.map(|row| ROWS[row])).await
}

#[tokio::test]
#[ignore = "takes half an hour: just test-faults"]
async fn the_whole_table() -> Result<()> {
    run(ROWS).await
}
