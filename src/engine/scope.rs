//! The state of one policy in one namespace, under one mode.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use super::content::Content;
use super::decide::Full;
use super::departed::GONE_AFTER;
use super::dropped::Sketch;
use super::group::{Groups, Objects, Witness};
use super::held::Sizes;
use super::key::Key;
use super::limit::{Buckets, Budget, Charge};
use super::live::{Handle, LiveSeries};
use super::series::Series;
use super::{
    Account, AggregationRules, BucketRules, Counters, Disposition, EventView, Footing, Mode, Moment,
    PolicyId, Rules, Standing,
};

/// A scope within its namespace; never used again for another.
pub(super) type ScopeId = u32;

/// So many of the oldest series are looked at for one whose content can be spared.
const LOOKED_AT: usize = 8;

/// The order by use follows so often: who is asked for the oldest series is told one that was not seen longer than
/// another but for this. (To move one means to look at its neighbours, which are in no cache, and a storm moves none.)
const ORDERED_BY: Duration = Duration::from_secs(16);
/// But for this part of the idle timeout at most: where very many were seen in such a part of time, and some of them
/// never again, that is how late their end may be noticed.
const ORDERED_BY_PART: u32 = 16;

/// The state of one policy in one namespace. A policy that changes its mode has two: what was folded under
/// Enforce is paid, and Observe begins anew.
// In this order in memory: what every decision looks at is at the end, and together. A namespace has two kilobytes, and
// each line of the cache that a decision needs of it costs as much as an entry of a table.
#[repr(C)]
pub(super) struct Scope {
    pub(super) id: ScopeId,
    /// Of a cluster-scoped policy: since when nobody knows of the namespace.
    pub(super) unknown_since: Option<Moment>,
    /// Series at positions below this have not been seen to since the rules changed.
    unrevised: u32,
    /// Where draining goes on looking for what needs payment.
    pub(super) undrained_below: u32,
    dropped: Sketch,
    groups: Groups,
    spam_filter: Buckets,
    pub(super) budget: Budget,
    pub(super) series: LiveSeries,
    pub(super) counters: Counters,
    /// How much it holds, in one place: kept in step by [`Scope::change`] and [`Scope::recount`].
    sizes: Sizes,
    /// The policy is gone, is invalid, changed its mode or governs nothing here: what is owed is paid, nothing opens.
    pub(super) retired: bool,
    /// The policy is gone: once nothing is owed, so is the scope.
    pub(super) deleted: bool,
    /// The rules as they were decided by last.
    pub(super) rules: Arc<Rules>,
}

impl Scope {
    pub(super) fn new(id: ScopeId, rules: Arc<Rules>) -> Self {
        Self {
            id,
            unknown_since: None,
            unrevised: 0,
            undrained_below: 0,
            dropped: Sketch::default(),
            groups: Groups::default(),
            spam_filter: Buckets::default(),
            budget: Budget::default(),
            series: LiveSeries::default(),
            counters: Counters::default(),
            sizes: Sizes::default(),
            retired: false,
            deleted: false,
            rules,
        }
    }

    /// Asks the memory for where everything is: see [`super::approach`].
    pub(super) fn fetch_outline(&self) {
        black_box((self.counters.received(), self.sizes.series, self.sizes.names_evicted, self.deleted));
        self.series.fetch_outline();
    }

    /// Asks the memory for what aggregation and limits will read, of those that are on.
    pub(super) fn fetch_steps(&self, group: Option<Key>, bucket: Option<Key>, full: &Full) {
        if let Some(group) = group {
            self.groups.fetch(group, full);
        }
        if let Some(bucket) = bucket {
            self.spam_filter.fetch(bucket, full.buckets);
        }
        self.dropped.fetch();
    }

    pub(super) fn belongs_to(&self, rules: &Rules) -> bool {
        self.rules.policy.uid == rules.policy.uid && self.rules.mode == rules.mode
    }

    pub(super) fn policy(&self) -> &PolicyId {
        &self.rules.policy
    }

    /// How much it holds.
    pub(super) fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// Asks the tables how much they hold: after anything that may have changed that.
    pub(super) fn recount(&mut self) {
        self.sizes = Sizes {
            series: self.series.len(),
            text: self.series.bytes(),
            groups: self.groups.len(),
            fingerprints: self.groups.fingerprints(),
            groups_evicted: self.groups.evicted(),
            buckets: self.spam_filter.len(),
            buckets_evicted: self.spam_filter.evicted(),
            ended: self.series.ended_len(),
            ended_evicted: self.series.ended_evicted(),
            dropped: self.dropped.len(),
            dropped_evicted: usize::try_from(self.dropped.evicted()).unwrap_or(usize::MAX),
            ..self.sizes
        };
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

    /// Opens a series under a key that has none, whose stored Event has this name.
    pub(super) fn open(&mut self, key: Key, name: &str, series: &Series, birth: u32) -> Handle {
        self.sizes = reckoned(self.sizes, None, Some(series));
        let handle = self.series.insert(key, name, series, birth);
        self.recount();
        handle
    }

    /// Forgets a series.
    pub(super) fn close(&mut self, handle: Handle) -> Option<Series> {
        let series = self.series.remove(handle)?;
        self.sizes = reckoned(self.sizes, Some(&series), None);
        self.recount();
        Some(series)
    }

    /// Forgets a series whose pending occurrences can never be written; returns how many are lost by that. Under Observe
    /// nothing is pending for anybody.
    pub(super) fn discard(&mut self, handle: Handle) -> Option<u64> {
        let pending = self.close(handle)?.owed().unsigned_abs();
        let lost = if self.rules.mode == Mode::Enforce { pending } else { 0 };
        self.counters.lost += lost;
        Some(lost)
    }

    /// Forgets all series, groups and buckets: they are of a namespace that is gone. Pending occurrences are lost. Returns
    /// the series, which take long to free.
    pub(super) fn discard_all(&mut self) -> LiveSeries {
        let lost = if self.rules.mode == Mode::Enforce { self.sizes.owed as u64 } else { 0 };
        self.counters.lost += lost;
        self.groups.clear();
        self.spam_filter.clear();
        self.budget = Budget::default();
        (self.unrevised, self.undrained_below) = (0, 0);
        let series = self.series.take();
        self.sizes = Sizes { owed: 0, owing: 0, unpaid: 0, undrained: 0, ..self.sizes };
        self.recount();
        series
    }

    /// The one way to change a series: keeps the sum of debts and the agenda in step.
    pub(super) fn change<T>(
        &mut self,
        handle: Handle,
        now: Moment,
        change: impl FnOnce(&mut Series) -> T,
    ) -> Option<T> {
        let before = self.series.get(handle)?;
        let mut series = before;
        let answer = change(&mut series);
        if self.rules.mode == Mode::Enforce {
            self.counters.lost += series.beyond_count;
        }
        self.series.put(handle, &series);
        self.sizes = reckoned(self.sizes, Some(&before), Some(&series));
        // It is on the agenda for what was due before. So most folds need not look there.
        let pace = self.rules.pace(series.summary);
        let due_before = before.next_payment(&pace, now);
        if let Some(due) = series.next_payment(&pace, now)
            && due_before.is_none_or(|before| due < before)
        {
            self.series.wake_by(handle, due);
        }
        Some(answer)
    }

    /// Takes over a series of another scope's, under a key that has none here. It is on nobody's agenda yet, and no
    /// order of it is under way as far as this scope knows.
    pub(super) fn adopt(&mut self, key: Key, other: &mut Self, handle: Handle, birth: u32) -> Option<Handle> {
        let name = other.series.name(handle)?.to_owned();
        let content = other.series.take_content(handle);
        let series = other.close(handle)?;
        let handle = self.open(key, &name, &Series { closing: false, ordered: false, ..series }, birth);
        self.series.set_content(handle, content);
        self.recount();
        Some(handle)
    }

    /// Puts the series on the agenda where it belongs there, whether it is there or not.
    pub(super) fn wake(&mut self, handle: Handle, now: Moment) {
        let Some(series) = self.series.get(handle) else { return };
        if let Some(due) = series.next_payment(&self.rules.pace(series.summary), now) {
            self.series.wake_by(handle, due);
        }
    }

    /// Notes what is said of a series to which something was folded for the first time.
    pub(super) fn remember(&mut self, handle: Handle, content: Content) {
        self.series.set_content(handle, Some(Box::new(content)));
        self.recount();
    }

    /// A write of the series was seen: it lives on.
    pub(super) fn see(&mut self, handle: Handle, now: Moment) {
        self.series.see(handle, now, self.ordered_by());
    }

    /// Nobody in the order by use was seen earlier than one before him but for less than this.
    pub(super) fn ordered_by(&self) -> Duration {
        ORDERED_BY.min(self.rules.pace(false).idle_timeout / ORDERED_BY_PART)
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

    /// What is owed is to be paid now, and the series to be forgotten then.
    pub(super) fn begin_closing(&mut self, handle: Handle, now: Moment) {
        // Out of the way of those that are looked at for idleness: from here on the agenda has it.
        self.series.set_aside(handle);
        self.change(handle, now, |series| series.closing = true);
    }
}

/// Steps 6 to 8 of a decision.
impl Scope {
    /// See [`Groups::too_many`].
    pub(super) fn too_many(
        &mut self,
        group: Key,
        [message, object]: [u64; 2],
        rules: &AggregationRules,
        full: Full,
        now: Moment,
    ) -> Option<Objects> {
        let told = self.groups.too_many(group, message, object, rules, full, now);
        self.recount();
        told
    }

    /// See [`Groups::admitted`].
    pub(super) fn admitted_of_group(
        &mut self,
        group: Key,
        name: &str,
        says: impl FnOnce() -> u64,
        rules: &AggregationRules,
        at_once: bool,
        now: Moment,
    ) {
        self.groups.admitted(group, name, says, rules, at_once, now);
        self.recount();
    }

    /// A summary was opened: an admitted Event of its group has to be stored before the summary is.
    pub(super) fn note_witness(&mut self, summary: Handle, group: Key) {
        if let Some(witness) = self.groups.witness(group) {
            self.series.set_witness(summary, group, witness.clone());
        }
    }

    /// See [`Groups::refute_witness`].
    pub(super) fn refute_witness(&mut self, group: Key, witness: &Witness) {
        self.groups.refute_witness(group, witness);
        self.recount();
    }

    /// See [`Buckets::ask`].
    pub(super) fn ask_spam_filter(
        &mut self,
        key: Key,
        rules: &BucketRules,
        full: bool,
        now: Moment,
    ) -> Option<Charge> {
        let charge = self.spam_filter.ask(key, rules, full, now);
        self.recount();
        charge
    }

    /// See [`Buckets::charge`].
    pub(super) fn charge_spam_filter(&mut self, charge: Charge) {
        self.spam_filter.charge(charge);
        self.recount();
    }

    /// Counts what was dropped among what is dropped most.
    pub(super) fn count_dropped(
        &mut self,
        key: Key,
        event: &EventView<'_>,
        disposition: Disposition,
        occurrences: u64,
        full: bool,
    ) {
        self.dropped.count(key, event, disposition, occurrences, full);
        self.recount();
    }
}

/// For want of room.
impl Scope {
    /// One entry less of what is dropped most, for those of other scopes; but every scope keeps one.
    pub(super) fn come_down(&mut self) {
        self.dropped.come_down();
        self.recount();
    }

    /// Gives up the series that was not seen for longest. False if there is none, or if it has to be paid first:
    /// then its closing has begun.
    pub(super) fn evict_oldest(&mut self, now: Moment) -> bool {
        let Some(handle) = self.series.oldest() else { return false };
        if self.series.get(handle).is_some_and(|series| series.needs_payment()) {
            self.begin_closing(handle, now);
            return false;
        }
        self.sizes.series_evicted += 1;
        self.close(handle).is_some()
    }

    /// Gives up the oldest record of an ended series. False if there is none.
    pub(super) fn evict_ended(&mut self) -> bool {
        let evicted = self.series.evict_ended();
        self.recount();
        evicted
    }

    /// Gives up one entry of what there is too much of. False if there is none, or if it has to be paid first.
    pub(super) fn give_up(&mut self, surplus: &Full, now: Moment) -> bool {
        let series = surplus.series && self.evict_oldest(now);
        let text = surplus.text && !series && (self.spare_a_content(now) || self.evict_oldest(now));
        let of_groups = surplus.groups || surplus.fingerprints;
        let group = of_groups && self.groups.give_up_oldest().is_some();
        let ended = surplus.ended && self.series.evict_ended();
        self.recount();
        series || text || group || ended
    }

    /// Gives up the content of one of the series that were not seen for longest, if it owes nothing: what it folds
    /// next brings its content along. False if none of the oldest can spare it.
    pub(super) fn spare_a_content(&mut self, now: Moment) -> bool {
        let mut cursor = self.series.oldest();
        for _ in 0..LOOKED_AT {
            let Some(handle) = cursor else { return false };
            if self.series.get(handle).is_some_and(|series| series.folded && series.is_paid()) {
                self.series.set_content(handle, None);
                self.change(handle, now, |series| series.folded = false);
                self.sizes.contents_evicted += 1;
                self.recount();
                return true;
            }
            cursor = self.series.next_newer(handle);
        }
        false
    }
}

/// When policies change, and in slices after that.
impl Scope {
    /// Takes over the rules as they are now; see [`super::Engine::revise`]. The series are seen to by
    /// [`Self::revise_series`].
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
        if self.rules == *current {
            return;
        }
        self.rules = current.clone();
        if self.rules.aggregation.is_none() {
            self.groups.clear();
        }
        if self.rules.spam_filter.is_none() {
            self.spam_filter.clear();
        }
        self.unrevised = u32::try_from(self.series.len()).unwrap_or(u32::MAX);
        self.recount();
    }

    /// Sees to series that the change of the rules concerns, at most so many; returns how many. From the last to
    /// the first: who takes the place of one that is closed has been seen to, or came later.
    pub(super) fn revise_series(&mut self, at_most: usize, now: Moment) -> usize {
        let mut seen_to = 0;
        while seen_to < at_most
            && let Some(position) = self.unrevised.checked_sub(1)
        {
            (self.unrevised, seen_to) = (position, seen_to + 1);
            let Some((handle, series)) = self.series.nth(position) else { continue };
            let off =
                if series.summary { self.rules.aggregation.is_none() } else { self.rules.series.is_none() };
            if !off {
                // A shorter heartbeat brings payments forward.
                self.wake(handle, now);
            } else if series.needs_payment() || series.ordered {
                self.begin_closing(handle, now);
            } else {
                self.close(handle);
            }
        }
        seen_to
    }

    /// The namespace is gone, as far as one can know.
    pub(super) fn is_left_behind(&self, now: Moment) -> bool {
        self.unknown_since.is_some_and(|since| now.since(since) > GONE_AFTER)
    }

    /// Forgets groups that would start anew and buckets that are full again, at most so many of each; returns how
    /// many.
    pub(super) fn forget_the_old(&mut self, at_most: usize, now: Moment) -> usize {
        if self.is_unneeded(now) {
            self.groups.clear();
            self.spam_filter.clear();
        }
        let groups = self.groups.forget(self.rules.aggregation.as_ref(), at_most, now);
        let buckets = self.spam_filter.forget(at_most, now);
        self.recount();
        groups + buckets
    }

    /// Nothing of the scope matters any more, or would take long to free.
    pub(super) fn is_over(&self, now: Moment) -> bool {
        self.is_unneeded(now) && self.groups.is_nothing() && self.spam_filter.is_nothing()
    }

    /// The policy or the namespace is gone, and nothing is left to be paid.
    fn is_unneeded(&self, now: Moment) -> bool {
        (self.deleted || self.is_left_behind(now)) && self.series.is_empty()
    }
}

/// The sums once a series went from `before` to `after`, or came, or went.
fn reckoned(sums: Sizes, before: Option<&Series>, after: Option<&Series>) -> Sizes {
    let owed = |series: Option<&Series>| series.map_or(0, |it| usize::try_from(it.owed()).unwrap_or(0));
    let unpaid = |series: Option<&Series>| series.is_some_and(|it| it.ordered || it.needs_payment());
    let undrained =
        |series: Option<&Series>| series.is_some_and(|it| it.ordered || it.needs_payment() && !it.drained);
    Sizes {
        owed: sums.owed + owed(after) - owed(before),
        owing: sums.owing + usize::from(owed(after) > 0) - usize::from(owed(before) > 0),
        unpaid: sums.unpaid + usize::from(unpaid(after)) - usize::from(unpaid(before)),
        undrained: sums.undrained + usize::from(undrained(after)) - usize::from(undrained(before)),
        ..sums
    }
}
