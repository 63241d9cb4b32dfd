//! `squelch top`: what is suppressed in which namespace, by which policies, and who the offenders are.
//!
//! `watch` reads reports and policies, `snapshot` keeps and orders them, `views` makes tables of them. `plain` prints the
//! tables once, `screen` draws them live in a `terminal`.

mod grid;
mod plain;
mod rows;
mod screen;
mod snapshot;
mod terminal;
mod views;
mod watch;

#[cfg(test)]
mod fixture;

use std::io::{self, IsTerminal as _};
use std::num::NonZeroUsize;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::clock;
use crate::output::{self, OutputFormat};

use super::{ClusterConnection, ClusterFlags};
use plain::TopReport;
pub use snapshot::TopOrder;
use watch::TopWatch;

/// Rows of a table without `--limit`.
const USUAL_LIMIT: usize = 100;

/// Flags of `squelch top`.
#[derive(Clone, Debug, Args)]
pub struct TopOptions {
    /// The cluster, and the namespace.
    #[command(flatten)]
    pub cluster: ClusterFlags,

    /// All namespaces; without the right to list them, that of --namespace
    #[arg(long, short = 'A', help_heading = "Cluster")]
    pub all_namespaces: bool,

    /// Print the tables once, also if standard output is not a terminal
    #[arg(long)]
    pub once: bool,

    /// Output format; json and yaml are printed once
    #[arg(long, short, value_enum, default_value_t = OutputFormat::Table)]
    pub output: OutputFormat,

    /// Order of namespaces and policies, the largest number first; offenders are ordered by count
    #[arg(long, value_name = "ORDER", value_enum, default_value_t = TopOrder::Suppressed)]
    pub sort: TopOrder,

    /// Maximum rows of each view [default: 100; json and yaml: all]
    #[arg(long, value_name = "ROWS")]
    pub limit: Option<NonZeroUsize>,
}

/// Shows the live view, or prints it once.
///
/// # Errors
/// There is no cluster or no squelch in it, the user may read nothing of it, or the output cannot be written.
pub async fn run(options: &TopOptions) -> Result<()> {
    let is_table = options.output == OutputFormat::Table;
    let is_live = is_table && !options.once && io::stdout().is_terminal();
    ensure!(
        is_live || options.sort != TopOrder::Rate,
        "--sort rate needs the live view: a rate is the difference of two reports; use --sort suppressed"
    );
    let limit = options.limit.map_or(if is_table { USUAL_LIMIT } else { usize::MAX }, NonZeroUsize::get);
    let cluster = ClusterConnection::connect(&options.cluster).await?;
    let (watch, mut model) = TopWatch::find(&cluster, options.all_namespaces).await?;
    if is_live {
        return terminal::live(&watch, model, options.sort, limit).await;
    }
    watch.list(&mut model).await?;
    let now = clock::wall();
    let report = TopReport::of(&model, options.sort, limit, now);
    let text = options.output.render(&report, |_| plain::render(&model, options.sort, limit, now))?;
    output::print(&text).context("cannot write to standard output")
}
