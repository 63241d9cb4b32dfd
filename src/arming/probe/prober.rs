//! Sends probes one after the other, and publishes what they show.

use std::sync::Arc;
use std::time::Duration;

use squelch_engine::Moment;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::reachability::{FAILURE_THRESHOLD, ProbeOutcome, Reachability, TokenExposure};
use super::request::{Probe, ProbeReport};
use crate::clock;
use crate::metrics::{Metrics, ProbeResult};

/// The time between the starts of two probes.
const INTERVAL: Duration = Duration::from_secs(1);
/// The same after a start or a takeover, so that squelch arms within half a second.
const QUICK_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum number of quick probes. An API server may need this long to load the probe entry.
const QUICK_PROBES: u32 = 20;

/// The reason before the first probe.
const NOT_PROBED: &str = "no probe has succeeded yet";

/// The reason after the rules were removed.
const RULES_REMOVED: &str =
    "another replica or a person removed the rules, and new probes have to succeed first";

/// Sends probes.
pub struct Prober {
    probe: Probe,
    /// Whether the API server has the probe entry.
    entry_exists: watch::Receiver<bool>,
    /// Why reachability is not confirmed. `None` while it is.
    unreachable: watch::Sender<Option<String>>,
    /// Whether consecutive failures reach [`FAILURE_THRESHOLD`].
    failing: watch::Sender<bool>,
    /// When the last probe failed that exposed the token. Set once probes succeed again.
    exposed: watch::Sender<Option<Moment>>,
    /// Whether this replica is active, so that the probes reach its own webhook.
    active: watch::Receiver<bool>,
    /// The number of requested resets, and the number of resets that are done.
    reset: watch::Receiver<u64>,
    reset_done: watch::Sender<u64>,
    metrics: Arc<Metrics>,
}

/// What the probes show, for the controller.
pub(in crate::arming) struct ProbeStatus {
    pub(in crate::arming) unreachable: watch::Receiver<Option<String>>,
    pub(in crate::arming) failing: watch::Receiver<bool>,
    reset: watch::Sender<u64>,
    reset_done: watch::Receiver<u64>,
}

impl ProbeStatus {
    /// Returns why reachability is not confirmed by the probes since the last [`Self::reset`]. `None` if it is.
    pub(in crate::arming) fn unreachable(&mut self) -> Option<String> {
        // In this order: a value that was sent after the reset comes from new probes.
        let is_current = *self.reset_done.borrow() == *self.reset.borrow();
        let unreachable = self.unreachable.borrow_and_update().clone();
        if is_current { unreachable } else { Some(RULES_REMOVED.to_owned()) }
    }

    /// Discards all probes so far, including the one that is under way.
    pub(in crate::arming) fn reset(&self) {
        self.reset.send_modify(|times| *times += 1);
    }
}

impl Prober {
    pub(in crate::arming) fn new(
        probe: Probe,
        entry_exists: watch::Receiver<bool>,
        active: watch::Receiver<bool>,
        metrics: Arc<Metrics>,
    ) -> (Self, ProbeStatus) {
        let (unreachable, unreachable_rx) = watch::channel(Some(NOT_PROBED.to_owned()));
        let (failing, failing_rx) = watch::channel(false);
        let (reset, reset_rx) = watch::channel(0);
        let (reset_done, reset_done_rx) = watch::channel(0);
        let (exposed, _) = watch::channel(None);
        let status = ProbeStatus {
            unreachable: unreachable_rx,
            failing: failing_rx,
            reset,
            reset_done: reset_done_rx,
        };
        let prober = Self {
            probe,
            entry_exists,
            unreachable,
            failing,
            exposed,
            active,
            reset: reset_rx,
            reset_done,
            metrics,
        };
        (prober, status)
    }

    /// Returns when the last probe failed that exposed the token. It changes once probes succeed again, so that a new
    /// token is not exposed at once.
    pub fn exposed(&self) -> watch::Receiver<Option<Moment>> {
        self.exposed.subscribe()
    }

    /// Sends probes until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        stop.run_until_cancelled(self.send_probes()).await;
    }

    async fn send_probes(&mut self) {
        let mut history = History::default();
        let mut exposure = TokenExposure::default();
        loop {
            if !*self.entry_exists.borrow_and_update() {
                history = History::default();
                self.unreachable.send_replace(Some(NOT_PROBED.to_owned()));
                self.failing.send_replace(false);
                if self.entry_exists.wait_for(|exists| *exists).await.is_err() {
                    return;
                }
            }
            let active = *self.active.borrow_and_update();
            if active && !history.active {
                history.take_over();
            }
            history.active = active;
            let reset = *self.reset.borrow_and_update();
            if reset != *self.reset_done.borrow() {
                history.reset();
                self.unreachable.send_replace(Some(RULES_REMOVED.to_owned()));
                self.reset_done.send_replace(reset);
            }
            let began = clock::now();
            let probed = tokio::select! {
                biased;
                // A probe that was sent before the rules were removed says nothing about the time after it.
                Ok(()) = self.reset.changed() => {
                    // The API server cancels its call of the webhook, and logs the URL.
                    exposure.record(ProbeResult::Timeout, clock::now());
                    continue;
                }
                probed = self.probe.send() => probed,
            };
            self.metrics.probe(probed.result, clock::now().since(began));
            history.record(&probed, &self.unreachable);
            if let Some(at) = exposure.record(probed.result, clock::now()) {
                self.exposed.send_replace(Some(at));
            }
            self.failing
                .send_if_modified(|failing| std::mem::replace(failing, history.is_failing()) != *failing);
            let pause = history.interval().saturating_sub(clock::now().since(began));
            tokio::select! {
                () = sleep(pause) => {}
                // Another replica's webhook answers from now on. The sender is dropped only when the process ends.
                changed = self.active.changed() => if changed.is_err() { return },
                Ok(()) = self.reset.changed() => {}
            }
        }
    }
}

/// The probes since the probe entry exists.
#[derive(Default)]
struct History {
    reachability: Reachability,
    last: Option<ProbeResult>,
    probes: u32,
    /// Whether reachability was confirmed once.
    confirmed_once: bool,
    /// Consecutive failures, also while reachability is not confirmed.
    failures: u8,
    /// Whether the probes reach the own webhook.
    active: bool,
}

impl History {
    fn record(&mut self, probed: &ProbeReport, unreachable: &watch::Sender<Option<String>>) {
        let outcome = self.outcome(probed.result);
        self.probes = self.probes.saturating_add(1);
        let changed = self.reachability.record(outcome);
        self.confirmed_once |= self.reachability.is_confirmed();
        match outcome {
            ProbeOutcome::Success | ProbeOutcome::Slow => self.failures = 0,
            ProbeOutcome::Failure => self.failures = self.failures.saturating_add(1),
            ProbeOutcome::Inconclusive => {}
        }
        if self.last.replace(probed.result) != Some(probed.result) {
            self.log(probed, outcome);
        }
        if self.reachability.is_confirmed() {
            if changed {
                unreachable.send_replace(None);
            }
        } else if outcome == ProbeOutcome::Failure {
            // Published on each failure, because the reason may change.
            unreachable.send_if_modified(|reason| {
                let differs = reason.as_ref() != Some(&probed.message);
                *reason = Some(probed.message.clone());
                differs
            });
        }
    }

    /// Starts to probe the own webhook. A confirmed reachability stays until probes fail. Otherwise quick probes
    /// follow.
    fn take_over(&mut self) {
        (self.probes, self.failures, self.confirmed_once) = (0, 0, self.reachability.is_confirmed());
        self.reachability.reset_count();
    }

    /// Discards the probes so far. Soon after a takeover, quick probes follow.
    fn reset(&mut self) {
        self.reachability = Reachability::default();
        self.confirmed_once &= self.probes >= QUICK_PROBES;
    }

    /// Returns the outcome of a result. A standby without file descriptors knows nothing about the active replica's
    /// webhook.
    fn outcome(&self, result: ProbeResult) -> ProbeOutcome {
        if result == ProbeResult::NoDescriptors && !self.active {
            ProbeOutcome::Inconclusive
        } else {
            ProbeOutcome::of(result)
        }
    }

    fn is_failing(&self) -> bool {
        self.failures >= FAILURE_THRESHOLD
    }

    /// Logs a result that differs from the last one.
    fn log(&self, probed: &ProbeReport, outcome: ProbeOutcome) {
        let (result, message) = (probed.result.as_str(), &probed.message);
        match outcome {
            ProbeOutcome::Success => info!("probe succeeded"),
            _ if !self.confirmed_once && self.probes < QUICK_PROBES => {
                debug!(result, message, "probe has not succeeded yet");
            }
            ProbeOutcome::Failure => warn!(result, message, "probe failed"),
            ProbeOutcome::Inconclusive if probed.result == ProbeResult::NoDescriptors => {
                warn!(result, message, "standby cannot send probes");
            }
            ProbeOutcome::Slow => warn!(result, message, "probe succeeded, but the API server is slow"),
            ProbeOutcome::Inconclusive => warn!(result, message, "probe ignored, the API server fails"),
        }
    }

    fn interval(&self) -> Duration {
        let is_quick = self.active && !self.confirmed_once && self.probes < QUICK_PROBES;
        if is_quick { QUICK_INTERVAL } else { INTERVAL }
    }
}

#[cfg(test)]
mod tests;
