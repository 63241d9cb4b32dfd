//! A finding, and its output.

use std::fmt;

use serde::Serialize;

use super::snapshot::Unreadable;

/// Maximum characters of a text from the cluster.
const LONGEST: usize = 200;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The check passed.
    Ok,
    /// Something is wrong or could not be checked, but squelch works.
    Warning,
    /// squelch does not work.
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

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// Its severity.
    pub level: Level,
    /// The name of the check.
    pub check: &'static str,
    /// What the check found, and where.
    pub message: String,
    /// What to do next. Empty if the check passed.
    pub remedy: String,
}

impl Finding {
    /// A check that passed.
    pub(super) fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(Level::Ok, check, message, "")
    }

    /// A problem that does not stop squelch.
    pub(super) fn warning(
        check: &'static str,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::new(Level::Warning, check, message, remedy)
    }

    /// A problem that stops squelch.
    pub(super) fn error(check: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(Level::Error, check, message, remedy)
    }

    /// The check could not run, because `thing` could not be read.
    pub(super) fn unreadable(check: &'static str, thing: &str, unreadable: &Unreadable) -> Self {
        match unreadable {
            Unreadable::Missing => Self::warning(
                check,
                format!("check not run: {thing} does not exist"),
                "check --install-namespace and --deployment, or upgrade the chart, which creates it",
            ),
            Unreadable::Forbidden => Self::warning(
                check,
                format!("check not run: this account may not read {thing}"),
                "run squelch doctor with the kubeconfig of an administrator, or run `helm test`",
            ),
            Unreadable::Failed(error) => Self::warning(
                check,
                format!("check not run: cannot read {thing}: {error}"),
                "run squelch doctor again",
            ),
        }
    }

    fn new(level: Level, check: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { level, check, message: message.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<8} {:<13} {}", self.level.as_str(), self.check, self.message)?;
        if self.remedy.is_empty() { Ok(()) } else { write!(f, "; remedy: {}", self.remedy) }
    }
}

/// Returns the worst level.
fn worst(findings: &[Finding]) -> Level {
    findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok)
}

/// The output of `squelch doctor`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DoctorReport {
    /// The version of this structure. It rises with each incompatible change.
    schema_version: u32,
    /// The worst level.
    result: Level,
    findings: Vec<Finding>,
}

impl DoctorReport {
    /// The report of `findings`.
    pub fn of(findings: Vec<Finding>) -> Self {
        Self { schema_version: 1, result: worst(&findings), findings }
    }

    /// The worst level of all findings.
    pub fn result(&self) -> Level {
        self.result
    }

    /// One line for each finding.
    pub fn table(&self) -> String {
        self.findings.iter().map(|finding| format!("{finding}\n")).collect()
    }
}

/// Makes a text from the cluster safe for one line: truncated, without control characters.
pub(super) fn printable(text: &str) -> String {
    text.chars().filter(|char| !char.is_control()).take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_one_line_and_the_worst_level_is_the_result() {
        let findings = [
            Finding::ok("kubernetes", "v1.35.4"),
            Finding::warning("replicas", "1 of 2 is ready", "describe it"),
        ];
        let expected = "ok       kubernetes    v1.35.4\n\
                        warning  replicas      1 of 2 is ready; remedy: describe it\n";
        let report = DoctorReport::of(findings.into());
        assert_eq!(report.table(), expected);
        let json: serde_json::Value = serde_json::to_value(&report).unwrap();
        assert_eq!(json["result"], "warning");
        assert_eq!(json["findings"][1]["remedy"], "describe it");
        assert_eq!(worst(&[]), Level::Ok);
    }

    #[test]
    fn a_text_from_the_cluster_is_printed_without_control_characters() {
        assert_eq!(printable("a\u{1b}[31m\nb"), "a[31mb");
        assert_eq!(printable(&"x".repeat(1_000)).len(), LONGEST);
    }
}
