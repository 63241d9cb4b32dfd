//! Conservation of occurrences: compares a policy's status, squelch's metrics, and the stored Events.

use anyhow::{Context as _, Result, ensure};
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
    for (disposition, in_status) in counters.by_disposition() {
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

/// The beginning of the error of [`holds`] if nothing was lost, but writes passed undecided: a decision took too long, calls of
/// the webhook timed out, the Lease expired, or slow probes disarmed the webhook.
const TOO_SLOW: &str = "nothing was lost, but the machine was too slow";

/// The beginning of errors for which a slow machine is no reason: `hack/e2e-lane` does not repeat such a test.
pub(crate) const UNEXPLAINED: &str = "no undecided write explains this";

/// Same as [`status_matches_metrics`]; then stops squelch, which flushes pending occurrences, and compares the stored
/// counts. For policies in Enforce, if no Event was deleted, and for tests that expect a decision about each write.
///
/// # Errors
/// If they differ, with both values; [`TOO_SLOW`] if undecided writes are the only difference.
pub async fn holds(test: &Test, squelch: Squelch, policy: &Policy, sent: i64) -> Result<Counters> {
    let counted = status_matches_metrics(test, &squelch, policy, sent).await;
    let metrics = squelch.metrics().await?;
    let undecided = test.failed_webhook_calls().await? + metrics.reviews("standby") as i64;
    squelch.stop().await?;
    let stored = test.events(None).await?;
    let counters = policy.counters().await?;
    let unseen = sent - counters.received;
    let at_most = if metrics.was_disarmed() { sent } else { undecided };
    // A write that squelch did not see is stored. So is one that it merged, but answered too late: a recorder's CREATE with all
    // earlier occurrences of its Event.
    let beyond = sum(&stored) - expected(&counters);
    let in_each = stored.iter().map(events::value).max().unwrap_or_default();
    let twice = 0..=undecided * in_each;
    let explains = (0..=at_most).contains(&unseen) && twice.contains(&(beyond - unseen));
    ensure!(
        beyond == 0 && unseen == 0 || !explains,
        "{TOO_SLOW}: {unseen} occurrences not received, {beyond} stored beyond the counters"
    );
    let counters = counted.context(UNEXPLAINED)?;
    stored_matches(&stored, &counters).context(UNEXPLAINED)?;
    ensure!(counters.failed_open == 0, "{TOO_SLOW}: {counters:?}");
    Ok(counters)
}

/// Compares the sum of the stored counts with the counters, after the last flush.
///
/// # Errors
/// If they differ, with both values.
pub fn stored_matches(stored: &[Event], counters: &Counters) -> Result<()> {
    let (sum, expected) = (sum(stored), expected(counters));
    ensure!(sum == expected, "{sum} stored, {expected} expected: {counters:?}\n{}", events::list(stored));
    Ok(())
}

fn sum(stored: &[Event]) -> i64 {
    stored.iter().map(events::value).sum()
}

fn expected(counters: &Counters) -> i64 {
    let Counters { admitted, compacted, aggregated, failed_open, recovered, .. } = counters;
    admitted + compacted + aggregated + failed_open + recovered
}
