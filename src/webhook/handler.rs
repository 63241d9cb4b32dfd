//! One review: decode, find its policy, decide, respond. On any failure the write is admitted without a decision.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use squelch_engine::{
    Answer, Disposition, Engine, Governing, Mode, Moment, Observation, Rules, Stage, Verdict, stand_by,
};

use super::cancellation::ReviewClient;
use super::long_reviews::LONG;
use super::patch::PatchOperation;
use super::response;
use super::review::{self, NotObserved, Review, ReviewHead, ReviewVersion};
use crate::clock::Clock;
use crate::export::Exporters;
use crate::leader::LeaseDeadline;
use crate::log_limit::LogLimit;
use crate::metrics::{Metrics, ReviewKind, ReviewResult};
use crate::policy;
use crate::tls::{AcceptedTokens, PathToken};

/// The rate limit of the warning about unreadable reviews.
static UNREADABLE: LogLimit = LogLimit::new();

/// The dependencies of a review.
pub struct Webhook {
    /// The engine.
    pub engine: Arc<Engine>,
    /// The policies in force.
    pub policies: Arc<policy::Store>,
    /// Counts every response.
    pub metrics: Arc<Metrics>,
    /// The user of squelch's own writes (`system:serviceaccount:<namespace>:<name>`).
    pub own_user: String,
    /// The tokens that authenticate the API server.
    pub tokens: Arc<AcceptedTokens>,
    /// The clock.
    pub clock: Clock,
    /// The time until which this replica is active.
    pub lease_deadline: Arc<LeaseDeadline>,
    /// Where the writes go that policies export.
    pub exporters: Exporters,
}

impl Webhook {
    /// A webhook that is always active, with this only token, and without exporters.
    pub fn new(
        engine: Arc<Engine>,
        policies: Arc<policy::Store>,
        own_user: impl Into<String>,
        token: PathToken,
    ) -> Self {
        Self {
            engine,
            policies,
            metrics: Arc::new(Metrics::new()),
            own_user: own_user.into(),
            tokens: Arc::new(AcceptedTokens::new(vec![token])),
            clock: Clock::default(),
            lease_deadline: Arc::new(LeaseDeadline::unlimited()),
            exporters: Exporters::default(),
        }
    }

    /// Whether this replica is active.
    pub(super) fn is_active(&self) -> bool {
        self.lease_deadline.is_active(self.clock.now())
    }

    /// Waits while it is unknown whether this replica is still active.
    pub(super) async fn wait_until_role_is_known(&self) {
        self.lease_deadline.wait_for_renewal(self.clock.now()).await;
    }

    /// Answers a whole review. Returns `None` for bytes that are no review. If the client no longer waits, the write is
    /// admitted without a decision.
    fn answer(&self, bytes: &[u8], client: &ReviewClient) -> Option<Bytes> {
        let decoded = match catch_panic(|| review::decode(bytes)) {
            Some(Ok(decoded)) => decoded,
            Some(Err(error)) => {
                self.warn_unreadable(&error);
                return self.fail_open_unread(bytes);
            }
            None => return self.fail_open_unread(bytes),
        };
        let kind = ReviewKind::of(decoded.operation(), decoded.api());
        let (outcome, answer) = catch_panic(|| self.review(&decoded, client))
            .unwrap_or_else(|| (ReviewResult::FailedOpen, allow(&decoded)));
        self.metrics.review(kind, outcome);
        Some(answer)
    }

    /// Admits a write without a decision, given the first bytes of its review.
    fn fail_open_unread(&self, prefix: &[u8]) -> Option<Bytes> {
        self.count_failed_open();
        allow_unread(prefix)
    }

    /// Counts a write of unknown kind that is admitted without a decision.
    pub(super) fn count_failed_open(&self) {
        self.metrics.review(ReviewKind::Unknown, ReviewResult::FailedOpen);
    }

    fn warn_unreadable(&self, error: &dyn fmt::Display) {
        if let Some(suppressed) = UNREADABLE.permit(self.clock.now()) {
            tracing::warn!(%error, suppressed, "unreadable review, admitting its write without a decision");
        }
    }

    fn review(&self, review: &Review<'_>, client: &ReviewClient) -> (ReviewResult, Bytes) {
        match review.observe(&self.own_user, self.clock.wall()) {
            Ok(write) => self.decide(review, &write, client),
            Err(NotObserved::NotConcerned) => (ReviewResult::NotConcerned, allow(review)),
            Err(NotObserved::NoEvent) => {
                self.warn_unreadable(&"no Event in the review");
                (ReviewResult::FailedOpen, allow(review))
            }
            Err(NotObserved::NoNamespace) => {
                self.warn_unreadable(&"invalid namespace name");
                (ReviewResult::FailedOpen, allow(review))
            }
        }
    }

    fn decide(
        &self,
        review: &Review<'_>,
        write: &Observation<'_>,
        client: &ReviewClient,
    ) -> (ReviewResult, Bytes) {
        if write.own && !write.dry_run {
            self.metrics.own_review();
        }
        let policies = self.policies.load();
        // A client with the token could fill the tables with namespaces that do not exist. Events of a namespace that the
        // watch has not listed yet are therefore admitted without being counted.
        let governing = policies.governing_in_known(write);
        let now = self.clock.now();
        if !self.lease_deadline.is_active(now) {
            return respond_as_standby(review, governing, &stand_by(governing, write));
        }
        // The engine does not decide squelch's own writes.
        if !write.own && !client.is_waiting(now) {
            return self.fail_open(review, governing, write, now);
        }
        let decided = catch_panic(|| self.engine.decide(governing, write, now));
        if let (Some(verdict), Some(governing)) = (&decided, governing) {
            self.export(review, governing.rules, write, verdict);
        }
        let response = decided.and_then(|verdict| respond(review, governing, &verdict));
        response.unwrap_or_else(|| self.fail_open(review, governing, write, now))
    }

    /// Admits the write without a decision. The engine counts its occurrences unless it panics.
    fn fail_open(
        &self,
        review: &Review<'_>,
        governing: Option<Governing<'_>>,
        write: &Observation<'_>,
        now: Moment,
    ) -> (ReviewResult, Bytes) {
        let counted = catch_panic(|| self.engine.fail_open(governing, write, now));
        if let (Some(verdict), Some(governing)) = (&counted, governing) {
            self.export(review, governing.rules, write, verdict);
        }
        (ReviewResult::FailedOpen, allow(review))
    }

    /// Exports the write if its policy includes it.
    fn export(&self, review: &Review<'_>, rules: &Rules, write: &Observation<'_>, verdict: &Verdict) {
        let received = || (self.clock.wall(), review.written_message());
        self.exporters.export(rules, write, verdict, received);
    }
}

/// A review that is not decided yet. If it is dropped, as when its client cancels, its write counts as admitted without a
/// decision.
pub(super) struct Undecided {
    webhook: Option<Arc<Webhook>>,
    client: ReviewClient,
    body: Bytes,
}

impl Undecided {
    /// Creates the review of `client`, before its body is read.
    pub(super) fn new(webhook: &Arc<Webhook>, client: ReviewClient) -> Self {
        Self { webhook: Some(webhook.clone()), client, body: Bytes::new() }
    }

    /// Stores the whole body. If the review is dropped from now on, the engine counts its occurrences and stores the
    /// client's value.
    pub(super) fn received(&mut self, body: Bytes) {
        self.body = body;
    }

    /// Answers the review. Returns `None` for a body that is no review.
    pub(super) fn answer(mut self) -> Option<Bytes> {
        let answer = self.webhook.as_ref()?.answer(&self.body, &self.client);
        self.webhook = None;
        answer
    }
}

impl Drop for Undecided {
    fn drop(&mut self) {
        let Some(webhook) = self.webhook.take() else { return };
        // Decoding a long review would block a worker of the runtime for a client that has gone.
        if self.body.is_empty() || self.body.len() > LONG || std::thread::panicking() {
            return webhook.count_failed_open();
        }
        self.client.cancel();
        // Counts the write. No client waits for the response.
        let _ = webhook.answer(&self.body, &self.client);
    }
}

/// Returns the response of a standby.
fn respond_as_standby(
    review: &Review<'_>,
    governing: Option<Governing<'_>>,
    verdict: &Verdict,
) -> (ReviewResult, Bytes) {
    match respond(review, governing, verdict) {
        None | Some((ReviewResult::Allowed, _)) => (ReviewResult::Standby, allow(review)),
        Some(denied_or_restored) => denied_or_restored,
    }
}

/// Returns the response for a verdict; `None` if the verdict does not fit the review.
fn respond(
    review: &Review<'_>,
    governing: Option<Governing<'_>>,
    verdict: &Verdict,
) -> Option<(ReviewResult, Bytes)> {
    let cut = governing.and_then(|governing| cut_message(review, governing.rules, verdict));
    let message = cut.as_deref().map(PatchOperation::message);
    match &verdict.answer {
        Answer::Allow if message.is_none() => Some((ReviewResult::Allowed, allow(review))),
        Answer::Allow => Some((ReviewResult::Allowed, response::allow_with(review, message))),
        Answer::AllowNamed(name) => {
            let named = [PatchOperation::name(name)].into_iter().chain(message);
            Some((ReviewResult::Named, response::allow_with(review, named)))
        }
        Answer::Restore => response::restore(review).map(|restored| (ReviewResult::Restored, restored)),
        Answer::Deny(denial) => {
            let policy = &governing?.rules.policy.display;
            // A standby still rejects writes that lower a stored count, and has no disposition for that.
            let cause =
                verdict.disposition.map_or(verdict.stage.as_str(), |disposition| disposition.as_str());
            Some((ReviewResult::of(*denial), response::deny(review, *denial, policy, cause)))
        }
    }
}

/// Returns the message to store, if the stages admitted the write and its message is too long for the policy. Exempt
/// Events, edits and writes without a decision are stored as they are. So are UPDATEs that do not change the message: an
/// Event may be older than the policy.
fn cut_message(review: &Review<'_>, rules: &Rules, verdict: &Verdict) -> Option<String> {
    let is_decided = verdict.disposition == Some(Disposition::Admitted)
        && !matches!(verdict.stage, Stage::Exempt | Stage::Standby);
    if rules.max_message_bytes.is_none() || rules.mode == Mode::Observe || !is_decided {
        return None;
    }
    if review.written_and_old().is_some_and(|(written, old)| written.message == old.message) {
        return None;
    }
    let written = review.written_message();
    let stored = rules.stored_message(review.api()?, &written);
    (stored.len() < written.len()).then(|| stored.to_owned())
}

/// Returns the response that allows a write, given the first bytes of its review; `None` if they have no uid. The API
/// server stores the write then too, because it ignores a failed webhook.
pub(super) fn allow_unread(prefix: &[u8]) -> Option<Bytes> {
    let ReviewHead { version, uid } = review::scan(prefix)?;
    Some(response::allow(version, &uid))
}

fn allow(review: &Review<'_>) -> Bytes {
    let version: ReviewVersion = review.version();
    response::allow(version, review.uid())
}

/// Runs `step`; returns `None` if it panics, so that a bug does not fail a write. The standard hook logs the panic. The
/// engine's locks stay usable after a panic, and no other state is shared mutably.
fn catch_panic<T>(step: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(step)).ok()
}

#[cfg(test)]
mod tests;
