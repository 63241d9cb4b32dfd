//! The probes of one API server.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use squelch_engine::Moment;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{debug, info, warn};

use super::outcome::ProbeOutcome;
use super::request::{Probe, ProbeReport};
use crate::clock;
use crate::metrics::ProbeResult;

/// The time without an answer after which further probes are sent: a webhook that hangs is noticed sooner. A probe that
/// succeeds takes at most this long.
const FURTHER_PROBES: Duration = Duration::from_millis(500);

/// The number of further probes to the only address: a balancer there may lead to five API servers, and one of the
/// probes has to reach the one that hangs.
const SHARED_ADDRESS: usize = 5;

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

    /// Returns the number of further probes if there is no answer soon. A slow API server gets one each time.
    pub(super) fn further_probes(&self, is_only_address: bool) -> usize {
        if is_only_address && self.last == Some(ProbeResult::Succeeded) { SHARED_ADDRESS } else { 1 }
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
    /// The number of further probes if there is no answer soon. Zero while the webhook cannot be armed.
    pub(super) further: usize,
}

/// Probes that waited at the same time.
pub(super) struct Sent {
    pub(super) api_server: String,
    /// The round in which they were sent.
    pub(super) round: u64,
    pub(super) began: Moment,
    /// Each result, and the time that it took. The further probes follow the first one.
    pub(super) reports: Vec<(ProbeReport, Duration)>,
}

impl Sent {
    /// Returns the reports that count, at most two. One cause, such as a restart of the API server, fails all probes that
    /// wait at the same time. So only a hang of the first one is confirmed by a further one.
    pub(super) fn counted(&self) -> impl Iterator<Item = &ProbeReport> {
        let mut reports = self.reports.iter().map(|(report, _)| report);
        let first = reports.next();
        let confirming = reports.find(|report| is_hang(report)).filter(|_| first.is_some_and(is_hang));
        first.into_iter().chain(confirming)
    }

    /// Whether a hang is confirmed and another probe succeeded: several API servers share the address.
    pub(super) fn shows_shared_address(&self) -> bool {
        let succeeded =
            |(report, _): &(ProbeReport, _)| ProbeOutcome::of(report.result) == ProbeOutcome::Success;
        self.counted().count() > 1 && self.reports.iter().any(succeeded)
    }
}

fn is_hang(report: &ProbeReport) -> bool {
    ProbeOutcome::of(report.result) == ProbeOutcome::Hang
}

/// Sends a probe after a pause.
pub(super) async fn send(probe: Arc<Probe>, plan: ProbePlan) -> Sent {
    let ProbePlan { api_server, pause, mut wake, entry_exists, further } = plan;
    tokio::select! {
        () = sleep(pause) => {}
        Ok(()) = wake.changed() => {}
    }
    let (round, began) = (*wake.borrow(), clock::now());
    if !*entry_exists.borrow() {
        return Sent { api_server, round, began, reports: Vec::new() };
    }
    let mut first = std::pin::pin!(timed(&probe));
    let reports = tokio::select! {
        biased;
        report = &mut first => vec![report],
        () = sleep(FURTHER_PROBES), if further > 0 => {
            let (first, further) = tokio::join!(first, join_all((0..further).map(|_| timed(&probe))));
            std::iter::once(first).chain(further).collect()
        }
    };
    Sent { api_server, round, began, reports }
}

async fn timed(probe: &Probe) -> (ProbeReport, Duration) {
    let began = clock::now();
    let report = probe.send().await;
    (report, clock::now().since(began))
}
