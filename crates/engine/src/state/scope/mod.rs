//! The state of one policy in one namespace, in one mode.

mod eviction;
mod revision;
mod stages;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use crate::decide::keys::Key;
use crate::model::content::Content;
use crate::state::buckets::{Buckets, BudgetBucket};
use crate::state::capacity::AtCapacity;
use crate::state::capacity::Sizes;
use crate::state::groups::Groups;
use crate::state::live_series::{Handle, LiveSeries};
use crate::state::series::Series;
use crate::state::top_dropped::Sketch;
use crate::{Counters, Mode, Moment, PolicyId, Rules, ScopeCounters};

/// Identifies a scope within its namespace. Never reused.
pub(crate) type ScopeId = u32;

/// Granularity of the order by use: the oldest series may have been seen this much later than another one.
/// Moving an entry reads its neighbours, which are in no cache; this way a storm moves none.
const ORDERED_BY: Duration = Duration::from_secs(16);
/// The granularity is at most this fraction of the idle timeout. It bounds how late an idle series is noticed.
const ORDERED_BY_PART: u32 = 16;

/// The state of one policy in one namespace. A policy that changes its mode has two scopes: the one of Enforce
/// is flushed, and the one of Observe starts empty.
// The field order matters: what every decision reads lies together at the end. A namespace takes two kilobytes,
// and each cache line that a decision reads of it costs as much as an entry of a table.
#[repr(C)]
pub(crate) struct Scope {
    pub(crate) id: ScopeId,
    /// For a cluster-scoped policy: since when the namespace is unknown.
    pub(crate) unknown_since: Option<Moment>,
    /// Series below this position have not been revised since the rules changed.
    unrevised: u32,
    /// Position at which draining continues.
    pub(crate) undrained_below: u32,
    dropped: Sketch,
    groups: Groups,
    spam_filter: Buckets,
    pub(crate) budget: BudgetBucket,
    pub(crate) series: LiveSeries,
    pub(crate) counters: Counters,
    /// Sizes of the tables, kept current by [`Scope::change`] and [`Scope::recount`].
    sizes: Sizes,
    /// Whether the policy is deleted, invalid, in another mode or governs nothing here: pending occurrences are
    /// flushed and no series is opened.
    pub(crate) retired: bool,
    /// Whether the policy is deleted. The scope is removed once nothing is pending.
    pub(crate) deleted: bool,
    /// The rules of the last decision.
    pub(crate) rules: Arc<Rules>,
}

impl Scope {
    pub(crate) fn new(id: ScopeId, rules: Arc<Rules>) -> Self {
        Self {
            id,
            unknown_since: None,
            unrevised: 0,
            undrained_below: 0,
            dropped: Sketch::default(),
            groups: Groups::default(),
            spam_filter: Buckets::default(),
            budget: BudgetBucket::default(),
            series: LiveSeries::default(),
            counters: Counters::default(),
            sizes: Sizes::default(),
            retired: false,
            deleted: false,
            rules,
        }
    }

    /// Prefetches the metadata of the tables; see [`crate::decide::prefetch`].
    pub(crate) fn prefetch_outline(&self) {
        black_box((self.counters.received(), self.sizes.series, self.sizes.names_evicted, self.deleted));
        self.series.prefetch_outline();
    }

    /// Prefetches what the enabled ones of aggregation and limits read.
    pub(crate) fn prefetch_tables(&self, group: Option<Key>, bucket: Option<Key>, at_capacity: &AtCapacity) {
        if let Some(group) = group {
            self.groups.prefetch(group, at_capacity);
        }
        if let Some(bucket) = bucket {
            self.spam_filter.prefetch(bucket, at_capacity.buckets);
        }
        self.dropped.prefetch();
    }

    pub(crate) fn belongs_to(&self, rules: &Rules) -> bool {
        self.rules.policy.uid == rules.policy.uid && self.rules.mode == rules.mode
    }

    pub(crate) fn policy(&self) -> &PolicyId {
        &self.rules.policy
    }

    /// Returns the sizes of the tables.
    pub(crate) fn sizes(&self) -> Sizes {
        match self.rules.mode {
            Mode::Enforce => self.sizes,
            // Every write is stored: nothing is pending.
            Mode::Observe => Sizes { pending_occurrences: 0, pending_series: 0, ..self.sizes },
        }
    }

    /// Updates the sizes from the tables. Call it after any change of their lengths.
    pub(crate) fn recount(&mut self) {
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

    pub(crate) fn scope_counters(&self, namespace: &Arc<str>) -> ScopeCounters {
        ScopeCounters {
            namespace: namespace.clone(),
            policy: self.rules.policy.clone(),
            mode: self.rules.mode,
            counters: self.counters,
            dropped: self.dropped.top(),
        }
    }

    /// Opens a series under an unused key. `name`: name of the stored Event.
    pub(crate) fn open(&mut self, key: Key, name: &str, series: &Series, birth: u32) -> Handle {
        self.sizes = updated_sizes(self.sizes, None, Some(series));
        let handle = self.series.insert(key, name, series, birth);
        self.recount();
        handle
    }

    /// Removes a series.
    pub(crate) fn close(&mut self, handle: Handle) -> Option<Series> {
        let series = self.series.remove(handle)?;
        self.sizes = updated_sizes(self.sizes, Some(&series), None);
        self.recount();
        Some(series)
    }

    /// Removes a series that is over. Returns whether it was live.
    pub(crate) fn end(&mut self, handle: Handle, now: Moment) -> bool {
        let Some(series) = self.close(handle) else { return false };
        // In Observe squelch writes nothing.
        if self.rules.mode == Mode::Enforce {
            self.series.remember_written(handle, &series, now);
        }
        true
    }

    /// Removes a series whose pending occurrences can never be written. Returns how many are lost; in Observe
    /// none, because nothing would be written.
    pub(crate) fn discard(&mut self, handle: Handle) -> Option<u64> {
        let pending = self.close(handle)?.pending().unsigned_abs();
        let lost = if self.rules.mode == Mode::Enforce { pending } else { 0 };
        self.counters.lost += lost;
        Some(lost)
    }

    /// Removes all series, groups and buckets of a deleted namespace. Pending occurrences are lost. Returns the
    /// series, because freeing them takes long.
    pub(crate) fn discard_all(&mut self) -> LiveSeries {
        let lost = if self.rules.mode == Mode::Enforce { self.sizes.pending_occurrences as u64 } else { 0 };
        self.counters.lost += lost;
        self.groups.clear();
        self.dropped.forget();
        self.spam_filter.clear();
        self.budget = BudgetBucket::default();
        (self.unrevised, self.undrained_below) = (0, 0);
        let series = self.series.take();
        self.sizes =
            Sizes { pending_occurrences: 0, pending_series: 0, unflushed: 0, undrained: 0, ..self.sizes };
        self.recount();
        series
    }

    /// Changes a series. The only way to do so: it updates sizes and timer.
    pub(crate) fn change<T>(
        &mut self,
        handle: Handle,
        now: Moment,
        change: impl FnOnce(&mut Series) -> T,
    ) -> Option<T> {
        let before = self.series.get(handle)?;
        let mut series = before;
        let answer = change(&mut series);
        if self.rules.mode == Mode::Enforce {
            self.counters.lost += series.beyond_max_count;
        }
        self.series.put(handle, &series);
        self.sizes = updated_sizes(self.sizes, Some(&before), Some(&series));
        // The timer already covers what was due before, so most merges need not set it.
        let timing = self.rules.timing(series.summary);
        let due_before = before.next_flush(&timing, now);
        if let Some(due) = series.next_flush(&timing, now)
            && due_before.is_none_or(|before| due < before)
        {
            self.series.set_timer(handle, due);
        }
        Some(answer)
    }

    /// Moves a series here from another scope under an unused key. It has no timer yet, and no task as far as
    /// this scope knows.
    pub(crate) fn adopt(&mut self, key: Key, other: &mut Self, handle: Handle, birth: u32) -> Option<Handle> {
        let name = other.series.name(handle)?.to_owned();
        let content = other.series.take_content(handle);
        let series = other.close(handle)?;
        let handle = self.open(key, &name, &Series { closing: false, in_flight: false, ..series }, birth);
        self.series.set_content(handle, content);
        self.recount();
        Some(handle)
    }

    /// Sets the timer of the series if it needs one.
    pub(crate) fn schedule(&mut self, handle: Handle, now: Moment) {
        let Some(series) = self.series.get(handle) else { return };
        if let Some(due) = series.next_flush(&self.rules.timing(series.summary), now) {
            self.series.set_timer(handle, due);
        }
    }

    /// Keeps the content of a series whose first occurrence was merged.
    pub(crate) fn remember(&mut self, handle: Handle, content: Content) {
        self.series.set_content(handle, Some(Box::new(content)));
        self.recount();
    }

    /// Forgets the message of the newest merged CREATE: the client writes its stored Event with a newer one.
    pub(crate) fn forget_newest(&mut self, handle: Handle) {
        if self.rules.normalize.is_empty() {
            return;
        }
        if let Some(content) = self.series.content(handle).filter(|content| !content.is_newest("")) {
            self.remember(handle, content.with_newest(""));
        }
    }

    /// Records a write of the series.
    pub(crate) fn mark_seen(&mut self, handle: Handle, now: Moment) {
        self.series.mark_seen(handle, now, self.ordered_by());
    }

    /// Returns the granularity of the order by use.
    pub(crate) fn ordered_by(&self) -> Duration {
        ORDERED_BY.min(self.rules.timing(false).idle_timeout / ORDERED_BY_PART)
    }

    /// Returns the handle if its series is live: seen within the idle timeout, or not flushed yet. Removes an
    /// idle series without pending occurrences here, so that a late [`crate::Engine::tick`] changes no
    /// decision.
    pub(crate) fn living(&mut self, handle: Handle, now: Moment) -> Option<Handle> {
        let series = self.series.get(handle)?;
        let over = series.is_over(&self.rules.timing(series.summary), now)
            && !series.closing
            && !series.needs_flush();
        if over {
            self.end(handle, now);
            return None;
        }
        Some(handle)
    }

    /// Begins to close a series: it is flushed now and then removed.
    pub(crate) fn begin_closing(&mut self, handle: Handle, now: Moment) {
        // The timer takes over, so the search for idle series need not see it.
        self.series.leave_order(handle);
        self.change(handle, now, |series| series.closing = true);
    }
}

/// Returns the sizes after a series changed from `before` to `after`, was opened or was removed.
fn updated_sizes(sums: Sizes, before: Option<&Series>, after: Option<&Series>) -> Sizes {
    let pending = |series: Option<&Series>| series.map_or(0, |it| usize::try_from(it.pending()).unwrap_or(0));
    let unflushed = |series: Option<&Series>| series.is_some_and(|it| it.in_flight || it.needs_flush());
    let undrained =
        |series: Option<&Series>| series.is_some_and(|it| it.in_flight || it.needs_flush() && !it.drained);
    Sizes {
        pending_occurrences: sums.pending_occurrences + pending(after) - pending(before),
        pending_series: sums.pending_series + usize::from(pending(after) > 0)
            - usize::from(pending(before) > 0),
        unflushed: sums.unflushed + usize::from(unflushed(after)) - usize::from(unflushed(before)),
        undrained: sums.undrained + usize::from(undrained(after)) - usize::from(undrained(before)),
        ..sums
    }
}
