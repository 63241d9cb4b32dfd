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
                let found = self.scope.series.find(self.hasher.series(write))?;
                let handle = self.scope.living(found, self.now)?;
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
        let holds_back = write.api == Api::Events && (occurrences > 1 || silent);
        let refusal = if holds_back { Answer::Deny(Denial::Forbidden) } else { refusal(rules, write) };
        let folded = verdict(Disposition::Compacted, Stage::Series, occurrences, refusal);
        let Some(handle) = self.series_of_update(write, carried) else {
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
            if passes {
                series_state.client_pays(write.value, now);
            } else {
                remember(series_state, write);
            }
            passes
        });
        if passes == Some(true) {
            return Some(verdict(Disposition::Admitted, Stage::Series, occurrences, Answer::Allow));
        }
        Some(folded)
    }

    /// The series that an UPDATE belongs to: that of its name, else that of its key, else a new one.
    fn series_of_update(&mut self, write: &Observation<'_>, carried: &Carried) -> Option<Handle> {
        let scope: ScopeId = self.scope.id;
        let by_name = carried.name.and_then(|name| self.names.series_of(name));
        let by_name = by_name.filter(|(of, _)| *of == scope).map(|(_, handle)| handle);
        let living = by_name.and_then(|handle| self.scope.living(handle, self.now)).or_else(|| {
            let handle = self.scope.series.find(self.hasher.series(write))?;
            self.scope.living(handle, self.now)
        });
        let handle = match living {
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
