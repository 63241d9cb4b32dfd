//! Step 5 of a decision, series compaction: what of a series goes through, and what is folded.

use super::content::Content;
use super::decide::{Deciding, lowers, refusal, verdict};
use super::key::Key;
use super::live::Handle;
use super::names::Carried;
use super::series::Series;
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
        self.scope.series.see(handle, now);
        let own = self.is_stored_name(handle, write, carried);
        if !own && !self.may_fold(handle) {
            return self.pass_outside(write, carried, Stage::Series);
        }
        self.names.join(carried.name, handle, own);
        let folded_before = self.scope.change(handle, now, |series| {
            let folded_before = series.folded;
            if !own {
                series.add(occurrences);
                series.fold(write.occurred_at);
                return folded_before;
            }
            // The stored Event is gone, and its client makes it again; or it tries again, and it is there.
            if occurrences > 0 {
                series.add(occurrences);
                series.client_pays(write.value, now);
            } else {
                series.unsettled(now);
            }
            series.confirmed = 0;
            folded_before
        });
        if !own && folded_before == Some(false) {
            self.scope.remember(handle, Content::of(&write.event));
        }
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
        let handle = self.series_of_update(write, carried)?;
        let own = self.is_stored_name(handle, write, carried);
        let may_fold = self.may_fold(handle);
        if !may_fold && !own && write.value > write.old_value {
            return Some(self.pass_outside(write, carried, Stage::Series));
        }
        self.names.join(carried.name, handle, own);
        let silent = carried.seen_before.is_none_or(|seen| now.since(seen) > series.idle_timeout);
        let holds_back = write.api == Api::Events && (occurrences > 1 || silent);
        let (passes, folded_before) = self.scope.change(handle, now, |state| {
            // Under Observe clients' writes are stored as they come: what Enforce would find there is what it
            // would have stored.
            let old = if rules.mode == Mode::Observe { state.stored } else { write.old_value };
            if own {
                state.resync(old, occurrences);
            } else {
                state.add(occurrences);
            }
            let complete = own && write.value == state.total && write.value >= old;
            let raises = write.value > old;
            let refreshes = write.api == Api::Events && (holds_back || write.value == FIRST_REFRESH);
            let due = state.due(series, now) || !may_fold;
            let (passes, folded_before) = (complete && (refreshes || raises && due), state.folded);
            if passes {
                state.client_pays(write.value, now);
            } else {
                state.fold(write.occurred_at);
            }
            (passes, folded_before)
        })?;
        if passes {
            return Some(verdict(Disposition::Admitted, Stage::Series, occurrences, Answer::Allow));
        }
        if !folded_before {
            self.scope.remember(handle, Content::of(&write.event));
        }
        let answer = if holds_back { Answer::Deny(Denial::Forbidden) } else { refusal(rules, write) };
        Some(verdict(Disposition::Compacted, Stage::Series, occurrences, answer))
    }

    /// The series that an UPDATE belongs to: that of its name, else that of its key, else a new one.
    fn series_of_update(&mut self, write: &Observation<'_>, carried: &Carried) -> Option<Handle> {
        let by_name = carried.name.and_then(|name| self.names.series_of(name));
        let living = by_name.and_then(|handle| self.scope.living(handle, self.now)).or_else(|| {
            let handle = self.scope.series.find(self.hasher.series(write))?;
            self.scope.living(handle, self.now)
        });
        let handle = match living {
            Some(handle) => handle,
            None if !self.may_open() && !lowers(write) => return None,
            None => {
                let name = write.name.as_deref().unwrap_or_default();
                let series = Series::opened_by_update(write.old_value, write.occurred_at, self.now);
                self.open(self.hasher.series(write), name, &series)
            }
        };
        self.scope.series.see(handle, self.now);
        Some(handle)
    }

    /// Opens a series.
    pub(super) fn open(&mut self, key: Key, name: &str, series: &Series) -> Handle {
        // The number comes round after 2^32 decisions; see `Handle`.
        self.scope.open(key, name, series, self.number as u32)
    }

    /// Whether a series may be opened. Where as many live as may, the oldest of this scope goes if it owes
    /// nothing; if it owes it is paid first, and this write opens none.
    pub(super) fn may_open(&mut self) -> bool {
        if self.scope.retired {
            return false;
        }
        if self.full.series {
            return self.scope.evict_oldest(self.now);
        }
        if !self.full.text || self.scope.spare_a_content(self.now) {
            return true;
        }
        let made_room = self.scope.evict_oldest(self.now);
        // One more: what comes may be longer than what goes, and in the end there would be too much of it.
        self.scope.evict_oldest(self.now);
        made_room
    }

    /// Whether there is room for what has to be kept of a series from the first fold on. Where there is none, and
    /// none of the oldest of this scope can spare theirs, a write goes through and is not folded: nothing is lost.
    /// Only what would lower a stored count, or would tell it less than the total, is folded all the same.
    fn may_fold(&mut self, handle: Handle) -> bool {
        if !self.full.text
            || self.scope.series.get(handle).is_some_and(|series| series.folded)
            || self.scope.spare_a_content(self.now)
        {
            return true;
        }
        self.scope.count_refused_fold();
        false
    }

    /// Whether the write is of the series' own stored Event.
    pub(super) fn is_stored_name(&self, handle: Handle, write: &Observation<'_>, carried: &Carried) -> bool {
        let known = carried.name.and_then(|name| self.names.is_stored_name_of(name, handle));
        known.unwrap_or_else(|| {
            write.name.is_some() && self.scope.series.name(handle) == write.name.as_deref()
        })
    }
}
