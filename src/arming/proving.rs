//! One proof after the other, and what they add up to.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::probe::{Answered, Probe};
use super::proof::{MISSES, Outcome, Proof};
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

/// Asks for proofs.
pub struct Proving {
    probe: Probe,
    /// Whether the API server has the entry for it.
    asked: watch::Receiver<bool>,
    /// Holds why the webhook is not proven, `None` while it is.
    unproven: watch::Sender<Option<String>>,
    /// Whether the last proofs were misses, so many that Event writes are not to be held up any longer.
    missing: watch::Sender<bool>,
    /// Whether it is this replica's own webhook that is to be proven.
    active: watch::Receiver<bool>,
    metrics: Arc<Metrics>,
}

/// What becomes of the proofs, for whoever keeps the configuration.
pub(super) struct Proofs {
    pub(super) unproven: watch::Receiver<Option<String>>,
    pub(super) missing: watch::Receiver<bool>,
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
        (
            Self { probe, asked, unproven, missing, active, metrics },
            Proofs { unproven: heard, missing: missed },
        )
    }

    /// Asks each second until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        stop.run_until_cancelled(self.ask()).await;
    }

    async fn ask(&mut self) {
        let mut course = Course::default();
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
            let began = clock::now();
            let answered = self.probe.ask().await;
            self.metrics.proof(answered.result, clock::now().since(began));
            course.hear(&answered, &self.unproven);
            self.missing.send_if_modified(|held| std::mem::replace(held, course.is_missing()) != *held);
            let pause = course.pause().saturating_sub(clock::now().since(began));
            tokio::select! {
                () = sleep(pause) => {}
                // Its own webhook is another than the one before.
                _ = self.active.changed() => {}
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
        let outcome = Outcome::of(answered.result);
        self.asked = self.asked.saturating_add(1);
        let changed = self.proof.hear(outcome);
        self.settled |= self.proof.is_proven();
        match outcome {
            Outcome::Proven => self.missed = 0,
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

    fn is_missing(&self) -> bool {
        self.missed >= MISSES
    }

    /// Only what is new: a failure that lasts is one line.
    fn log(&self, Answered { result, why }: &Answered, outcome: Outcome) {
        let result = result.as_str();
        match outcome {
            Outcome::Proven => info!("the API server reaches the webhook"),
            _ if !self.settled && self.asked < QUICK_PROOFS => debug!(result, why, "no proof yet"),
            Outcome::Missed => warn!(result, why, "the webhook missed a proof"),
            Outcome::NoWord => warn!(result, why, "the API server fails; no word on the webhook"),
        }
    }

    fn pause(&self) -> Duration {
        if self.active && !self.settled && self.asked < QUICK_PROOFS { QUICK } else { EVERY }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
