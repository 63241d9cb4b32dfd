//! Eviction within a scope.

use super::Scope;
use crate::Moment;
use crate::state::capacity::AtCapacity;

/// Number of oldest series that are checked for content that can be evicted.
const MAX_SCANNED: usize = 8;

impl Scope {
    /// Evicts one tracked combination of dropped Events for other scopes, but keeps the last.
    pub(crate) fn evict_lightest(&mut self) {
        self.dropped.evict_lightest();
        self.recount();
    }

    /// Evicts the least recently seen series. Returns false if there is none, or if it must be flushed first;
    /// then it begins to close.
    pub(crate) fn evict_oldest(&mut self, now: Moment) -> bool {
        let Some(handle) = self.series.oldest() else { return false };
        if self.series.get(handle).is_some_and(|series| series.needs_flush()) {
            self.begin_closing(handle, now);
            return false;
        }
        self.sizes.series_evicted += 1;
        self.end(handle, now)
    }

    /// Evicts the oldest record of an ended series. Returns false if there is none.
    pub(crate) fn evict_ended(&mut self) -> bool {
        let evicted = self.series.evict_ended();
        self.recount();
        evicted
    }

    /// Evicts one entry of each table with a surplus. Returns false if it evicted nothing.
    pub(crate) fn evict_surplus(&mut self, surplus: &AtCapacity, now: Moment) -> bool {
        let series = surplus.series && self.evict_oldest(now);
        let text = surplus.text && !series && (self.evict_content(now) || self.evict_oldest(now));
        let of_groups = surplus.groups || surplus.fingerprints;
        let group = of_groups && self.groups.evict_oldest().is_some();
        let ended = surplus.ended && self.series.evict_ended();
        self.recount();
        series || text || group || ended
    }

    /// Evicts the content of one of the oldest series without pending occurrences. The next merged write brings
    /// it again. Returns false if none of the oldest qualifies.
    pub(crate) fn evict_content(&mut self, now: Moment) -> bool {
        let mut cursor = self.series.oldest();
        for _ in 0..MAX_SCANNED {
            let Some(handle) = cursor else { return false };
            if self.series.get(handle).is_some_and(|series| series.merged && series.can_spare_content()) {
                self.series.set_content(handle, None);
                self.change(handle, now, |series| series.merged = false);
                self.sizes.contents_evicted += 1;
                self.recount();
                return true;
            }
            cursor = self.series.next_newer(handle);
        }
        false
    }
}
