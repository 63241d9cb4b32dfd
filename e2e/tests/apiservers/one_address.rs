//! The same while squelch knows only one address, of a TCP balancer over the three API servers.

use std::time::Duration;

use anyhow::Result;
use e2e::api_servers::PathFault;

use crate::scene::{Scene, comes_and_goes, fails_fast, hangs};

/// How long a webhook that hangs stays armed: each third probe shows it, and takes up to 1.75 s with the further ones.
/// Twice that, if none of these reaches the same API server.
const DISARMED_WITHIN: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_one_address_dropped_packets_disarm() -> Result<()> {
    hangs(Scene::behind_one_address("one-dropped").await?, PathFault::Drop, DISARMED_WITHIN).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_one_address_a_delay_of_900_ms_disarms() -> Result<()> {
    let delay = PathFault::Delay(Duration::from_millis(900));
    hangs(Scene::behind_one_address("one-delayed").await?, delay, DISARMED_WITHIN).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_one_address_refused_connections_are_reported() -> Result<()> {
    fails_fast(Scene::behind_one_address("one-refused").await?, PathFault::Refuse).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_one_address_connections_reset_during_tls_are_reported() -> Result<()> {
    fails_fast(Scene::behind_one_address("one-reset").await?, PathFault::ResetTls).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_one_address_a_cut_that_comes_and_goes_changes_the_rules_seldom() -> Result<()> {
    comes_and_goes(Scene::behind_one_address("one-flapping").await?, 3).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes ten minutes"]
async fn behind_one_address_a_cut_that_comes_and_goes_for_ten_minutes_changes_the_rules_seldom() -> Result<()>
{
    comes_and_goes(Scene::behind_one_address("one-ten-minutes").await?, 20).await
}
