//! The matrix: every kind of client under every kind of policy, while nothing goes wrong and while everything does.
//!
//! The short form is part of every run; the whole takes some minutes: `just test-nothing-lost`.

use std::time::Duration;

use anyhow::Result;
use e2e::matrix::{Cell, Column, Row, run};

/// Long enough for several lives of squelch, and for each kind of fault to come up several times.
const LONG: Duration = Duration::from_secs(40);
const SHORT: Duration = Duration::from_secs(15);

/// All twenty cells.
async fn all(column: Column) -> Result<()> {
    run(column, &Cell::of_rows(&Row::ALL), LONG).await
}

/// Every kind of client under the policy that folds, and under one more.
async fn some(column: Column, row: Row) -> Result<()> {
    run(column, &Cell::of_rows(&[Row::Series, row]), SHORT).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_peace() -> Result<()> {
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
async fn the_whole_matrix_in_peace() -> Result<()> {
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
