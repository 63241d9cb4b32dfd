//! `squelch replay`: decides recorded writes as the webhook does, without a cluster.
//!
//! `input` reads writes from a file. `simulation` passes each to the engine, with a clock that the input moves.
//! `flusher` executes the flush tasks of the engine at once, on an etcd in memory. `tally` counts the results,
//! and `report`, `table`, `comparison` and `decisions` print them.

mod comparison;
mod decisions;
mod etcd;
mod flusher;
mod input;
mod kept_input;
mod namespaces;
mod notes;
mod options;
mod policies;
mod progress;
mod report;
mod simulation;
mod table;
mod tally;
pub(crate) mod text;

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

pub use flusher::{Flush, Flusher};
pub use input::BadInput;
pub(crate) use input::LastSeen;
pub use kept_input::ReplayInput;
pub use options::{ClientBehavior, Format, OWN_USER, Options};
pub use policies::BadPolicy;
pub use report::{ReplayReport, Total};
pub use simulation::engine;
pub use tally::{Summary, Writes};

pub(crate) use table::{columns, notes, replayed, wrapped};
pub(crate) use text::{clean, grouped, plural};

use decisions::Decisions;

use crate::output::{self, RenderError};
use policies::{Policies, PolicyFile, Trial};
use progress::Progress;
use simulation::{Simulation, Simulations, WriteSink};

/// Why a replay failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", name(.path))]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {source}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Several options name standard input.
    #[error(
        "standard input (-) can be the input, a policy file or the namespaces file, but only one of them"
    )]
    StandardInputTwice,
    /// `--decisions` names an input.
    #[error("--decisions would overwrite the input {}; choose another file", name(.path))]
    DecisionsOverInput {
        /// The input.
        path: PathBuf,
    },
    /// A policy is invalid.
    #[error(transparent)]
    Policy(#[from] BadPolicy),
    /// An entry of the input cannot be read.
    #[error(transparent)]
    Input(#[from] BadInput),
    /// The report cannot be serialised: a defect of squelch.
    #[error("cannot render the report: {0}")]
    Render(#[from] RenderError),
}

impl Error {
    fn read(path: &Path, source: io::Error) -> Self {
        Self::Read { path: path.to_owned(), source }
    }

    fn write(path: &Path, source: io::Error) -> Self {
        Self::Write { path: path.to_owned(), source }
    }
}

/// Replays as the options say, and prints the report. Progress is shown if standard error is a terminal.
pub fn run(options: &Options) -> Result<(), Error> {
    let report = replay(options)?;
    let text = options.output.render(&report, |report| match &report.against {
        Some(against) => comparison::render(report, against),
        None => table::render(report),
    })?;
    output::print(&text).map_err(|error| Error::write(Path::new("standard output"), error))
}

/// Replays as the options say.
pub fn replay(options: &Options) -> Result<ReplayReport, Error> {
    if inputs(options).filter(|path| is_standard_input(path)).count() > 1 {
        return Err(Error::StandardInputTwice);
    }
    let (policy, against) = (files(&options.policies)?, files(&options.against)?);
    let trial = trial(options)?;
    let policy = Policies::load(&policy, &trial)?;
    let against = if against.is_empty() { None } else { Some(Policies::load(&against, &trial)?) };
    let progress = Progress::default();
    let reader = open(&options.input, &progress)?;
    // Only now: the file of another run stays if an input is missing.
    let decisions = options.decisions.as_deref().map(|path| create(path, options)).transpose()?;
    let mut simulations = vec![Simulation::new(policy, options.clients, decisions)];
    simulations.extend(against.map(|policies| Simulation::new(policies, options.clients, None)));
    let mut reports = simulate(reader, options, simulations, &progress)?;
    let against = if reports.len() > 1 { reports.pop().map(Box::new) } else { None };
    Ok(ReplayReport { against, ..reports.swap_remove(0) })
}

/// Passes the writes of an input to all simulations. Returns their reports in the same order.
fn simulate(
    reader: Box<dyn Read + '_>,
    options: &Options,
    simulations: Vec<Simulation>,
    progress: &Progress,
) -> Result<Vec<ReplayReport>, Error> {
    let mut simulations = Simulations { own_user: options.own_user.clone(), all: simulations };
    let stats = input::replay(reader, options, &mut simulations, progress)?;
    let finished = simulations.all.into_iter().map(Simulation::finish);
    let reports = finished.map(|finished| Ok(ReplayReport::new(&finished?, &stats, options))).collect();
    progress.finish();
    reports
}

/// Returns the paths of everything that is read.
fn inputs(options: &Options) -> impl Iterator<Item = &PathBuf> {
    let policies = options.policies.iter().chain(&options.against);
    policies.chain(&options.namespaces).chain([&options.input])
}

/// Creates the file of decisions, unless it is an input.
fn create(path: &Path, options: &Options) -> Result<Decisions, Error> {
    let identity = |metadata: io::Result<Metadata>| {
        let metadata = metadata.ok().filter(Metadata::is_file)?;
        Some((metadata.dev(), metadata.ino()))
    };
    let of_input =
        |path: &Path| identity(if is_standard_input(path) { standard_input() } else { path.metadata() });
    if let Some(written) = identity(path.metadata())
        && let Some(input) = inputs(options).find(|input| of_input(input) == Some(written))
    {
        return Err(Error::DecisionsOverInput { path: input.clone() });
    }
    Decisions::create(path)
}

/// Returns the metadata of standard input, which can be a file.
fn standard_input() -> io::Result<Metadata> {
    File::from(io::stdin().as_fd().try_clone_to_owned()?).metadata()
}

fn is_standard_input(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn files(paths: &[PathBuf]) -> Result<Vec<PolicyFile>, Error> {
    paths.iter().map(|path| read(path)).collect()
}

fn trial(options: &Options) -> Result<Trial, Error> {
    let namespaces = match &options.namespaces {
        Some(path) => Some(namespaces::namespaces(&read(path)?)?),
        None => None,
    };
    let namespace = (!options.all_namespaces).then(|| options.namespace.clone());
    Ok(Trial { namespace, as_enforced: options.as_enforced, namespaces })
}

fn read(path: &Path) -> Result<PolicyFile, Error> {
    let mut text = String::new();
    let read = if is_standard_input(path) {
        io::stdin().read_to_string(&mut text)
    } else {
        File::open(path).and_then(|mut file| file.read_to_string(&mut text))
    };
    read.map_err(|source| Error::read(path, source))?;
    Ok(PolicyFile { name: name(path), text })
}

fn open(path: &Path, progress: &Progress) -> Result<Box<dyn Read>, Error> {
    if is_standard_input(path) {
        return Ok(Box::new(progress.reading(io::stdin(), None)));
    }
    let file = File::open(path).map_err(|source| Error::read(path, source))?;
    let length = file.metadata().ok().filter(std::fs::Metadata::is_file).map(|metadata| metadata.len());
    Ok(Box::new(progress.reading(file, length)))
}

/// Returns the name of a file for messages.
fn name(path: &Path) -> String {
    if is_standard_input(path) { "standard input".to_owned() } else { path.display().to_string() }
}
