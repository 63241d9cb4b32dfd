//! A finding, and how it is told.

use std::fmt;

use serde::Serialize;
use serde_json::json;

use super::seen::Unseen;

/// A word of somebody else's is cut to this.
const LONGEST: usize = 200;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Not as it should be, or not seen; squelch does its work.
    Warning,
    /// squelch cannot do its work.
    Error,
}

impl Level {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// How much it matters.
    pub level: Level,
    /// What was looked at, in a word.
    pub what: &'static str,
    /// What was seen.
    pub why: String,
    /// What to do about it; empty where it is well.
    pub what_to_do: String,
}

impl Finding {
    /// As it should be.
    pub(super) fn ok(what: &'static str, why: impl Into<String>) -> Self {
        Self::new(Level::Ok, what, why, "")
    }

    /// Not as it should be.
    pub(super) fn warning(what: &'static str, why: impl Into<String>, what_to_do: impl Into<String>) -> Self {
        Self::new(Level::Warning, what, why, what_to_do)
    }

    /// squelch cannot work so.
    pub(super) fn error(what: &'static str, why: impl Into<String>, what_to_do: impl Into<String>) -> Self {
        Self::new(Level::Error, what, why, what_to_do)
    }

    /// `thing` could not be read.
    pub(super) fn unseen(what: &'static str, thing: &str, unseen: &Unseen) -> Self {
        match unseen {
            Unseen::Missing => Self::warning(what, format!("{thing} is not there"), ""),
            Unseen::Forbidden => Self::warning(
                what,
                format!("not looked at: this account may not read {thing}"),
                "run it with the kubeconfig of an administrator, or `helm test`",
            ),
            Unseen::Failed(error) => {
                Self::warning(what, format!("not looked at: {thing}: {error}"), "look again")
            }
        }
    }

    fn new(level: Level, what: &'static str, why: impl Into<String>, what_to_do: impl Into<String>) -> Self {
        Self { level, what, why: why.into(), what_to_do: what_to_do.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<8} {:<13} {}", self.level.as_str(), self.what, self.why)?;
        if self.what_to_do.is_empty() { Ok(()) } else { write!(f, "; to do: {}", self.what_to_do) }
    }
}

/// The level of the whole.
pub fn worst(findings: &[Finding]) -> Level {
    findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok)
}

/// A line for each finding.
pub fn text(findings: &[Finding]) -> String {
    findings.iter().map(|finding| format!("{finding}\n")).collect()
}

/// For programs: `result` is the worst level.
pub fn json(findings: &[Finding]) -> String {
    format!("{:#}\n", json!({ "result": worst(findings), "findings": findings }))
}

/// A text of somebody else's, for a line: without control characters, and cut.
pub(super) fn told(text: &str) -> String {
    text.chars().filter(|char| !char.is_control()).take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_one_line_and_the_worst_is_the_result() {
        let findings = [
            Finding::ok("kubernetes", "v1.35.4"),
            Finding::warning("replicas", "1 of 2 is ready", "look at it"),
        ];
        let expected = "ok       kubernetes    v1.35.4\n\
                        warning  replicas      1 of 2 is ready; to do: look at it\n";
        assert_eq!(text(&findings), expected);
        let told: serde_json::Value = serde_json::from_str(&json(&findings)).unwrap();
        assert_eq!(told["result"], "warning");
        assert_eq!(told["findings"][1]["whatToDo"], "look at it");
        assert_eq!(worst(&[]), Level::Ok);
    }

    #[test]
    fn nobody_elses_text_reaches_a_terminal_raw() {
        assert_eq!(told("a\u{1b}[31m\nb"), "a[31mb");
        assert_eq!(told(&"x".repeat(1_000)).len(), LONGEST);
    }
}
