//! A series in 44 bytes.

use std::time::Duration;

use jiff::Timestamp;

use super::Moment;
use super::series::{MAX_COUNT, Series};
use super::stamp::Stamp;
use super::table::NONE;

/// A [`Series`] as it lies in the table. With its key and its chain it is 64 bytes, as much as a line of the cache;
/// as it is worked on it is 88 without them, which would be 42 MiB more for a million.
#[derive(Clone, Copy, Default)]
pub(super) struct Packed {
    /// Counts end at `i32::MAX`, so a bit is free: there is a [`Series::untold`], which is kept elsewhere.
    total: u32,
    /// Here too: [`Series::shared`].
    stored: u32,
    /// Here too: [`Series::read`].
    confirmed: u32,
    /// Tells it from every other series that stood under its key, or in its place.
    pub(super) birth: u32,
    /// Its position in the agenda; [`NONE`]: it is not there.
    pub(super) agenda: u32,
    /// Microseconds: Kubernetes keeps no more. In seven bytes these are the years 829 to 3111, which will do.
    occurred_at: [u8; 7],
    /// In the lower half how many attempts to pay failed, in the upper one a mark of the name.
    failures_and_mark: u8,
    seen: Stamp,
    paid_at: Stamp,
    not_before: Stamp,
    flags: u8,
}

/// So many microseconds from 1970 fit into seven bytes with their sign.
const FAR: i64 = 1 << 55;

/// The bit of [`Packed::total`] that is no count.
const UNTOLD: u32 = 1 << 31;
/// That of [`Packed::stored`].
const SHARED: u32 = 1 << 31;
/// That of [`Packed::confirmed`].
const READ: u32 = 1 << 31;

/// The bit of [`Series::closing`].
const CLOSING: u8 = 1;

impl Packed {
    /// A series that is not on the agenda yet, and whose stored Event has this name.
    pub(super) fn new(series: &Series, name: &str, birth: u32) -> Self {
        let mut packed = Self { birth, agenda: NONE, failures_and_mark: mark(name), ..Self::default() };
        packed.put(series);
        packed
    }

    /// Keeps what `series` says, its moments to the millisecond.
    pub(super) fn put(&mut self, series: &Series) {
        self.total = count(series.total) | if series.untold > 0 { UNTOLD } else { 0 };
        self.stored = count(series.stored) | if series.shared { SHARED } else { 0 };
        self.confirmed = count(series.confirmed) | if series.read { READ } else { 0 };
        let [bytes @ .., _] = series.occurred_at.as_microsecond().clamp(-FAR, FAR - 1).to_le_bytes();
        self.occurred_at = bytes;
        self.failures_and_mark = self.failures_and_mark & MARK | series.failures.min(!MARK);
        self.seen = Stamp::at(series.seen);
        self.paid_at = Stamp::at(series.paid_at);
        self.not_before = Stamp::at(series.not_before);
        self.flags = u8::from(series.closing)
            | u8::from(series.ordered) << 1
            | u8::from(series.folded) << 2
            | u8::from(series.unverified) << 3
            | u8::from(series.summary) << 4
            | u8::from(series.base_unknown) << 5
            | u8::from(series.drained) << 6
            | u8::from(series.put_off) << 7;
    }

    /// The series as it was put, but for what of it is untold.
    pub(super) fn series(&self) -> Series {
        let flag = |bit: u8| self.flags >> bit & 1 == 1;
        Series {
            total: i64::from(self.total & !UNTOLD),
            stored: i64::from(self.stored & !SHARED),
            beyond_count: 0,
            confirmed: i64::from(self.confirmed & !READ),
            read: self.confirmed & READ != 0,
            untold: 0,
            shared: self.stored & SHARED != 0,
            occurred_at: self.occurred_at(),
            failures: self.failures_and_mark & !MARK,
            seen: self.seen.moment(),
            paid_at: self.paid_at.moment(),
            not_before: self.not_before.moment(),
            closing: flag(0),
            ordered: flag(1),
            folded: flag(2),
            unverified: flag(3),
            summary: flag(4),
            base_unknown: flag(5),
            drained: flag(6),
            put_off: flag(7),
        }
    }

    /// Something of it is untold.
    pub(super) fn has_untold(&self) -> bool {
        self.total & UNTOLD != 0
    }

    fn occurred_at(&self) -> Timestamp {
        let [a, b, c, d, e, f, g] = self.occurred_at;
        // Shifted up and down again: the sign is the highest bit of the seventh byte.
        let microseconds = i64::from_le_bytes([0, a, b, c, d, e, f, g]) >> 8;
        Timestamp::from_microsecond(microseconds).expect("it was between two timestamps when it was put")
    }

    /// Whether its name may be this one. Of those that are not, one in sixteen has the same mark.
    pub(super) fn has_mark_of(&self, name: &str) -> bool {
        self.failures_and_mark & MARK == mark(name)
    }

    /// A write of it was seen: it lives on. True if its place in the order by use has to follow: it was closing, or
    /// was not seen in this part of time yet.
    pub(super) fn see(&mut self, now: Moment, ordered_by: Duration) -> bool {
        let (before, closing) = (self.seen, self.flags & CLOSING != 0);
        self.seen = Stamp::at(now);
        self.flags &= !CLOSING;
        closing || !before.same(ordered_by, self.seen)
    }
}

/// The half of a byte in which a mark is. The other one counts to 15, after which nobody waits any longer.
const MARK: u8 = 0xf0;

/// The sum of its bytes.
fn mark(name: &str) -> u8 {
    name.bytes().fold(0, u8::wrapping_add) << 4
}

/// A count as Kubernetes counts: `0..=i32::MAX`, in half the room.
pub(super) fn count(value: i64) -> u32 {
    u32::try_from(value.clamp(0, MAX_COUNT)).expect("at most i32::MAX")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn takes_44_bytes() {
        assert_eq!(size_of::<Packed>(), 44);
    }

    #[test]
    fn a_time_that_is_too_far_is_as_far_as_can_be() {
        for (far, year) in [(Timestamp::MIN, "0828"), (Timestamp::MAX, "3111")] {
            let series = Series::opened_by_create(1, far, Moment::default());
            let kept = Packed::new(&series, "", 0).series().occurred_at.to_string();
            assert!(kept.starts_with(year), "{kept}");
        }
    }

    proptest! {
        #[test]
        fn comes_out_as_it_was_put(
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
                beyond_count: 0,
                confirmed: counts[2],
                untold: counts[3],
                shared,
                read,
                seen: moment(0),
                paid_at: moment(1),
                not_before: moment(2),
                occurred_at: Timestamp::from_microsecond(occurred_at).unwrap(),
                closing: flags[0],
                ordered: flags[1],
                folded: flags[2],
                unverified: flags[3],
                summary: flags[4],
                base_unknown: flags[5],
                drained: flags[6],
                put_off: flags[7],
                failures,
            };
            let mut packed = Packed::new(&series, &name, birth);
            let another = format!("{name}a");
            prop_assert!(packed.has_mark_of(&name) && !packed.has_mark_of(&another));
            prop_assert_eq!(packed.has_untold(), series.untold > 0);
            let whole = Series { untold: series.untold, ..packed.series() };
            prop_assert_eq!((whole, packed.birth, packed.agenda), (series, birth, NONE));
            let (seen, later) = (moments[0] / 1000, moment(0).plus(Duration::from_millis(700)));
            let moves = packed.see(later, Duration::from_secs(1));
            prop_assert_eq!(moves, flags[0] || (moments[0] + 700).min((1 << 40) - 1) / 1000 != seen);
            prop_assert_eq!(packed.series().closing, false);
        }
    }
}
