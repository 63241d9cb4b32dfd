//! One series of the model, and the effect of a write on it.

use super::*;
use crate::state::series::MAX_COUNT;

/// A series.
pub(in super::super) struct ModelSeries {
    pub(super) number: usize,
    pub(super) key: Key,
    /// Name of the stored Event; of a summary only its beginning.
    pub(in super::super) name: String,
    pub(in super::super) summary: bool,
    pub(in super::super) total: i64,
    pub(super) stored: i64,
    pub(super) confirmed: i64,
    /// Whether squelch has read the stored Event since a client last created it.
    pub(super) read: bool,
    /// For a summary: key of its group, and the witness.
    pub(super) witness: Option<(Key, Witness)>,
    pub(super) unreported: i64,
    pub(super) shared: bool,
    pub(super) merged: bool,
    pub(super) unverified: bool,
    pub(super) base_unknown: bool,
    pub(super) closing: bool,
    pub(super) in_flight: bool,
    pub(super) drained: bool,
    /// Whether a flush failed while draining. Its retry then replaces every grace time.
    pub(super) deferred: bool,
    pub(super) seen: Moment,
    pub(super) written_at: Moment,
    pub(super) not_before: Moment,
    pub(super) retry_at: Moment,
    /// Whether the last flush failed.
    pub(super) failed: bool,
}

/// The effect of a decision on a write.
pub(super) enum Outcome {
    Passed,
    Merged,
}

impl ModelSeries {
    /// Returns a series whose Event shows `stored`.
    pub(super) fn new(number: usize, key: Key, name: String, stored: i64, now: Moment) -> Self {
        Self {
            number,
            key,
            name,
            summary: false,
            total: stored,
            stored,
            confirmed: stored,
            read: false,
            witness: None,
            unreported: 0,
            shared: false,
            merged: false,
            unverified: false,
            base_unknown: false,
            closing: false,
            in_flight: false,
            drained: false,
            deferred: false,
            seen: now,
            written_at: now,
            not_before: now,
            retry_at: now,
            failed: false,
        }
    }

    /// A CREATE. That of its own name passes, because the stored Event is gone or has to be read.
    pub(super) fn created(
        &mut self,
        write: &Observation<'_>,
        own: bool,
        carried: i64,
        now: Moment,
    ) -> Outcome {
        if !own {
            self.total += carried;
            self.shared |= carried > 0;
            self.merged = true;
            return Outcome::Merged;
        }
        self.creates(write, carried, now);
        Outcome::Passed
    }

    /// Its client creates the Event again, or retries.
    pub(super) fn creates(&mut self, write: &Observation<'_>, carried: i64, now: Moment) {
        self.reported(carried);
        if carried > 0 {
            self.written_by_client(write.value, now);
            self.read = false;
        }
        self.confirmed = self.confirmed.min(1);
        self.unverified = true;
        self.await_commit(now);
    }

    /// A client's write may be in progress. It does not delay a retry of the drain.
    fn await_commit(&mut self, now: Moment) {
        if !self.deferred {
            self.not_before = now.plus(CLIENT_WRITE_GRACE);
        }
    }

    pub(super) fn updated(
        &mut self,
        write: &Observation<'_>,
        own: bool,
        (carried, reads, created): (i64, bool, i64),
        collects: bool,
        timing: &SeriesRules,
        now: Moment,
    ) -> Outcome {
        if own {
            self.reads(write.old_value, carried);
        } else {
            let missing = (created - write.old_value).max(0);
            self.total += carried + missing;
            self.shared |= carried + missing > 0;
        }
        let right = own && write.value == self.total && write.value >= write.old_value;
        let raises = write.value > write.old_value;
        let refreshes = write.api == Api::Events && (collects || write.value == 3);
        if right && (refreshes || raises && self.is_due(timing, now)) {
            self.written_by_client(write.value, now);
            return Outcome::Passed;
        }
        self.merged = true;
        if own && reads && !self.failed && !self.deferred {
            // The client has its answer, so none of its writes is in progress.
            self.not_before = self.not_before.min(now);
            self.retry_at = self.retry_at.min(now);
        }
        Outcome::Merged
    }

    /// The API server has read the count `old`.
    pub(super) fn reads(&mut self, old: i64, carried: i64) {
        self.finds_base(old);
        self.reported(carried);
        self.found(old + carried.min(1));
        (self.stored, self.confirmed) = (old, old);
    }

    /// The first count read from the Event of a CREATE. If it is higher, the CREATE was refused.
    pub(super) fn finds_base(&mut self, found: i64) {
        if self.base_unknown && !self.summary {
            self.base_unknown = false;
            self.found(self.total + if self.shared { (found - self.stored).max(0) } else { 0 });
        }
    }

    /// Its own client reports occurrences, which may be among the unreported ones.
    pub(super) fn reported(&mut self, carried: i64) {
        self.total += carried;
        if carried > self.unreported {
            self.total -= self.unreported;
            self.unreported = 0;
        }
        self.total = self.total.min(MAX_COUNT);
    }

    pub(super) fn found(&mut self, value: i64) {
        self.unreported += (value.min(MAX_COUNT) - self.total).max(0);
        self.total = self.total.max(value.min(MAX_COUNT));
    }

    pub(super) fn written_by_client(&mut self, value: i64, now: Moment) {
        self.total = self.total.max(value);
        (self.stored, self.unverified) = (value, true);
        self.written_at = now;
        self.await_commit(now);
    }
}

/// The list of series.
impl NaiveModel {
    pub(super) fn join(&mut self, write: &Observation<'_>, series: usize) {
        if let Some(name) = self.named(write) {
            name.series = Some(series);
        }
    }

    pub(super) fn find_series(&mut self, number: usize) -> Option<&mut ModelSeries> {
        self.series.iter_mut().find(|series| series.number == number)
    }

    pub(super) fn living_by_name(&mut self, write: &Observation<'_>, now: Moment) -> Option<usize> {
        let number = self.named(write)?.series?;
        self.living(now, |series| series.number == number)
    }

    pub(super) fn living_by_key(&mut self, write: &Observation<'_>, now: Moment) -> Option<usize> {
        let key = key_of(write, self.rules.normalize);
        self.living(now, |series| series.key == key)
    }

    /// Returns the matching series if it is live. Removes idle series with nothing to flush.
    pub(super) fn living(&mut self, now: Moment, meant: impl Fn(&ModelSeries) -> bool) -> Option<usize> {
        let rules = self.rules.clone();
        self.keep(|series| series.closing || series.needs_flush() || !series.is_over(&rules, now));
        self.series.iter().find(|series| meant(series)).map(|series| series.number)
    }

    /// Removes the series that `kept` rejects and records what was reported to them and what is stored.
    pub(in super::super) fn keep(&mut self, kept: impl Fn(&ModelSeries) -> bool) {
        let of_client = |series: &&ModelSeries| !series.summary && !series.unverified && !kept(series);
        for series in self.series.iter().filter(of_client) {
            self.written.insert(series.number, (series.name.clone(), series.stored, series.written_at));
        }
        for series in self.series.iter().filter(|series| series.shared && !kept(series)) {
            self.past.insert(series.number, (series.name.clone(), series.total - series.unreported));
        }
        self.series.retain(kept);
    }

    pub(super) fn open(&mut self, key: Key, name: String, stored: i64, now: Moment) -> usize {
        self.made += 1;
        self.series.push(ModelSeries::new(self.made, key, name, stored, now));
        self.made
    }
}
