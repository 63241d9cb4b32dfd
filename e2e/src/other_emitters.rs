//! Emitters built on libraries of other languages and frameworks, as processes. Their common flags and their output are
//! in e2e/emitters/README.md.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::cluster::given;
use crate::process::Process;

/// The command line of such an emitter.
#[derive(Clone, Debug)]
pub struct OtherEmitter {
    program: &'static str,
    arguments: Vec<String>,
}

/// A running emitter.
pub struct RunningOtherEmitter {
    process: Process,
}

/// What it printed until its end.
#[derive(Debug)]
pub struct OtherReport {
    /// The library with its version.
    pub emitter: String,
    /// Occurrences that the program handed to the library.
    pub occurrences: i64,
    /// The errors that the library gave its caller.
    pub errors: Vec<String>,
    /// The lines that the library logged, with its default settings.
    pub log: Vec<String>,
}

#[derive(Deserialize)]
#[serde(tag = "line", rename_all = "lowercase")]
enum Line {
    Error { error: String },
    Summary { emitter: String, occurrences: i64 },
}

impl OtherEmitter {
    /// The emitter of this name, a folder or program in e2e/emitters.
    pub fn named(program: &'static str) -> Self {
        Self { program, arguments: Vec::new() }
    }

    /// With another flag.
    #[must_use]
    pub fn with(mut self, flag: &str, value: &str) -> Self {
        self.arguments.extend([flag.to_owned(), value.to_owned()]);
        self
    }

    /// Starts it. It reports occurrences about a `ConfigMap` of this name and uid.
    ///
    /// # Errors
    /// If the program was not built.
    pub fn start(
        &self,
        name: &str,
        kubeconfig: &Path,
        namespace: &str,
        (object, uid): (&str, &str),
        folder: &Path,
    ) -> Result<RunningOtherEmitter> {
        let variable = format!("SQUELCH_PROGRAM_{}", self.program.replace('-', "_").to_uppercase());
        let mut command = Command::new(given(&variable)?);
        command.arg("--kubeconfig").arg(kubeconfig).args(["--namespace", namespace]);
        command.args(["--object", object, "--uid", uid]).args(&self.arguments);
        // Hides the administrator's credentials.
        command.env_remove("KUBECONFIG").current_dir(folder);
        Ok(RunningOtherEmitter { process: Process::start(name, &mut command, folder)? })
    }
}

impl RunningOtherEmitter {
    /// Waits until it has emitted everything and has all answers.
    ///
    /// # Errors
    /// If the deadline passes, if it failed, or if its output is invalid.
    pub async fn finish(mut self, deadline: Duration) -> Result<OtherReport> {
        self.process.success(deadline).await?;
        let (output, log) = (&self.process.output, &self.process.log);
        let log = String::from_utf8_lossy(&std::fs::read(log)?).lines().map(str::to_owned).collect();
        OtherReport::parse(&std::fs::read_to_string(output)?, log)
    }
}

impl OtherReport {
    fn parse(output: &str, log: Vec<String>) -> Result<Self> {
        let mut errors = Vec::new();
        let mut lines = output.lines().filter(|line| line.starts_with("{\"line\"")).peekable();
        while let Some(line) = lines.next() {
            match serde_json::from_str(line).with_context(|| format!("an emitter's line: {line}"))? {
                Line::Error { error } => errors.push(error),
                Line::Summary { emitter, occurrences } => {
                    ensure!(lines.peek().is_none(), "the summary is not the last line:\n{output}");
                    return Ok(Self { emitter, occurrences, errors, log });
                }
            }
        }
        anyhow::bail!("no summary:\n{output}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_and_the_summary_are_read() {
        let output = "{\"line\":\"error\",\"occurrence\":1,\"error\":\"Conflict: 409\"}\n\
            {\"line\":\"summary\",\"emitter\":\"kopf 1\",\"occurrences\":3,\"errors\":1}\n";
        let report = OtherReport::parse(output, vec!["a line".into()]).unwrap();
        assert_eq!((report.occurrences, &*report.errors), (3, &["Conflict: 409".to_owned()][..]));
        assert_eq!((&*report.emitter, report.log.len()), ("kopf 1", 1));
    }

    #[test]
    fn an_output_without_a_summary_is_refused() {
        assert!(OtherReport::parse("", Vec::new()).unwrap_err().to_string().starts_with("no summary"));
    }
}
