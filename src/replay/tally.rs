//! What is counted beside the engine's own accounts: writes, bytes, summaries.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::Serialize;
use squelch_engine::{Answer, Denial, Governing, Moment, Observation, PolicyId, Stage, Verdict};

use super::payer::Payment;
use super::text::clean;

/// So many summaries are listed; the rest is counted.
const MOST_SUMMARIES: usize = 1_000;
/// A message is shown up to this many characters.
pub(super) const MESSAGE: usize = 120;

/// Writes, by what became of them, and what of them reaches etcd.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Writes {
    /// Writes of clients.
    pub received: u64,
    /// Of these, allowed.
    pub allowed: u64,
    /// Answered 409 `AlreadyExists`.
    pub already_exists: u64,
    /// Answered 403 `Forbidden`.
    pub forbidden: u64,
    /// Allowed, and patched back to what was stored.
    pub restored: u64,
    /// What reaches etcd without squelch: each of them but dry runs.
    pub etcd_without: u64,
    /// What reaches etcd with the policies: those allowed, and squelch's own.
    pub etcd_with: u64,
    /// Of these, squelch's own: counts that it brought up to date, summaries, Events that it made again.
    pub payments: u64,
    /// JSON bytes of the Events written, without squelch.
    pub bytes_without: u64,
    /// The same with the policies.
    pub bytes_with: u64,
}

impl Writes {
    pub(super) fn add(&mut self, other: &Self) {
        self.received += other.received;
        self.allowed += other.allowed;
        self.already_exists += other.already_exists;
        self.forbidden += other.forbidden;
        self.restored += other.restored;
        self.etcd_without += other.etcd_without;
        self.etcd_with += other.etcd_with;
        self.payments += other.payments;
        self.bytes_without += other.bytes_without;
        self.bytes_with += other.bytes_with;
    }

    fn count(&mut self, write: &Observation<'_>, verdict: &Verdict, bytes: u64) {
        self.received += 1;
        let by_answer = match &verdict.answer {
            Answer::Allow | Answer::AllowNamed(_) => &mut self.allowed,
            Answer::Deny(Denial::AlreadyExists) => &mut self.already_exists,
            Answer::Deny(Denial::Forbidden) => &mut self.forbidden,
            Answer::Restore => &mut self.restored,
        };
        *by_answer += 1;
        if write.dry_run {
            return;
        }
        self.etcd_without += 1;
        self.bytes_without += bytes;
        if matches!(verdict.answer, Answer::Allow | Answer::AllowNamed(_)) {
            self.etcd_with += 1;
            self.bytes_with += bytes;
        }
    }

    fn pay(&mut self, payment: &Payment) {
        self.payments += 1;
        self.etcd_with += 1;
        self.bytes_with += payment.bytes;
    }
}

/// A summary that would be written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The policy that folded.
    pub policy: String,
    /// What it counts at the end.
    pub count: i64,
    /// What it says at the end, cut, without control characters.
    pub message: String,
}

/// The counts of a replay.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// By namespace; then the few policies there.
    scopes: HashMap<Arc<str>, Vec<(PolicyId, Writes)>>,
    /// What no policy governs: own writes, and writes without a policy.
    pub(super) ungoverned: Writes,
    /// Writes that passed uncounted, by the reason.
    pub(super) passed: BTreeMap<&'static str, u64>,
    summaries: BTreeMap<(Arc<str>, Box<str>), Summary>,
    /// Summaries that were not listed for want of room; one may be counted more than once.
    pub(super) more_summaries: u64,
    pub(super) first: Option<Moment>,
    pub(super) last: Option<Moment>,
}

impl Tally {
    pub(super) fn decided(
        &mut self,
        now: Moment,
        governing: Option<Governing<'_>>,
        write: &Observation<'_>,
        verdict: &Verdict,
        bytes: u64,
    ) {
        self.first.get_or_insert(now);
        self.last = Some(now);
        if verdict.disposition.is_none() {
            *self.passed.entry(verdict.stage.as_str()).or_default() += 1;
        }
        match governing.filter(|_| verdict.stage != Stage::Own) {
            Some(governing) => {
                let writes = self.of(write.namespace, &governing.rules.policy);
                writes.count(write, verdict, bytes);
            }
            None => self.ungoverned.count(write, verdict, bytes),
        }
    }

    pub(super) fn paid(&mut self, payment: &Payment) {
        let order = &payment.order;
        self.of(&order.namespace, &order.policy).pay(payment);
        let Some(content) = &payment.summary else { return };
        let key = (order.namespace.clone(), order.name.clone());
        if self.summaries.len() >= MOST_SUMMARIES && !self.summaries.contains_key(&key) {
            self.more_summaries += 1;
            return;
        }
        let summary = Summary {
            namespace: clean(&order.namespace, MESSAGE),
            name: clean(&order.name, 253),
            policy: order.policy.display.to_string(),
            count: payment.count,
            message: clean(&content.view().message, MESSAGE),
        };
        self.summaries.insert(key, summary);
    }

    /// The writes of one policy in one namespace.
    pub(super) fn writes(&self, namespace: &str, policy: &PolicyId) -> Writes {
        let scopes = self.scopes.get(namespace).into_iter().flatten();
        scopes.filter(|(id, _)| id == policy).map(|(_, writes)| *writes).next().unwrap_or_default()
    }

    /// All summaries that are listed, those that count most first.
    pub(super) fn summaries(&self) -> Vec<Summary> {
        let mut summaries: Vec<_> = self.summaries.values().cloned().collect();
        summaries.sort_by_key(|summary| std::cmp::Reverse(summary.count));
        summaries
    }

    fn of(&mut self, namespace: &str, policy: &PolicyId) -> &mut Writes {
        if !self.scopes.contains_key(namespace) {
            self.scopes.insert(namespace.into(), Vec::new());
        }
        let scopes = self.scopes.get_mut(namespace).expect("put there just now");
        let at = scopes.iter().position(|(id, _)| id == policy).unwrap_or_else(|| {
            scopes.push((policy.clone(), Writes::default()));
            scopes.len() - 1
        });
        &mut scopes[at].1
    }
}
