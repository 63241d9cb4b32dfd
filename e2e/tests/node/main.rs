//! What the node is before squelch is on it: the other tests of this tier stand on that.

mod allowed;
mod doctor;
mod documents;
mod gitops;
mod keys;
mod lifecycle;
mod rows;
mod strangers;

use anyhow::{Result, ensure};
use e2e::Node;
use e2e::events;
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::ListParams;

#[tokio::test]
async fn a_pod_reaches_the_api_server_by_its_service_and_its_life_is_told_in_events() -> Result<()> {
    let node = Node::begin("node-pod").await?;
    let printed = node.run_pod("asks", &["api", "/version"]).await?;
    ensure!(printed.starts_with("200 ") && printed.contains("gitVersion"), "{printed}");

    let api: Api<Event> = Api::namespaced(node.cluster.client.clone(), &node.namespace);
    let stored = api.list(&ListParams::default()).await?.items;
    let reporters: Vec<_> = stored.iter().filter_map(|event| event.reporting_component.as_deref()).collect();
    for reporter in ["default-scheduler", "kubelet"] {
        ensure!(reporters.contains(&reporter), "{reporter} has told nothing: {}", events::list(&stored));
    }
    node.passed()
}

#[tokio::test]
async fn a_pod_that_fails_fails_the_test_that_runs_it() -> Result<()> {
    let node = Node::begin("node-exit").await?;
    let failure = node.run_pod("exits", &["exit", "3"]).await.err().map(|error| error.to_string());
    ensure!(failure.as_deref().is_some_and(|text| text.contains("the pod exits failed")), "{failure:?}");
    node.passed()
}

#[tokio::test]
async fn an_independent_writer_misses_nothing_where_there_is_no_squelch() -> Result<()> {
    let node = Node::begin("node-writer").await?;
    let writer = node.writer(100).await?;
    writer.goes_on(300).await?;
    let answers = writer.stop().await;
    ensure!(answers.failed.is_empty() && answers.refused == 0, "{answers}");

    let api: Api<Event> = Api::namespaced(node.cluster.client.clone(), &node.namespace);
    let stored = api.list(&ListParams::default()).await?.items;
    let told: i64 = stored.iter().map(events::value).sum();
    ensure!(usize::try_from(told)? == answers.occurrences(), "{told} are stored of {answers}");
    node.passed()
}

#[tokio::test]
async fn an_independent_writer_counts_what_an_api_server_that_is_killed_does_not_answer() -> Result<()> {
    let node = Node::begin("node-killed").await?;
    let writer = node.writer(100).await?;
    writer.goes_on(100).await?;
    node.restart_apiserver(true).await?;
    writer.goes_on(100).await?;
    let answers = writer.stop().await;
    ensure!(!answers.failed.is_empty(), "an API server was killed and nobody has noticed: {answers}");
    node.passed()
}
