//! Conservation of occurrences: compares a policy's status, squelch's metrics, and the stored Events.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Event;

use crate::policy::Counters;
use crate::{Policy, Squelch, Test, events};

/// Waits until the policy's status shows the occurrences that the emitters sent, and compares it with the metrics.
///
/// # Errors
/// If they differ, with both values.
pub async fn status_matches_metrics(
    test: &Test,
    squelch: &Squelch,
    policy: &Policy,
    sent: i64,
) -> Result<Counters> {
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
        let in_metrics = metrics.occurrences(&labels) as i64;
        ensure!(
            in_metrics == in_status,
            "{disposition}: the status has {in_status}, the metrics\n{}",
            metrics.show("squelch_occurrences_total")
        );
    }
    Ok(counters)
}

/// Same as [`status_matches_metrics`]; then stops squelch, which flushes pending occurrences, and compares the stored
/// counts. For policies in Enforce, and if no Event was deleted.
///
/// # Errors
/// If they differ, with both values.
pub async fn holds(test: &Test, squelch: Squelch, policy: &Policy, sent: i64) -> Result<Counters> {
    let counters = status_matches_metrics(test, &squelch, policy, sent).await?;
    squelch.stop().await?;
    stored_matches(&test.events(None).await?, &counters)?;
    Ok(counters)
}

/// Compares the sum of the stored counts with the counters, after the last flush.
///
/// # Errors
/// If they differ, with both values.
pub fn stored_matches(stored: &[Event], counters: &Counters) -> Result<()> {
    let sum: i64 = stored.iter().map(events::value).sum();
    let expected = counters.admitted
        + counters.compacted
        + counters.aggregated
        + counters.failed_open
        + counters.recovered;
    ensure!(sum == expected, "{sum} stored, {expected} expected: {counters:?}\n{}", events::list(stored));
    Ok(())
}
