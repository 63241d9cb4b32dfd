//! One series: what its stored Event should show, what it shows, and when the difference is to be paid.

use std::time::Duration;

use jiff::Timestamp;

use super::{Moment, SeriesRules};

/// squelch does not write an Event that it admitted a client's write of less than this ago: the two would meet.
pub(super) const SETTLE: Duration = Duration::from_secs(2);

/// The API server may take this long to store a write that was admitted: until then an Event that is not there may
/// still come. Most are stored within [`SETTLE`]; an etcd that needs a second for each commit is slower.
pub(super) const COMMITTED: Duration = Duration::from_secs(5);

/// Kubernetes counts in i32; so does every total.
pub(super) const MAX_COUNT: i64 = i32::MAX as i64;

/// All writes that say the same thing. (What its stored Event is called, and what is needed to create that again, is
/// kept apart: few decisions need it.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Series {
    /// What the stored Event should show.
    pub(super) total: i64,
    /// The value known to be in etcd. Never above `total`.
    pub(super) stored: i64,
    /// Occurrences of the change at hand that no count can show, since the total is [`MAX_COUNT`]. Not kept:
    /// `Scope::change` counts them as lost.
    pub(super) beyond_count: u64,
    /// Of `stored`, what has been seen there: a client's admitted write is believed only then.
    pub(super) confirmed: i64,
    /// squelch itself has read or written the stored Event since a client last created it: if it goes, squelch may
    /// create it again. What only a review has shown may never have been stored.
    pub(super) read: bool,
    /// So much of the total was found in etcd before anybody told of it: perhaps its client wrote while nobody decided,
    /// and tells of it again with its next value.
    pub(super) untold: i64,
    /// Others than the client of the stored Event have told of some of it, in this life or in one before.
    pub(super) shared: bool,
    /// When a write of the series was seen last.
    pub(super) seen: Moment,
    /// When the stored Event was written last, as far as is known.
    pub(super) paid_at: Moment,
    /// squelch does not write before: a client's write was admitted just now, and may be under way; or the last
    /// attempt to pay failed.
    pub(super) not_before: Moment,
    /// So many attempts to pay in a row failed.
    pub(super) failures: u8,
    /// The last attempt to pay failed while draining: then only [`Self::not_before`] is waited for, and no client's
    /// write puts that off.
    pub(super) put_off: bool,
    /// While draining: its order was answered since the draining began. What comes after that is paid at the
    /// very end, or a storm that goes on would put the end off.
    pub(super) drained: bool,
    /// When the last folded occurrence happened, as its writer says.
    pub(super) occurred_at: Timestamp,
    /// Something was folded into it, and what is needed to create its Event again is kept.
    pub(super) folded: bool,
    /// It is a summary: squelch's own Event, whose message and regarded object follow the newest write.
    pub(super) summary: bool,
    /// A summary's name has not been read yet: what stands there is the base that it counts from.
    pub(super) base_unknown: bool,
    /// The last payment was a client's write, and nobody has seen it in etcd since.
    pub(super) unverified: bool,
    /// Idle, and waiting for its last payment to be acknowledged.
    pub(super) closing: bool,
    /// An order of it is with the writer.
    pub(super) ordered: bool,
}

impl Series {
    /// A series whose stored Event a client writes just now, with `value`.
    pub(super) fn opened_by_create(value: i64, occurred_at: Timestamp, now: Moment) -> Self {
        Self {
            total: value,
            stored: value,
            beyond_count: 0,
            confirmed: 0,
            read: false,
            untold: 0,
            shared: false,
            seen: now,
            paid_at: now,
            not_before: now.plus(SETTLE),
            failures: 0,
            put_off: false,
            drained: false,
            occurred_at,
            folded: false,
            summary: false,
            base_unknown: false,
            unverified: true,
            closing: false,
            ordered: false,
        }
    }

    /// A series whose stored Event is there already, with `stored`.
    pub(super) fn opened_by_update(stored: i64, occurred_at: Timestamp, now: Moment) -> Self {
        Self {
            confirmed: stored,
            not_before: now,
            unverified: false,
            ..Self::opened_by_create(stored, occurred_at, now)
        }
    }

    /// A summary under a name of squelch's own: nothing is stored, as far as is known.
    pub(super) fn opened_by_fold(occurred_at: Timestamp, now: Moment) -> Self {
        Self { summary: true, base_unknown: true, ..Self::opened_by_update(0, occurred_at, now) }
    }

    /// Occurrences folded and not yet written to the stored Event.
    pub(super) fn owed(&self) -> i64 {
        self.total - self.stored
    }

    /// It must not be forgotten yet: it owes, or its last payment was a client's that nobody has seen stored.
    /// (Where nothing was ever folded, a client's write is its own affair.)
    pub(super) fn needs_payment(&self) -> bool {
        self.owed() > 0 || (self.unverified && self.folded)
    }

    /// It was not seen for the idle timeout. While a client's write may be under way it is not over.
    pub(super) fn over(&self, pace: &SeriesRules, now: Moment) -> bool {
        now.since(self.seen) > pace.idle_timeout && now >= self.not_before
    }

    /// Its next payment may be a client's own write: the total has doubled, or the heartbeat has come.
    pub(super) fn due(&self, rules: &SeriesRules, now: Moment) -> bool {
        self.owed() >= self.stored || now.since(self.paid_at) >= rules.heartbeat_interval
    }

    /// Half or more of the total has not been seen in etcd yet.
    pub(super) fn doubtful(&self) -> bool {
        self.total >= 2 * self.confirmed
    }

    /// When squelch should look at its stored Event; `None`: not before it closes.
    pub(super) fn next_payment(&self, rules: &SeriesRules, now: Moment) -> Option<Moment> {
        let earliest = self.not_before.max(now);
        if self.ordered {
            return None;
        }
        if self.closing {
            return self.needs_payment().then_some(earliest);
        }
        // Nothing owed, but half of it a client's write that nobody has seen stored: to be read.
        let unseen = self.unverified && self.folded && self.doubtful();
        if self.owed() <= 0 && !unseen {
            return None;
        }
        if self.owed() >= self.stored || self.doubtful() {
            return Some(earliest);
        }
        Some(self.paid_at.plus(rules.heartbeat_interval).max(earliest))
    }

    /// Nothing would be lost if it could not be created again just now.
    pub(super) fn is_paid(&self) -> bool {
        !self.needs_payment() && !self.ordered && !self.summary
    }

    /// A write that says the same, and happened then, was folded into it. `kept`: what its Event says may be kept.
    /// True if it is to be kept now, because this is the first.
    pub(super) fn fold(&mut self, occurred_at: Timestamp, kept: bool) -> bool {
        let first = kept && !self.folded;
        if kept || self.folded {
            self.occurred_at = self.occurred_at.max(occurred_at);
            self.folded = true;
        }
        first
    }

    /// The attempt to pay failed: not again before `not_before`. While draining it was given in spite of whatever
    /// put it off before.
    pub(super) fn retry(&mut self, not_before: Moment, draining: bool) {
        (self.ordered, self.put_off) = (false, draining);
        self.not_before = if draining { not_before } else { self.not_before.max(not_before) };
    }

    /// A client's write of the stored Event was admitted, and may be under way for a while.
    pub(super) fn unsettled(&mut self, now: Moment) {
        let settled = now.plus(SETTLE);
        if !self.put_off {
            self.not_before = if self.failures > 0 { self.not_before.max(settled) } else { settled };
        }
        self.unverified = true;
    }

    /// The stored Event's own client tells of occurrences. One that tells of more than was found before it did tells
    /// of that too: its value is absolute.
    pub(super) fn tell(&mut self, occurrences: i64) {
        let found_before = if occurrences > self.untold { std::mem::take(&mut self.untold) } else { 0 };
        self.add(occurrences - found_before);
    }

    /// Somebody else tells of occurrences. True if that is the first time.
    pub(super) fn share(&mut self, occurrences: i64) -> bool {
        let newly = occurrences > 0 && !self.shared;
        self.shared |= newly;
        self.add(occurrences);
        newly
    }

    /// What of the total was told of.
    pub(super) fn told(&self) -> i64 {
        self.total - self.untold
    }

    /// A client creates its stored Event, which then shows `value`: the former one is gone. A CREATE that carries nothing
    /// is tried again, and its Event may be there: it is to be read.
    pub(super) fn create_again(&mut self, occurrences: i64, value: i64, now: Moment) {
        if occurrences > 0 {
            self.tell(occurrences);
            self.client_pays(value, now);
            self.read = false;
        } else {
            self.unsettled(now);
        }
        self.confirmed = 0;
    }

    /// Whether only an admitted CREATE says that the Event is its client's: the API server may have refused that. An
    /// UPDATE shows that its client may change the Event.
    pub(super) fn is_claimed_only(&self) -> bool {
        !self.read && self.confirmed == 0 && !self.summary
    }

    /// Whether a client's write of it was admitted so lately that the API server may not have stored it yet.
    pub(super) fn may_still_be_stored(&self, now: Moment) -> bool {
        now.since(self.paid_at) < COMMITTED
    }

    /// Adds occurrences to the total.
    pub(super) fn add(&mut self, occurrences: i64) {
        let total = self.total + occurrences;
        self.total = total.min(MAX_COUNT);
        self.beyond_count += (total - self.total).unsigned_abs();
    }

    /// The API server has just read `stored` in etcd: believe it, and never fall below it. `occurrences` are
    /// what the write at hand carries: a write may have passed unreviewed, so the total is at least what is
    /// stored and one more for a write that tells of anything.
    pub(super) fn resync(&mut self, stored: i64, occurrences: i64) {
        // The Event was there before the CREATE that opened the series, which the API server has refused then. What
        // others have reported since is not in the count that it shows.
        if self.shared && self.confirmed == 0 && !self.read {
            self.find(self.total + (stored - self.stored).max(0));
        }
        self.tell(occurrences);
        self.find(stored + occurrences.min(1));
        self.stored = stored.min(self.total);
        self.confirmed = self.stored;
    }

    /// The total is at least `value`, whoever has put it there.
    fn find(&mut self, value: i64) {
        let total = self.total.max(value.min(MAX_COUNT));
        self.untold += total - self.total;
        self.total = total;
    }

    /// A client's write of the stored Event was admitted: it pays up to `value`. Admission is not commit.
    pub(super) fn client_pays(&mut self, value: i64, now: Moment) {
        self.total = self.total.max(value);
        self.stored = value;
        self.paid_at = now;
        self.unsettled(now);
    }

    /// Somebody else has put `found` under the name of a summary, before it was read for the first time or since: the
    /// summary counts on from there.
    pub(super) fn rebase(&mut self, found: i64) {
        self.base_unknown = false;
        self.add(found - self.stored);
        self.stored = found.min(self.total);
        self.confirmed = self.stored;
    }

    /// `value` is in etcd, as squelch has seen or written itself. What somebody else has put on top of the total
    /// belongs to the series from now on.
    pub(super) fn settle(&mut self, value: i64) {
        self.find(value);
        self.stored = value.min(self.total);
        self.confirmed = self.stored;
        self.unverified = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: SeriesRules =
        SeriesRules { idle_timeout: Duration::from_secs(360), heartbeat_interval: Duration::from_secs(1800) };

    fn at(seconds: u64) -> Moment {
        Moment::from_epoch(Duration::from_secs(seconds))
    }

    fn series(total: i64, stored: i64) -> Series {
        let mut series = Series::opened_by_update(stored, Timestamp::UNIX_EPOCH, at(100));
        series.total = total;
        series
    }

    #[test]
    fn the_total_doubling_or_the_heartbeat_makes_it_due() {
        assert!(!series(19, 10).due(&RULES, at(100)));
        assert!(series(20, 10).due(&RULES, at(100)));
        assert!(!series(11, 10).due(&RULES, at(1899)));
        assert!(series(11, 10).due(&RULES, at(1900)));
    }

    #[test]
    fn a_payment_waits_for_the_client_to_settle_and_nothing_owed_waits_for_ever() {
        assert_eq!(series(10, 10).next_payment(&RULES, at(100)), None);
        assert_eq!(series(11, 10).next_payment(&RULES, at(100)), Some(at(1900)));
        let mut doubled = series(20, 10);
        assert_eq!(doubled.next_payment(&RULES, at(105)), Some(at(105)));
        doubled.not_before = at(106);
        assert_eq!(doubled.next_payment(&RULES, at(105)), Some(at(106)));
    }

    #[test]
    fn what_somebody_else_stored_is_never_lost_and_never_counted_twice() {
        let mut series = series(10, 8);
        series.resync(15, 6); // five passed unreviewed; the client's value tells of them and one more
        assert_eq!((series.total, series.stored), (16, 15));
        series.resync(16, 0);
        assert_eq!((series.total, series.owed()), (16, 0));
        series.settle(20);
        assert_eq!((series.total, series.stored), (20, 20));
        series.resync(20, 2); // somebody who knows nothing of the four
        assert_eq!((series.total, series.stored), (22, 20));
        series.resync(22, 5); // who wrote the four tells of them, and of one more
        assert_eq!((series.total, series.stored), (23, 22));
        series.resync(23, 5);
        assert_eq!((series.total, series.stored), (28, 23));
    }

    #[test]
    fn counts_end_where_kubernetes_counts_end() {
        let mut series = series(MAX_COUNT - 1, 1);
        series.add(i64::from(i32::MAX));
        assert_eq!(series.total, MAX_COUNT);
        series.resync(MAX_COUNT, 5);
        assert_eq!(series.owed(), 0);
    }
}
