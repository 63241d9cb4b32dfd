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
fn a_series_is_due_when_its_total_doubled_or_at_the_heartbeat() {
    assert!(!series(19, 10).is_due(&RULES, at(100)));
    assert!(series(20, 10).is_due(&RULES, at(100)));
    assert!(!series(11, 10).is_due(&RULES, at(1899)));
    assert!(series(11, 10).is_due(&RULES, at(1900)));
}

#[test]
fn a_flush_waits_for_the_grace_time_and_is_never_due_without_pending_occurrences() {
    assert_eq!(series(10, 10).next_flush(&RULES, at(100)), None);
    assert_eq!(series(11, 10).next_flush(&RULES, at(100)), Some(at(1900)));
    let mut doubled = series(20, 10);
    assert_eq!(doubled.next_flush(&RULES, at(105)), Some(at(105)));
    doubled.not_before = at(106);
    assert_eq!(doubled.next_flush(&RULES, at(105)), Some(at(106)));
}

#[test]
fn counts_stored_by_others_are_neither_lost_nor_counted_twice() {
    let mut series = series(10, 8);
    series.resync(15, 6); // five occurrences without a review, which the client's value includes, and one more
    assert_eq!((series.total, series.stored), (16, 15));
    series.resync(16, 0);
    assert_eq!((series.total, series.pending()), (16, 0));
    series.confirm(20);
    assert_eq!((series.total, series.stored), (20, 20));
    series.resync(20, 2); // another client, without the four occurrences
    assert_eq!((series.total, series.stored), (22, 20));
    series.resync(22, 5); // the client of the four reports them and one more
    assert_eq!((series.total, series.stored), (23, 22));
    series.resync(23, 5);
    assert_eq!((series.total, series.stored), (28, 23));
}

#[test]
fn counts_saturate_at_i32_max() {
    let mut series = series(MAX_COUNT - 1, 1);
    series.add(i64::from(i32::MAX));
    assert_eq!(series.total, MAX_COUNT);
    series.resync(MAX_COUNT, 5);
    assert_eq!(series.pending(), 0);
}
