//! The output formats that all commands share.

use std::io::{self, Write as _};

use clap::ValueEnum;
use serde::Serialize;
use thiserror::Error;

/// A value that has no JSON or YAML form.
#[derive(Debug, Error)]
pub enum RenderError {
    /// It has no JSON form.
    #[error("JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// It has no YAML form.
    #[error("YAML: {0}")]
    Yaml(#[from] serde_saphyr::ser::Error),
}

/// Writes `text` to standard output. A reader such as `head` may close it early.
///
/// # Errors
/// Standard output cannot be written for another reason.
pub fn print(text: &str) -> io::Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// The format of a command's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// For people
    Table,
    /// For programs
    Json,
    /// For programs
    Yaml,
}

impl OutputFormat {
    /// Renders `value`: as `table` does it, or as JSON or YAML with the fields of `value`. Ends with a newline.
    ///
    /// # Errors
    /// `value` cannot be serialised.
    pub fn render<T: Serialize>(
        self,
        value: &T,
        table: impl FnOnce(&T) -> String,
    ) -> Result<String, RenderError> {
        Ok(match self {
            Self::Table => table(value),
            Self::Json => serde_json::to_string_pretty(value)? + "\n",
            Self::Yaml => serde_saphyr::to_string(value)?,
        })
    }
}

/// Returns an error and its causes in one line, without a cause whose text is already there.
///
/// Many libraries repeat the text of a cause in their own.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let said = cause.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_and_yaml_have_the_same_content() {
        let value = json!({ "schemaVersion": 1, "findings": [{ "check": "token: a", "remedy": "" }] });
        let of = |format: OutputFormat| format.render(&value, |_| "a table\n".to_owned()).unwrap();
        assert_eq!(of(OutputFormat::Table), "a table\n");
        let yaml: serde_json::Value = serde_saphyr::from_str(&of(OutputFormat::Yaml)).unwrap();
        assert_eq!(yaml, value);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&of(OutputFormat::Json)).unwrap(), value);
        assert!(of(OutputFormat::Json).ends_with("}\n") && of(OutputFormat::Yaml).ends_with('\n'));
    }

    #[test]
    fn a_cause_is_said_once() {
        #[derive(Debug, Error)]
        #[error("cannot read {path}: {source}")]
        struct Unreadable {
            path: &'static str,
            source: std::io::Error,
        }
        let unreadable = Unreadable { path: "p.yaml", source: std::io::Error::other("the disk is gone") };
        assert_eq!(with_causes(&unreadable), "cannot read p.yaml: the disk is gone");

        #[derive(Debug, Error)]
        #[error("cannot replay")]
        struct Failed(#[source] Unreadable);
        assert_eq!(with_causes(&Failed(unreadable)), "cannot replay: cannot read p.yaml: the disk is gone");
    }
}
