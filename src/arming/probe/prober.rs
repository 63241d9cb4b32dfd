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
mod tests {
    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;
    use crate::tls::{AcceptedTokens, PathToken};
    use crate::{PROBE_ANNOTATION, PROBE_SIGNATURE_ANNOTATION};

    fn report(result: ProbeResult) -> ProbeReport {
        ProbeReport { result, message: result.as_str().to_owned() }
    }

    #[test]
    fn the_message_of_the_last_failure_is_published_and_an_inconclusive_one_is_not() {
        let (unreachable, mut receiver) = watch::channel(Some(NOT_PROBED.to_owned()));
        let mut history = History::default();
        let mut record = |result| {
            history.record(&report(result), &unreachable);
            let changed = receiver.has_changed().unwrap();
            (changed, receiver.borrow_and_update().clone())
        };
        use ProbeResult::{ServerError, Succeeded, Timeout, Unsigned};
        assert_eq!(record(Unsigned), (true, Some("unsigned".to_owned())));
        assert_eq!(record(Unsigned), (false, Some("unsigned".to_owned())));
        assert_eq!(
            (record(Succeeded).0, record(Succeeded).0, record(Succeeded)),
            (false, false, (true, None))
        );
        assert_eq!(record(Timeout), (false, None));
        assert_eq!(record(ServerError), (false, None));
        assert_eq!(record(Timeout), (true, Some("timeout".to_owned())));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_probe_exposes_the_token() {
        let (service, mut server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let token = PathToken::generate().unwrap();
        let tokens = Arc::new(AcceptedTokens::new(vec![token.clone()]));
        let probe = Probe::new(Client::new(service, "default"), "squelch".to_owned(), tokens.clone());
        let ((_exists, exists), (_is_active, active)) = (watch::channel(true), watch::channel(true));
        let (prober, status) = Prober::new(probe, exists, active, Arc::new(Metrics::new()));
        let mut exposed = prober.exposed();
        let stop = CancellationToken::new();
        let running = tokio::spawn(prober.run(stop.clone()));
        let _unanswered = server.next_request().await.unwrap();
        status.reset();
        let (request, second) = server.next_request().await.unwrap();
        assert_eq!(*exposed.borrow(), None, "not before a probe succeeds");
        let body = request.into_body().collect_bytes().await.unwrap();
        let mut event: Value = serde_json::from_slice(&body).unwrap();
        let nonce = event["metadata"]["annotations"][PROBE_ANNOTATION].as_str().unwrap();
        let signature = tokens.sign(token.reveal(), nonce).unwrap();
        event["metadata"]["annotations"][PROBE_SIGNATURE_ANNOTATION] = json!(signature);
        let body = Body::from(event.to_string().into_bytes());
        second.send_response(Response::builder().status(201).body(body).unwrap());
        let seen = tokio::time::timeout(INTERVAL, exposed.wait_for(Option::is_some)).await;
        assert!(seen.is_ok_and(|seen| seen.is_ok()));
        stop.cancel();
        running.await.unwrap();
    }

    #[test]
    fn without_descriptors_the_active_replica_disarms_and_a_standby_does_not() {
        let (unreachable, receiver) = watch::channel(None);
        let mut history = History { active: true, ..History::default() };
        for _ in 0..FAILURE_THRESHOLD {
            history.record(&report(ProbeResult::NoDescriptors), &unreachable);
        }
        assert!(history.is_failing());
        assert_eq!(receiver.borrow().as_deref(), Some("no_descriptors"));
        let mut standby = History::default();
        for _ in 0..10 {
            standby.record(&report(ProbeResult::NoDescriptors), &unreachable);
        }
        assert!(!standby.is_failing());
    }

    #[tokio::test]
    async fn the_prober_ends_when_the_sender_of_the_active_state_is_dropped() {
        let (service, mut server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let tokens = Arc::new(AcceptedTokens::new(Vec::new()));
        let probe = Probe::new(Client::new(service, "default"), "squelch".to_owned(), tokens);
        let ((_exists, exists), (is_active, active)) = (watch::channel(true), watch::channel(true));
        let (prober, _status) = Prober::new(probe, exists, active, Arc::new(Metrics::new()));
        let running = tokio::spawn(prober.run(CancellationToken::new()));
        let (_, first) = server.next_request().await.unwrap();
        drop(is_active);
        first.send_response(Response::builder().status(429).body(Body::empty()).unwrap());
        assert!(server.next_request().await.is_none(), "no more probes");
        running.await.unwrap();
    }

    #[test]
    fn the_first_probes_are_quick() {
        let (unreachable, _heard) = watch::channel(None);
        let active = || History { active: true, ..History::default() };
        let mut history = active();
        let mut pauses = Vec::new();
        for _ in 0..QUICK_PROBES {
            history.record(&report(ProbeResult::Unsigned), &unreachable);
            pauses.push(history.interval());
        }
        assert_eq!((pauses[0], pauses.pop()), (QUICK_INTERVAL, Some(INTERVAL)));
        let mut history = active();
        let pauses = [ProbeResult::Succeeded; 3].map(|result| {
            history.record(&report(result), &unreachable);
            history.interval()
        });
        assert_eq!(pauses, [QUICK_INTERVAL, QUICK_INTERVAL, INTERVAL]);
        let mut standby = History::default();
        standby.record(&report(ProbeResult::Succeeded), &unreachable);
        assert_eq!(standby.interval(), INTERVAL, "a standby sends no quick probes");
    }

    #[test]
    fn after_a_takeover_reachability_stays_confirmed_until_two_failures() {
        let (unreachable, _heard) = watch::channel(None);
        let mut history = History::default();
        let record = |history: &mut History, results: &[ProbeResult]| {
            results.iter().for_each(|result| history.record(&report(*result), &unreachable));
        };
        use ProbeResult::{ServerError, Succeeded, Unsigned};
        record(&mut history, &[Succeeded, Succeeded, Succeeded, Unsigned]);
        history.take_over();
        record(&mut history, &[Unsigned]);
        assert!(history.reachability.is_confirmed() && !history.is_failing());
        record(&mut history, &[ServerError, Unsigned]);
        assert!(!history.reachability.is_confirmed() && history.is_failing());
        history.take_over();
        history.active = true;
        assert_eq!((history.interval(), history.is_failing()), (QUICK_INTERVAL, false));
    }
}
