//! `just bench-serve`: squelch's webhook beside a constant answer and a minimal webhook in Go. All run at the same
//! time, each in its own process, and are measured in turn.

mod report;
mod samples;
mod servers;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Parser, ValueEnum};
use e2e::bench::exit_code;
use e2e::load::{Pace, Reviews, writing};

use report::Report;
use samples::{Sample, Samples};
use servers::{Folder, Kind, Server};

/// Measures squelch's webhook, a constant answer and a minimal webhook in Go, side by side.
#[derive(Debug, Parser)]
#[command(name = "bench-serve", max_term_width = 110)]
struct Options {
    /// Program with squelch and the floor (benches/serve.rs)
    #[arg(long, env = "SQUELCH_BENCH_SERVE")]
    serve: PathBuf,
    /// Minimal webhook in Go (e2e/peers/webhook-go)
    #[arg(long, env = "SQUELCH_WEBHOOK_GO")]
    webhook_go: PathBuf,
    /// Numbers of live series on squelch, multiples of 1,000
    #[arg(long, value_delimiter = ',', default_value = "10000,1000000")]
    series: Vec<usize>,
    /// Servers to measure
    #[arg(long, value_enum, value_delimiter = ',', default_value = "enforce,observe,floor,go")]
    servers: Vec<Kind>,
    /// Reviews per second; 0: as fast as possible
    #[arg(long, value_delimiter = ',', default_value = "0,500,5000,20000")]
    rates: Vec<u64>,
    /// Milliseconds per measurement; 1.5 times as long at 500/s and below
    #[arg(long, default_value_t = 1_500)]
    milliseconds: u64,
    /// Rounds per server and rate; figures are medians
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Trial in less than a minute: few series, one round, half a second per measurement
    #[arg(long)]
    short: bool,
    /// Format of standard output; progress goes to standard error
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// Tables
    Text,
    /// All samples and medians as one JSON object
    Json,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let mut options = Options::parse();
    if options.short {
        (options.series, options.rounds, options.milliseconds) = (vec![10_000], 1, 500);
    }
    exit_code(compare(&options).await)
}

#[expect(clippy::print_stdout, reason = "a program that reports")]
async fn compare(options: &Options) -> Result<()> {
    let folder = Folder::new()?;
    let mut servers = start(options, &folder).await?;
    let mut samples = Samples::new(&servers);
    for round in 0..options.rounds {
        for &rate in &options.rates {
            let (pace, duration) = (pace(rate), options.duration(rate));
            for at in 0..servers.len() {
                // The order alternates between rounds.
                let at = (at + round) % servers.len();
                let outcome = servers[at].ask(pace, duration)?;
                samples.add(at, pace, Sample::of(&outcome, servers[at].answered_as_meant(&outcome)));
            }
            eprintln!("round {} of {}: {}", round + 1, options.rounds, samples::title(pace));
        }
    }
    let report = Report::new(samples, writing(&Reviews::new(options.series[0])));
    match options.output {
        Output::Text => print!("{report}"),
        Output::Json => println!("{}", serde_json::to_string_pretty(&report)?),
    }
    Ok(())
}

/// The pace of a `--rate` value.
fn pace(rate: u64) -> Pace {
    if rate == 0 { Pace::Closed } else { Pace::Rate(rate) }
}

impl Options {
    /// At a low rate, more time gives enough answers for p99.9.
    fn duration(&self, rate: u64) -> Duration {
        let asked = Duration::from_millis(self.milliseconds);
        if (1..=500).contains(&rate) { asked * 3 / 2 } else { asked }
    }
}

async fn start(options: &Options, folder: &Folder) -> Result<Vec<Server>> {
    let mut servers = Vec::new();
    for &kind in &options.servers {
        let program = if kind == Kind::Go { &options.webhook_go } else { &options.serve };
        // The other servers have no series.
        let series = if kind.is_squelch() { &options.series[..] } else { &options.series[..1] };
        for &series in series {
            servers.push(Server::start(kind, series, program, folder).await?);
        }
    }
    // The largest first: it flushes while the others are filled.
    for server in servers.iter_mut().rev() {
        server.fill()?;
    }
    Ok(servers)
}
