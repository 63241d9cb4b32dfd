//! The law of conservation, told three times: by a policy's status, by squelch's metrics, and by what is stored.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Event;

use crate::policy::Counters;
use crate::{Policy, Squelch, Test, events};

/// Waits until the policy tells that it received what the emitters sent, and compares the metrics with its status.
///
/// # Errors
/// Where they differ.
pub async fn counted(test: &Test, squelch: &Squelch, policy: &Policy, sent: i64) -> Result<Counters> {
    let counters = policy.received(sent).await?;
    let metrics = squelch.metrics().await?;
    let namespace = ("event_namespace", test.namespace.as_str());
    for (disposition, in_status) in [
        ("admitted", counters.admitted),
        ("compacted", counters.compacted),
        ("aggregated", counters.aggregated),
        ("filtered", counters.filtered),
        ("throttled", counters.throttled),
        ("failed_open", counters.failed_open),
    ] {
        let labels = [namespace, ("disposition", disposition)];
        let in_metrics = metrics.sum("squelch_events_total", &labels) as i64;
        ensure!(
            in_metrics == in_status,
            "{disposition}: the status tells {in_status}, the metrics\n{}",
            metrics.show("squelch_events_total")
        );
    }
    Ok(counters)
}

/// The same; then ends squelch, which pays what it owes, and compares what is stored with what was counted. For
/// policies in Enforce, and where no Event was deleted.
///
/// # Errors
/// Where they differ.
pub async fn holds(test: &Test, squelch: Squelch, policy: &Policy, sent: i64) -> Result<Counters> {
    let counters = counted(test, &squelch, policy, sent).await?;
    squelch.stop().await?;
    adds_up(&test.events(None).await?, &counters)?;
    Ok(counters)
}

/// What is stored is what was counted, once all is paid.
///
/// # Errors
/// Where they differ.
pub fn adds_up(stored: &[Event], counters: &Counters) -> Result<()> {
    let sum: i64 = stored.iter().map(events::value).sum();
    let law = counters.admitted
        + counters.compacted
        + counters.aggregated
        + counters.failed_open
        + counters.recovered;
    ensure!(sum == law, "{sum} are stored, and {law} by the law: {counters:?}\n{}", events::list(stored));
    Ok(())
}
