//! The command line. Every flag of `squelch run` has an environment variable: `SQUELCH_` and its name.

mod run;
mod values;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, CommandFactory as _, Parser, Subcommand};

use crate::cli::record::RecordOptions;
use crate::cli::suggest::SuggestOptions;
use crate::cli::top::TopOptions;
use crate::cli::why::WhyOptions;
use crate::output::OutputFormat;
use crate::replay;

pub use run::RunOptions;
pub use values::{CollectorHeader, LastTimestamp, WebhookService, WebhookUrl};
use values::{doctor_wait, uninstall_timeout};

/// Event policy operator for Kubernetes: compacts, aggregates and limits Events, and counts what it suppresses.
#[derive(Debug, Parser)]
#[command(name = "squelch", version, about, max_term_width = 110)]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// Returns the command line of a program, which may have the name of a kubectl plugin. Help and errors then name the
    /// command as users type it.
    pub fn command_for(program: impl AsRef<Path>) -> clap::Command {
        let command = Self::command();
        if program.as_ref().file_stem() == Some("kubectl-squelch".as_ref()) {
            return command.bin_name("kubectl squelch");
        }
        command
    }
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the operator: watch policies, decide Event writes, flush pending occurrences
    Run(Box<RunOptions>),
    /// Print the CustomResourceDefinitions as YAML, or write them to a directory
    Crds(CrdsOptions),
    /// Show what is suppressed in which namespaces, by which policies, and the Events that are dropped most
    Top(TopOptions),
    /// Find the Events about an object: stored ones, the policy that governs them, and what it has suppressed
    Why(Box<WhyOptions>),
    /// Try policies on recorded Events, without a cluster: shows what they would suppress, and what would reach etcd
    Replay(Box<replay::Options>),
    /// Propose policies from recorded Events, or from those that a cluster stores, with what they save
    Suggest(Box<SuggestOptions>),
    /// Record Event writes of a cluster for `squelch replay`, for clusters without an audit log
    Record(RecordOptions),
    /// Check a running installation: what is wrong, and how to repair it
    Doctor(DoctorOptions),
    /// Stop the operator, wait until it has flushed, and delete its webhook configuration and its Secret. The chart
    /// runs this before it is deleted
    Uninstall(UninstallOptions),
}

/// Flags of `squelch crds`.
#[derive(Debug, Args)]
pub struct CrdsOptions {
    /// Directory for one file per definition; it is created if missing. Default: standard output
    #[arg(long, value_name = "DIRECTORY")]
    pub out_dir: Option<PathBuf>,
}

/// Selects an installation of the operator.
#[derive(Clone, Debug, Args)]
pub struct Target {
    /// Kubeconfig file [default: KUBECONFIG, else ~/.kube/config, else the ServiceAccount of the pod]
    #[arg(long, env = "SQUELCH_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Namespace that squelch is installed in
    #[arg(long, env = "SQUELCH_INSTALL_NAMESPACE", value_name = "NAMESPACE", default_value = "squelch")]
    pub install_namespace: String,

    /// Deployment of the operator
    #[arg(long, env = "SQUELCH_DEPLOYMENT", value_name = "NAME", default_value = "squelch")]
    pub deployment: String,
}

/// Flags of `squelch uninstall`.
#[derive(Clone, Debug, Args)]
pub struct UninstallOptions {
    /// The installation.
    #[command(flatten)]
    pub target: Target,

    /// Secret of the certificate authority and the token. It is deleted
    #[arg(long, env = "SQUELCH_SECRET", value_name = "NAME", default_value = crate::SECRET)]
    pub secret: String,

    /// Maximum time for the pods to flush and terminate; longer than --shutdown-timeout of `squelch run`
    #[arg(long, env = "SQUELCH_UNINSTALL_TIMEOUT", value_name = "DURATION", default_value = "90s",
          value_parser = uninstall_timeout)]
    pub timeout: Duration,
}

/// Flags of `squelch doctor`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Exit codes: 0 no check failed; 1 a check failed; 2 wrong usage; 3 the checks could not run (no \
                        cluster, or an API server that does not answer)."
)]
pub struct DoctorOptions {
    /// The installation. Its Deployment's flags show how squelch is configured.
    #[command(flatten)]
    pub target: Target,

    /// Username of squelch's writes. Rights are checked and the probe is sent as this user [default: the ServiceAccount
    /// of the Deployment]
    #[arg(long, env = "SQUELCH_OWN_USER", value_name = "USER")]
    pub own_user: Option<String>,

    /// Secret of the certificate authority and the token [default: --secret of the Deployment, else squelch-webhook]
    #[arg(long, env = "SQUELCH_SECRET", value_name = "NAME")]
    pub secret: Option<String>,

    /// Repeat the checks each second until none fails, for at most this time, up to 10m
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = doctor_wait)]
    pub wait: Duration,

    /// Output format
    #[arg(long, short, value_enum, default_value_t = OutputFormat::Table)]
    pub output: OutputFormat,
}

#[cfg(test)]
mod tests;
