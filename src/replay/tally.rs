//! Counts that the engine does not have: writes, bytes, summaries.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::Serialize;
use squelch_engine::{Answer, Denial, Governing, Moment, Observation, PolicyId, Stage, Verdict};

use super::flusher::{Flush, Presence};
use super::text::{NAME, clean};

/// Maximum characters of a message.
pub(super) const MESSAGE: usize = 120;

/// Numbers of writes by answer, and the writes that reach etcd.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Writes {
    /// Writes of clients.
    pub received: u64,
    /// Received writes that were allowed.
    pub allowed: u64,
    /// Received writes that were refused with 409 `AlreadyExists`.
    pub already_exists: u64,
    /// Received writes that were refused with 403 `Forbidden`.
    pub forbidden: u64,
    /// Received writes that were allowed and patched back to what was stored.
    pub restored: u64,
    /// Writes to etcd without squelch: all received writes except dry runs and CREATEs of another user's Event.
    pub etcd_without: u64,
    /// Writes to etcd with the policies: the allowed ones, and squelch's own.
    pub etcd_with: u64,
    /// squelch's own writes, included in `etcd_with`: updated counts, summaries, recreated Events.
    pub flushes: u64,
    /// Events stored without squelch: all that the writes create or change.
    pub events_without: u64,
    /// Events stored with the policies, with those that squelch creates.
    pub events_with: u64,
    /// JSON bytes of the Events written without squelch.
    pub bytes_without: u64,
    /// JSON bytes of the Events written with the policies.
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
        self.flushes += other.flushes;
        self.events_without += other.events_without;
        self.events_with += other.events_with;
        self.bytes_without += other.bytes_without;
        self.bytes_with += other.bytes_with;
    }

    fn count(&mut self, verdict: &Verdict, effect: Option<StoreEffect>) {
        self.received += 1;
        let by_answer = match &verdict.answer {
            Answer::Allow | Answer::AllowNamed(_) => &mut self.allowed,
            Answer::Deny(Denial::AlreadyExists) => &mut self.already_exists,
            Answer::Deny(Denial::Forbidden) => &mut self.forbidden,
            Answer::Restore => &mut self.restored,
        };
        *by_answer += 1;
        let Some(StoreEffect { bytes, before, after }) = effect else { return };
        let is_allowed = matches!(verdict.answer, Answer::Allow | Answer::AllowNamed(_));
        let is_unnamed = before == Presence::Unnamed;
        self.etcd_without += 1;
        self.bytes_without += bytes;
        self.events_without += u64::from(is_unnamed || before == Presence::Unknown);
        if is_allowed {
            self.etcd_with += 1;
            self.bytes_with += bytes;
        }
        let becomes_stored = before != Presence::Stored && after == Presence::Stored;
        self.events_with += u64::from(becomes_stored || (is_unnamed && is_allowed));
    }

    fn add_flush(&mut self, flush: &Flush) {
        self.flushes += 1;
        self.etcd_with += 1;
        self.bytes_with += flush.bytes;
        self.events_with += u64::from(flush.created);
    }
}

/// The effect of a write that reaches etcd unless squelch refuses it.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoreEffect {
    /// The length of the Event's JSON.
    pub(super) bytes: u64,
    /// The Event before the write.
    pub(super) before: Presence,
    /// The Event after the write.
    pub(super) after: Presence,
}

/// A summary that would be written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The policy that aggregated.
    pub policy: String,
    /// Its count at the end.
    pub count: i64,
    /// Its message at the end, truncated and without control characters.
    pub message: String,
}

/// The counts of a replay.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Writes by namespace, then by policy.
    scopes: HashMap<Arc<str>, Vec<(PolicyId, Writes)>>,
    /// Writes that no policy governs: squelch's own, and those without a policy.
    pub(super) ungoverned: Writes,
    /// Writes that passed uncounted, by reason.
    pub(super) passed: BTreeMap<&'static str, u64>,
    summaries: BTreeMap<(Arc<str>, Box<str>), Summary>,
    pub(super) first: Option<Moment>,
    pub(super) last: Option<Moment>,
}

impl Tally {
    /// Counts a decided write. `effect` is `None` if the API server would not store the Event even if allowed.
    pub(super) fn decided(
        &mut self,
        now: Moment,
        governing: Option<Governing<'_>>,
        write: &Observation<'_>,
        verdict: &Verdict,
        effect: Option<StoreEffect>,
    ) {
        self.first.get_or_insert(now);
        self.last = Some(now);
        if verdict.disposition.is_none() {
            *self.passed.entry(verdict.stage.as_str()).or_default() += 1;
        }
        match governing.filter(|_| verdict.stage != Stage::Own) {
            Some(governing) => {
                let writes = self.of(write.namespace, &governing.rules.policy);
                writes.count(verdict, effect);
            }
            None => self.ungoverned.count(verdict, effect),
        }
    }

    pub(super) fn flushed(&mut self, flush: &Flush) {
        let task = &flush.task;
        self.of(&task.namespace, &task.policy).add_flush(flush);
        let Some(content) = &flush.summary else { return };
        let key = (task.namespace.clone(), task.name.clone());
        let summary = Summary {
            namespace: clean(&task.namespace, MESSAGE),
            name: clean(&task.name, 253),
            policy: clean(&task.policy.display, NAME),
            count: flush.count,
            message: clean(&content.view().message, MESSAGE),
        };
        self.summaries.insert(key, summary);
    }

    /// Returns the writes of one policy in one namespace.
    pub(super) fn writes(&self, namespace: &str, policy: &PolicyId) -> Writes {
        let scopes = self.scopes.get(namespace).into_iter().flatten();
        scopes.filter(|(id, _)| id == policy).map(|(_, writes)| *writes).next().unwrap_or_default()
    }

    /// Returns all summaries, the highest count first.
    pub(super) fn summaries(&self) -> Vec<&Summary> {
        let mut summaries: Vec<_> = self.summaries.values().collect();
        summaries.sort_by_key(|summary| std::cmp::Reverse(summary.count));
        summaries
    }

    fn of(&mut self, namespace: &str, policy: &PolicyId) -> &mut Writes {
        if !self.scopes.contains_key(namespace) {
            self.scopes.insert(namespace.into(), Vec::new());
        }
        let scopes = self.scopes.get_mut(namespace).expect("inserted above");
        let at = scopes.iter().position(|(id, _)| id == policy).unwrap_or_else(|| {
            scopes.push((policy.clone(), Writes::default()));
            scopes.len() - 1
        });
        &mut scopes[at].1
    }
}
