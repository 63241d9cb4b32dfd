//! `--decisions`: one JSON line per write.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use squelch_engine::{Answer, Denial, Governing, Moment, Observation, Verdict};

use super::Error;

/// A line.
#[derive(Debug, Serialize)]
struct DecisionLine<'a> {
    at: f64,
    namespace: &'a str,
    name: &'a str,
    disposition: &'static str,
    stage: &'static str,
    occurrences: i64,
    answer: &'static str,
    policy: Option<&'a str>,
}

/// The file of decisions.
pub(super) struct Decisions {
    path: PathBuf,
    out: BufWriter<File>,
}

impl Decisions {
    /// Creates the file, empty.
    pub(super) fn create(path: &Path) -> Result<Self, Error> {
        let out = File::create(path).map_err(|source| Error::write(path, source))?;
        Ok(Self { path: path.to_owned(), out: BufWriter::with_capacity(1 << 16, out) })
    }

    pub(super) fn write(
        &mut self,
        now: Moment,
        governing: Option<Governing<'_>>,
        write: &Observation<'_>,
        verdict: &Verdict,
    ) -> Result<(), Error> {
        let decision = DecisionLine {
            at: now.since(Moment::default()).as_secs_f64(),
            namespace: write.namespace,
            name: match &verdict.answer {
                Answer::AllowNamed(name) => name,
                _ => write.name.as_deref().unwrap_or(&write.generate_name),
            },
            disposition: verdict.disposition.map_or("passed", |disposition| disposition.as_str()),
            stage: verdict.stage.as_str(),
            occurrences: verdict.occurrences,
            answer: answer(&verdict.answer),
            policy: governing.filter(|_| !write.own).map(|governing| &*governing.rules.policy.display),
        };
        self.line(&decision).map_err(|source| Error::write(&self.path, source))
    }

    fn line(&mut self, decision: &DecisionLine<'_>) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, decision)?;
        self.out.write_all(b"\n")
    }

    pub(super) fn finish(mut self) -> Result<(), Error> {
        self.out.flush().map_err(|source| Error::write(&self.path, source))
    }
}

/// The name of the answer that the client gets.
fn answer(answer: &Answer) -> &'static str {
    match answer {
        Answer::Allow | Answer::AllowNamed(_) => "allow",
        Answer::Deny(Denial::AlreadyExists) => "409",
        Answer::Deny(Denial::Forbidden) => "403",
        Answer::Restore => "restore",
    }
}
