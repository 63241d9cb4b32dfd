//! One of three API servers does not reach the webhook: squelch disarms if Event writes would wait, and reports it if
//! they pass at once.

use std::time::Duration;

use anyhow::Result;
use e2e::api_servers::PathFault;

use crate::scene::{Scene, comes_and_goes, fails_fast, hangs};

/// How long a webhook that hangs stays armed.
const DISARMED_WITHIN: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_packets_disarm() -> Result<()> {
    hangs(Scene::begin("reach-dropped").await?, PathFault::Drop, DISARMED_WITHIN).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delay_of_900_ms_disarms() -> Result<()> {
    let delay = PathFault::Delay(Duration::from_millis(900));
    hangs(Scene::begin("reach-delayed").await?, delay, DISARMED_WITHIN).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_without_an_answer_disarm() -> Result<()> {
    hangs(Scene::begin("reach-silent").await?, PathFault::Silent, DISARMED_WITHIN).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_connections_are_reported() -> Result<()> {
    fails_fast(Scene::begin("reach-refused").await?, PathFault::Refuse).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_reset_during_tls_are_reported() -> Result<()> {
    fails_fast(Scene::begin("reach-reset").await?, PathFault::ResetTls).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_that_comes_and_goes_changes_the_rules_seldom() -> Result<()> {
    comes_and_goes(Scene::begin("reach-flapping").await?, 3).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes ten minutes"]
async fn a_cut_that_comes_and_goes_for_ten_minutes_changes_the_rules_seldom() -> Result<()> {
    comes_and_goes(Scene::begin("reach-ten-minutes").await?, 20).await
}
