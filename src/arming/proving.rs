//! One proof after the other, and what they add up to.

use std::sync::Arc;
use std::time::Duration;

use squelch_engine::Moment;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::probe::{Answered, Probe};
use super::proof::{Exposure, MISSES, Outcome, Proof};
use crate::clock;
use crate::metrics::{Metrics, ProofResult};

/// From one proof to the next.
const EVERY: Duration = Duration::from_secs(1);
/// The same at the start, so that squelch is armed within half a second.
const QUICK: Duration = Duration::from_millis(100);
/// So many are quick, if they prove nothing: an API server may hear late of the entry that they need.
const QUICK_PROOFS: u32 = 20;

/// What is said before there is anything to say.
pub(super) const NOTHING_YET: &str = "there is no proof yet";

/// The reason after the rules were taken away.
pub(super) const TAKEN_AWAY: &str =
    "another replica or a person took the rules away, and new probes have to succeed first";

/// Asks for proofs.
pub struct Proving {
    probe: Probe,
    /// Whether the API server has the entry for it.
    asked: watch::Receiver<bool>,
    /// Holds why the webhook is not proven, `None` while it is.
    unproven: watch::Sender<Option<String>>,
    /// Whether the last proofs were misses, so many that Event writes are not to be held up any longer.
    missing: watch::Sender<bool>,
    /// When the last probe failed that has shown the token to others; set once probes succeed again.
    exposed: watch::Sender<Option<Moment>>,
    /// Whether it is this replica's own webhook that is to be proven.
    active: watch::Receiver<bool>,
    /// The number of renewals that were requested, and the number that are carried out.
    renew: watch::Receiver<u64>,
    renewed: watch::Sender<u64>,
    metrics: Arc<Metrics>,
}

/// What becomes of the proofs, for whoever keeps the configuration.
pub(super) struct Proofs {
    pub(super) unproven: watch::Receiver<Option<String>>,
    pub(super) missing: watch::Receiver<bool>,
    renew: watch::Sender<u64>,
    renewed: watch::Receiver<u64>,
}

impl Proofs {
    /// Why the webhook is not proven, by the probes since the last [`Self::renew`].
    pub(super) fn unproven(&mut self) -> Option<String> {
        // In this order: a value that was sent after the renewal is one of new probes.
        let current = *self.renewed.borrow() == *self.renew.borrow();
        let unproven = self.unproven.borrow_and_update().clone();
        if current { unproven } else { Some(TAKEN_AWAY.to_owned()) }
    }

    /// Discards all probes so far, and the one that is under way: new probes have to succeed.
    pub(super) fn renew(&self) {
        self.renew.send_modify(|times| *times += 1);
    }
}

impl Proving {
    pub(super) fn new(
        probe: Probe,
        asked: watch::Receiver<bool>,
        active: watch::Receiver<bool>,
        metrics: Arc<Metrics>,
    ) -> (Self, Proofs) {
        let (unproven, heard) = watch::channel(Some(NOTHING_YET.to_owned()));
        let (missing, missed) = watch::channel(false);
        let (renew, renews) = watch::channel(0);
        let (renewed, renewals) = watch::channel(0);
        let (exposed, _) = watch::channel(None);
        (
            Self { probe, asked, unproven, missing, exposed, active, renew: renews, renewed, metrics },
            Proofs { unproven: heard, missing: missed, renew, renewed: renewals },
        )
    }

    /// When the last probe failed that has shown the token to others. It changes once probes succeed again: then a new
    /// token is not logged at once.
    pub fn exposed(&self) -> watch::Receiver<Option<Moment>> {
        self.exposed.subscribe()
    }

    /// Asks each second until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        stop.run_until_cancelled(self.ask()).await;
    }

    async fn ask(&mut self) {
        let mut course = Course::default();
        let mut exposure = Exposure::default();
        loop {
            if !*self.asked.borrow_and_update() {
                course = Course::default();
                self.unproven.send_replace(Some(NOTHING_YET.to_owned()));
                self.missing.send_replace(false);
                if self.asked.wait_for(|asked| *asked).await.is_err() {
                    return;
                }
            }
            let active = *self.active.borrow_and_update();
            if active && !course.active {
                course.take_over();
            }
            course.active = active;
            let renewal = *self.renew.borrow_and_update();
            if renewal != *self.renewed.borrow() {
                course.renew();
                self.unproven.send_replace(Some(TAKEN_AWAY.to_owned()));
                self.renewed.send_replace(renewal);
            }
            let began = clock::now();
            let answered = tokio::select! {
                biased;
                // A probe that was sent before the rules were taken away proves nothing about the time after it.
                Ok(()) = self.renew.changed() => {
                    // The API server cancels the call of the webhook, and logs it with its URL.
                    exposure.record(ProofResult::NoAnswer, clock::now());
                    continue;
                }
                answered = self.probe.ask() => answered,
            };
            self.metrics.proof(answered.result, clock::now().since(began));
            course.hear(&answered, &self.unproven);
            if let Some(at) = exposure.record(answered.result, clock::now()) {
                self.exposed.send_replace(Some(at));
            }
            self.missing.send_if_modified(|held| std::mem::replace(held, course.is_missing()) != *held);
            let pause = course.pause().saturating_sub(clock::now().since(began));
            tokio::select! {
                () = sleep(pause) => {}
                // Its own webhook is another than the one before. Whoever says so is gone only when the process ends.
                changed = self.active.changed() => if changed.is_err() { return },
                Ok(()) = self.renew.changed() => {}
            }
        }
    }
}

/// What became of the proofs since there is something to ask.
#[derive(Default)]
struct Course {
    proof: Proof,
    last: Option<ProofResult>,
    asked: u32,
    /// It was proven once.
    settled: bool,
    /// Misses in a row, whatever was proven before.
    missed: u8,
    /// It is the own webhook that is asked for.
    active: bool,
}

impl Course {
    fn hear(&mut self, answered: &Answered, unproven: &watch::Sender<Option<String>>) {
        let outcome = self.outcome(answered.result);
        self.asked = self.asked.saturating_add(1);
        let changed = self.proof.hear(outcome);
        self.settled |= self.proof.is_proven();
        match outcome {
            Outcome::Proven | Outcome::Late => self.missed = 0,
            Outcome::Missed => self.missed = self.missed.saturating_add(1),
            Outcome::NoWord => {}
        }
        if self.last.replace(answered.result) != Some(answered.result) {
            self.log(answered, outcome);
        }
        if self.proof.is_proven() {
            if changed {
                unproven.send_replace(None);
            }
        } else if outcome == Outcome::Missed {
            // Also while nothing changes: the reason may.
            unproven.send_if_modified(|held| {
                let differs = held.as_ref() != Some(&answered.why);
                *held = Some(answered.why.clone());
                differs
            });
        }
    }

    /// The own webhook answers from now on: what is proven stays so while it does, what is not can be so at once.
    fn take_over(&mut self) {
        (self.asked, self.missed, self.settled) = (0, 0, self.proof.is_proven());
        self.proof.forget_what_speaks_against_it();
    }

    /// The rules were taken away: new probes have to succeed.
    fn renew(&mut self) {
        self.proof = Proof::default();
        // Soon after a takeover the probes are quick.
        self.settled &= self.asked >= QUICK_PROOFS;
    }

    /// Without descriptors a standby cannot tell anything of the active replica's webhook.
    fn outcome(&self, result: ProofResult) -> Outcome {
        if result == ProofResult::NoDescriptors && !self.active {
            Outcome::NoWord
        } else {
            Outcome::of(result)
        }
    }

    fn is_missing(&self) -> bool {
        self.missed >= MISSES
    }

    /// Only what is new: a failure that lasts is one line.
    fn log(&self, answered: &Answered, outcome: Outcome) {
        let (result, why) = (answered.result.as_str(), &answered.why);
        match outcome {
            Outcome::Proven => info!("the API server reaches the webhook"),
            _ if !self.settled && self.asked < QUICK_PROOFS => debug!(result, why, "no proof yet"),
            Outcome::Missed => warn!(result, why, "the webhook missed a proof"),
            Outcome::NoWord if answered.result == ProofResult::NoDescriptors => {
                warn!(result, why, "this standby cannot probe the webhook");
            }
            Outcome::Late => warn!(result, why, "the API server is slow; the webhook answers"),
            Outcome::NoWord => warn!(result, why, "the API server fails; no word on the webhook"),
        }
    }

    fn pause(&self) -> Duration {
        if self.active && !self.settled && self.asked < QUICK_PROOFS { QUICK } else { EVERY }
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
    use crate::{PROBE_ANNOTATION, PROOF_ANNOTATION};

    fn answered(result: ProofResult) -> Answered {
        Answered { result, why: result.as_str().to_owned() }
    }

    #[test]
    fn the_reason_of_the_last_miss_is_told_and_the_api_servers_is_not() {
        let (unproven, mut heard) = watch::channel(Some(NOTHING_YET.to_owned()));
        let mut course = Course::default();
        let mut hear = |result| {
            course.hear(&answered(result), &unproven);
            let news = heard.has_changed().unwrap();
            (news, heard.borrow_and_update().clone())
        };
        use ProofResult::{NoAnswer, NoMark, Proven, ServerError};
        assert_eq!(hear(NoMark), (true, Some("no_mark".to_owned())));
        assert_eq!(hear(NoMark), (false, Some("no_mark".to_owned())));
        assert_eq!((hear(Proven).0, hear(Proven).0, hear(Proven)), (false, false, (true, None)));
        assert_eq!(hear(NoAnswer), (false, None));
        assert_eq!(hear(ServerError), (false, None));
        assert_eq!(hear(NoAnswer), (true, Some("no_answer".to_owned())));
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_is_cancelled_exposes_the_token() {
        let (service, mut server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let token = PathToken::generate().unwrap();
        let tokens = Arc::new(AcceptedTokens::new(vec![token.clone()]));
        let probe = Probe::new(Client::new(service, "default"), "squelch".to_owned(), tokens.clone());
        let ((_asks, asked), (_is_active, active)) = (watch::channel(true), watch::channel(true));
        let (proving, proofs) = Proving::new(probe, asked, active, Arc::new(Metrics::new()));
        let mut exposed = proving.exposed();
        let stop = CancellationToken::new();
        let proving = tokio::spawn(proving.run(stop.clone()));
        let _unanswered = server.next_request().await.unwrap();
        proofs.renew();
        let (request, second) = server.next_request().await.unwrap();
        assert_eq!(*exposed.borrow(), None, "not before a probe succeeds");
        let body = request.into_body().collect_bytes().await.unwrap();
        let mut event: Value = serde_json::from_slice(&body).unwrap();
        let nonce = event["metadata"]["annotations"][PROBE_ANNOTATION].as_str().unwrap();
        let mark = tokens.mark(token.reveal(), nonce).unwrap();
        event["metadata"]["annotations"][PROOF_ANNOTATION] = json!(mark);
        let body = Body::from(event.to_string().into_bytes());
        second.send_response(Response::builder().status(201).body(body).unwrap());
        let seen = tokio::time::timeout(EVERY, exposed.wait_for(Option::is_some)).await;
        assert!(seen.is_ok_and(|seen| seen.is_ok()));
        stop.cancel();
        proving.await.unwrap();
    }

    #[test]
    fn without_descriptors_the_active_replica_disarms_and_a_standby_does_not() {
        let (unproven, heard) = watch::channel(None);
        let mut course = Course { active: true, ..Course::default() };
        for _ in 0..MISSES {
            course.hear(&answered(ProofResult::NoDescriptors), &unproven);
        }
        assert!(course.is_missing());
        assert_eq!(heard.borrow().as_deref(), Some("no_descriptors"));
        let mut standby = Course::default();
        for _ in 0..10 {
            standby.hear(&answered(ProofResult::NoDescriptors), &unproven);
        }
        assert!(!standby.is_missing());
    }

    #[tokio::test]
    async fn it_ends_when_nobody_is_left_to_say_which_replica_is_active() {
        let (service, mut server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let tokens = Arc::new(AcceptedTokens::new(Vec::new()));
        let probe = Probe::new(Client::new(service, "default"), "squelch".to_owned(), tokens);
        let ((_asks, asked), (is_active, active)) = (watch::channel(true), watch::channel(true));
        let (proving, _proofs) = Proving::new(probe, asked, active, Arc::new(Metrics::new()));
        let proving = tokio::spawn(proving.run(CancellationToken::new()));
        let (_, first) = server.next_request().await.unwrap();
        drop(is_active);
        first.send_response(Response::builder().status(429).body(Body::empty()).unwrap());
        assert!(server.next_request().await.is_none(), "it asks no more");
        proving.await.unwrap();
    }

    #[test]
    fn the_first_proofs_are_quick() {
        let (unproven, _heard) = watch::channel(None);
        let active = || Course { active: true, ..Course::default() };
        let mut course = active();
        let mut pauses = Vec::new();
        for _ in 0..QUICK_PROOFS {
            course.hear(&answered(ProofResult::NoMark), &unproven);
            pauses.push(course.pause());
        }
        assert_eq!((pauses[0], pauses.pop()), (QUICK, Some(EVERY)));
        let mut course = active();
        let pauses = [ProofResult::Proven; 3].map(|result| {
            course.hear(&answered(result), &unproven);
            course.pause()
        });
        assert_eq!(pauses, [QUICK, QUICK, EVERY]);
        let mut standby = Course::default();
        standby.hear(&answered(ProofResult::Proven), &unproven);
        assert_eq!(standby.pause(), EVERY, "another's webhook needs no haste");
    }

    #[test]
    fn what_was_proven_of_another_stays_until_two_misses_of_the_own() {
        let (unproven, _heard) = watch::channel(None);
        let mut course = Course::default();
        let hear = |course: &mut Course, results: &[ProofResult]| {
            results.iter().for_each(|result| course.hear(&answered(*result), &unproven));
        };
        use ProofResult::{NoMark, Proven, ServerError};
        hear(&mut course, &[Proven, Proven, Proven, NoMark]);
        course.take_over();
        hear(&mut course, &[NoMark]);
        assert!(course.proof.is_proven() && !course.is_missing());
        hear(&mut course, &[ServerError, NoMark]);
        assert!(!course.proof.is_proven() && course.is_missing());
        course.take_over();
        course.active = true;
        assert_eq!((course.pause(), course.is_missing()), (QUICK, false));
    }
}
