//! The occurrences of a namespace by time. Pure: time is an argument.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use squelch_engine::{Counters, Disposition};

use crate::api::ReportedWindow;

/// How occurrences are divided into windows.
#[derive(Clone, Copy, Debug)]
struct Division {
    /// Length of a window in seconds.
    length: i64,
    /// Number of windows that are kept.
    kept: usize,
}

const LAST_HOUR: Division = Division { length: 300, kept: 12 };
const LAST_DAY: Division = Division { length: 3600, kept: 24 };

/// Numbers of occurrences in one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WindowCounts {
    admitted: u64,
    /// Compacted and aggregated ones.
    pub(super) merged: u64,
    /// Filtered, throttled and muted ones.
    pub(super) dropped: u64,
}

impl From<&Counters> for WindowCounts {
    fn from(counters: &Counters) -> Self {
        let of = |dispositions: &[Disposition]| {
            dispositions.iter().fold(0_u64, |sum, disposition| sum.saturating_add(counters.of(*disposition)))
        };
        Self {
            admitted: of(&[Disposition::Admitted, Disposition::FailedOpen]),
            merged: of(&[Disposition::Compacted, Disposition::Aggregated]),
            dropped: of(&[Disposition::Filtered, Disposition::Throttled, Disposition::Muted]),
        }
    }
}

impl WindowCounts {
    fn plus(self, other: Self) -> Self {
        Self {
            admitted: self.admitted.saturating_add(other.admitted),
            merged: self.merged.saturating_add(other.merged),
            dropped: self.dropped.saturating_add(other.dropped),
        }
    }

    /// Whether counters with these values can have had the values of `earlier` before.
    pub(super) fn is_after(self, earlier: Self) -> bool {
        earlier.since(self) == Self::default()
    }

    /// Returns what was counted after `earlier`.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            admitted: self.admitted.saturating_sub(earlier.admitted),
            merged: self.merged.saturating_sub(earlier.merged),
            dropped: self.dropped.saturating_sub(earlier.dropped),
        }
    }
}

/// The windows of one namespace, by start in seconds since 1970. Windows without occurrences do not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Windows {
    last_hour: BTreeMap<i64, WindowCounts>,
    last_day: BTreeMap<i64, WindowCounts>,
}

impl Windows {
    /// Adds occurrences that were counted shortly before `now`.
    pub(super) fn add(&mut self, counts: WindowCounts, now: Timestamp) {
        if counts == WindowCounts::default() {
            return;
        }
        for (windows, division) in [(&mut self.last_hour, LAST_HOUR), (&mut self.last_day, LAST_DAY)] {
            let window = windows.entry(division.start(now)).or_default();
            *window = window.plus(counts);
            division.retain_recent(windows, now);
        }
    }

    /// Returns these windows of the last hour, together with those of an earlier report.
    pub(super) fn last_hour(&self, before: &[ReportedWindow], now: Timestamp) -> Vec<ReportedWindow> {
        LAST_HOUR.reported(&self.last_hour, before, now)
    }

    /// Returns these windows of the last day, together with those of an earlier report.
    pub(super) fn last_day(&self, before: &[ReportedWindow], now: Timestamp) -> Vec<ReportedWindow> {
        LAST_DAY.reported(&self.last_day, before, now)
    }
}

impl Division {
    fn start(self, time: Timestamp) -> i64 {
        time.as_second() - time.as_second().rem_euclid(self.length)
    }

    /// Removes windows that are too old, and those that a clock in the future has made.
    fn retain_recent(self, windows: &mut BTreeMap<i64, WindowCounts>, now: Timestamp) {
        let newest = self.start(now);
        let oldest = newest - self.length * (self.kept as i64 - 1);
        windows.retain(|start, _| (oldest..=newest).contains(start));
    }

    fn reported(
        self,
        counted: &BTreeMap<i64, WindowCounts>,
        before: &[ReportedWindow],
        now: Timestamp,
    ) -> Vec<ReportedWindow> {
        let mut windows = counted.clone();
        for window in before {
            let number = |count: i64| u64::try_from(count).unwrap_or(0);
            let counts = WindowCounts {
                admitted: number(window.admitted),
                merged: number(window.merged),
                dropped: number(window.dropped),
            };
            let sum = windows.entry(self.start(window.start.0)).or_default();
            *sum = sum.plus(counts);
        }
        self.retain_recent(&mut windows, now);
        windows.into_iter().filter_map(|(start, counts)| reported_window(start, counts)).collect()
    }
}

fn reported_window(start: i64, counts: WindowCounts) -> Option<ReportedWindow> {
    let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let [admitted, merged, dropped] = [counts.admitted, counts.merged, counts.dropped].map(number);
    Some(ReportedWindow {
        start: Time(Timestamp::from_second(start).ok()?),
        received: admitted.saturating_add(merged).saturating_add(dropped),
        admitted,
        merged,
        dropped,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + minutes * 60).unwrap()
    }

    fn dropped(number: u64) -> WindowCounts {
        WindowCounts { admitted: 1, merged: 2, dropped: number }
    }

    /// Start in minutes and dropped occurrences.
    fn shown(windows: &[ReportedWindow]) -> Vec<(i64, i64)> {
        let minutes = |window: &ReportedWindow| (window.start.0.as_second() - at(0).as_second()) / 60;
        windows.iter().map(|window| (minutes(window), window.dropped)).collect()
    }

    #[test]
    fn occurrences_are_in_the_window_of_their_time() {
        let mut windows = Windows::default();
        for (minute, number) in [(0, 1), (4, 2), (5, 4), (61, 8)] {
            windows.add(dropped(number), at(minute));
        }
        windows.add(WindowCounts::default(), at(61));
        assert_eq!(
            shown(&windows.last_hour(&[], at(61))),
            [(5, 4), (60, 8)],
            "the first is older than an hour"
        );
        assert_eq!(shown(&windows.last_day(&[], at(61))), [(0, 7), (60, 8)]);
        let newest = windows.last_hour(&[], at(61)).pop().unwrap();
        assert_eq!((newest.received, newest.admitted, newest.merged), (11, 1, 2));
        assert!(windows.last_day(&[], at(26 * 60)).is_empty());
    }

    #[test]
    fn the_windows_of_an_earlier_report_are_continued() {
        let mut windows = Windows::default();
        windows.add(dropped(1), at(2));
        let before = windows.last_hour(&[], at(2));
        assert_eq!(Windows::default().last_hour(&before, at(3)), before);
        assert_eq!(shown(&windows.last_hour(&before, at(3))), [(0, 2)]);
        assert!(Windows::default().last_hour(&before, at(90)).is_empty());
    }

    #[test]
    fn windows_of_a_clock_in_the_future_are_removed() {
        let mut windows = Windows::default();
        windows.add(dropped(1), at(600));
        windows.add(dropped(2), at(0));
        assert_eq!(shown(&windows.last_hour(&[], at(0))), [(0, 2)]);
    }

    #[test]
    fn an_hour_has_at_most_12_windows_and_a_day_24() {
        let mut windows = Windows::default();
        for minute in 0..3_000 {
            windows.add(dropped(1), at(minute));
        }
        let now = at(2_999);
        assert_eq!((windows.last_hour(&[], now).len(), windows.last_day(&[], now).len()), (12, 24));
        assert_eq!((windows.last_hour.len(), windows.last_day.len()), (12, 24));
    }
}
