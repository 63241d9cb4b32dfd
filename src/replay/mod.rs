//! `squelch replay`: the decisions of the webhook on recorded writes, without a cluster.
//!
//! An input (`input`) becomes writes, each decided by the engine that the webhook asks (`course`), with a clock
//! that the input moves and an etcd in memory that takes squelch's own writes at once (`payer`); what became of
//! them is counted (`tally`) and told (`report`, `table`, `decisions`).

mod course;
mod decisions;
mod etcd;
mod input;
mod namespaces;
mod notes;
mod options;
mod payer;
mod policies;
mod progress;
mod report;
mod table;
mod tally;
mod text;

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

pub use course::engine;
pub use input::BadInput;
pub use options::{Clients, Format, Options, Output};
pub use payer::{Payer, Payment};
pub use policies::BadPolicy;
pub use report::Report;
pub use tally::{Summary, Writes};

use course::Course;
use decisions::Decisions;
use policies::{Policies, PolicyFile, Trial};
use progress::Progress;

/// Why a replay came to no end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", name(.path))]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {source}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Standard input was asked for twice.
    #[error("standard input (-) can be the input, a policy file or the namespaces, not several of them")]
    StandardInputTwice,
    /// A policy cannot be used.
    #[error(transparent)]
    Policy(#[from] BadPolicy),
    /// A place in the input cannot be read.
    #[error(transparent)]
    Input(#[from] BadInput),
    /// The report has no JSON form: a defect of squelch.
    #[error("cannot write the report as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

impl Error {
    fn read(path: &Path, source: io::Error) -> Self {
        Self::Read { path: path.to_owned(), source }
    }

    fn write(path: &Path, source: io::Error) -> Self {
        Self::Write { path: path.to_owned(), source }
    }
}

/// Replays as the options say, and prints the result. Progress is shown where standard error is a terminal.
pub fn run(options: &Options) -> Result<(), Error> {
    let report = replay(options)?;
    let text = match options.output {
        Output::Table => table::render(&report),
        Output::Json => serde_json::to_string_pretty(&report)? + "\n",
    };
    match io::stdout().write_all(text.as_bytes()) {
        // Whoever read it has seen enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::write(Path::new("standard output"), error))
        }
        _ => Ok(()),
    }
}

/// Replays as the options say.
pub fn replay(options: &Options) -> Result<Report, Error> {
    let is_standard_input = |path: &PathBuf| path.as_os_str() == "-";
    let inputs = options.policies.iter().chain(&options.namespaces).chain([&options.input]);
    if inputs.filter(|path| is_standard_input(path)).count() > 1 {
        return Err(Error::StandardInputTwice);
    }
    let policies = load(options)?;
    let decisions = options.decisions.as_deref().map(Decisions::create).transpose()?;
    let mut course = Course::new(policies, options.clients, options.own_user.clone(), decisions);
    let progress = Progress::default();
    let reader = open(&options.input, &progress)?;
    let told = input::replay(reader, options, &mut course, &progress)?;
    let finished = course.finish()?;
    progress.finish();
    Ok(Report::new(&finished, &told, options))
}

fn load(options: &Options) -> Result<Policies, Error> {
    let files = options.policies.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
    let namespaces = match &options.namespaces {
        Some(path) => Some(namespaces::namespaces(&read(path)?)?),
        None => None,
    };
    let namespace = (!options.all_namespaces).then(|| options.namespace.clone());
    Ok(Policies::load(&files, &Trial { namespace, as_enforced: options.as_enforced, namespaces })?)
}

fn read(path: &Path) -> Result<PolicyFile, Error> {
    let mut text = String::new();
    let read = if path.as_os_str() == "-" {
        io::stdin().read_to_string(&mut text)
    } else {
        File::open(path).and_then(|mut file| file.read_to_string(&mut text))
    };
    read.map_err(|source| Error::read(path, source))?;
    Ok(PolicyFile { name: name(path), text })
}

fn open(path: &Path, progress: &Progress) -> Result<Box<dyn Read>, Error> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(progress.reading(io::stdin(), None)));
    }
    let file = File::open(path).map_err(|source| Error::read(path, source))?;
    let length = file.metadata().ok().filter(std::fs::Metadata::is_file).map(|metadata| metadata.len());
    Ok(Box::new(progress.reading(file, length)))
}

/// A file's name for people.
fn name(path: &Path) -> String {
    if path.as_os_str() == "-" { "standard input".to_owned() } else { path.display().to_string() }
}
