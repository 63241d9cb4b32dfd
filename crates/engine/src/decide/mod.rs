//! The decision on one write.

mod admission;
pub(crate) mod aggregation;
pub(crate) mod keys;
pub(crate) mod limits;
pub(crate) mod masks;
mod minted_name;
pub(crate) mod pending_limit;
pub(crate) mod pipeline;
pub(crate) mod prefetch;
pub(crate) mod series;
pub(crate) mod standby;

use std::sync::atomic::Ordering;

use crate::{
    Answer, Disposition, Engine, Governing, Mode, Moment, Observation, PendingLimitAdmissions, Stage, Verdict,
};
use pipeline::Decision;
use prefetch::WriteKeys;

impl Engine {
    /// Decides one write. Never blocks on I/O. Holds the lock of the namespaces in its shard for some microseconds.
    pub fn decide(&self, governing: Option<Governing<'_>>, write: &Observation<'_>, now: Moment) -> Verdict {
        if write.own {
            return Verdict::passed(Stage::Own);
        }
        let Some(governing) = governing else { return Verdict::passed(Stage::NoPolicy) };
        if write.dry_run {
            return Verdict::passed(Stage::DryRun);
        }
        if write.edited || write.stale {
            return Verdict::passed(Stage::Edit);
        }
        let mut verdict =
            self.with_decision(governing, write, now, |deciding, write| deciding.decide(governing, write));
        if governing.rules.mode == Mode::Observe {
            verdict.answer = Answer::Allow;
        }
        verdict
    }

    /// Counts a write that passes without a decision (overload, a panic) and records its value.
    pub fn fail_open(
        &self,
        governing: Option<Governing<'_>>,
        write: &Observation<'_>,
        now: Moment,
    ) -> Verdict {
        let Some(governing) = governing else { return Verdict::passed(Stage::NoPolicy) };
        if write.own || write.dry_run || write.edited || write.stale {
            return Verdict::passed(Stage::Edit);
        }
        self.with_decision(governing, write, now, |deciding, write| match deciding.fail_open(write) {
            Some(occurrences) => {
                let disposition = Some(Disposition::FailedOpen);
                Verdict { disposition, occurrences, ..Verdict::passed(Stage::Admit) }
            }
            None => Verdict::passed(Stage::Edit),
        })
    }

    /// Runs `act` on the write, with the message as it is stored, under the lock of its namespace.
    fn with_decision<T>(
        &self,
        governing: Governing<'_>,
        write: &Observation<'_>,
        now: Moment,
        act: impl FnOnce(&mut Decision<'_>, &Observation<'_>) -> T,
    ) -> T {
        let cut = governing.rules.with_stored_message(write);
        let write = cut.as_ref().unwrap_or(write);
        let answer = self.with_namespace(governing, write, now, |deciding| act(deciding, write));
        if self.usage.is_over_capacity(self.settings.max_series) {
            self.evict_for_others(write.namespace, now);
        }
        answer
    }

    fn with_namespace<T>(
        &self,
        governing: Governing<'_>,
        write: &Observation<'_>,
        now: Moment,
        act: impl FnOnce(&mut Decision<'_>) -> T,
    ) -> T {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let mut entry = self.namespace(write.namespace);
        let namespace = &mut **entry;
        namespace.prefetch_outline();
        let at = namespace.scope_of(governing.rules, &self.shared_rules);
        let before = namespace.sizes();
        let at_capacity = self.usage.at_capacity(&before, &self.settings);
        let (earlier, rest) = namespace.scopes.split_at_mut(at);
        let (scope, later) = rest.split_first_mut().expect("the scope was just found or made");
        let mut deciding = Decision {
            hasher: &self.hasher,
            names: &mut namespace.names,
            scope,
            others: [earlier, later],
            at_capacity,
            draining: self.is_draining(),
            began_before: write
                .first_seen
                .is_some_and(|first| first.as_microsecond() < self.began.load(Ordering::Relaxed)),
            number,
            pending_limit_admissions: PendingLimitAdmissions::default(),
            now,
            keys: WriteKeys::of_name(&self.hasher, write.name.as_deref()),
            few_tokens: false,
        };
        let answer = act(&mut deciding);
        let PendingLimitAdmissions { series, text } = deciding.pending_limit_admissions;
        for (admitted, sum) in [series, text].into_iter().zip(&self.pending_limit_admissions) {
            if admitted > 0 {
                sum.fetch_add(admitted, Ordering::Relaxed);
            }
        }
        self.usage.change(&before, &namespace.sizes());
        answer
    }
}
