//! The command line of `squelch replay`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::output::OutputFormat;

/// The user of squelch's own writes, with the names of the chart.
pub const OWN_USER: &str = "system:serviceaccount:squelch:squelch";

/// The end of `squelch replay --help`.
const MORE: &str = "\
Examples:
  kubectl get events -A -o json | squelch replay --policy policy.yaml -A -
  squelch replay --policy policy.yaml --decisions decisions.jsonl trace.jsonl
  squelch replay --policy a.yaml --policy b.yaml -o json /var/log/kubernetes/audit.log
  squelch replay --policy new.yaml --against old.yaml audit.log

Exit codes: 0 replayed to the end; 1 a file or a policy is invalid; 2 wrong usage.
No cluster is read or written. docs/replay.md describes the input formats and the output.";

/// Flags of `squelch replay`.
#[derive(Clone, Debug, Args)]
#[command(after_help = MORE)]
pub struct Options {
    /// Recorded writes: the output of `kubectl get events -A -o json`, a trace in JSON lines, or an audit log at
    /// level RequestResponse. - is standard input
    #[arg(value_name = "FILE")]
    pub input: PathBuf,

    /// File of policies, one or more YAML documents; repeatable. - is standard input
    #[arg(long = "policy", value_name = "FILE", required = true, help_heading = "Policies")]
    pub policies: Vec<PathBuf>,

    /// File of other policies to compare with: the report has the results of both; repeatable
    #[arg(long, value_name = "FILE", conflicts_with = "decisions", help_heading = "Policies")]
    pub against: Vec<PathBuf>,

    /// Namespace of policies that name none
    #[arg(
        short,
        long,
        value_name = "NAMESPACE",
        default_value = "default",
        conflicts_with = "all_namespaces",
        help_heading = "Policies"
    )]
    pub namespace: String,

    /// Apply each EventPolicy in every namespace of the input, whatever namespace its file names
    #[arg(short = 'A', long, help_heading = "Policies")]
    pub all_namespaces: bool,

    /// Namespaces with their labels, for a ClusterEventPolicy with a namespaceSelector: the output of `kubectl get
    /// namespaces -o json`. - is standard input
    #[arg(long, value_name = "FILE", help_heading = "Policies")]
    pub namespaces: Option<PathBuf>,

    /// Replay all policies in `mode: Enforce`
    #[arg(long, help_heading = "Policies")]
    pub as_enforced: bool,

    /// Username of squelch's own writes, which are exempt
    #[arg(
        long,
        value_name = "USER",
        default_value = OWN_USER,
        help_heading = "Policies"
    )]
    pub own_user: String,

    /// Format of the input [default: detected from its content]
    #[arg(long, value_enum, help_heading = "Input")]
    pub format: Option<Format>,

    /// Behaviour of the clients of a trace or an audit log
    #[arg(long, value_enum, default_value_t = ClientBehavior::Recorded, help_heading = "Input")]
    pub clients: ClientBehavior,

    /// Skip and count entries that cannot be read. Default: the first one ends the replay
    #[arg(long, help_heading = "Input")]
    pub skip_bad: bool,

    /// Output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table, help_heading = "Output")]
    pub output: OutputFormat,

    /// File for the decision on each write, one JSON object per line
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub decisions: Option<PathBuf>,
}

/// The formats of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A List of Events, as kubectl prints it. Each Event is replayed as one write per occurrence
    List,
    /// One write per line: {"at": 12.5, "operation": "CREATE", "user": "...", "object": {...}, "oldObject": {...}}
    Trace,
    /// A Kubernetes audit log in JSON lines
    Audit,
}

impl Format {
    /// The name on the command line and in the report.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Trace => "trace",
            Self::Audit => "audit",
        }
    }
}

/// How the clients of a recording behave under the policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ClientBehavior {
    /// As recorded: each request is decided as it stands, with its recorded oldObject
    Recorded,
    /// As they would under the policies: an update is based on the count that would be stored then, and becomes a
    /// CREATE if the Event would not be stored
    Adapted,
}
