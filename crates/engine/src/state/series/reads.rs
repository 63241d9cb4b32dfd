//! What a read of the stored Event changes.

use super::{MAX_COUNT, Series};

impl Series {
    /// Adopts the count `stored` that the API server has just read from etcd. `occurrences` are those of the
    /// current write. Writes may have passed without a review, so the total is at least `stored`, plus one if
    /// the write carries an occurrence.
    pub(crate) fn resync(&mut self, stored: i64, occurrences: i64) {
        self.find_base(stored);
        self.owner_reports(occurrences);
        self.raise_to(stored + occurrences.min(1));
        self.stored = stored.min(self.total);
        self.confirmed = self.stored;
    }

    /// Records the first count read from the Event of a series that a CREATE opened. If it is higher than that
    /// of the CREATE, the Event existed before, and the API server refused the CREATE. It does not include what
    /// other clients reported since.
    pub(crate) fn find_base(&mut self, found: i64) {
        if !self.summary && std::mem::take(&mut self.base_unknown) && self.shared {
            self.raise_to(self.total + (found - self.stored).max(0));
        }
    }

    /// Raises the total to at least `value`; the difference is unreported.
    fn raise_to(&mut self, value: i64) {
        let total = self.total.max(value.min(MAX_COUNT));
        self.unreported += total - self.total;
        self.total = total;
    }

    /// Records a count that another client wrote under the name of a summary, before the first read of that
    /// name or since. The summary continues from there.
    pub(crate) fn rebase(&mut self, found: i64) {
        self.base_unknown = false;
        self.add(found - self.stored);
        self.stored = found.min(self.total);
        self.confirmed = self.stored;
    }

    /// Records that `value` is in etcd, read or written by squelch. Counts beyond the total become part of the
    /// series.
    pub(crate) fn confirm(&mut self, value: i64) {
        self.raise_to(value);
        self.stored = value.min(self.total);
        self.confirmed = self.stored;
        self.unverified = false;
    }
}
