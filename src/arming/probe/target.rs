//! The probes of one API server.

use std::sync::Arc;
use std::time::Duration;

use squelch_engine::Moment;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{debug, info, warn};

use super::outcome::ProbeOutcome;
use super::request::{Probe, ProbeReport};
use crate::clock;
use crate::metrics::ProbeResult;

/// The time without an answer after which a second probe is sent: a webhook that hangs is noticed sooner. A probe that
/// succeeds takes at most this long.
const SECOND_PROBE: Duration = Duration::from_millis(500);

/// One API server.
pub(super) struct ProbeTarget {
    pub(super) probe: Arc<Probe>,
    /// The last result, for the log.
    last: Option<ProbeResult>,
    /// The number of probes since the probe entry exists or this replica is active.
    pub(super) probes: u32,
}

impl ProbeTarget {
    pub(super) fn new(probe: Probe) -> Self {
        Self { probe: Arc::new(probe), last: None, probes: 0 }
    }

    /// Logs a result that differs from the last one. `is_expected`: failures are usual now.
    pub(super) fn log(
        &mut self,
        api_server: &str,
        probed: &ProbeReport,
        outcome: ProbeOutcome,
        is_expected: bool,
    ) {
        if self.last.replace(probed.result) == Some(probed.result) {
            return;
        }
        let (result, message) = (probed.result.as_str(), &probed.message);
        match outcome {
            ProbeOutcome::Success => info!(api_server, "probe succeeded"),
            _ if is_expected => debug!(api_server, result, message, "probe has not succeeded yet"),
            ProbeOutcome::Hang | ProbeOutcome::FastFailure => {
                warn!(api_server, result, message, "probe failed");
            }
            ProbeOutcome::Inconclusive if probed.result == ProbeResult::NoDescriptors => {
                warn!(api_server, result, message, "standby cannot send probes");
            }
            ProbeOutcome::Slow => {
                warn!(api_server, result, message, "probe succeeded, but the API server is slow");
            }
            ProbeOutcome::Inconclusive => {
                warn!(api_server, result, message, "probe ignored, the API server fails");
            }
        }
    }
}

/// When a probe is sent, and how.
pub(super) struct ProbePlan {
    /// The API server.
    pub(super) api_server: String,
    /// The time until then.
    pub(super) pause: Duration,
    /// Ends the pause. Its value is the number of the round.
    pub(super) wake: watch::Receiver<u64>,
    /// Nothing is sent if there is no probe entry then.
    pub(super) entry_exists: watch::Receiver<bool>,
    /// Whether a second probe follows if there is no answer soon, because the webhook may be armed.
    pub(super) is_urgent: bool,
}

/// Probes that were sent together.
pub(super) struct Sent {
    pub(super) api_server: String,
    /// The round in which they were sent.
    pub(super) round: u64,
    pub(super) began: Moment,
    /// Each result, and the time that it took.
    pub(super) reports: Vec<(ProbeReport, Duration)>,
}

/// Sends a probe after a pause.
pub(super) async fn send(probe: Arc<Probe>, plan: ProbePlan) -> Sent {
    let ProbePlan { api_server, pause, mut wake, entry_exists, is_urgent } = plan;
    tokio::select! {
        () = sleep(pause) => {}
        Ok(()) = wake.changed() => {}
    }
    let (round, began) = (*wake.borrow(), clock::now());
    if !*entry_exists.borrow() {
        return Sent { api_server, round, began, reports: Vec::new() };
    }
    let timed = async || {
        let began = clock::now();
        let report = probe.send().await;
        (report, clock::now().since(began))
    };
    let mut first = std::pin::pin!(timed());
    let reports = tokio::select! {
        biased;
        report = &mut first => vec![report],
        () = sleep(SECOND_PROBE), if is_urgent => {
            let (first, second) = tokio::join!(first, timed());
            vec![first, second]
        }
    };
    Sent { api_server, round, began, reports }
}
