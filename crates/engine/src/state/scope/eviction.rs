//! What a scope gives up for want of room.

use super::Scope;
use crate::Moment;
use crate::decide::pipeline::AtCapacity;

/// So many of the oldest series are looked at for one whose content can be spared.
const MAX_SCANNED: usize = 8;

impl Scope {
    /// One entry less of what is dropped most, for those of other scopes; but every scope keeps one.
    pub(crate) fn evict_lightest(&mut self) {
        self.dropped.evict_lightest();
        self.recount();
    }

    /// Gives up the series that was not seen for longest. False if there is none, or if it has to be paid first:
    /// then its closing has begun.
    pub(crate) fn evict_oldest(&mut self, now: Moment) -> bool {
        let Some(handle) = self.series.oldest() else { return false };
        if self.series.get(handle).is_some_and(|series| series.needs_flush()) {
            self.begin_closing(handle, now);
            return false;
        }
        self.sizes.series_evicted += 1;
        self.close(handle).is_some()
    }

    /// Gives up the oldest record of an ended series.
    pub(crate) fn evict_ended(&mut self) {
        self.series.evict_ended();
        self.recount();
    }

    /// Gives up one entry of what there is too much of. False if there is none, or if it has to be paid first.
    pub(crate) fn evict_surplus(&mut self, surplus: &AtCapacity, now: Moment) -> bool {
        let series = surplus.series && self.evict_oldest(now);
        let text = surplus.text && !series && (self.evict_content(now) || self.evict_oldest(now));
        let of_groups = surplus.groups || surplus.fingerprints;
        let group = of_groups && self.groups.evict_oldest().is_some();
        let ended = surplus.ended && self.series.evict_ended();
        self.recount();
        series || text || group || ended
    }

    /// Gives up the content of one of the series that were not seen for longest, if it owes nothing: what it folds
    /// next brings its content along. False if none of the oldest can spare it.
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
