//! `squelch suggest`: proposes policies from recorded Events, with what a replay says that they save.
//!
//! `groups` counts what is written. `search` tries treatments of the busiest groups in replays, `treatment` expresses
//! them as policies, and `proposal` replays the result. `text` prints it.

mod cluster;
mod groups;
mod proposal;
mod search;
mod text;
mod treatment;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use super::{ClusterConnection, ClusterFlags};
use crate::output::{self, OutputFormat};
use crate::replay::{self, ClientBehavior, Format, OWN_USER, ReplayInput};

/// The end of `squelch suggest --help`.
const MORE: &str = "\
Examples:
  squelch suggest -n shop
  squelch suggest -A > policies.yaml
  squelch suggest audit.log > policies.yaml && squelch replay --clients adapted --policy \
    policies.yaml audit.log
  kubectl get events -A -o json | squelch suggest -

Exit codes: 0 the Events were examined, also if there is nothing to suggest; 1 the input cannot be read; 2 wrong usage.
Nothing is written to the cluster. No policy that is suggested drops Warnings.";

/// Flags of `squelch suggest`.
#[derive(Clone, Debug, Args)]
#[command(after_help = MORE)]
pub struct SuggestOptions {
    /// Recorded writes, in any format that `squelch replay` reads. - is standard input [default: the Events that the
    /// cluster stores]
    #[arg(value_name = "FILE")]
    pub input: Option<PathBuf>,

    /// The cluster. With FILE only its namespace is used: the only one that is examined.
    #[command(flatten)]
    pub cluster: ClusterFlags,

    /// All namespaces. Default with FILE
    #[arg(short = 'A', long, conflicts_with = "namespace", help_heading = "Cluster")]
    pub all_namespaces: bool,

    /// Format of FILE [default: detected from its content]
    #[arg(long, value_enum, help_heading = "Input")]
    pub format: Option<Format>,

    /// Behaviour of the clients of a trace or an audit log
    #[arg(long, value_enum, default_value_t = ClientBehavior::Adapted, help_heading = "Input")]
    pub clients: ClientBehavior,

    /// Skip and count entries that cannot be read. Default: the first one ends the command
    #[arg(long, help_heading = "Input")]
    pub skip_bad: bool,

    /// Minimum number of writes that a policy saves [default: 1 % of all writes, at least 20]
    #[arg(long, value_name = "NUMBER", help_heading = "Policies")]
    pub min_saved: Option<u64>,

    /// Also suggest to mute Normal Events, so that none of them is stored
    #[arg(long, help_heading = "Policies")]
    pub allow_mute: bool,

    /// Output format
    #[arg(short, long, value_enum, default_value_t = SuggestFormat::Yaml)]
    pub output: SuggestFormat,
}

/// The formats of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SuggestFormat {
    /// Policies for `kubectl apply`, with reasons and figures as comments
    Yaml,
    /// Policies, reasons and figures for programs
    Json,
}

/// Prints policies for the Events of the options.
///
/// # Errors
/// The input cannot be read, or standard output cannot be written.
pub fn run(options: &SuggestOptions) -> Result<()> {
    let recording = match &options.input {
        Some(input) => ReplayInput::open(replay_options(options, input.clone(), options.format))?,
        None => of_cluster(options)?,
    };
    let limits = proposal::SuggestLimits {
        // Without FILE, only its Events are listed.
        namespace: options.cluster.namespace().map(str::to_owned),
        min_saved: options.min_saved,
        allow_mute: options.allow_mute,
        clients: options.clients,
    };
    let suggestions = proposal::suggest(&recording, &limits)?;
    let text = match options.output {
        SuggestFormat::Yaml => text::yaml(&suggestions, command(options).as_deref())?,
        SuggestFormat::Json => OutputFormat::Json.render(&suggestions, |_| String::new())?,
    };
    output::print(&text).context("cannot write to standard output")
}

/// Lists the Events of the cluster.
fn of_cluster(options: &SuggestOptions) -> Result<ReplayInput> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let cluster = ClusterConnection::connect(&options.cluster).await?;
        let namespace = (!options.all_namespaces).then_some(cluster.namespace.as_str());
        let events = cluster::events(&cluster, namespace).await?;
        let name = namespace.map_or_else(|| "all namespaces".to_owned(), |name| format!("namespace {name}"));
        Ok(ReplayInput::of(replay_options(options, name.into(), Some(Format::List)), events))
    })
}

fn replay_options(options: &SuggestOptions, input: PathBuf, format: Option<Format>) -> replay::Options {
    replay::Options {
        input,
        policies: Vec::new(),
        against: Vec::new(),
        namespace: "default".to_owned(),
        all_namespaces: false,
        namespaces: None,
        as_enforced: false,
        own_user: OWN_USER.to_owned(),
        format,
        clients: options.clients,
        skip_bad: options.skip_bad,
        output: OutputFormat::Table,
        decisions: None,
    }
}

/// Returns the command that replays the suggested policies on the same input. There is none for a cluster.
fn command(options: &SuggestOptions) -> Option<String> {
    let input = replay::clean(&options.input.as_ref()?.display().to_string(), 200);
    let format = options.format.map_or_else(String::new, |format| format!(" --format {}", format.as_str()));
    let clients = if options.clients == ClientBehavior::Adapted { " --clients adapted" } else { "" };
    let skip_bad = if options.skip_bad { " --skip-bad" } else { "" };
    Some(format!("squelch replay --policy POLICIES{format}{clients}{skip_bad} {input}"))
}
