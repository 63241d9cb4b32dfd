//! The live series of a scope: their counts, the names and contents of their Events, and their timers.

mod contents;
mod just_written;
mod timers;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::Moment;
use crate::decide::keys::Key;
use crate::model::content::Content;
use crate::state::groups::Witness;
use crate::state::series::Series;
use crate::store::packed_series::Packed;
use crate::store::segments::Segments;
use crate::store::strings::Strings;
use crate::store::table::{At, NONE, Table, hash};
use crate::store::timers::Timers;

use just_written::JustWritten;

/// Identifies a series beyond its lifetime. Consists of its last known position, the hash of its key to find
/// the current one, and its birth number, which is unique in the namespace. Birth numbers wrap after 2^32
/// decisions; names are forgotten long before.
#[derive(Clone, Copy)]
pub(crate) struct Handle {
    at: At,
    hash: u32,
    birth: u32,
}

impl Handle {
    /// No series.
    pub(crate) const NONE: Self = Self { at: NONE, hash: 0, birth: 0 };

    /// Whether it identifies a series.
    pub(crate) fn is_some(self) -> bool {
        self.at != NONE
    }
}

impl Default for Handle {
    fn default() -> Self {
        Self::NONE
    }
}

impl PartialEq for Handle {
    fn eq(&self, other: &Self) -> bool {
        // The position does not matter.
        (self.hash, self.birth, self.is_some()) == (other.hash, other.birth, other.is_some())
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{:08x}/{}", self.hash, self.birth)
    }
}

/// Maximum number of ended series that a scope remembers if several clients reported to them: 12 KiB. If a
/// record is evicted, occurrences that its client wrote while no replica was active are counted twice.
const MAX_ENDED: usize = 256;

/// The live series of a scope, from the least to the most recently seen. A closing series is not in that order:
/// its timer waits for the last flush.
#[derive(Default)]
pub(crate) struct LiveSeries {
    table: Table<Packed, 13>,
    /// Names of the stored Events, in the order of the table; empty where unknown (`generateName` in Observe).
    /// Names and contents are kept apart from the table because merging needs neither.
    names: Strings,
    /// Contents to create the Events again, in the same order; set once occurrences were merged. Boxed twice,
    /// because nine of ten series have none and 8 bytes are half the size of a slice.
    contents: Segments<Option<Box<Content>>, 16, 7>,
    /// The few non-zero values of [`Series::unreported`], by birth number.
    unreported: BTreeMap<u32, i64>,
    /// Reported occurrences of ended series with several reporters, by birth number. At most [`MAX_ENDED`].
    ended: BTreeMap<u32, i64>,
    /// Birth numbers of ended series, oldest first.
    ended_in_order: VecDeque<u32>,
    ended_evicted: usize,
    just_written: JustWritten,
    /// Group and witness of each summary that was never stored, by birth number.
    witnesses: BTreeMap<u32, (Key, Witness)>,
    timers: Timers,
    bytes: usize,
}

impl LiveSeries {
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Returns the bytes of kept text: names and contents.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Prefetches the table's metadata.
    pub(crate) fn prefetch_outline(&self) {
        self.table.prefetch_outline();
    }

    /// Prefetches what [`Self::find`] reads.
    pub(crate) fn prefetch(&self, key: Key) {
        self.table.prefetch(key, false);
    }

    pub(crate) fn find(&self, key: Key) -> Option<Handle> {
        self.handle(self.table.find(key)?)
    }

    pub(crate) fn get(&self, handle: Handle) -> Option<Series> {
        self.series(self.place(handle)?)
    }

    /// Returns the reported occurrences of an ended series, if several clients reported to it and its record is
    /// kept.
    pub(crate) fn ended(&self, handle: Handle) -> Option<i64> {
        self.ended.get(&handle.birth).copied()
    }

    /// Takes all series; none remain.
    pub(crate) fn take(&mut self) -> Self {
        let evicted = Self { ended_evicted: self.ended_evicted, ..Self::default() };
        std::mem::replace(self, evicted)
    }

    /// Returns the number of remembered ended series.
    pub(crate) fn ended_len(&self) -> usize {
        self.ended.len()
    }

    /// Returns the number of evicted records of ended series.
    pub(crate) fn ended_evicted(&self) -> usize {
        self.ended_evicted
    }

    /// Evicts the oldest record of an ended series. Returns false if there is none.
    pub(crate) fn evict_ended(&mut self) -> bool {
        let Some(birth) = self.ended_in_order.pop_front() else { return false };
        self.ended.remove(&birth);
        self.ended_evicted += 1;
        true
    }

    /// Returns group and witness of a summary that was never stored.
    pub(crate) fn witness(&self, handle: Handle) -> Option<&(Key, Witness)> {
        self.witnesses.get(&handle.birth)
    }

    /// Sets group and witness of a summary.
    pub(crate) fn set_witness(&mut self, handle: Handle, group: Key, witness: Witness) {
        self.witnesses.insert(handle.birth, (group, witness));
    }

    /// Removes the witness of a summary, because the summary is stored.
    pub(crate) fn forget_witness(&mut self, handle: Handle) {
        self.witnesses.remove(&handle.birth);
    }

    /// Returns the series at this position, below [`Self::len`].
    pub(crate) fn nth(&self, position: u32) -> Option<(Handle, Series)> {
        Some((self.handle(position)?, self.series(position)?))
    }

    /// Stores the new state of a series.
    pub(crate) fn put(&mut self, handle: Handle, series: &Series) {
        let Some(packed) = self.place(handle).and_then(|at| self.table.get_mut(at)) else { return };
        let had_untold = packed.has_unreported();
        packed.put(series);
        if had_untold || packed.has_unreported() {
            self.put_unreported(handle.birth, series.unreported);
        }
    }

    /// Adds a series under an unused key. `birth` is unique in the namespace.
    pub(crate) fn insert(&mut self, key: Key, name: &str, series: &Series, birth: u32) -> Handle {
        let at = self.table.insert(key, Packed::new(series, name, birth));
        self.names.push(name);
        self.contents.push(None);
        self.put_unreported(birth, series.unreported);
        self.bytes += self.bytes_at(at);
        Handle { at, hash: hash(key), birth }
    }

    pub(crate) fn remove(&mut self, handle: Handle) -> Option<Series> {
        let at = self.place(handle)?;
        self.cancel_timer(handle);
        self.bytes -= self.bytes_at(at);
        self.names.swap_remove(at);
        self.contents.swap_remove(at);
        let series = self.series(at)?;
        self.table.remove(at);
        self.put_unreported(handle.birth, 0);
        self.forget_witness(handle);
        if series.shared {
            self.ended.insert(handle.birth, series.reported());
            self.ended_in_order.push_back(handle.birth);
            if self.ended.len() > MAX_ENDED {
                self.evict_ended();
            }
        }
        // The last series moved to this position.
        if let Some(moved) = self.table.get(at).map(|packed| packed.timer).filter(|it| *it != NONE) {
            self.timers.moved(moved, at);
        }
        Some(series)
    }

    /// Returns the least recently seen series that is not closing.
    pub(crate) fn oldest(&self) -> Option<Handle> {
        self.handle(self.table.oldest()?)
    }

    /// Returns the series that was seen next after this one.
    pub(crate) fn next_newer(&self, handle: Handle) -> Option<Handle> {
        self.handle(self.table.next_newer(self.place(handle)?)?)
    }

    /// Records a write of the series, which revives a closing one. The order follows at most once per
    /// `ordered_by`.
    pub(crate) fn mark_seen(&mut self, handle: Handle, now: Moment, ordered_by: Duration) {
        if let Some(at) = self.place(handle)
            && self.table.get_mut(at).is_some_and(|packed| packed.mark_seen(now, ordered_by))
        {
            self.table.touch(at);
        }
    }

    /// Moves the series to the end of the order without a write.
    pub(crate) fn move_to_newest(&mut self, handle: Handle) {
        if let Some(at) = self.place(handle) {
            self.table.touch(at);
        }
    }

    /// Removes a closing series from the order.
    pub(crate) fn leave_order(&mut self, handle: Handle) {
        if let Some(at) = self.place(handle) {
            self.table.leave_order(at);
        }
    }

    /// Returns the position of the series if it is live.
    fn place(&self, handle: Handle) -> Option<At> {
        let it = |packed: &Packed| packed.birth == handle.birth;
        if self.table.get(handle.at).is_some_and(it) {
            return Some(handle.at);
        }
        if handle.is_some() { self.table.find_where(handle.hash, it) } else { None }
    }

    fn series(&self, at: At) -> Option<Series> {
        let packed = self.table.get(at)?;
        let series = packed.series();
        if !packed.has_unreported() {
            return Some(series);
        }
        Some(Series { unreported: self.unreported.get(&packed.birth).copied().unwrap_or(0), ..series })
    }

    fn put_unreported(&mut self, birth: u32, unreported: i64) {
        if unreported > 0 {
            self.unreported.insert(birth, unreported);
        } else {
            self.unreported.remove(&birth);
        }
    }

    fn bytes_at(&self, at: At) -> usize {
        let content = self.contents.get(at).and_then(Option::as_ref);
        self.names.get(at).map_or(0, str::len) + content.map_or(0, |content| content.len())
    }

    fn handle(&self, at: At) -> Option<Handle> {
        Some(Handle { at, hash: self.table.hash_at(at)?, birth: self.table.get(at)?.birth })
    }
}

#[cfg(test)]
mod tests;
