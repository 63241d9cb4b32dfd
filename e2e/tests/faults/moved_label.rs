//! The label of the active replica is moved to the standby: the Service leads there, and the connections of the API
//! server lead to either.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::faults::active;
use e2e::node::{SQUELCH, running_pods};
use e2e::stage::Stage;
use e2e::wait::not_yet;
use e2e::{Cluster, GENEROUS, wait_for};
use kube::ResourceExt;

use crate::measure::{STORM, begin, gap_below, until, wait_until_active_again};

/// From this minor version on, an API server that routes by endpoint resolves the endpoint of each request, and not only
/// of each connection.
const RESOLVES_EACH_REQUEST: u32 = 37;
/// Deadline until writes are decided again: the active replica checks the labels every 10 s, and the standby may have
/// removed the rules meanwhile.
const DECIDED: Duration = Duration::from_secs(25);
/// Time in which no review may reach the standby.
const QUIET: Duration = Duration::from_secs(5);

/// How the API server reaches the webhook.
#[derive(Clone, Copy)]
pub(crate) enum Route {
    /// At the address of the Service; a connection stays with its pod.
    ClusterIp,
    /// At the address of a pod.
    Endpoint,
    /// At the address of a pod; a connection stays with its pod, also from 1.37 on.
    EndpointOfConnection,
}

impl Route {
    fn flags(self, minor: u32) -> Vec<&'static str> {
        let by_endpoint = match self {
            Self::ClusterIp => return vec!["--enable-aggregator-routing=false"],
            Self::Endpoint | Self::EndpointOfConnection => "--enable-aggregator-routing=true",
        };
        if matches!(self, Self::EndpointOfConnection) && minor >= RESOLVES_EACH_REQUEST {
            return vec![by_endpoint, "--feature-gates=WebhookRoundTripLoadBalancing=false"];
        }
        vec![by_endpoint]
    }
}

/// The active replica moves the label back. No write fails, no occurrence is lost, and no connection leads to the standby
/// afterwards.
pub(crate) async fn to_the_standby(route: Route) -> Result<String> {
    let cluster = Cluster::connect().await?;
    let version = cluster.client.apiserver_version().await?;
    let minor = version.minor.parse().with_context(|| version.minor.clone())?;
    cluster.restart_apiserver(false, &route.flags(minor)).await?;
    let (stage, counters) = begin("fault-label", STORM).await?;
    let deciding = active(&cluster).await?.name_any();
    let pods = running_pods(&cluster).await?;
    let other = pods.iter().map(ResourceExt::name_any).find(|name| *name != deciding);
    let standby = other.context("there is no standby")?;

    let began = stage.writer.elapsed();
    let kubectl = cluster.kubectl.namespace(SQUELCH);
    kubectl.run(&["label", "pod", &standby, "squelch.dev/role=active"]).await?;
    kubectl.run(&["label", "pod", &deciding, "squelch.dev/role-"]).await?;
    wait_for("the label to be back", GENEROUS, async || {
        let labelled = active(&cluster).await.map_err(not_yet)?.name_any();
        if labelled == deciding { Ok(()) } else { Err(labelled) }
    })
    .await?;
    let back = stage.writer.elapsed();
    wait_until_active_again(&stage.writer, back).await?;
    let undecided = reviews(&stage, &standby).await?;
    let late = wait_for("the standby to get no review", GENEROUS, async || {
        let before = reviews(&stage, &standby).await.map_err(not_yet)?;
        until(&stage.writer, stage.writer.elapsed() + QUIET).await.map_err(not_yet)?;
        let after = reviews(&stage, &standby).await.map_err(not_yet)?;
        if before == after { Ok(after - undecided) } else { Err(format!("{} reviews", after - before)) }
    })
    .await?;
    stage.wait_for_decisions(counters).await?;
    ensure!(active(&cluster).await?.name_any() == deciding, "another replica is active");

    let ended = stage.writer.elapsed();
    let (node, evidence) = stage.end().await?;
    let measured = evidence.nothing_lost()?;
    let gap = gap_below(DECIDED, &evidence, began, ended).context(measured.clone())?;
    node.passed()?;
    let back = back.saturating_sub(began);
    Ok(format!(
        "label back after {back:.1?}, no decision for {gap:.1?}, {undecided} reviews answered by the standby and {late} \
         after that; {measured}"
    ))
}

/// Reviews that a standby has answered.
async fn reviews(stage: &Stage, pod: &str) -> Result<f64> {
    Ok(stage.node.metrics(pod).await?.reviews("standby"))
}
