//! One review: decode, find its policy, decide, answer. Any doubt lets the write through.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use squelch_engine::{Answer, Engine, Governing, Moment, Observation, Verdict, stand_by};

use super::answer;
use super::caller::Caller;
use super::review::{self, Asked, Review, Unobserved, Version};
use super::turns::LONG;
use crate::clock::Clock;
use crate::leader::Term;
use crate::metrics::{Metrics, WriteKind, WriteOutcome};
use crate::policy;
use crate::tls::AcceptedTokens;

/// What a review needs.
pub struct Webhook {
    /// Decides.
    pub engine: Arc<Engine>,
    /// Knows which policy governs.
    pub policies: Arc<policy::Store>,
    /// Told of every answer.
    pub metrics: Arc<Metrics>,
    /// The user of squelch's own writes (`system:serviceaccount:<namespace>:<name>`).
    pub own_user: String,
    /// What proves the API server.
    pub tokens: Arc<AcceptedTokens>,
    /// Says when a write came.
    pub clock: Clock,
    /// Until when this replica decides.
    pub term: Arc<Term>,
}

impl Webhook {
    /// Whether this replica decides.
    pub(super) fn decides(&self) -> bool {
        self.term.holds(self.clock.now())
    }

    /// Waits for a moment where nobody knows whether this replica still decides.
    pub(super) async fn settled(&self) {
        self.term.settled(self.clock.now()).await;
    }

    /// Answers a review that came whole; `None` for bytes that are none. The write of a caller that no longer waits is
    /// let through undecided.
    fn answer(&self, bytes: &[u8], caller: &Caller) -> Option<Bytes> {
        let decoded = match caught(|| review::decode(bytes)) {
            Some(Ok(decoded)) => decoded,
            Some(Err(error)) => {
                tracing::warn!(%error, "a review could not be read; its write is let through");
                return self.fail_open(bytes);
            }
            None => return self.fail_open(bytes),
        };
        let kind = WriteKind::of(decoded.operation(), decoded.api());
        let (outcome, answer) = caught(|| self.consider(&decoded, caller))
            .unwrap_or_else(|| (WriteOutcome::FailedOpen, allow(&decoded)));
        self.metrics.write(kind, outcome);
        Some(answer)
    }

    /// Lets a write through undecided, of whose review this is known to be the beginning.
    fn fail_open(&self, beginning: &[u8]) -> Option<Bytes> {
        self.count_unread();
        unread(beginning)
    }

    /// Counts a write that is let through undecided, whatever it was.
    fn count_unread(&self) {
        self.metrics.write(WriteKind::Unknown, WriteOutcome::FailedOpen);
    }

    fn consider(&self, review: &Review<'_>, caller: &Caller) -> (WriteOutcome, Bytes) {
        match review.observe(&self.own_user, self.clock.wall()) {
            Ok(write) => self.decide(review, &write, caller),
            Err(Unobserved::NotConcerned) => (WriteOutcome::NotConcerned, allow(review)),
            Err(Unobserved::NoEvent) => {
                tracing::warn!("a review holds no Event; its write is let through");
                (WriteOutcome::FailedOpen, allow(review))
            }
            Err(Unobserved::NoNamespace) => {
                tracing::warn!("a review names a namespace that cannot exist; its write is let through");
                (WriteOutcome::FailedOpen, allow(review))
            }
        }
    }

    fn decide(&self, review: &Review<'_>, write: &Observation<'_>, caller: &Caller) -> (WriteOutcome, Bytes) {
        if write.own && !write.dry_run {
            self.metrics.own_review();
        }
        let policies = self.policies.load();
        // Whoever has the token can name any namespace, and fill the tables with those that do not exist. The Events of
        // a namespace that the watch has not shown yet pass uncounted.
        let governing = policies.governing_in_known(write);
        let now = self.clock.now();
        if !self.term.holds(now) {
            return stood_by(review, governing, &stand_by(governing, write));
        }
        // Nothing of squelch's own writes is decided.
        if !write.own && !caller.waits(now) {
            return self.undecided(review, governing, write, now);
        }
        let decided = caught(|| self.engine.decide(governing, write, now));
        let spelled = decided.and_then(|verdict| spell(review, governing, &verdict));
        spelled.unwrap_or_else(|| self.undecided(review, governing, write, now))
    }

    /// The write goes through, and its occurrences are counted as far as the engine still counts.
    fn undecided(
        &self,
        review: &Review<'_>,
        governing: Option<Governing<'_>>,
        write: &Observation<'_>,
        now: Moment,
    ) -> (WriteOutcome, Bytes) {
        caught(|| self.engine.fail_open(governing, write, now));
        (WriteOutcome::FailedOpen, allow(review))
    }
}

/// A review that is not decided yet. Dropped, as when its caller gives up, its write counts as let through.
pub(super) struct Undecided {
    webhook: Option<Arc<Webhook>>,
    caller: Caller,
    body: Bytes,
}

impl Undecided {
    /// A review by `caller` for `webhook`, of which nothing has been read.
    pub(super) fn of(webhook: &Arc<Webhook>, caller: Caller) -> Self {
        Self { webhook: Some(webhook.clone()), caller, body: Bytes::new() }
    }

    /// Keeps the whole body: of a review that is dropped from now on, the engine counts the occurrences and remembers
    /// the client's value.
    pub(super) fn received(&mut self, body: Bytes) {
        self.body = body;
    }

    /// Answers the review; `None` for a body that is no review.
    pub(super) fn answer(mut self) -> Option<Bytes> {
        let answer = self.webhook.as_ref()?.answer(&self.body, &self.caller);
        self.webhook = None;
        answer
    }
}

impl Drop for Undecided {
    fn drop(&mut self) {
        let Some(webhook) = self.webhook.take() else { return };
        // A long one would keep a worker of the runtime busy for the sake of a caller that has gone.
        if self.body.is_empty() || self.body.len() > LONG || std::thread::panicking() {
            return webhook.count_unread();
        }
        self.caller.give_up();
        // Counts the write. There is nobody to answer.
        let _ = webhook.answer(&self.body, &self.caller);
    }
}

/// The verdict of a replica that does not decide.
fn stood_by(
    review: &Review<'_>,
    governing: Option<Governing<'_>>,
    verdict: &Verdict,
) -> (WriteOutcome, Bytes) {
    match spell(review, governing, verdict) {
        None | Some((WriteOutcome::Allowed, _)) => (WriteOutcome::Standby, allow(review)),
        Some(held_back) => held_back,
    }
}

/// The verdict in words of admission; `None` for one that does not fit the review.
fn spell(
    review: &Review<'_>,
    governing: Option<Governing<'_>>,
    verdict: &Verdict,
) -> Option<(WriteOutcome, Bytes)> {
    match &verdict.answer {
        Answer::Allow => Some((WriteOutcome::Allowed, allow(review))),
        Answer::AllowNamed(name) => Some((WriteOutcome::Named, answer::allow_named(review, name))),
        Answer::Restore => answer::restore(review).map(|restored| (WriteOutcome::Restored, restored)),
        Answer::Deny(denial) => {
            let policy = &governing?.rules.policy.display;
            // A replica that does not decide still guards stored counts, and has no disposition for that.
            let word = verdict.disposition.map_or(verdict.stage.as_str(), |disposition| disposition.as_str());
            Some((WriteOutcome::of(*denial), answer::deny(review, *denial, policy, word)))
        }
    }
}

/// The stateless answer to a review of which only this beginning is known: allowed. `None` where no uid was found; then
/// too the write goes on, since the API server ignores a webhook that fails.
pub(super) fn unread(beginning: &[u8]) -> Option<Bytes> {
    let Asked { version, uid } = review::scan(beginning)?;
    Some(answer::allow(version, &uid))
}

fn allow(review: &Review<'_>) -> Bytes {
    let version: Version = review.version();
    answer::allow(version, review.uid())
}

/// Runs `step`; `None` if it panicked. A bug must not fail a write, and the panic's message is in the log by the
/// standard hook. The engine keeps its locks usable after a panic, and nothing else is shared mutably.
fn caught<T>(step: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(step)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use squelch_engine::{Denial, Disposition, Mode, PolicyId, Rejection, Rules, Stage};

    const CREATE: &[u8] = include_bytes!("testdata/core_create.json");
    const UPDATE: &[u8] = include_bytes!("testdata/events_update.json");

    fn rules() -> Rules {
        Rules {
            policy: PolicyId { display: "shop/fold".into(), uid: "u".into() },
            mode: Mode::Enforce,
            series: None,
            aggregation: None,
            spam_filter: None,
            budget: None,
            rejection: Rejection::AlreadyExists,
        }
    }

    fn spelled(review: &[u8], answer: Answer) -> Option<(WriteOutcome, Value)> {
        let rules = rules();
        let governing = Some(Governing { rules: &rules, exempt: false });
        let disposition = Some(Disposition::Compacted);
        let verdict = Verdict { disposition, stage: Stage::Series, occurrences: 1, answer };
        let review = review::decode(review).unwrap();
        spell(&review, governing, &verdict)
            .map(|(outcome, bytes)| (outcome, serde_json::from_slice(&bytes).unwrap()))
    }

    fn patch_of(answer: &Value) -> json_patch::Patch {
        use base64::Engine as _;
        let text = answer["response"]["patch"].as_str().unwrap();
        let bytes = base64::engine::general_purpose::STANDARD.decode(text).unwrap();
        assert_eq!(answer["response"]["patchType"], "JSONPatch");
        serde_json::from_slice(&bytes).unwrap()
    }

    #[test]
    fn a_denial_names_policy_and_disposition_and_nothing_else() {
        for (denial, code, reason) in
            [(Denial::AlreadyExists, 409, "AlreadyExists"), (Denial::Forbidden, 403, "Forbidden")]
        {
            let (outcome, answer) = spelled(CREATE, Answer::Deny(denial)).unwrap();
            assert_eq!(outcome.as_str(), WriteOutcome::of(denial).as_str());
            let expected = json!({
                "kind": "AdmissionReview",
                "apiVersion": "admission.k8s.io/v1",
                "response": {
                    "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
                    "allowed": false,
                    "status": {
                        "status": "Failure",
                        "reason": reason,
                        "code": code,
                        "message": "squelch: shop/fold compacted",
                    },
                },
            });
            assert_eq!(answer, expected);
        }
    }

    #[test]
    fn a_restored_update_is_the_old_event_again() {
        let (outcome, answer) = spelled(UPDATE, Answer::Restore).unwrap();
        assert_eq!(outcome, WriteOutcome::Restored);
        let review: Value = serde_json::from_slice(UPDATE).unwrap();
        let mut object = review["request"]["object"].clone();
        json_patch::patch(&mut object, &patch_of(&answer)).unwrap();
        assert_eq!(object, review["request"]["oldObject"]);
    }

    #[test]
    fn a_create_cannot_be_restored() {
        assert!(spelled(CREATE, Answer::Restore).is_none());
    }

    #[test]
    fn a_named_create_gets_its_name() {
        let create = include_bytes!("testdata/generate_name.json");
        let (outcome, answer) = spelled(create, Answer::AllowNamed("web-x7k2m".to_owned())).unwrap();
        assert_eq!(outcome, WriteOutcome::Named);
        let mut object = serde_json::from_slice::<Value>(create).unwrap()["request"]["object"].clone();
        json_patch::patch(&mut object, &patch_of(&answer)).unwrap();
        assert_eq!(object["metadata"]["name"], "web-x7k2m");
    }

    #[test]
    fn a_panic_is_caught() {
        assert_eq!(caught(|| 3), Some(3));
        assert_eq!(caught::<()>(|| panic!("as meant by this test")), None);
    }
}
