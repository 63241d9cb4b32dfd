//! The cluster itself: all servers are published and call the webhook, and the way of each can fail alone.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::api_servers::{ApiServer, PathFault, writes_per_second};
use e2e::policy::idle_after;
use e2e::wait::not_yet;
use e2e::{GENEROUS, Test, Writer, wait_for};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;

/// Just below the webhook's timeout of one second: such a write has waited for the webhook.
const WAITED: Duration = Duration::from_millis(900);

#[tokio::test]
async fn every_api_server_is_an_endpoint() -> Result<()> {
    let test = Test::begin("endpoints").await?;
    let servers = ApiServer::all(&test.cluster)?;
    for server in &servers {
        let slices: Api<EndpointSlice> = Api::namespaced(server.client(&test.cluster).await?, "default");
        let slice = slices.get("kubernetes").await?;
        let mut listed: Vec<_> =
            slice.endpoints.into_iter().flat_map(|endpoint| endpoint.addresses).collect();
        listed.sort_unstable();
        let expected: Vec<_> = servers.iter().map(|server| server.address().to_owned()).collect();
        ensure!(listed == expected, "{} lists {listed:?}, not {expected:?}", server.component);
    }
    test.passed()
}

#[tokio::test]
async fn dropped_packets_delay_the_writes_of_one_server_only() -> Result<()> {
    writes_through_the_last("dropped", PathFault::Drop, waited).await
}

#[tokio::test]
async fn a_delay_delays_the_writes_of_one_server_only() -> Result<()> {
    writes_through_the_last("delayed", PathFault::Delay(WAITED), waited).await
}

#[tokio::test]
async fn refused_connections_let_the_writes_of_one_server_pass() -> Result<()> {
    writes_through_the_last("refused", PathFault::Refuse, passed_unreviewed).await
}

#[tokio::test]
async fn connections_reset_during_tls_let_the_writes_of_one_server_pass() -> Result<()> {
    writes_through_the_last("reset", PathFault::ResetTls, passed_unreviewed).await
}

/// Writes through all servers; those through the last must show the fault and those through the others must not, and all
/// are reviewed before and after.
async fn writes_through_the_last(
    label: &str,
    fault: PathFault,
    shows: fn(&Writer, Duration) -> Result<(), String>,
) -> Result<()> {
    let test = Test::begin(label).await?;
    let squelch = test.squelch().await?;
    test.policy(&idle_after("60s")).await?;
    let servers = ApiServer::all(&test.cluster)?;
    let mut writers = Vec::new();
    for server in &servers {
        writers.push(test.writer_through(server, writes_per_second()?).await?);
    }
    let (last, others) = writers.split_last().context("no API server")?;
    all_reviewed(&writers).await?;

    let since: Vec<_> = writers.iter().map(Writer::elapsed).collect();
    let server = servers.last().context("no API server")?;
    let path = server.path_fault(squelch.port()?, fault).await?;
    let changed = last.elapsed();
    wait_for("the fault in the writes", GENEROUS, async || shows(last, changed)).await?;
    path.heal().await?;
    all_reviewed(&writers).await?;

    for (other, since) in others.iter().zip(since) {
        let slowest =
            other.times().into_iter().filter(|timed| timed.after > since).map(|timed| timed.took).max();
        ensure!(slowest < Some(WAITED), "a write through another server took {slowest:?}");
    }
    for writer in writers {
        let answers = writer.stop().await;
        ensure!(answers.failed.is_empty(), "{answers}");
    }
    squelch.stop().await?;
    test.passed()
}

/// squelch refuses repeats, which it has merged: so it has reviewed them.
async fn all_reviewed(writers: &[Writer]) -> Result<()> {
    let from: Vec<_> = writers.iter().map(Writer::elapsed).collect();
    wait_for("reviews of the writes through each server", GENEROUS, async || {
        for (number, (writer, from)) in writers.iter().zip(&from).enumerate() {
            let reviewed = writer.times().iter().any(|timed| timed.after > *from && timed.refused);
            if !reviewed {
                return Err(format!("none through server {}: {}", number + 1, writer.so_far()));
            }
        }
        Ok(())
    })
    .await
}

fn waited(writer: &Writer, since: Duration) -> Result<(), String> {
    let times = writer.times();
    match times.iter().any(|timed| timed.after > since && timed.took >= WAITED) {
        true => Ok(()),
        false => Err(writer.so_far().to_string()),
    }
}

/// A whole second of answers at once, none of them by squelch.
fn passed_unreviewed(writer: &Writer, since: Duration) -> Result<(), String> {
    let second = writes_per_second().map_err(not_yet)? as usize;
    let times = writer.times();
    let mut answers: Vec<_> = times.iter().filter(|timed| timed.after > since).collect();
    answers.sort_unstable_by_key(|timed| timed.after);
    let recent = answers.rchunks(second).next().unwrap_or_default();
    if recent.len() == second && recent.iter().all(|timed| !timed.refused && timed.took < WAITED) {
        return Ok(());
    }
    Err(not_yet(anyhow::anyhow!("{recent:?}")))
}
