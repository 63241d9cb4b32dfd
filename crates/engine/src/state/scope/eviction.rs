//! What a scope gives up for want of room.

use super::Scope;
use crate::Moment;
use crate::decide::pipeline::Full;

/// So many of the oldest series are looked at for one whose content can be spared.
const LOOKED_AT: usize = 8;

impl Scope {
    /// One entry less of what is dropped most, for those of other scopes; but every scope keeps one.
    pub(crate) fn come_down(&mut self) {
        self.dropped.come_down();
        self.recount();
    }

    /// Gives up the series that was not seen for longest. False if there is none, or if it has to be paid first:
    /// then its closing has begun.
    pub(crate) fn evict_oldest(&mut self, now: Moment) -> bool {
        let Some(handle) = self.series.oldest() else { return false };
        if self.series.get(handle).is_some_and(|series| series.needs_payment()) {
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
    pub(crate) fn give_up(&mut self, surplus: &Full, now: Moment) -> bool {
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
    pub(crate) fn spare_a_content(&mut self, now: Moment) -> bool {
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
