//! `just demo`: a storm of Events on a real API server, first in a namespace without a policy, then in one with a
//! policy. Shows both side by side, then every stage of a policy, and fails if the counts do not match.

mod checks;
mod every_stage;
mod keep;
mod operator;
mod report;
mod samples;
mod show;
mod stage;
mod tally;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result};
use clap::{Parser, ValueEnum};

use report::Report;
use stage::{NO_POLICY, Stage, WITH_POLICY};

/// Runs the same storm of Events twice on a real API server, without and with an EventPolicy, and compares the
/// results.
#[derive(Debug, Parser)]
#[command(name = "demo", max_term_width = 110)]
struct Options {
    /// Leave the cluster and squelch running, and print how to use and stop them
    #[arg(long)]
    keep: bool,
    /// Install the chart and its image instead of a process; the cluster has this machine as its node (root)
    #[arg(long)]
    node: bool,
    /// Format of standard output; progress goes to standard error
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Write the Event writes in etcd over time into this file, as CSV, if all checks pass
    #[arg(long, value_name = "FILE")]
    samples: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// The table, output of kubectl and metrics, and the checks
    Text,
    /// All numbers and checks as one JSON object
    Json,
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    match play(&options).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            stage::print_log_tails(options.node);
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the whole demo. True if all checks pass.
async fn play(options: &Options) -> Result<bool> {
    let began = Instant::now();
    report::introduce();
    let stage = Stage::set(options.node).await?;
    let without = stage.run_storm(NO_POLICY).await?;
    let policy = stage.apply_policy().await?;
    let with = stage.run_storm(WITH_POLICY).await?;
    let counters = stage.counters(&policy, &with).await?;
    let every_stage = every_stage::play(&stage).await?;
    let mut checks = checks::all(&without, &with, &counters);
    checks.extend(every_stage.checks());
    let report = Report { without, with, counters, every_stage, checks, seconds: began.elapsed().as_secs() };
    if let Some(file) = options.samples.as_deref().filter(|_| report.adds_up()) {
        std::fs::write(file, report.samples()).with_context(|| file.display().to_string())?;
    }

    let text = match options.output {
        Output::Text => {
            let shown = show::everything(&stage).await?;
            format!("\n{}{shown}{}{}", report.table(), report.every_stage.table(), report.verdict())
        }
        Output::Json => report.json()?,
    };
    std::io::stdout().lock().write_all(text.as_bytes())?;
    if options.keep {
        keep::keep(stage)?;
    } else {
        stage.clear().await?;
    }
    Ok(report.adds_up())
}
