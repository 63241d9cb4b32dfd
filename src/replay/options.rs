//! The command line of `squelch replay`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// What `squelch replay --help` says behind the flags.
const MORE: &str = "\
Examples:
  kubectl get events -A -o json | squelch replay --policy policy.yaml -A -
  squelch replay --policy policy.yaml --decisions decisions.jsonl trace.jsonl
  squelch replay --policy a.yaml --policy b.yaml -o json /var/log/kubernetes/audit.log

Exit codes: 0, replayed to the end; 1, a file or a policy cannot be used, with a sentence that says why; 2, a flag
is wrong. Nothing is read from a cluster, and nothing is written to one. docs/replay.md tells the formats.";

/// Flags of `squelch replay`.
#[derive(Clone, Debug, Args)]
#[command(after_help = MORE)]
pub struct Options {
    /// The writes: what `kubectl get events -A -o json` prints, a trace in JSON lines, or an audit log at level
    /// RequestResponse. - is standard input
    #[arg(value_name = "FILE")]
    pub input: PathBuf,

    /// A file with policies, in one YAML document or several; give it again for more files. - is standard input
    #[arg(long = "policy", value_name = "FILE", required = true, help_heading = "Policies")]
    pub policies: Vec<PathBuf>,

    /// The namespace of policies that name none
    #[arg(
        short,
        long,
        value_name = "NAMESPACE",
        default_value = "default",
        conflicts_with = "all_namespaces",
        help_heading = "Policies"
    )]
    pub namespace: String,

    /// Try every EventPolicy in each namespace of the input, wherever its file says that it stands
    #[arg(short = 'A', long, help_heading = "Policies")]
    pub all_namespaces: bool,

    /// The namespaces with their labels, for a ClusterEventPolicy that asks for labels: what `kubectl get namespaces -o
    /// json` prints. - is standard input
    #[arg(long, value_name = "FILE", help_heading = "Policies")]
    pub namespaces: Option<PathBuf>,

    /// Decide as if every policy said `mode: Enforce`
    #[arg(long, help_heading = "Policies")]
    pub as_enforced: bool,

    /// The username of squelch's own writes, which pass
    #[arg(
        long,
        value_name = "USER",
        default_value = "system:serviceaccount:squelch:squelch",
        help_heading = "Policies"
    )]
    pub own_user: String,

    /// What the input is [default: told from its content]
    #[arg(long, value_enum, help_heading = "Input")]
    pub format: Option<Format>,

    /// How the clients of a trace or an audit log write
    #[arg(long, value_enum, default_value_t = Clients::Recorded, help_heading = "Input")]
    pub clients: Clients,

    /// Leave lines out that cannot be read, and count them
    #[arg(long, help_heading = "Input")]
    pub skip_bad: bool,

    /// How the result is printed
    #[arg(short, long, value_enum, default_value_t = Output::Table, help_heading = "Output")]
    pub output: Output,

    /// Write the decision on each write into this file, one JSON object a line
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub decisions: Option<PathBuf>,
}

/// What an input can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A List of Events, as kubectl prints it: each is unfolded into its occurrences
    List,
    /// One write a line: {"at": 12.5, "operation": "CREATE", "user": "...", "object": {...}, "oldObject": {...}}
    Trace,
    /// A Kubernetes audit log in JSON lines
    Audit,
}

impl Format {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Trace => "trace",
            Self::Audit => "audit",
        }
    }
}

/// How clients write that lived without the policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Clients {
    /// As they did: the decisions are those of the webhook for these very requests, over the oldObject recorded
    Recorded,
    /// As they would have under the policies: over what would be stored then, creating an Event that is not
    Adapted,
}

/// How the result is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people
    Table,
    /// For programs
    Json,
}
