//! Times of an input as moments of the replay.

use std::time::Duration;

use jiff::Timestamp;
use squelch_engine::Moment;

/// Parses seconds as JSON writes a number, exact to the nanosecond: a token that is added after 300.01 s is there at
/// `300.01`. Returns `None` for other text, negative numbers, and times beyond 584 years.
pub(super) fn seconds(number: &str) -> Option<Moment> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_plain = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_plain(whole) || !is_plain(fraction) {
        // With an exponent, or not a number.
        let seconds = number.parse::<f64>().ok()?;
        return moment(Duration::try_from_secs_f64(seconds).ok()?);
    }
    let nanoseconds: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    moment(Duration::new(whole.parse().ok()?, nanoseconds.parse().ok()?))
}

/// Returns a point in time as a moment since the Unix epoch; `None` before it.
pub(super) fn of(timestamp: Timestamp) -> Option<Moment> {
    moment(Duration::try_from(timestamp.duration_since(Timestamp::UNIX_EPOCH)).ok()?)
}

fn moment(since_epoch: Duration) -> Option<Moment> {
    let moment = Moment::from_epoch(since_epoch);
    (moment.since(Moment::default()) == since_epoch).then_some(moment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_exact() {
        let nanoseconds = |text| seconds(text).map(|moment| moment.since(Moment::default()).as_nanos());
        for (text, expected) in [
            ("0", Some(0)),
            ("12.5", Some(12_500_000_000)),
            ("300.01", Some(300_010_000_000)),
            ("1763712000.1234567891", Some(1_763_712_000_123_456_789)),
            ("1e3", Some(1_000_000_000_000)),
            ("-1", None),
            ("-0.5", None),
            ("1e30", None),
            ("99999999999999", None),
            ("\"1\"", None),
            ("null", None),
        ] {
            assert_eq!(nanoseconds(text), expected, "{text}");
        }
    }

    #[test]
    fn a_time_before_1970_has_no_moment() {
        assert_eq!(of("1970-01-01T00:00:01.5Z".parse().unwrap()), seconds("1.5"));
        assert_eq!(of("1969-12-31T23:59:59Z".parse().unwrap()), None);
        assert_eq!(of("0001-01-01T00:00:00Z".parse().unwrap()), None);
    }
}
