//! Durations as policies and flags write them: `6m`, `1h30m`, `100ms`.
//!
//! One grammar for the CRD's rules, for the compilation of a policy and for the flags: whole numbers of at most
//! five digits with the units h, m, s, ms, at most four of them. That is the Duration of the Gateway API
//! (GEP-2257), a subset of Go's `time.ParseDuration` that cannot overflow it.

use std::time::Duration;

use kube::core::Rule;

/// The grammar as a regular expression, for CEL.
pub(super) const PATTERN: &str = "^([0-9]{1,5}(h|m|s|ms)){1,4}$";

/// The units, longest spelling first, with their milliseconds.
const UNITS: [(&str, u64); 4] = [("ms", 1), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];

/// Why a text is no duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be whole numbers of h, m, s or ms (each of at most 5 digits), such as 6m or 1h30m")]
pub struct BadDuration;

/// Reads a duration such as `6m`, `1h30m` or `100ms`.
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

/// One duration of a policy: its name and limits, from which come the CRD's rules, the sentences in which a
/// refusal is told, and the check at compilation.
#[derive(Clone, Copy, Debug)]
pub struct DurationField {
    /// The field's name as users write it.
    pub name: &'static str,
    /// The smallest value allowed.
    pub least: &'static str,
    /// The largest value allowed.
    pub most: &'static str,
    /// The default, given as the example of a good value.
    pub default: &'static str,
}

impl DurationField {
    /// Reads and checks a value; the error is the sentence that the API server would answer.
    pub fn parse(&self, text: &str) -> Result<Duration, String> {
        let duration = parse_duration(text).map_err(|_| self.form_sentence())?;
        let allowed = |limit| parse_duration(limit).expect("limits are constants that a test parses");
        if duration < allowed(self.least) || duration > allowed(self.most) {
            return Err(self.range_sentence());
        }
        Ok(duration)
    }

    /// The CEL rule on the form, so that `duration()` is never asked about a text that it would fail on.
    pub(super) fn form_rule(&self) -> Rule {
        Rule::new(format!("self.matches('{PATTERN}')")).message(self.form_sentence().as_str())
    }

    /// The CEL rule on the range; silent where the form is wrong already.
    pub(super) fn range_rule(&self) -> Rule {
        let Self { least, most, .. } = self;
        Rule::new(format!(
            "!self.matches('{PATTERN}') || \
             (duration(self) >= duration('{least}') && duration(self) <= duration('{most}'))"
        ))
        .message(self.range_sentence().as_str())
    }

    fn form_sentence(&self) -> String {
        format!("{} {BadDuration}", self.name)
    }

    fn range_sentence(&self) -> String {
        format!("{} must be between {} and {}, such as {}", self.name, self.least, self.most, self.default)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn combinations_add_up() {
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
    fn what_is_no_duration_is_refused() {
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
    fn a_field_tells_form_from_range() {
        let field = DurationField { name: "idleTimeout", least: "1s", most: "8760h", default: "6m" };
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
        fn what_is_composed_is_read_back(parts in prop::collection::vec((0u64..100_000, 0usize..4), 1..5)) {
            let text: String = parts.iter().map(|(n, unit)| format!("{n}{}", UNITS[*unit].0)).collect();
            let expected = parts.iter().map(|(n, unit)| n * UNITS[*unit].1).sum();
            prop_assert_eq!(parse_duration(&text), Ok(Duration::from_millis(expected)));
        }

        #[test]
        fn any_text_is_answered(text in "\\PC*") {
            let _ = parse_duration(&text);
        }
    }
}
