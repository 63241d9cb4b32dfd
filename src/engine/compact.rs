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
                let key = self.series_key(write);
                let living = self.scope.series.find(key).and_then(|found| self.living(found));
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
        self.scope.see(handle, now);
        let own = self.is_stored_name(handle, write, carried);
        self.names.join(carried.name, handle, own);
        if !own && self.refuses_debt(Some(handle), carried) {
            return self.pass_outside(write, carried, Stage::Series);
        }
        if !own {
            let kept = self.is_kept(carried);
            let changed = self.scope.change(handle, now, |series| {
                (series.share(occurrences), series.fold(write.occurred_at, kept))
            });
            let (newly_shared, first) = changed.unwrap_or_default();
            self.mark_shared(handle, newly_shared);
            self.remember(handle, write, first);
            return verdict(Disposition::Compacted, Stage::Series, occurrences, refusal(rules, write));
        }
        self.scope.change(handle, now, |series| series.create_again(occurrences, write.value, now));
        verdict(Disposition::Admitted, Stage::Series, occurrences, Answer::Allow)
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
        let Some((handle, was_shared)) = self.series_of_update(rules, write, carried) else {
            // There is no room to owe what it carries, and it must not pass where it would lower what is stored.
            if !lowers(write) {
                return None;
            }
            if rules.mode == Mode::Enforce {
                self.scope.counters.lost += occurrences.unsigned_abs();
            }
            return Some(folded);
        };
        let own = self.is_stored_name(handle, write, carried);
        self.names.join(carried.name, handle, own);
        self.mark_shared(handle, was_shared);
        // Where no more may owe, what tells all that it carries goes through. What would lower the count or leave
        // something out is folded even then.
        let crowded = self.owes_one_too_many(Some(handle), carried);
        if let Some(limit) = crowded
            && !own
            && write.value - write.old_value >= occurrences
        {
            self.debts_refused += limit;
            return Some(self.pass_outside(write, carried, Stage::Series));
        }
        let kept = self.is_kept(carried);
        let (passes, instead, first, newly_shared) = self.scope.change(handle, now, |state| {
            // Under Observe clients' writes are stored as they come: what Enforce would find there is what it
            // would have stored.
            let old = if rules.mode == Mode::Observe { state.stored } else { write.old_value };
            let newly_shared = !own && state.share(occurrences);
            if own {
                state.resync(old, occurrences);
            }
            let complete = own && write.value == state.total && write.value >= old;
            let raises = write.value > old;
            let refreshes = write.api == Api::Events && (holds_back || write.value == FIRST_REFRESH);
            let passes = complete && (refreshes || raises && state.due(series, now));
            let told_again = write.value - state.total;
            let instead = crowded.filter(|_| !passes && own && raises && told_again >= 0);
            let mut first = false;
            if passes || instead.is_some() {
                state.client_pays(write.value, now);
            } else {
                first = state.fold(write.occurred_at, kept);
            }
            (passes, instead.map(|limit| (limit, told_again)), first, newly_shared)
        })?;
        self.mark_shared(handle, newly_shared);
        if let Some((limit, told_again)) = instead {
            self.debts_refused += limit;
            self.scope.counters.recovered += told_again.unsigned_abs();
        }
        if passes || instead.is_some() {
            return Some(verdict(Disposition::Admitted, Stage::Series, occurrences, Answer::Allow));
        }
        self.remember(handle, write, first);
        Some(folded)
    }

    /// The series that an UPDATE belongs to: that of its name, else that of its key, else a new one; and whether several
    /// clients told of the former life of a new one.
    fn series_of_update(
        &mut self,
        rules: &Rules,
        write: &Observation<'_>,
        carried: &Carried,
    ) -> Option<(Handle, bool)> {
        let by_name = carried.name.and_then(|name| self.names.series_of(name));
        let living = by_name.and_then(|handle| self.living(handle)).or_else(|| {
            let key = self.series_key(write);
            let handle = self.scope.series.find(key)?;
            self.living(handle)
        });
        let found = match living.or_else(|| self.take_over(rules, write, carried)) {
            Some(handle) => (handle, false),
            None if !self.may_open() => return None,
            None => {
                let name = write.name.as_deref().unwrap_or_default();
                let series = self.reopened(write, carried);
                let key = self.series_key(write);
                (self.open(key, name, &series), series.shared)
            }
        };
        self.scope.see(found.0, self.now);
        Some(found)
    }

    /// A new series of a stored Event. If its name is remembered, what stands there beyond what was told of is untold.
    fn reopened(&self, write: &Observation<'_>, carried: &Carried) -> Series {
        let opened = Series::opened_by_update(write.old_value, write.occurred_at, self.now);
        let (Some(name), Some(_)) = (carried.name, carried.seen_before) else { return opened };
        let former = self.names.series_of(name);
        let former = former.filter(|former| self.names.is_stored_name_of(name, *former) == Some(true));
        let of_all = former.and_then(|former| self.scope.series.ended(former));
        let was_shared = former.is_some() && self.names.was_shared(name);
        let told = match of_all {
            Some(told) => told,
            // Its record was evicted. What others told must not be taken for what this client wrote unseen.
            None if was_shared => write.old_value,
            None => write.value - carried.occurrences,
        };
        let shared = of_all.is_some() || was_shared;
        Series { untold: (write.old_value - told).max(0), shared, ..opened }
    }

    /// Notes at the name of a series' stored Event that several clients tell of it.
    fn mark_shared(&mut self, handle: Handle, newly: bool) {
        if newly && let Some(name) = self.scope.series.name(handle) {
            self.names.mark_shared(self.hasher.name(name), handle);
        }
    }

    /// The series of the Event that this write is of, where another policy has governed it so far: it goes over to
    /// the scope that decides now, debt and all. Two that kept books of one stored Event would each take the other's
    /// payments for its own.
    fn take_over(&mut self, rules: &Rules, write: &Observation<'_>, carried: &Carried) -> Option<Handle> {
        if rules.mode == Mode::Observe || self.scope.retired {
            return None;
        }
        let handle = self.names.series_of(carried.name?)?;
        let key = self.series_key(write);
        let mut others = self.others.iter_mut().flat_map(|some| some.iter_mut());
        let other = others.find(|scope| scope.series.get(handle).is_some())?;
        if other.rules.mode == Mode::Observe || other.series.name(handle) != write.name.as_deref() {
            return None;
        }
        if self.scope.series.find(key).is_some() {
            return None;
        }
        let handle = self.scope.adopt(key, other, handle, self.number as u32)?;
        self.scope.wake(handle, self.now);
        Some(handle)
    }

    /// [`Scope::living`], whose room is free again where it was over.
    ///
    /// [`Scope::living`]: super::scope::Scope::living
    pub(super) fn living(&mut self, handle: Handle) -> Option<Handle> {
        let before = self.scope.series.len();
        let living = self.scope.living(handle, self.now);
        let still_there = self.scope.series.len() == before;
        self.full.series &= still_there;
        self.full.text &= still_there;
        living
    }

    /// Opens a series.
    pub(super) fn open(&mut self, key: Key, name: &str, series: &Series) -> Handle {
        // The number comes round after 2^32 decisions; see `Handle`.
        self.scope.open(key, name, series, self.number as u32)
    }

    /// Whether what a write says is to be kept, if it is the first that is folded into its series. One that carries
    /// nothing is not worth the room where there is none.
    fn is_kept(&self, carried: &Carried) -> bool {
        !self.full.text || carried.occurrences > 0
    }

    /// Keeps what is needed to create the Event of a series again, if this write is the `first` that was folded.
    fn remember(&mut self, handle: Handle, write: &Observation<'_>, first: bool) {
        if first {
            self.scope.remember(handle, Content::of(&write.event));
        }
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

    /// Whether the write is of the series' own stored Event.
    pub(super) fn is_stored_name(&self, handle: Handle, write: &Observation<'_>, carried: &Carried) -> bool {
        let known = carried.name.and_then(|name| self.names.is_stored_name_of(name, handle));
        known.unwrap_or_else(|| {
            write.name.as_deref().is_some_and(|name| self.scope.series.is_called(handle, name))
        })
    }
}
