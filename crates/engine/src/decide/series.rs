//! Step 8 of a decision: series compaction.

use jiff::Timestamp;

use crate::decide::keys::Key;
use crate::decide::pipeline::{ClientCount, Decision, lowers, refusal, verdict};
use crate::model::content::Content;
use crate::state::live_series::Handle;
use crate::state::names::Carried;
use crate::state::series::Series;
use crate::store::strings::MAX_TEXT;
use crate::{Answer, Api, Disposition, Mode, Observation, Operation, Rules, SeriesRules, Stage, Verdict};

/// The value of the first refresh of client-go's events recorder, if nothing else happened.
const FIRST_REFRESH: i64 = 3;

impl Decision<'_> {
    /// Compacts the write. `None` if no series handles it; the next steps decide then.
    pub(crate) fn compact(
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

    /// A CREATE whose series is live.
    fn create_in_series(
        &mut self,
        rules: &Rules,
        handle: Handle,
        write: &Observation<'_>,
        carried: &Carried,
    ) -> Verdict {
        let (now, occurrences) = (self.now, carried.occurrences);
        self.scope.mark_seen(handle, now);
        let own = self.is_stored_name(handle, write, carried);
        self.names.join(carried.name, handle, own);
        if !own && self.refuses_pending(Some(handle), carried) {
            return self.admit_outside_series(write, carried, Stage::Series);
        }
        if !own {
            let kept = self.keeps_content(carried);
            let changed = self.scope.change(handle, now, |series| {
                (series.others_report(occurrences), series.merge(write.occurred_at, kept))
            });
            let (newly_shared, first) = changed.unwrap_or_default();
            self.mark_shared(handle, newly_shared);
            self.remember(handle, write, first);
            return self.suppressed(Disposition::Compacted, Stage::Series, rules, write, carried);
        }
        self.scope.change(handle, now, |series| series.create_again(occurrences, write.value, now));
        if occurrences > 0 {
            self.scope.forget_newest(handle);
        }
        verdict(Disposition::Admitted, Stage::Series, occurrences, Answer::Allow)
    }

    /// An UPDATE with series enabled: merged, unless the client's own write is due.
    fn update_in_series(
        &mut self,
        rules: &Rules,
        series: &SeriesRules,
        write: &Observation<'_>,
        carried: &Carried,
    ) -> Option<Verdict> {
        let (now, occurrences) = (self.now, carried.occurrences);
        let client = ClientCount::of(rules, write, carried, now);
        let answer = refusal(rules, write, client);
        let merged = verdict(Disposition::Compacted, Stage::Series, occurrences, answer);
        let Some((handle, was_shared)) = self.series_of_update(rules, write, carried) else {
            // No series can be opened for its occurrences, and it must not lower the stored count.
            if !lowers(write) {
                return None;
            }
            if rules.mode == Mode::Enforce {
                self.scope.counters.lost += occurrences.unsigned_abs();
            }
            return Some(merged);
        };
        let own = self.is_stored_name(handle, write, carried);
        self.names.join(carried.name, handle, own);
        self.mark_shared(handle, was_shared);
        // At a limit, a write passes if its own count includes all its occurrences. A write that would lower
        // the count or leave something out is merged even then.
        let exceeded = self.exceeded_pending_limit(Some(handle), carried);
        if let Some(limit) = exceeded
            && !own
            && write.value - write.old_value >= occurrences
        {
            self.pending_limit_admissions += limit;
            return Some(self.admit_outside_series(write, carried, Stage::Series));
        }
        let kept = self.keeps_content(carried);
        let (passes, instead, first, newly_shared) = self.scope.change(handle, now, |state| {
            // Observe stores each client's write, so the stored count that Enforce would find is the one that
            // it would have stored.
            let old = if rules.mode == Mode::Observe { state.stored } else { write.old_value };
            let newly_shared = !own && state.others_report(occurrences + carried.missing);
            if own {
                state.resync(old, occurrences);
            }
            let complete = own && write.value == state.total && write.value >= old;
            let raises = write.value > old;
            let refreshes =
                client == ClientCount::Collected || write.api == Api::Events && write.value == FIRST_REFRESH;
            let passes = complete && (refreshes || raises && state.is_due(series, now));
            let reported_again = write.value - state.total;
            let instead = exceeded.filter(|_| !passes && own && raises && reported_again >= 0);
            let mut first = None;
            if passes || instead.is_some() {
                state.client_writes(write.value, now);
            } else {
                first = state.merge(write.occurred_at, kept);
                if own && carried.reads {
                    state.client_is_answered(now);
                }
            }
            (passes, instead.map(|limit| (limit, reported_again)), first, newly_shared)
        })?;
        self.mark_shared(handle, newly_shared);
        if let Some((limit, reported_again)) = instead {
            self.pending_limit_admissions += limit;
            self.scope.counters.recovered += reported_again.unsigned_abs();
        }
        if passes || instead.is_some() {
            self.scope.forget_newest(handle);
            return Some(verdict(Disposition::Admitted, Stage::Series, occurrences, Answer::Allow));
        }
        self.remember(handle, write, first);
        Some(merged)
    }

    /// Returns the series of an UPDATE: by name, else by key, else a new one. Also whether several clients
    /// reported to the previous series of a new one.
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
        let name = write.name.as_deref().unwrap_or_default();
        let found = match living.or_else(|| self.take_over(rules, write, carried)) {
            Some(handle) => (handle, false),
            None if !self.may_open_as(name) => return None,
            None => {
                let series = self.reopened(write, carried);
                let key = self.series_key(write);
                let handle = self.open(key, name, &series);
                self.scope.schedule(handle, self.now);
                (handle, series.shared)
            }
        };
        self.scope.mark_seen(found.0, self.now);
        Some(found)
    }

    /// Returns a new series for a stored Event. If its name is remembered, the stored count beyond the reported
    /// occurrences is unreported. What the stored count lacks of a refused CREATE is pending.
    fn reopened(&self, write: &Observation<'_>, carried: &Carried) -> Series {
        let opened = |stored| Series::opened_by_update(stored, write.occurred_at, self.now);
        let (Some(name), Some(_)) = (carried.name, carried.seen_before) else {
            return opened(write.old_value);
        };
        let former = self.names.series_of(name);
        let former = former.filter(|former| self.names.is_stored_name_of(name, *former) == Some(true));
        let written = former.and_then(|former| self.scope.series.just_written(former, self.now));
        let stored = write.old_value.max(written.unwrap_or(0));
        let of_all = former.and_then(|former| self.scope.series.ended(former));
        let was_shared = self.names.was_shared(name);
        let reported = match of_all {
            Some(reported) => reported,
            // Its record was evicted, or this client has reported to another series since. Occurrences of other
            // clients must not count as unreported writes of this client.
            None if was_shared => stored,
            // A late retry: its client has reported a higher count since.
            None if carried.occurrences == 0 => self.names.highest(name),
            None => write.value - carried.occurrences,
        };
        let shared = of_all.is_some() || was_shared;
        let total = stored.max(write.old_value + carried.missing);
        Series { total, unreported: (stored - reported).max(0), shared, ..opened(stored) }
    }

    /// Records at the name of the stored Event that several clients report to its series.
    fn mark_shared(&mut self, handle: Handle, newly: bool) {
        if newly && let Some(name) = self.scope.series.name(handle) {
            self.names.mark_shared(self.hasher.name(name), handle);
        }
    }

    /// Moves the series of this Event here from the scope of another policy, with its pending occurrences. Two
    /// series for one stored Event would each mistake the other's flushes for its own.
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
        self.scope.schedule(handle, self.now);
        Some(handle)
    }

    /// Calls [`Scope::living`] and clears the capacity flags if an idle series was removed.
    ///
    /// [`Scope::living`]: crate::state::scope::Scope::living
    pub(crate) fn living(&mut self, handle: Handle) -> Option<Handle> {
        let before = self.scope.series.len();
        let living = self.scope.living(handle, self.now);
        let still_there = self.scope.series.len() == before;
        self.at_capacity.series &= still_there;
        self.at_capacity.text &= still_there;
        living
    }

    /// Opens a series.
    pub(crate) fn open(&mut self, key: Key, name: &str, series: &Series) -> Handle {
        // The number wraps after 2^32 decisions; see [`Handle`].
        self.scope.open(key, name, series, self.number as u32)
    }

    /// Whether to keep the Event's content if this write is the first merged one. Without capacity, a write
    /// that carries no occurrence is not worth it.
    fn keeps_content(&self, carried: &Carried) -> bool {
        !self.at_capacity.text || carried.occurrences > 0
    }

    /// Keeps the content needed to create the series' Event again, if this write is the `first` merged one. With
    /// masks, also keeps the message of a CREATE for the next flush. (The content of an UPDATE is the stored one.)
    fn remember(&mut self, handle: Handle, write: &Observation<'_>, first: Option<Timestamp>) {
        let (event, rules) = (&write.event, &self.scope.rules);
        let is_masked = write.operation == Operation::Create && !rules.normalize.is_empty();
        let is_kept = is_masked && !self.at_capacity.text && Content::keeps_whole(&event.message);
        let newest = if is_kept { &*event.message } else { "" };
        let content = match first {
            Some(opened_at) => {
                let max_message = rules.max_message(write.api);
                Some(Content::of_first_merged(event, newest, opened_at, rules.normalize, max_message))
            }
            None if is_masked => {
                let kept = self.scope.series.content(handle).filter(|kept| !kept.is_newest(newest));
                kept.map(|kept| kept.with_newest(newest))
            }
            None => None,
        };
        if let Some(content) = content {
            self.scope.remember(handle, content);
        }
    }

    /// Whether a series may be opened for the stored Event of this name. A flush needs the whole name.
    pub(crate) fn may_open_as(&mut self, name: &str) -> bool {
        name.len() <= MAX_TEXT && self.may_open()
    }

    /// Whether a series may be opened. At capacity, the scope evicts its oldest series. If that one has pending
    /// occurrences, it is flushed first and no series is opened.
    pub(crate) fn may_open(&mut self) -> bool {
        if self.scope.retired {
            return false;
        }
        if self.at_capacity.series {
            return self.scope.evict_oldest(self.now);
        }
        if !self.at_capacity.text || self.scope.evict_content(self.now) {
            return true;
        }
        let has_evicted = self.scope.evict_oldest(self.now);
        // Evicts a second series, because the new text may be longer than the evicted one.
        self.scope.evict_oldest(self.now);
        has_evicted
    }

    /// Whether the write is to the series' own stored Event.
    pub(crate) fn is_stored_name(&self, handle: Handle, write: &Observation<'_>, carried: &Carried) -> bool {
        let known = carried.name.and_then(|name| self.names.is_stored_name_of(name, handle));
        known.unwrap_or_else(|| {
            write.name.as_deref().is_some_and(|name| self.scope.series.has_name(handle, name))
        })
    }
}
