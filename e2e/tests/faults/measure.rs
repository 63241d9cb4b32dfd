//! Common code of the rows: times on the writer's clock, and waiting for them.

use std::ops::Range;
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::node::SQUELCH;
use e2e::policy::Counters;
use e2e::stage::{Evidence, Load, Stage};
use e2e::wait::not_yet;
use e2e::writer::{Writer, longest_gap};
use e2e::{Cluster, GENEROUS, wait_for};
use serde_json::{Value, json};

/// 100 writes per second without a storm.
pub(crate) const CALM: Load = Load { writes: 100, storm: 0, before: 20 };

/// The demo's storm of 490 writes per second, for a minute.
pub(crate) const STORM: Load = Load { writes: 50, storm: 3, before: 20 };

/// Installs squelch with two replicas, and waits until one is active.
pub(crate) async fn begin(label: &str, load: Load) -> Result<(Stage, Counters)> {
    begin_with(label, &json!({}), load).await
}

/// Same with additional values of the chart.
pub(crate) async fn begin_with(label: &str, more: &Value, load: Load) -> Result<(Stage, Counters)> {
    let mut values = json!({ "replicas": 2 });
    for (name, value) in more.as_object().into_iter().flatten() {
        values[name] = value.clone();
    }
    let mut stage = Stage::under(label, &values, load).await?;
    stage.node.rolled_out(SQUELCH, SQUELCH).await?;
    stage.follow_logs()?;
    let counters = stage.wait_for_decisions(Counters::default()).await?;
    Ok((stage, counters))
}

/// Same under a storm, with an API server that calls webhooks at the addresses of pods, or at ClusterIPs.
pub(crate) async fn begin_routed(label: &str, by_endpoint: bool) -> Result<(Stage, Counters)> {
    Cluster::connect().await?.route_by_endpoint(by_endpoint).await?;
    begin(label, STORM).await
}

/// Waits until the writer is refused after `since`: a replica is active again. Returns the time since `since`.
pub(crate) async fn wait_until_active_again(writer: &Writer, since: Duration) -> Result<Duration> {
    wait_for("a write to be suppressed again", GENEROUS, async || {
        let times = writer.times();
        let next =
            times.iter().filter(|timed| timed.refused && timed.after > since).map(|timed| timed.after).min();
        next.map(|next| next.saturating_sub(since)).ok_or_else(|| format!("{} writes", times.len()))
    })
    .await
}

/// Waits until `moment` on the writer's clock.
pub(crate) async fn until(writer: &Writer, moment: Duration) -> Result<()> {
    let what = format!("the writer to write until {moment:.0?}");
    wait_for(&what, GENEROUS, async || {
        let now = writer.elapsed();
        if now >= moment { Ok(()) } else { Err(format!("{now:?}")) }
    })
    .await
}

/// The webhook configuration, if it exists.
pub(crate) async fn configuration(cluster: &Cluster) -> Result<Option<Value>> {
    let arguments = ["get", "mutatingwebhookconfiguration", "squelch", "--ignore-not-found", "--output=json"];
    let text = cluster.kubectl.run(&arguments).await?;
    Ok(if text.trim().is_empty() { None } else { Some(serde_json::from_str(&text)?) })
}

/// Whether the configuration has rules.
pub(crate) fn is_armed(configuration: &Value) -> bool {
    configuration["webhooks"][0]["rules"].as_array().is_some_and(|rules| !rules.is_empty())
}

/// Waits until the rules are removed; returns the time since `since`.
pub(crate) async fn disarmed(cluster: &Cluster, writer: &Writer, since: Duration) -> Result<Duration> {
    wait_for("the rules to be removed", GENEROUS, async || {
        let configuration = configuration(cluster).await.map_err(not_yet)?;
        if configuration.is_some_and(|configuration| is_armed(&configuration)) {
            return Err("the rules exist".to_owned());
        }
        Ok(writer.elapsed().saturating_sub(since))
    })
    .await
}

/// The longest time without an active replica between `since` and `until` on the writer's clock.
///
/// # Errors
/// If it is `most` or more, with the time of day, for a comparison with logs.
pub(crate) fn gap_below(
    most: Duration,
    evidence: &Evidence,
    since: Duration,
    until: Duration,
) -> Result<Duration> {
    let Range { start, end } = longest_gap(&evidence.times, since, until);
    let (gap, began) = (end.saturating_sub(start), evidence.writer_started + start);
    ensure!(gap < most, "no active replica for {gap:.1?} from {began:.1} on, allowed {most:?}");
    Ok(gap)
}

/// Checks that no write failed that began outside of `outage`.
pub(crate) fn none_failed_but(writer: &Writer, outage: Range<Duration>) -> Result<usize> {
    let failed = writer.so_far().failed;
    let ends = |failed: &e2e::writer::Failed| failed.after + failed.took;
    let others: Vec<_> =
        failed.iter().filter(|failed| failed.after > outage.end || ends(failed) < outage.start).collect();
    ensure!(others.is_empty(), "{} writes failed, among them {:?}", others.len(), others[0]);
    Ok(failed.len())
}
