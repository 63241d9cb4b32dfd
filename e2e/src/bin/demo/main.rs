//! `just demo`: a storm of Events on a real API server, twice: in a namespace without a policy, then in one with it.
//! Shows both side by side, and fails if the counts do not add up.

mod checks;
mod kept;
mod operator;
mod report;
mod show;
mod stage;
mod tally;

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use clap::{Parser, ValueEnum};

use report::Report;
use stage::{NO_POLICY, Stage, WITH_POLICY};

/// Blows the same storm of Events twice at a real API server, without and with an EventPolicy, and compares.
#[derive(Debug, Parser)]
#[command(name = "demo", max_term_width = 110)]
struct Options {
    /// Leave the cluster and squelch running afterwards, and say how to use and how to end them
    #[arg(long)]
    keep: bool,
    /// Install the chart, with its image, in place of a process; the cluster has this machine as its node (root)
    #[arg(long)]
    node: bool,
    /// What goes to standard output; progress goes to standard error
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// The table, what kubectl and the metrics show, and the checks
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
            stage::last_words(options.node);
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The whole demo. True if the counts add up.
async fn play(options: &Options) -> Result<bool> {
    let began = Instant::now();
    report::introduce();
    let stage = Stage::set(options.node).await?;
    let without = stage.blow(NO_POLICY).await?;
    let policy = stage.apply_policy().await?;
    let with = stage.blow(WITH_POLICY).await?;
    let accounts = stage.accounts(&policy, &with).await?;
    let checks = checks::all(&without, &with, &accounts);
    let report = Report { without, with, accounts, checks, seconds: began.elapsed().as_secs() };

    let text = match options.output {
        Output::Text => {
            format!("\n{}{}{}", report.table(), show::everything(&stage).await?, report.verdict())
        }
        Output::Json => report.json()?,
    };
    std::io::stdout().lock().write_all(text.as_bytes())?;
    if options.keep {
        kept::keep(stage)?;
    } else {
        stage.clear().await?;
    }
    Ok(report.adds_up())
}
