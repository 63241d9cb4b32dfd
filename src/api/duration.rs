//! Durations in policies and flags, such as `6m`, `1h30m` or `100ms`.
//!
//! The CRD's rules, the compilation of policies and the flags use the same grammar: at most four whole numbers of at most
//! five digits, each with the unit h, m, s or ms. It is the Duration of the Gateway API (GEP-2257), a subset of Go's
//! `time.ParseDuration` that cannot overflow it.

use std::time::Duration;

use kube::core::Rule;

/// The grammar as a regular expression, for CEL.
pub(super) const PATTERN: &str = "^([0-9]{1,5}(h|m|s|ms)){1,4}$";

/// Units and their milliseconds. `ms` comes before `m`, its prefix.
const UNITS: [(&str, u64); 4] = [("ms", 1), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];

/// A text that is not a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be whole numbers of h, m, s or ms (each of at most 5 digits), such as 6m or 1h30m")]
pub struct BadDuration;

/// Parses a duration such as `6m`, `1h30m` or `100ms`.
pub fn parse_duration(text: &str) -> Result<Duration, BadDuration> {
    let mut rest = text;
    let mut total = 0;
    for _ in 0..4 {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if !(1..=5).contains(&digits) {
            return Err(BadDuration);
        }
        let (number, tail) = rest.split_at(digits);
        let number: u64 = number.parse().map_err(|_| BadDuration)?;
        let (after, milliseconds) = UNITS
            .iter()
            .find_map(|(unit, milliseconds)| Some((tail.strip_prefix(unit)?, milliseconds)))
            .ok_or(BadDuration)?;
        total += number * milliseconds;
        rest = after;
        if rest.is_empty() {
            return Ok(Duration::from_millis(total));
        }
    }
    Err(BadDuration)
}

/// A duration field of a policy: its name, bounds and default. The CRD's rules, their messages and the check at compilation
/// are derived from it.
#[derive(Clone, Copy, Debug)]
pub struct DurationField {
    /// Name of the field in the API.
    pub name: &'static str,
    /// Minimum.
    pub min: &'static str,
    /// Maximum.
    pub max: &'static str,
    /// Default, which messages give as an example.
    pub default: &'static str,
}

impl DurationField {
    /// Parses and checks a value. The error is the message of the CEL rule that the value violates.
    pub fn parse(&self, text: &str) -> Result<Duration, String> {
        let duration = parse_duration(text).map_err(|_| self.form_message())?;
        let allowed = |limit| parse_duration(limit).expect("bounds are constants that a test parses");
        if duration < allowed(self.min) || duration > allowed(self.max) {
            return Err(self.range_message());
        }
        Ok(duration)
    }

    /// The CEL rule on the form. It also keeps `duration()` in other rules from texts on which it would fail.
    pub(super) fn form_rule(&self) -> Rule {
        Rule::new(format!("self.matches('{PATTERN}')")).message(self.form_message().as_str())
    }

    /// The CEL rule on the range. It holds if the form is wrong, so that only one message is shown.
    pub(super) fn range_rule(&self) -> Rule {
        let Self { min, max, .. } = self;
        Rule::new(format!(
            "!self.matches('{PATTERN}') || \
             (duration(self) >= duration('{min}') && duration(self) <= duration('{max}'))"
        ))
        .message(self.range_message().as_str())
    }

    fn form_message(&self) -> String {
        format!("{} {BadDuration}", self.name)
    }

    fn range_message(&self) -> String {
        format!("{} must be between {} and {}, such as {}", self.name, self.min, self.max, self.default)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_parts_of_a_duration_are_added_up() {
        for (text, milliseconds) in [
            ("6m", 360_000),
            ("1h30m", 5_400_000),
            ("100ms", 100),
            ("0s", 0),
            ("1m1s1ms", 61_001),
            ("1s1s", 2_000),
            ("99999h", 359_996_400_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
    }

    #[test]
    fn invalid_durations_are_rejected() {
        for text in [
            "",
            "6",
            "m",
            "6 m",
            "-6m",
            "+6m",
            "1.5h",
            "6M",
            "6min",
            "1d",
            "100000s",
            "1h1h1h1h1h",
            "6m ",
            "٦m",
            "1µs",
        ] {
            assert_eq!(parse_duration(text), Err(BadDuration), "{text:?}");
        }
    }

    #[test]
    fn form_and_range_errors_have_different_messages() {
        let field = DurationField { name: "idleTimeout", min: "1s", max: "8760h", default: "6m" };
        assert_eq!(field.parse("6m"), Ok(Duration::from_secs(360)));
        assert_eq!(field.parse("8760h"), Ok(Duration::from_secs(8760 * 3600)));
        assert_eq!(
            field.parse("999ms"),
            Err("idleTimeout must be between 1s and 8760h, such as 6m".to_owned())
        );
        assert_eq!(
            field.parse("soon"),
            Err("idleTimeout must be whole numbers of h, m, s or ms (each of at most 5 digits), \
                 such as 6m or 1h30m"
                .to_owned())
        );
    }

    proptest! {
        #[test]
        fn composed_durations_are_parsed(parts in prop::collection::vec((0u64..100_000, 0usize..4), 1..5)) {
            let text: String = parts.iter().map(|(n, unit)| format!("{n}{}", UNITS[*unit].0)).collect();
            let expected = parts.iter().map(|(n, unit)| n * UNITS[*unit].1).sum();
            prop_assert_eq!(parse_duration(&text), Ok(Duration::from_millis(expected)));
        }

        #[test]
        fn parsing_any_text_does_not_panic(text in "\\PC*") {
            let _ = parse_duration(&text);
        }
    }
}
