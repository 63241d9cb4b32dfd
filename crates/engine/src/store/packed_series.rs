//! A series packed into 44 bytes.

use std::time::Duration;

use jiff::Timestamp;

use crate::Moment;
use crate::state::series::{MAX_COUNT, Series};
use crate::store::stamp::Stamp;
use crate::store::table::NONE;

/// A [`Series`] as stored in the table. With key and chain it takes 64 bytes, one cache line. Unpacked it takes
/// 88 without them, which is 42 MiB more for a million series.
#[derive(Clone, Copy, Default)]
pub(crate) struct Packed {
    /// Counts end at `i32::MAX`. The top bit says that there is a [`Series::unreported`], which is stored
    /// elsewhere.
    total: u32,
    /// The top bit is [`Series::shared`].
    stored: u32,
    /// The top bit is [`Series::read`].
    confirmed: u32,
    /// Distinguishes it from all other series under its key or in its place.
    pub(crate) birth: u32,
    /// Index of its timer; [`NONE`] if it has none.
    pub(crate) timer: u32,
    /// Microseconds, the resolution of Kubernetes. Seven bytes cover the years 829 to 3111.
    occurred_at: [u8; 7],
    /// Lower half: number of failed flushes. Upper half: a mark of the name.
    failures_and_mark: u8,
    seen: Stamp,
    written_at: Stamp,
    not_before: Stamp,
    flags: u8,
}

/// Number of microseconds from 1970 that fit into seven bytes with a sign.
const FAR: i64 = 1 << 55;

/// Flag bit of [`Packed::total`].
const UNREPORTED: u32 = 1 << 31;
/// Flag bit of [`Packed::stored`].
const SHARED: u32 = 1 << 31;
/// Flag bit of [`Packed::confirmed`].
const READ: u32 = 1 << 31;

/// Bit of [`Series::closing`] in [`Packed::flags`].
const CLOSING: u8 = 1;

impl Packed {
    /// Packs a series without a timer. `name`: name of its stored Event.
    pub(crate) fn new(series: &Series, name: &str, birth: u32) -> Self {
        let mut packed = Self { birth, timer: NONE, failures_and_mark: mark(name), ..Self::default() };
        packed.put(series);
        packed
    }

    /// Packs `series`, with its moments rounded down to milliseconds.
    pub(crate) fn put(&mut self, series: &Series) {
        self.total = count(series.total) | if series.unreported > 0 { UNREPORTED } else { 0 };
        self.stored = count(series.stored) | if series.shared { SHARED } else { 0 };
        self.confirmed = count(series.confirmed) | if series.read { READ } else { 0 };
        let [bytes @ .., _] = series.occurred_at.as_microsecond().clamp(-FAR, FAR - 1).to_le_bytes();
        self.occurred_at = bytes;
        self.failures_and_mark = self.failures_and_mark & MARK | series.failures.min(!MARK);
        self.seen = Stamp::at(series.seen);
        self.written_at = Stamp::at(series.written_at);
        self.not_before = Stamp::at(series.not_before);
        self.flags = u8::from(series.closing)
            | u8::from(series.in_flight) << 1
            | u8::from(series.merged) << 2
            | u8::from(series.unverified) << 3
            | u8::from(series.summary) << 4
            | u8::from(series.base_unknown) << 5
            | u8::from(series.drained) << 6
            | u8::from(series.deferred) << 7;
    }

    /// Returns the series without its unreported occurrences.
    pub(crate) fn series(&self) -> Series {
        let flag = |bit: u8| self.flags >> bit & 1 == 1;
        Series {
            total: i64::from(self.total & !UNREPORTED),
            stored: i64::from(self.stored & !SHARED),
            beyond_max_count: 0,
            confirmed: i64::from(self.confirmed & !READ),
            read: self.confirmed & READ != 0,
            unreported: 0,
            shared: self.stored & SHARED != 0,
            occurred_at: self.occurred_at(),
            failures: self.failures_and_mark & !MARK,
            seen: self.seen.moment(),
            written_at: self.written_at.moment(),
            not_before: self.not_before.moment(),
            closing: flag(0),
            in_flight: flag(1),
            merged: flag(2),
            unverified: flag(3),
            summary: flag(4),
            base_unknown: flag(5),
            drained: flag(6),
            deferred: flag(7),
        }
    }

    /// Whether it has unreported occurrences.
    pub(crate) fn has_unreported(&self) -> bool {
        self.total & UNREPORTED != 0
    }

    fn occurred_at(&self) -> Timestamp {
        let [a, b, c, d, e, f, g] = self.occurred_at;
        // Shifting left and right extends the sign in the seventh byte.
        let microseconds = i64::from_le_bytes([0, a, b, c, d, e, f, g]) >> 8;
        Timestamp::from_microsecond(microseconds).expect("it was between two timestamps when it was put")
    }

    /// Whether its name may be this one. One in sixteen other names has the same mark.
    pub(crate) fn may_have_name(&self, name: &str) -> bool {
        self.failures_and_mark & MARK == mark(name)
    }

    /// Records a write. Returns whether its place in the order by use must change: it was closing, or not seen
    /// in this interval yet.
    pub(crate) fn mark_seen(&mut self, now: Moment, ordered_by: Duration) -> bool {
        let (before, closing) = (self.seen, self.flags & CLOSING != 0);
        self.seen = Stamp::at(now);
        self.flags &= !CLOSING;
        closing || !before.same(ordered_by, self.seen)
    }
}

/// The half of the byte for the mark. The other half counts to 15, after which the delay no longer grows.
const MARK: u8 = 0xf0;

/// Returns the mark of a name: the sum of its bytes.
fn mark(name: &str) -> u8 {
    name.bytes().fold(0, u8::wrapping_add) << 4
}

/// Converts a count to `0..=i32::MAX` in half the size.
pub(crate) fn count(value: i64) -> u32 {
    u32::try_from(value.clamp(0, MAX_COUNT)).expect("at most i32::MAX")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_packed_series_takes_44_bytes() {
        assert_eq!(size_of::<Packed>(), 44);
    }

    #[test]
    fn times_out_of_range_are_clamped() {
        for (far, year) in [(Timestamp::MIN, "0828"), (Timestamp::MAX, "3111")] {
            let series = Series::opened_by_create(1, far, Moment::default());
            let kept = Packed::new(&series, "", 0).series().occurred_at.to_string();
            assert!(kept.starts_with(year), "{kept}");
        }
    }

    proptest! {
        #[test]
        fn an_unpacked_series_equals_the_packed_one(
            counts in prop::array::uniform4(0..=MAX_COUNT),
            moments in prop::array::uniform3(0u64..1 << 40),
            occurred_at in -FAR..FAR,
            flags in prop::array::uniform8(any::<bool>()),
            (failures, shared, read) in (0u8..16, any::<bool>(), any::<bool>()),
            name in "[a-z]{0,9}",
            birth in any::<u32>(),
        ) {
            let moment = |at: usize| Moment::from_milliseconds(moments[at]);
            let series = Series {
                total: counts[0],
                stored: counts[1],
                beyond_max_count: 0,
                confirmed: counts[2],
                unreported: counts[3],
                shared,
                read,
                seen: moment(0),
                written_at: moment(1),
                not_before: moment(2),
                occurred_at: Timestamp::from_microsecond(occurred_at).unwrap(),
                closing: flags[0],
                in_flight: flags[1],
                merged: flags[2],
                unverified: flags[3],
                summary: flags[4],
                base_unknown: flags[5],
                drained: flags[6],
                deferred: flags[7],
                failures,
            };
            let mut packed = Packed::new(&series, &name, birth);
            let another = format!("{name}a");
            prop_assert!(packed.may_have_name(&name) && !packed.may_have_name(&another));
            prop_assert_eq!(packed.has_unreported(), series.unreported > 0);
            let whole = Series { unreported: series.unreported, ..packed.series() };
            prop_assert_eq!((whole, packed.birth, packed.timer), (series, birth, NONE));
            let (seen, later) = (moments[0] / 1000, moment(0).plus(Duration::from_millis(700)));
            let moves = packed.mark_seen(later, Duration::from_secs(1));
            prop_assert_eq!(moves, flags[0] || (moments[0] + 700).min((1 << 40) - 1) / 1000 != seen);
            prop_assert_eq!(packed.series().closing, false);
        }
    }
}
