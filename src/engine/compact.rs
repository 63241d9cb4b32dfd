//! Step 5 of a decision, series compaction: what of a series goes through, and what is folded.

use super::decide::{Deciding, lowers, refusal, verdict};
use super::names::Carried;
use super::scope::{ScopeId, remember};
use super::series::{SETTLE, Series};
use super::table::Handle;
use super::{
    Answer, Api, Denial, Disposition, Mode, Observation, Operation, Rules, SeriesRules, Stage, Verdict,
};

/// client-go's new recorder refreshes its series for the first time with this value, if nothing more happened.
const FIRST_REFRESH: i64 = 3;

impl Deciding<'_> {
    /// Step 5: `None` where the write belongs to no series, and opens none before the next steps have their say.
    pub(super) fn compact(
        &mut self,
        rules: &Rules,
        write: &Observation<'_>,
        carried: &Carried,
    ) -> Option<Verdict> {
        let series = rules.series?;
        match write.operation {
            Operation::Create => {
                let found = self.scope.series.find(self.hasher.series(write));
                let living = found.and_then(|found| self.living(found));
                let handle = living.or_else(|| self.take_over(rules, write, carried))?;
                Some(self.create_in_series(rules, handle, write, carried))
            }
            Operation::Update => self.update_in_series(rules, &series, write, carried),
        }
    }

    /// A CREATE of a series that lives.
    fn create_in_series(
        &mut self,
        rules: &Rules,
        handle: Handle,
        write: &Observation<'_>,
        carried: &Carried,
    ) -> Verdict {
        let (now, occurrences) = (self.now, carried.occurrences);
        self.scope.touch(handle, now);
        self.names.join(carried.name, self.scope.id, handle);
        let own = self.is_stored_name(handle, write);
        if !own && self.refuses_debt(Some(handle), carried) {
            return self.pass_outside(write, carried, Stage::Series);
        }
        self.scope.change(handle, now, |series| {
            if own {
                // The stored Event is gone, and its client makes it again; or it tries again, and it is there.
                if occurrences > 0 {
                    series.add(occurrences);
                    series.client_pays(write.value, now);
                } else {
                    series.unverified = true;
                    series.not_before = now.plus(SETTLE);
                }
                series.confirmed = 0;
            } else {
                series.add(occurrences);
                remember(series, write);
            }
        });
        if own {
            return verdict(Disposition::Admitted, Stage::Series, occurrences, Answer::Allow);
        }
        verdict(Disposition::Compacted, Stage::Series, occurrences, refusal(rules, write))
    }

    /// An UPDATE where series are on: folded, but for the payments that a client makes itself.
    fn update_in_series(
        &mut self,
        rules: &Rules,
        series: &SeriesRules,
        write: &Observation<'_>,
        carried: &Carried,
    ) -> Option<Verdict> {
        let (now, occurrences) = (self.now, carried.occurrences);
        let silent = carried.seen_before.is_none_or(|seen| now.since(seen) > series.idle_timeout);
        let holds_back = write.api == Api::Events && !write.begins_at_one() && (occurrences > 1 || silent);
        let refusal = if holds_back { Answer::Deny(Denial::Forbidden) } else { refusal(rules, write) };
        let folded = verdict(Disposition::Compacted, Stage::Series, occurrences, refusal);
        let Some(handle) = self.series_of_update(rules, write, carried) else {
            // There is no room to owe what it carries, and it must not pass where it would lower what is stored.
            if !lowers(write) {
                return None;
            }
            if rules.mode == Mode::Enforce {
                self.scope.counters.lost += occurrences.unsigned_abs();
            }
            return Some(folded);
        };
        let own = self.is_stored_name(handle, write);
        // Where no more may owe, what tells all that it carries goes through. What would lower the count or leave
        // something out is folded even then.
        let crowded = self.owes_one_too_many(Some(handle), carried);
        if crowded && !own && write.value - write.old_value >= occurrences {
            self.debts_refused += 1;
            return Some(self.pass_outside(write, carried, Stage::Series));
        }
        let passes = self.scope.change(handle, now, |series_state| {
            // Under Observe clients' writes are stored as they come: what Enforce would find there is what it
            // would have stored.
            let old = if rules.mode == Mode::Observe { series_state.stored } else { write.old_value };
            if own {
                series_state.resync(old, occurrences);
            } else {
                series_state.add(occurrences);
            }
            let complete = own && write.value == series_state.total && write.value >= old;
            let raises = write.value > old;
            let refreshes = write.api == Api::Events && (holds_back || write.value == FIRST_REFRESH);
            let passes = complete && (refreshes || raises && series_state.due(series, now));
            let told_again = write.value - series_state.total;
            let instead = !passes && crowded && own && raises && told_again >= 0;
            if passes || instead {
                series_state.client_pays(write.value, now);
            } else {
                remember(series_state, write);
            }
            (passes, instead.then_some(told_again))
        });
        if let Some((_, Some(told_again))) = passes {
            self.debts_refused += 1;
            self.scope.counters.recovered += told_again.unsigned_abs();
            return Some(verdict(Disposition::Admitted, Stage::Series, occurrences, Answer::Allow));
        }
        if let Some((true, _)) = passes {
            return Some(verdict(Disposition::Admitted, Stage::Series, occurrences, Answer::Allow));
        }
        Some(folded)
    }

    /// The series that an UPDATE belongs to: that of its name, else that of its key, else a new one.
    fn series_of_update(
        &mut self,
        rules: &Rules,
        write: &Observation<'_>,
        carried: &Carried,
    ) -> Option<Handle> {
        let scope: ScopeId = self.scope.id;
        let by_name = carried.name.and_then(|name| self.names.series_of(name));
        let by_name = by_name.filter(|(of, _)| *of == scope).map(|(_, handle)| handle);
        let living = by_name.and_then(|handle| self.living(handle)).or_else(|| {
            let handle = self.scope.series.find(self.hasher.series(write))?;
            self.living(handle)
        });
        let handle = match living.or_else(|| self.take_over(rules, write, carried)) {
            Some(handle) => handle,
            None if !self.may_open() => return None,
            None => {
                let name = write.name.as_deref().unwrap_or_default();
                let series = Series::opened_by_update(name, write.old_value, write.occurred_at, self.now);
                self.scope.open(self.hasher.series(write), series)
            }
        };
        self.scope.touch(handle, self.now);
        self.names.join(carried.name, scope, handle);
        Some(handle)
    }

    /// The series of the Event that this write is of, where another policy has governed it so far: it goes over to
    /// the scope that decides now, debt and all. Two that kept books of one stored Event would each take the other's
    /// payments for its own.
    fn take_over(&mut self, rules: &Rules, write: &Observation<'_>, carried: &Carried) -> Option<Handle> {
        if rules.mode == Mode::Observe || self.scope.retired {
            return None;
        }
        let (of, handle) = self.names.series_of(carried.name?)?;
        let other = self.others.iter_mut().flat_map(|some| some.iter_mut()).find(|scope| scope.id == of)?;
        let series = other.series.get(handle)?;
        if other.rules.mode == Mode::Observe || Some(&*series.name) != write.name.as_deref() {
            return None;
        }
        let key = self.hasher.series(write);
        if self.scope.series.find(key).is_some() {
            return None;
        }
        let series = other.close(handle)?;
        let handle = self.scope.open(key, Series { closing: false, ordered: false, wake: None, ..series });
        self.scope.change(handle, self.now, |_| ());
        Some(handle)
    }

    /// [`Scope::living`], whose room is free again where it was over.
    ///
    /// [`Scope::living`]: super::scope::Scope::living
    pub(super) fn living(&mut self, handle: Handle) -> Option<Handle> {
        let before = self.scope.series.len();
        let living = self.scope.living(handle, self.now);
        self.full.series &= self.scope.series.len() == before;
        living
    }

    /// Whether a series may be opened. Where as many live as may, the oldest of this scope goes if it owes
    /// nothing; if it owes it is paid first, and this write opens none.
    pub(super) fn may_open(&mut self) -> bool {
        if self.scope.retired {
            return false;
        }
        !self.full.series || self.scope.evict_oldest(self.now)
    }

    pub(super) fn is_stored_name(&self, handle: Handle, write: &Observation<'_>) -> bool {
        let stored = self.scope.series.get(handle).map(|series| &*series.name);
        write.name.is_some() && stored == write.name.as_deref()
    }
}
