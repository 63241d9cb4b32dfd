//! Checks of the node without squelch, on which the other tests of this tier depend.

mod doctor;
mod documents;
mod gitops;
mod key_rotation;
mod lifecycle;
mod permissions;
mod rows;
mod unauthenticated_callers;
mod under_load;

use anyhow::{Result, ensure};
use e2e::Node;
use e2e::events;
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::ListParams;

#[tokio::test]
async fn a_pod_reaches_the_api_server_and_has_lifecycle_events() -> Result<()> {
    let node = Node::begin("node-pod").await?;
    let printed = node.run_pod("asks", &["api", "/version"]).await?;
    ensure!(printed.starts_with("200 ") && printed.contains("gitVersion"), "{printed}");

    let api: Api<Event> = Api::namespaced(node.cluster.client.clone(), &node.namespace);
    let stored = api.list(&ListParams::default()).await?.items;
    let reporters: Vec<_> = stored.iter().filter_map(|event| event.reporting_component.as_deref()).collect();
    for reporter in ["default-scheduler", "kubelet"] {
        ensure!(reporters.contains(&reporter), "{reporter} reported nothing: {}", events::list(&stored));
    }
    node.passed()
}

#[tokio::test]
async fn a_failed_pod_fails_its_test() -> Result<()> {
    let node = Node::begin("node-exit").await?;
    let failure = node.run_pod("exits", &["exit", "3"]).await.err().map(|error| error.to_string());
    ensure!(failure.as_deref().is_some_and(|text| text.contains("the pod exits failed")), "{failure:?}");
    node.passed()
}

#[tokio::test]
async fn without_squelch_no_write_of_the_independent_writer_fails() -> Result<()> {
    let node = Node::begin("node-writer").await?;
    let writer = node.writer(100).await?;
    writer.wait_for_answers(300).await?;
    let answers = writer.stop().await;
    ensure!(answers.failed.is_empty() && answers.refused == 0, "{answers}");

    let api: Api<Event> = Api::namespaced(node.cluster.client.clone(), &node.namespace);
    let stored = api.list(&ListParams::default()).await?.items;
    let reported: i64 = stored.iter().map(events::value).sum();
    ensure!(usize::try_from(reported)? == answers.occurrences(), "{reported} stored of {answers}");
    node.passed()
}

#[tokio::test]
async fn the_independent_writer_counts_writes_without_an_answer() -> Result<()> {
    let node = Node::begin("node-killed").await?;
    let writer = node.writer(100).await?;
    writer.wait_for_answers(100).await?;
    node.restart_apiserver(true).await?;
    writer.wait_for_answers(100).await?;
    let answers = writer.stop().await;
    ensure!(!answers.failed.is_empty(), "no write failed although the API server was killed: {answers}");
    node.passed()
}
