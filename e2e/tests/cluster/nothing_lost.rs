//! The matrix: every kind of client under every kind of policy, without and with faults.
//!
//! The short form is part of every run; the whole matrix takes minutes: `just test-nothing-lost`.

use std::time::Duration;

use anyhow::Result;
use e2e::matrix::{Cell, Column, Row, run};

/// Duration: several restarts of squelch, and several injections of each fault.
const LONG: Duration = Duration::from_secs(40);
const SHORT: Duration = Duration::from_secs(15);

/// Runs all twenty cells.
async fn all(column: Column) -> Result<()> {
    run(column, &Cell::of_rows(&Row::ALL), LONG).await
}

/// Runs every kind of client under the compacting policy and under one more.
async fn some(column: Column, row: Row) -> Result<()> {
    run(column, &Cell::of_rows(&[Row::Series, row]), SHORT).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_faults() -> Result<()> {
    some(Column::Quiet, Row::ByKind).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_calls_fail() -> Result<()> {
    some(Column::Faults, Row::ByObject).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_squelch_is_restarted() -> Result<()> {
    some(Column::Restarts, Row::Throttled).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_api_server_is_restarted() -> Result<()> {
    some(Column::ApiServer, Row::Filtered).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: just test-nothing-lost"]
async fn the_whole_matrix_without_faults() -> Result<()> {
    all(Column::Quiet).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: just test-nothing-lost"]
async fn the_whole_matrix_while_calls_fail() -> Result<()> {
    all(Column::Faults).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: just test-nothing-lost"]
async fn the_whole_matrix_while_squelch_is_restarted() -> Result<()> {
    all(Column::Restarts).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: just test-nothing-lost"]
async fn the_whole_matrix_while_the_api_server_is_restarted() -> Result<()> {
    all(Column::ApiServer).await
}
