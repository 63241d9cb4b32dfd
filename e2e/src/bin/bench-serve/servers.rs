//! The servers, each a process of its own.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use clap::ValueEnum;
use e2e::load::{Cores, Load, Outcome, Pace, Reviews, Target, run};
use e2e::process::{Process, tail};
use e2e::{GENEROUS, wait_for};
use jiff::Timestamp;
use squelch::tls::{Authority, PathToken};

const DAY: Duration = Duration::from_secs(86_400);

/// Deadline for filling one.
const FILLED: Duration = Duration::from_secs(600);

/// Minimum percentage of expected answers.
const AS_MEANT: f64 = 0.99;

/// The kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// squelch in Enforce
    Enforce,
    /// squelch in Observe
    Observe,
    /// A constant answer
    Floor,
    /// A minimal webhook in Go
    Go,
}

impl Kind {
    pub(crate) fn is_squelch(self) -> bool {
        matches!(self, Self::Enforce | Self::Observe)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Enforce => "squelch, Enforce",
            Self::Observe => "squelch, Observe",
            Self::Floor => "floor: a constant answer",
            Self::Go => "minimal webhook in Go",
        })
    }
}

/// A folder with the files of the servers, deleted on drop, and the target parameters.
pub(crate) struct Folder {
    path: PathBuf,
    authority: Authority,
    token: PathToken,
}

impl Folder {
    /// Creates it with a certificate for all servers.
    pub(crate) fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("bench-serve-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        let wall = Timestamp::now();
        let authority = Authority::generate(DAY, wall)?;
        let leaf = authority.issue(&["127.0.0.1".to_owned()], DAY, wall)?;
        let chain: String = leaf.chain.iter().map(|certificate| pem("CERTIFICATE", certificate)).collect();
        let folder = Self { path, authority, token: PathToken::generate()? };
        fs::write(folder.certificate(), chain)?;
        fs::write(folder.key(), pem("PRIVATE KEY", leaf.key.secret_der()))?;
        Ok(folder)
    }

    fn certificate(&self) -> PathBuf {
        self.path.join("tls.crt")
    }

    fn key(&self) -> PathBuf {
        self.path.join("tls.key")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn pem(label: &str, bytes: &[u8]) -> String {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(bytes))
}

/// A running server.
pub(crate) struct Server {
    pub(crate) kind: Kind,
    pub(crate) series: usize,
    process: Process,
    target: Target,
    reviews: Reviews,
    next: u64,
}

impl Server {
    /// Starts `program` as this kind, for reviews of `series` series.
    pub(crate) async fn start(kind: Kind, series: usize, program: &Path, folder: &Folder) -> Result<Self> {
        let reviews = Reviews::new(series);
        let mut command = Command::new(program);
        match kind {
            Kind::Enforce => command.arg("enforce"),
            Kind::Observe => command.arg("observe"),
            Kind::Floor => command.arg("floor"),
            Kind::Go => &mut command,
        };
        command.arg("--certificate").arg(folder.certificate()).arg("--key").arg(folder.key());
        if kind != Kind::Go {
            command.args(["--token", folder.token.reveal()]);
            command.args(["--namespaces", &reviews.namespaces().to_string()]);
        }
        let process = Process::start(&format!("{kind:?}-{series}"), &mut command, &folder.path)?;
        let address = wait_for("a server to listen", GENEROUS, async || {
            let said = fs::read_to_string(&process.output).map_err(|error| error.to_string())?;
            let line = said.lines().find_map(|line| line.strip_prefix("listening on "));
            line.and_then(|line| line.parse().ok()).ok_or_else(|| tail(&process.log, 5))
        })
        .await?;
        let path = squelch::webhook::path(&folder.token);
        let target = Target::new(address, folder.authority.ca_pem(), &path)?;
        Ok(Self { kind, series, process, target, reviews, next: 0 })
    }

    /// Opens every series, and repeats each repeated series once.
    pub(crate) fn fill(&mut self) -> Result<()> {
        if !self.kind.is_squelch() {
            return Ok(());
        }
        eprintln!("{}: {} series to open", self.kind, self.series);
        let opened =
            self.send(Pace::Closed, FILLED, self.series as u64, &|series| self.reviews.opening(series))?;
        let allowed = opened.answers.allowed;
        ensure!(allowed == self.series as u64, "{} opened {allowed} of {} series", self.kind, self.series);
        let repeats = self.reviews.repeated() as u64;
        let repeated = self.send(Pace::Closed, FILLED, repeats, &|turn| self.reviews.repeat(turn))?;
        self.next = repeated.sent;
        ensure!(self.answered_as_meant(&repeated), "{}: {:?}", self.kind, repeated.answers);
        Ok(())
    }

    /// Measures it with repeats.
    pub(crate) fn ask(&mut self, pace: Pace, duration: Duration) -> Result<Outcome> {
        let outcome = self.send(pace, duration, u64::MAX, &|turn| self.reviews.repeat(turn));
        let outcome = outcome.with_context(|| format!("{}:\n{}", self.kind, tail(&self.process.log, 5)))?;
        self.next += outcome.sent;
        Ok(outcome)
    }

    fn send(
        &self,
        pace: Pace,
        duration: Duration,
        at_most: u64,
        review: &(dyn Fn(u64) -> Bytes + Sync),
    ) -> Result<Outcome> {
        let (target, server, first) = (&self.target, self.process.id(), self.next);
        let load =
            |threads, cores| Load { target, server, pace, duration, at_most, threads, cores, review, first };
        match pace {
            // One caller is sufficient at a low rate, and wakes the machine less often.
            Pace::Rate(..=5_000) => run(&load(1, None)),
            Pace::Rate(_) => run(&load(2, None)),
            Pace::Closed => {
                let cores = Cores::part()?;
                cores.confine(server)?;
                let outcome = run(&load(cores.callers(), Some(&cores)));
                let released = cores.release(server);
                // An exit of the server is the more useful error.
                let outcome = outcome?;
                released.map(|()| outcome)
            }
        }
    }

    /// Whether the answers are those of this kind to repeats.
    pub(crate) fn answered_as_meant(&self, outcome: &Outcome) -> bool {
        let all = outcome.sent as f64;
        let answers = &outcome.answers;
        let meant = match self.kind {
            Kind::Enforce => answers.denied.min(outcome.sent * 3 / 4) + answers.patched.min(outcome.sent / 4),
            Kind::Observe | Kind::Floor | Kind::Go => answers.allowed,
        };
        meant as f64 >= AS_MEANT * all - 4.0
    }
}
