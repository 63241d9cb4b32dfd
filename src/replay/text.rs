//! Text for terminals: sanitised Event texts, and readable numbers.

use squelch_engine::sanitise;

/// Maximum characters of the name of a policy with its namespace.
pub(super) const NAME: usize = 63 + 1 + 253;

/// Returns at most `most` characters of the text, without characters that move a cursor or change the text direction.
pub(crate) fn clean(text: &str, most: usize) -> String {
    let mut shown: String = text.chars().take(most).map(sanitise).collect();
    if text.chars().nth(most).is_some() {
        shown.push('…');
    }
    shown
}

/// Formats 1234567 as `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Formats a signed number of bytes, such as `14.2 MiB`.
pub(crate) fn bytes(number: i64) -> String {
    let sign = if number < 0 { "-" } else { "" };
    let mut scaled = number.unsigned_abs() as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if scaled < 1024.0 {
            return if unit == "B" {
                format!("{sign}{scaled} B")
            } else {
                format!("{sign}{scaled:.1} {unit}")
            };
        }
        scaled /= 1024.0;
    }
    format!("{sign}{scaled:.1} TiB")
}

/// Formats a duration in its two largest units, such as `2h13m`.
pub(crate) fn span(span: std::time::Duration) -> String {
    let seconds = span.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{:.3}s", span.as_secs_f64()),
        (0, 0, _) => format!("{minutes}m{}s", seconds % 60),
        (0, ..) => format!("{hours}h{minutes}m"),
        _ => format!("{days}d{hours}h"),
    }
}

/// Formats `1 write`, `2 writes`.
pub(crate) fn plural(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(number), if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_event_text_cannot_move_the_cursor() {
        assert_eq!(clean("a\u{1b}[2J\r\nb\u{202e}c\u{9b}1m", 80), "a [2J  b c 1m");
        assert_eq!(clean("äöüß", 3), "äöü…");
        assert_eq!(clean("äöü", 3), "äöü");
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0, 1_023, 1_536, -3 << 20].map(bytes), ["0 B", "1023 B", "1.5 KiB", "-3.0 MiB"]);
        assert_eq!(bytes(i64::MAX), "8388608.0 TiB");
        let spans = [1_500, 125_000, 7_980_000, 90_000_000].map(|millis| span(Duration::from_millis(millis)));
        assert_eq!(spans, ["1.500s", "2m5s", "2h13m", "1d1h"]);
        assert_eq!(plural(1, "write", "writes"), "1 write");
    }
}
