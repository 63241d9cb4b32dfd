//! One series: the count that its stored Event should show, the count that it shows, and when to flush the
//! difference.

mod reads;

use std::time::Duration;

use jiff::Timestamp;

use crate::{Moment, SeriesRules};

/// Minimum time between the admission of a client's write and a flush of the same Event, so that they do not
/// conflict.
pub(crate) const CLIENT_WRITE_GRACE: Duration = Duration::from_secs(2);

/// Time that the API server may need to store an admitted write. Until then a missing Event may still appear.
/// Most writes are stored within [`CLIENT_WRITE_GRACE`]; an etcd that needs a second for each commit is slower.
pub(crate) const COMMIT_GRACE: Duration = Duration::from_secs(5);

/// Maximum count. Kubernetes counts in i32.
pub(crate) const MAX_COUNT: i64 = i32::MAX as i64;

/// All writes with the same series key. Name and content of the stored Event are kept apart, because few
/// decisions need them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Series {
    /// The count that the stored Event should show.
    pub(crate) total: i64,
    /// Last count known to be stored in etcd. Invariant: `stored <= total`.
    pub(crate) stored: i64,
    /// Occurrences of the current change that no count can show, because the total is [`MAX_COUNT`]. Not
    /// kept: [`Scope::change`] counts them as lost.
    ///
    /// [`Scope::change`]: crate::state::scope::Scope::change
    pub(crate) beyond_max_count: u64,
    /// The part of `stored` that was seen in etcd. An admitted write of a client is trusted only then.
    pub(crate) confirmed: i64,
    /// Whether squelch has read or written the stored Event since a client last created it. Only then may
    /// squelch create it again: an Event known only from a review may never have been stored.
    pub(crate) read: bool,
    /// The part of `total` found in etcd before any client reported it. Its client may have written it while no
    /// replica was active, and may report it again with its next value.
    pub(crate) unreported: i64,
    /// Whether other clients than the owner of the stored Event have reported occurrences, in this series or a
    /// previous one.
    pub(crate) shared: bool,
    /// Time of the last write of the series.
    pub(crate) seen: Moment,
    /// Time of the last known write of the stored Event.
    pub(crate) written_at: Moment,
    /// No flush before this time: a client's write was just admitted, or the last flush failed.
    pub(crate) not_before: Moment,
    /// Number of consecutive failed flushes.
    pub(crate) failures: u8,
    /// Whether the last flush failed while draining. Then the next one waits for [`Self::not_before`], and
    /// client writes do not delay it.
    pub(crate) deferred: bool,
    /// Whether its flush was completed since draining began. Later occurrences are flushed at the very end;
    /// otherwise a continuing storm would delay the end.
    pub(crate) drained: bool,
    /// Time of the last merged occurrence, as its client wrote it.
    pub(crate) occurred_at: Timestamp,
    /// Whether occurrences were merged and the content of its Event is kept.
    pub(crate) merged: bool,
    /// Whether it is a summary: an Event of squelch, whose message and regarding object follow the newest
    /// write.
    pub(crate) summary: bool,
    /// Whether a merge or a CREATE opened the series, and no read has shown its Event yet. What is stored there
    /// is the base of its count.
    pub(crate) base_unknown: bool,
    /// Whether the last write was a client's that is not yet confirmed in etcd.
    pub(crate) unverified: bool,
    /// Whether it is idle and waits for its last flush.
    pub(crate) closing: bool,
    /// Whether the flush writer has a task for it.
    pub(crate) in_flight: bool,
}

impl Series {
    /// Returns a series whose stored Event a client just created with `value`.
    pub(crate) fn opened_by_create(value: i64, occurred_at: Timestamp, now: Moment) -> Self {
        Self {
            total: value,
            stored: value,
            beyond_max_count: 0,
            confirmed: 0,
            read: false,
            unreported: 0,
            shared: false,
            seen: now,
            written_at: now,
            not_before: now.plus(CLIENT_WRITE_GRACE),
            failures: 0,
            deferred: false,
            drained: false,
            occurred_at,
            merged: false,
            summary: false,
            base_unknown: true,
            unverified: true,
            closing: false,
            in_flight: false,
        }
    }

    /// Returns a series whose stored Event exists with count `stored`.
    pub(crate) fn opened_by_update(stored: i64, occurred_at: Timestamp, now: Moment) -> Self {
        Self {
            confirmed: stored,
            not_before: now,
            base_unknown: false,
            unverified: false,
            ..Self::opened_by_create(stored, occurred_at, now)
        }
    }

    /// Returns a summary under a name of squelch, with nothing known to be stored.
    pub(crate) fn opened_by_merge(occurred_at: Timestamp, now: Moment) -> Self {
        Self { summary: true, base_unknown: true, ..Self::opened_by_update(0, occurred_at, now) }
    }

    /// Returns the occurrences merged and not yet written to the stored Event.
    pub(crate) fn pending(&self) -> i64 {
        self.total - self.stored
    }

    /// Whether the series must be kept: it has pending occurrences, or its last write was a client's that is
    /// not yet confirmed in etcd. Without merged occurrences an unconfirmed write is not squelch's concern.
    pub(crate) fn needs_flush(&self) -> bool {
        self.pending() > 0 || (self.unverified && self.merged)
    }

    /// Whether the idle timeout has passed. A series is not over while a client's write may be in progress. The
    /// delay after a failed flush is no reason to keep it.
    pub(crate) fn is_over(&self, timing: &SeriesRules, now: Moment) -> bool {
        let has_retry = self.failures > 0 && !self.deferred;
        now.since(self.seen) > timing.idle_timeout && (has_retry || now >= self.not_before)
    }

    /// Whether a client's own write may pass: the total has doubled, or the heartbeat interval has passed.
    pub(crate) fn is_due(&self, rules: &SeriesRules, now: Moment) -> bool {
        self.pending() >= self.stored || now.since(self.written_at) >= rules.heartbeat_interval
    }

    /// Whether at least half of the total was not seen in etcd yet.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        self.total >= 2 * self.confirmed
    }

    /// Returns when squelch should read its stored Event; `None` if not before it closes.
    pub(crate) fn next_flush(&self, rules: &SeriesRules, now: Moment) -> Option<Moment> {
        let earliest = self.not_before.max(now);
        if self.in_flight {
            return None;
        }
        if self.closing {
            return self.needs_flush().then_some(earliest);
        }
        // Nothing is pending, but half of the total is an unconfirmed client write: read it.
        let unseen = self.unverified && self.merged && self.is_unconfirmed();
        if self.pending() <= 0 && !unseen {
            return None;
        }
        if self.pending() >= self.stored || self.is_unconfirmed() {
            return Some(earliest);
        }
        Some(self.written_at.plus(rules.heartbeat_interval).max(earliest))
    }

    /// Whether nothing would be lost if its Event could not be created again.
    pub(crate) fn can_spare_content(&self) -> bool {
        !self.needs_flush() && !self.in_flight && !self.summary
    }

    /// Records a merged occurrence at this time. `kept`: the Event's content may be kept. If it is to be kept now,
    /// because this occurrence is the first, returns the time of the write that opened the series; the least time if
    /// that is unknown, because a former content was evicted.
    pub(crate) fn merge(&mut self, occurred_at: Timestamp, kept: bool) -> Option<Timestamp> {
        let opened_at = if self.read { Timestamp::MIN } else { self.occurred_at };
        let first = (kept && !self.merged).then_some(opened_at);
        if kept || self.merged {
            self.occurred_at = self.occurred_at.max(occurred_at);
            self.merged = true;
        }
        first
    }

    /// Records a failed flush; the next one is at `not_before`. While draining this replaces any earlier delay.
    pub(crate) fn retry(&mut self, not_before: Moment, draining: bool) {
        (self.in_flight, self.deferred) = (false, draining);
        self.not_before = if draining { not_before } else { self.not_before.max(not_before) };
    }

    /// Records an admitted client write of the stored Event, which may be in progress for a while.
    pub(crate) fn await_commit(&mut self, now: Moment) {
        let committed_by = now.plus(CLIENT_WRITE_GRACE);
        if !self.deferred {
            self.not_before =
                if self.failures > 0 { self.not_before.max(committed_by) } else { committed_by };
        }
        self.unverified = true;
    }

    /// Adds occurrences reported by the owner of the stored Event. If they exceed the unreported ones they
    /// include those, because the owner's count is absolute.
    pub(crate) fn owner_reports(&mut self, occurrences: i64) {
        let found_before =
            if occurrences > self.unreported { std::mem::take(&mut self.unreported) } else { 0 };
        self.add(occurrences - found_before);
    }

    /// Adds occurrences reported by another client. Returns whether these are the first.
    pub(crate) fn others_report(&mut self, occurrences: i64) -> bool {
        let newly = occurrences > 0 && !self.shared;
        self.shared |= newly;
        self.add(occurrences);
        newly
    }

    /// Returns the reported part of the total.
    pub(crate) fn reported(&self) -> i64 {
        self.total - self.unreported
    }

    /// Records that a client creates the stored Event with `value`. Either the previous one is gone, or the API server
    /// refuses the CREATE, as for clients that create before they replace. One with occurrences may replace an Event
    /// that is gone: squelch must not create that again. One without is a retry, whose Event may exist.
    pub(crate) fn create_again(&mut self, occurrences: i64, value: i64, now: Moment) {
        if occurrences > 0 {
            self.owner_reports(occurrences);
            self.client_writes(value, now);
            self.read = false;
        } else {
            self.await_commit(now);
        }
        // It has to be read. Not 0 if the Event was shown: it still belongs to its client.
        self.confirmed = self.confirmed.min(1);
    }

    /// Records that squelch has answered the UPDATE that follows such a CREATE: none of its client's writes is in
    /// progress. Otherwise a client that creates each time would delay every flush.
    pub(crate) fn client_is_answered(&mut self, now: Moment) {
        if self.failures == 0 && !self.deferred {
            self.not_before = self.not_before.min(now);
        }
    }

    /// Whether only an admitted CREATE shows that the Event belongs to its client. The API server may have
    /// refused it. An UPDATE shows that its client may change the Event.
    pub(crate) fn is_claimed_only(&self) -> bool {
        !self.read && self.confirmed == 0 && !self.summary
    }

    /// Whether the API server may still store a recently admitted client write.
    pub(crate) fn may_still_be_stored(&self, now: Moment) -> bool {
        now.since(self.written_at) < COMMIT_GRACE
    }

    /// Adds occurrences to the total.
    pub(crate) fn add(&mut self, occurrences: i64) {
        let total = self.total + occurrences;
        self.total = total.min(MAX_COUNT);
        self.beyond_max_count += (total - self.total).unsigned_abs();
    }

    /// Records an admitted client write of the stored Event with `value`. Admission is not commit.
    pub(crate) fn client_writes(&mut self, value: i64, now: Moment) {
        self.total = self.total.max(value);
        self.stored = value;
        self.written_at = now;
        self.await_commit(now);
    }
}

#[cfg(test)]
mod tests;
