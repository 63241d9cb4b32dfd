//! `just bench-kwok`: the Events of a real scheduler, of the real controllers and of kwok while Deployments roll out on
//! thousands of kwok's nodes: without a webhook, with upstream's EventRateLimit, and with squelch.

mod churn;
mod nodes;
mod report;
mod row;
mod scene;
mod setting;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, ValueEnum};
use e2e::bench::{document, exit_code, machine};
use serde_json::json;

use churn::Churn;
use scene::Scene;
use setting::Setting;

/// Measures rollouts on nodes of kwok: without a webhook, with EventRateLimit, and with squelch.
#[derive(Debug, Parser)]
#[command(name = "bench-kwok", max_term_width = 110)]
struct Options {
    /// Number of nodes
    #[arg(long, default_value_t = 2000)]
    nodes: usize,
    /// Number of Deployments, each with --replicas pods
    #[arg(long, default_value_t = 20)]
    deployments: usize,
    /// Number of pods of each Deployment
    #[arg(long, default_value_t = 50)]
    replicas: i32,
    /// Number of times that all pods are replaced
    #[arg(long, default_value_t = 2)]
    rollouts: usize,
    /// Number of measurements of each setting; the table has the medians
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// Use 50 nodes, 40 pods and one rollout, for a trial; writes no figures
    #[arg(long)]
    short: bool,
    /// Format of standard output; progress goes to standard error
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Write the measured section into this file
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A table in Markdown
    Text,
    /// All measurements as one JSON object
    Json,
}

#[tokio::main]
async fn main() -> ExitCode {
    exit_code(measure(&Options::parse()).await)
}

async fn measure(options: &Options) -> Result<()> {
    let Options { deployments, replicas, rollouts, .. } = *options;
    let (nodes, churn) = if options.short {
        (50, Churn { deployments: 4, replicas: 10, rollouts: 1 })
    } else {
        (options.nodes, Churn { deployments, replicas, rollouts })
    };
    let scene = Scene::set(nodes).await?;
    let mut rows = Vec::new();
    for round in 0..options.rounds {
        for setting in Setting::ALL {
            let row = scene.measure(setting, churn).await?;
            eprintln!("==> {}/{} {}", round + 1, options.rounds, row.line());
            rows.push(row);
        }
    }
    let used: Vec<_> = rows.iter().map(|row| row.used).collect();
    let section = format!("{}\n{}", machine::line(&used), report::section(nodes, churn, &rows));
    let text = match options.output {
        Output::Text => format!("\n{section}"),
        Output::Json => serde_json::to_string_pretty(&json!({ "nodes": nodes, "rows": rows }))? + "\n",
    };
    std::io::stdout().lock().write_all(text.as_bytes())?;
    if let Some(file) = options.write.as_deref().filter(|_| !options.short) {
        document::write(file, &format!("bench-kwok {}", scene.etcds()), &section)?;
    }
    Ok(())
}
