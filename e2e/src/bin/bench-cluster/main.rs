//! `just bench-cluster`: the cost of Event writes through a real API server and an etcd that fsyncs to disk: without
//! a webhook, with a minimal webhook in Go, with upstream's EventRateLimit, and with squelch.

mod answers;
mod cell;
mod figures;
mod groups;
mod leases;
mod load;
mod peer;
mod report;
mod setting;
mod stage;
mod verdicts;
mod work;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, ValueEnum};
use e2e::bench::{document, exit_code, machine};
use e2e::storm::churn::Churn;
use jiff::Timestamp;
use serde_json::json;

use cell::Cell;
use groups::Group;
use stage::Stage;

/// Seed of the storm.
const SEED: u64 = 141_022;

/// Measures the cost of Event writes through a real API server: without a webhook, with squelch, and with
/// alternatives.
#[derive(Debug, Parser)]
#[command(name = "bench-cluster", max_term_width = 110)]
struct Options {
    /// Groups to measure. Default: all, one after the other
    #[arg(value_enum)]
    groups: Vec<Group>,
    /// Run one short round of each group, for a trial; writes no figures
    #[arg(long)]
    short: bool,
    /// Format of standard output; progress goes to standard error
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Write the measured sections into this file
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Print the storm of kubernetes#141022 as a trace for `squelch replay`, one pod of this many, and measure
    /// nothing
    #[arg(long, value_name = "PODS", value_parser = clap::value_parser!(u32).range(1..=1000))]
    print_storm: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// Tables and verdicts in Markdown
    Text,
    /// All cells and verdicts as one JSON object
    Json,
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let done = match options.print_storm {
        Some(part) => print_storm(part),
        None => measure(&options).await,
    };
    exit_code(done)
}

fn print_storm(part: u32) -> Result<()> {
    let begin: Timestamp = "2026-03-02T08:00:00Z".parse()?;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for write in Churn::whole(SEED).one_of(part).writes() {
        writeln!(out, "{}", write.line("shop", begin))?;
    }
    Ok(out.flush()?)
}

/// Measures each group. A promise that is not kept is shown in the table and is no error.
async fn measure(options: &Options) -> Result<()> {
    let groups = if options.groups.is_empty() { Group::value_variants() } else { &options.groups };
    let mut stage = Stage::set().await?;
    let mut results = Vec::new();
    for group in groups {
        let cells = group.measure(&mut stage, options.short).await?;
        let verdicts = verdicts::of(*group, &cells);
        let used: Vec<_> = cells.iter().map(Cell::usage).collect();
        let section = format!("{}\n{}", machine::line(&used), report::section(*group, &cells, &verdicts));
        if options.output == Output::Text {
            std::io::stdout().lock().write_all(format!("\n{section}").as_bytes())?;
        }
        if let Some(file) = options.write.as_deref().filter(|_| !options.short) {
            document::write(file, &format!("bench-cluster {}", group.name()), &section)?;
        }
        results.push(json!({ "group": group.name(), "cells": cells, "verdicts": verdicts }));
    }
    if options.output == Output::Json {
        let text =
            serde_json::to_string_pretty(&json!({ "machine": machine::line(&[]), "groups": results }))?;
        std::io::stdout().lock().write_all((text + "\n").as_bytes())?;
    }
    Ok(())
}
