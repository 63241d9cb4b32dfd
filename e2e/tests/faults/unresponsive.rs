//! The active replica does not respond: each Event write waits a second for it, until another replica removes the
//! rules.

use std::any::Any;
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::faults::{BlackHole, Frozen, Renewals, active, process};
use e2e::node::SQUELCH;
use e2e::stage::Load;
use e2e::wait::not_yet;
use e2e::{Cluster, GENEROUS, wait_for};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt};

use crate::measure::{CALM, begin, disarmed, wait_until_active_again};

/// Maximum time until the rules are removed.
const DISARMED: Duration = Duration::from_secs(4);
/// Maximum time until another replica is active and armed.
const DECIDES: Duration = Duration::from_secs(12);
/// Maximum latency of the node's Lease renewals meanwhile.
const RENEWED: Duration = Duration::from_millis(200);

/// SIGSTOP, then SIGCONT.
pub(crate) async fn frozen() -> Result<String> {
    silent("fault-frozen", CALM, |pod| Ok(Box::new(Frozen::new(process(pod)?)?)), false).await
}

/// Same with the write rate of the worst storms: priority and fairness may refuse writes.
pub(crate) async fn frozen_under_a_storm() -> Result<String> {
    let load = Load { writes: 500, ..CALM };
    silent("fault-frozen-storm", load, |pod| Ok(Box::new(Frozen::new(process(pod)?)?)), true).await
}

/// Packets to the pod are dropped.
pub(crate) async fn unreachable() -> Result<String> {
    silent("fault-black-hole", CALM, |pod| Ok(Box::new(BlackHole::new(pod)?)), false).await
}

async fn silent(
    label: &str,
    load: Load,
    fault: impl FnOnce(&Pod) -> Result<Box<dyn Any>>,
    may_turn_away: bool,
) -> Result<String> {
    let (stage, _) = begin(label, load).await?;
    let (cluster, writer) = (&stage.node.cluster, &stage.writer);
    let pod = active(cluster).await?;
    let renewals = Renewals::start(cluster).await?;
    let began = writer.elapsed();
    let fault = fault(&pod)?;
    let away = disarmed(cluster, writer, began).await?;
    let again = wait_until_active_again(writer, began + away).await? + away;
    let renewed = renewals.p99().await?;
    drop(fault);
    comes_back_as_a_standby(cluster, &pod).await?;
    writer.wait_for_answers(100).await?;
    let answers = writer.so_far();
    let turned_away = answers.failed.iter().filter(|failed| failed.text.contains("TooManyRequests")).count();
    let measured = format!(
        "disarmed after {away:.1?}, another replica active after {again:.1?}; {} of {} writes failed, {turned_away} with 429 \
         (slowest {:.1?}); p99 of the node's Lease {renewed:.0?}",
        answers.failed.len(),
        answers.occurrences(),
        answers.slowest
    );
    let allowed = if may_turn_away { turned_away } else { 0 };
    ensure!(answers.failed.len() <= allowed, "{measured}: {:?}", answers.failed.first());
    ensure!(away <= DISARMED && again <= DECIDES && renewed <= RENEWED, "{measured}");
    let (node, evidence) = stage.end().await?;
    ensure!(evidence.counters.are_conserved(), "the counters do not add up: {:?}", evidence.counters);
    node.passed()?;
    Ok(measured)
}

/// Its process exits and is restarted, and gets no review.
async fn comes_back_as_a_standby(cluster: &Cluster, pod: &Pod) -> Result<()> {
    let restarts = |pod: &Pod| {
        let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
        statuses.and_then(|statuses| statuses.first()).map(|status| (status.restart_count, status.ready))
    };
    let (before, _) = restarts(pod).unwrap_or_default();
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), SQUELCH);
    let name = pod.name_any();
    wait_for("the unresponsive container to be restarted", GENEROUS, async || {
        match pods.get_opt(&name).await.map_err(not_yet)? {
            Some(now) if restarts(&now).is_some_and(|(now, ready)| now > before && ready) => Ok(()),
            Some(now) => Err(format!("{:?}", restarts(&now))),
            None => Err("the pod is deleted".to_owned()),
        }
    })
    .await?;
    let other = active(cluster).await?.name_any();
    ensure!(other != name, "{name} is active again");
    let url = format!("/api/v1/namespaces/{SQUELCH}/pods/{name}:{}/proxy/metrics", e2e::node::HTTP_PORT);
    let page = cluster.client.request_text(http::Request::get(url).body(Vec::new())?).await?;
    let reviews = e2e::metrics::Samples::parse(&page).sum("squelch_reviews_total", &[]);
    ensure!(reviews == 0.0, "{name} got {reviews} reviews since its restart");
    Ok(())
}
