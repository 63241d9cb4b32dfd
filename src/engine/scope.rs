//! The state of one policy in one namespace, under one mode.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use super::content::Content;
use super::departed::GONE_AFTER;
use super::dropped::Sketch;
use super::group::Groups;
use super::key::Key;
use super::limit::{Buckets, Budget};
use super::series::Series;
use super::table::{Handle, Table};
use super::{Account, Counters, Footing, Moment, Observation, PolicyId, Rules, Standing};

/// A scope within its namespace; never used again for another.
pub(super) type ScopeId = u32;

/// The state of one policy in one namespace. A policy that changes its mode has two: what was folded under
/// Enforce is paid, and Observe begins anew.
pub(super) struct Scope {
    pub(super) id: ScopeId,
    /// The rules as they were decided by last.
    pub(super) rules: Rules,
    /// The policy is gone, is invalid, changed its mode or governs nothing here: what is owed is paid, nothing opens.
    pub(super) retired: bool,
    /// The policy is gone: once nothing is owed, so is the scope.
    pub(super) deleted: bool,
    /// Of a cluster-scoped policy: since when nobody knows of the namespace.
    pub(super) unknown_since: Option<Moment>,
    pub(super) series: Table<Series>,
    pub(super) groups: Groups,
    pub(super) spam_filter: Buckets,
    pub(super) budget: Budget,
    /// When to look at which series. Entries are never removed early: one whose series has another `wake` by
    /// then is skipped.
    pub(super) agenda: BinaryHeap<Reverse<(Moment, Handle)>>,
    pub(super) counters: Counters,
    pub(super) dropped: Sketch,
    /// The sum of what its series owe, kept in step by [`Scope::change`].
    pub(super) owed: u64,
    /// How many of its series owe, kept in step likewise.
    pub(super) owing: usize,
    /// While draining: the series that a walk found to be paid, and that were not ordered since.
    pub(super) to_drain: Vec<Handle>,
    /// Series given up for want of room.
    pub(super) evicted: u64,
}

impl Scope {
    pub(super) fn new(id: ScopeId, rules: Rules) -> Self {
        Self {
            id,
            rules,
            retired: false,
            deleted: false,
            unknown_since: None,
            series: Table::default(),
            groups: Groups::default(),
            spam_filter: Buckets::default(),
            budget: Budget::default(),
            agenda: BinaryHeap::new(),
            counters: Counters::default(),
            dropped: Sketch::default(),
            owed: 0,
            owing: 0,
            to_drain: Vec::new(),
            evicted: 0,
        }
    }

    pub(super) fn belongs_to(&self, rules: &Rules) -> bool {
        self.rules.policy.uid == rules.policy.uid && self.rules.mode == rules.mode
    }

    pub(super) fn policy(&self) -> &PolicyId {
        &self.rules.policy
    }

    /// Takes over the rules as they are now; see [`super::Engine::revise`].
    pub(super) fn revise(&mut self, policies: &HashMap<&Arc<str>, &Standing>, footing: Footing, now: Moment) {
        let standing = policies.get(&self.rules.policy.uid);
        self.deleted = standing.is_none();
        let may_be_gone = footing == Footing::Unknown && standing.is_some_and(|it| it.namespace.is_none());
        self.unknown_since = if may_be_gone { self.unknown_since.or(Some(now)) } else { None };
        let standing = standing.filter(|_| footing != Footing::Nothing);
        let rules = standing.and_then(|standing| standing.rules.as_ref());
        let Some(current) = rules.filter(|rules| self.belongs_to(rules)) else {
            self.retired = true;
            return;
        };
        self.retired = false;
        if self.rules == **current {
            return;
        }
        self.rules = Rules::clone(current);
        if self.rules.aggregation.is_none() {
            self.groups.clear();
        }
        if self.rules.spam_filter.is_none() {
            self.spam_filter.clear();
        }
        let mut cursor = self.series.oldest();
        while let Some(handle) = cursor {
            cursor = self.series.next_newer(handle);
            let summary = self.series.get(handle).is_some_and(|series| series.summary);
            let off = if summary { self.rules.aggregation.is_none() } else { self.rules.series.is_none() };
            if !off {
                // A shorter heartbeat brings payments forward.
                self.change(handle, now, |_| ());
            } else if self.series.get(handle).is_some_and(|series| series.needs_payment() || series.ordered) {
                self.change(handle, now, |series| series.closing = true);
            } else {
                self.close(handle);
            }
        }
    }

    /// The namespace is gone, as far as one can know.
    pub(super) fn is_left_behind(&self, now: Moment) -> bool {
        self.unknown_since.is_some_and(|since| now.since(since) > GONE_AFTER)
    }

    pub(super) fn account(&self, namespace: &Arc<str>) -> Account {
        Account {
            namespace: namespace.clone(),
            policy: self.rules.policy.clone(),
            mode: self.rules.mode,
            counters: self.counters,
            dropped: self.dropped.top(),
        }
    }

    /// Opens a series under a key that has none.
    pub(super) fn open(&mut self, key: Key, series: Series) -> Handle {
        self.owed += series.owed().unsigned_abs();
        self.owing += usize::from(series.owed() > 0);
        self.series.insert(key, series)
    }

    /// Forgets a series.
    pub(super) fn close(&mut self, handle: Handle) -> Option<Series> {
        let series = self.series.remove(handle)?;
        self.owed -= series.owed().unsigned_abs();
        self.owing -= usize::from(series.owed() > 0);
        Some(series)
    }

    /// The one way to change a series: keeps the sum of debts and the agenda in step.
    pub(super) fn change<T>(
        &mut self,
        handle: Handle,
        now: Moment,
        change: impl FnOnce(&mut Series) -> T,
    ) -> Option<T> {
        let series = self.series.get_mut(handle)?;
        let pace = self.rules.pace(series.summary);
        let before = series.owed();
        let answer = change(series);
        self.owed = self.owed - before.unsigned_abs() + series.owed().unsigned_abs();
        self.owing = self.owing - usize::from(before > 0) + usize::from(series.owed() > 0);
        if let Some(wake) = series.next_payment(&pace, now)
            && series.wake.is_none_or(|set| wake < set)
        {
            series.wake = Some(wake);
            self.agenda.push(Reverse((wake, handle)));
            self.tidy_agenda();
        }
        Some(answer)
    }

    /// Forgets groups that would start anew and buckets that are full again, a slice of each.
    pub(super) fn forget_the_old(&mut self, budget: usize, now: Moment) {
        if let Some(aggregation) = &self.rules.aggregation {
            self.groups.forget(aggregation, budget, now);
        }
        self.spam_filter.forget(budget, now);
    }

    /// Drops entries that nothing waits for once they are most of the agenda: each costs a constant in the long
    /// run, and the agenda stays within a constant of the table.
    fn tidy_agenda(&mut self) {
        if self.agenda.len() > 64 + 4 * self.series.len() {
            let series = &self.series;
            self.agenda
                .retain(|Reverse((wake, handle))| series.get(*handle).is_some_and(|s| s.wake == Some(*wake)));
        }
    }

    /// The series of this handle if it lives: seen no longer than the idle timeout ago, or still to be paid.
    /// One that is over and owes nothing is forgotten here, so that a late [`super::Engine::tick`] changes no
    /// decision.
    pub(super) fn living(&mut self, handle: Handle, now: Moment) -> Option<Handle> {
        let series = self.series.get(handle)?;
        let over =
            series.over(&self.rules.pace(series.summary), now) && !series.closing && !series.needs_payment();
        if over {
            self.close(handle);
            return None;
        }
        Some(handle)
    }

    /// Gives up the series that was not seen for longest. False if there is none, or if it has to be paid first:
    /// then its closing has begun.
    pub(super) fn evict_oldest(&mut self, now: Moment) -> bool {
        let Some(handle) = self.series.oldest() else { return false };
        if self.series.get(handle).is_some_and(Series::needs_payment) {
            self.begin_closing(handle, now);
            return false;
        }
        self.evicted += 1;
        self.close(handle).is_some()
    }

    /// What is owed is to be paid now, and the series to be forgotten then.
    pub(super) fn begin_closing(&mut self, handle: Handle, now: Moment) {
        // Out of the way of those that are looked at for idleness: from here on the agenda has it.
        self.series.touch(handle);
        self.change(handle, now, |series| series.closing = true);
    }

    /// A write of the series was seen: it lives on.
    pub(super) fn touch(&mut self, handle: Handle, now: Moment) {
        self.series.touch(handle);
        if let Some(series) = self.series.get_mut(handle) {
            series.seen = now;
            series.closing = false;
        }
    }
}

/// Notes that a write was folded into the series: from here on it can be created again.
pub(super) fn remember(series: &mut Series, write: &Observation<'_>) {
    series.occurred_at = series.occurred_at.max(write.occurred_at);
    if series.content.is_none() {
        series.content = Some(Box::new(Content::of(&write.event)));
    }
}
