//! The steps of a decision, in order. The first step that answers ends it.

use crate::decide::keys::Hasher;
use crate::decide::prefetch::WriteKeys;
use crate::state::capacity::AtCapacity;
use crate::state::live_series::Handle;
use crate::state::names::{Carried, Names};
use crate::state::scope::Scope;
use crate::{
    Answer, Api, Denial, Disposition, Governing, Mode, Moment, Observation, Operation,
    PendingLimitAdmissions, Rejection, Rules, Stage, Treatment, Verdict,
};

/// The state that one decision works on: constants of the engine and the namespace's state, under its lock.
pub(crate) struct Decision<'a> {
    pub(crate) hasher: &'a Hasher,
    pub(crate) names: &'a mut Names,
    pub(crate) scope: &'a mut Scope,
    /// The other scopes of the namespace.
    pub(crate) others: [&'a mut [Scope]; 2],
    /// The tables without capacity for another entry.
    pub(crate) at_capacity: AtCapacity,
    /// The engine drains and merges nothing more, except as [`merged_while_draining`] says.
    pub(crate) draining: bool,
    /// Whether the Event first happened before this engine became active.
    pub(crate) began_before: bool,
    /// A number unique to this decision. Generated names derive from it.
    pub(crate) number: u64,
    /// Writes admitted because a limit on pending occurrences was reached.
    pub(crate) pending_limit_admissions: PendingLimitAdmissions,
    pub(crate) now: Moment,
    /// The keys of the write.
    pub(crate) keys: WriteKeys,
    /// Whether the limits hold few tokens after this write.
    pub(crate) few_tokens: bool,
}

/// Whether an UPDATE would lower the stored count. With series enabled it never passes, because the occurrences
/// of other clients would be lost.
pub(crate) fn lowers(write: &Observation<'_>) -> bool {
    write.operation == Operation::Update && write.value < write.old_value
}

/// How a client counts the occurrences of an Event that it updates.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientCount {
    /// It has a count of its own.
    Own,
    /// It reads the stored count and adds one. It does not notice a restored Event.
    Read,
    /// A recorder of the new API, which collects occurrences, reports them late, and counts from the answer.
    Collected,
}

impl ClientCount {
    pub(crate) fn of(rules: &Rules, write: &Observation<'_>, carried: &Carried, now: Moment) -> Self {
        let is_silent = || {
            let idle_timeout = rules.timing(false).idle_timeout;
            carried.seen_before.is_none_or(|seen| now.since(seen) > idle_timeout)
        };
        if carried.reads {
            Self::Read
        } else if write.operation == Operation::Update
            && write.api == Api::Events
            && !write.begins_at_one()
            && (carried.occurrences > 1 || !carried.late_retry && is_silent())
        {
            Self::Collected
        } else {
            Self::Own
        }
    }
}

/// Returns the refusal that the write's client handles best.
pub(crate) fn refusal(rules: &Rules, write: &Observation<'_>, client: ClientCount) -> Answer {
    match (write.operation, write.api) {
        (Operation::Create, _) if write.has_series && !write.begins_at_one() => {
            Answer::Deny(Denial::Forbidden)
        }
        (Operation::Create, _) => Answer::Deny(match rules.rejection {
            Rejection::AlreadyExists => Denial::AlreadyExists,
            Rejection::Forbidden => Denial::Forbidden,
        }),
        (Operation::Update, Api::Events) if client == ClientCount::Collected => {
            Answer::Deny(Denial::Forbidden)
        }
        (Operation::Update, Api::Events) if !write.begins_at_one() => Answer::Restore,
        (Operation::Update, Api::Core) if client == ClientCount::Read => Answer::Restore,
        (Operation::Update, _) => Answer::Deny(Denial::AlreadyExists),
    }
}

impl Decision<'_> {
    /// Decides a write that a policy governs and that is no own write, no dry run and no edit.
    pub(crate) fn decide(&mut self, governing: Governing<'_>, write: &Observation<'_>) -> Verdict {
        let rules = governing.rules;
        self.prefetch(rules, write);
        if self.at_capacity.ended {
            self.scope.evict_ended();
        }
        if self.carries_nothing(write) {
            return Verdict::passed(Stage::Edit);
        }
        let carried = self.carry(write);
        let verdict = if carried.foreign {
            self.admit_foreign_create(governing, write, &carried)
        } else if governing.treatment == Treatment::Exempt {
            self.admit_beside_series(write, &carried, Stage::Exempt)
        } else if self.draining && !merged_while_draining(rules, write, carried.occurrences) {
            self.admit_beside_series(write, &carried, Stage::Standby)
        } else if !self.draining
            && let Some(muted) = self.mute(governing, write, &carried)
        {
            muted
        } else {
            self.steps(rules, write, &carried)
        };
        let is_created =
            verdict.disposition == Some(Disposition::Admitted) && write.operation == Operation::Create;
        if is_created && carried.occurrences > 0 && !carried.foreign {
            self.names.record_created(carried.name);
        }
        if verdict.disposition != Some(Disposition::Admitted) {
            self.pending_limit_admissions = PendingLimitAdmissions::default();
        }
        if let Some(disposition) = verdict.disposition {
            self.count(disposition, write, verdict.occurrences.unsigned_abs());
        }
        verdict
    }

    /// Counts the disposition of a write.
    fn count(&mut self, disposition: Disposition, write: &Observation<'_>, occurrences: u64) {
        let event = &write.event;
        self.scope.counters.count(disposition, occurrences);
        if disposition.is_dropped() && occurrences > 0 {
            self.scope.counters.count_dropped_warning(event, occurrences);
            let key = self.hasher.dropped(event, disposition);
            let dropped = (occurrences, write.occurred_at);
            self.scope.count_dropped(key, event, disposition, dropped, self.at_capacity.dropped);
        }
    }

    /// Counts a write that passes without a decision. Occurrences that other clients reported for the same
    /// series stay pending, whatever count this write stores.
    pub(crate) fn fail_open(&mut self, write: &Observation<'_>) -> Option<i64> {
        if self.carries_nothing(write) {
            return None;
        }
        let carried = self.carry(write);
        if !carried.foreign {
            self.admit_beside_series(write, &carried, Stage::Admit);
        }
        self.scope.counters.count(Disposition::FailedOpen, carried.occurrences.unsigned_abs());
        Some(carried.occurrences)
    }

    /// Whether an UPDATE carries no occurrence.
    fn carries_nothing(&self, write: &Observation<'_>) -> bool {
        write.unchanged && !self.names.exceeds_reported(self.hasher, self.keys.name, write)
    }

    fn carry(&mut self, write: &Observation<'_>) -> Carried {
        let name = self.keys.name;
        let carried =
            self.names.carry(self.hasher, name, write, self.began_before, self.at_capacity.names, self.now);
        if let Some(displaced) = carried.displaced {
            self.discard(displaced);
        }
        carried
    }

    /// Discards a series in any scope, because its stored Event belongs to another user. Its pending
    /// occurrences are lost.
    fn discard(&mut self, handle: Handle) {
        let [earlier, later] = &mut self.others;
        let others = earlier.iter_mut().chain(later.iter_mut());
        for scope in others.chain(std::iter::once(&mut *self.scope)) {
            scope.discard(handle);
        }
    }

    /// Admits a CREATE of a name that belongs to another user. The API server refuses it if that user's Event
    /// is stored. Only mute and the limits apply: the write must not change the state of the other user, nor store more
    /// than any other CREATE.
    fn admit_foreign_create(
        &mut self,
        governing: Governing<'_>,
        write: &Observation<'_>,
        carried: &Carried,
    ) -> Verdict {
        let stage = if governing.treatment == Treatment::Exempt {
            Stage::Exempt
        } else if self.draining {
            Stage::Standby
        } else if let Some(muted) = self.mute(governing, write, carried) {
            return muted;
        } else {
            self.prefetch_limits(governing.rules, write);
            if let Some(limited) = self.limit(governing.rules, write, carried) {
                return limited;
            }
            Stage::Admit
        };
        verdict(Disposition::Admitted, stage, carried.occurrences, Answer::Allow)
    }

    /// Runs steps 8 to 12.
    fn steps(&mut self, rules: &Rules, write: &Observation<'_>, carried: &Carried) -> Verdict {
        if rules.series.is_none() && write.operation == Operation::Update && self.has_live_series(carried) {
            return self.admit_beside_series(write, carried, Stage::Admit);
        }
        if let Some(compacted) = self.compact(rules, write, carried) {
            return compacted;
        }
        self.prefetch_steps(rules, write);
        if let Some(aggregated) = self.aggregate(rules, write, carried) {
            return aggregated;
        }
        if let Some(limited) = self.limit(rules, write, carried) {
            return limited;
        }
        self.admit(rules, write, carried)
    }

    /// Returns a verdict if the policy mutes the write.
    fn mute(&self, governing: Governing<'_>, write: &Observation<'_>, carried: &Carried) -> Option<Verdict> {
        let Governing { rules, treatment } = governing;
        let muted = treatment == Treatment::Mute && rules.may_drop(&write.event);
        muted.then(|| self.suppressed(Disposition::Muted, Stage::Mute, rules, write, carried))
    }

    /// Returns the verdict on a write that is refused, with the answer that its client handles best.
    pub(crate) fn suppressed(
        &self,
        disposition: Disposition,
        stage: Stage,
        rules: &Rules,
        write: &Observation<'_>,
        carried: &Carried,
    ) -> Verdict {
        let answer = refusal(rules, write, ClientCount::of(rules, write, carried, self.now));
        verdict(disposition, stage, carried.occurrences, answer)
    }

    /// Whether series are disabled, but the series of this name still lives because it must be flushed.
    fn has_live_series(&self, carried: &Carried) -> bool {
        let series = carried.name.and_then(|name| self.names.series_of(name));
        series.is_some_and(|series| self.scope.series.get(series).is_some())
    }
}

/// Whether an UPDATE is merged even while draining. It is if it lowers the stored count, or carries more occurrences
/// than it adds to the stored count.
fn merged_while_draining(rules: &Rules, write: &Observation<'_>, occurrences: i64) -> bool {
    let adds_too_few = write.operation == Operation::Update && write.value - write.old_value < occurrences;
    rules.series.is_some() && rules.mode == Mode::Enforce && (lowers(write) || adds_too_few)
}

pub(crate) fn verdict(disposition: Disposition, stage: Stage, occurrences: i64, answer: Answer) -> Verdict {
    Verdict { disposition: Some(disposition), stage, occurrences, answer }
}
