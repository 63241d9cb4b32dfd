//! The command line: every flag of `squelch run` has an environment variable, `SQUELCH_` and its name.

mod values;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use jiff::SignedDuration;

use crate::replay;
use crate::telemetry::LogFormat;

pub use values::{WebhookService, WebhookUrl};
use values::{
    bind, certificate_lifetime, clock_offset, dns_name, drain_timeout, log_level, shutdown_timeout,
    status_interval, token_lifetime, webhook_service, webhook_url,
};

/// Event policy operator for Kubernetes: folds, merges and limits Events, and counts what it held back.
#[derive(Debug, Parser)]
#[command(name = "squelch", version, about, max_term_width = 110)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the operator: watch policies, decide Event writes, pay what is owed
    Run(Box<RunOptions>),
    /// Print the CustomResourceDefinitions as YAML, or write them into a directory
    Crds(CrdsOptions),
    /// Try policies on recorded Events, without a cluster: what would be held back, and what would reach etcd
    Replay(Box<replay::Options>),
    /// End the operator of a cluster in good order, and remove what it left: what the chart does before it goes
    Drain(DrainOptions),
    /// Look at a running installation: what is wrong with it, and what to do about it
    Doctor(DoctorOptions),
}

/// Flags of `squelch crds`.
#[derive(Debug, Args)]
pub struct CrdsOptions {
    /// Directory to write one file per definition into (made if missing); without it they are printed
    #[arg(long, value_name = "DIRECTORY")]
    pub out_dir: Option<PathBuf>,
}

/// Where an operator is that runs already.
#[derive(Clone, Debug, Args)]
pub struct Place {
    /// How to reach the cluster: a kubeconfig file [default: the account of the pod, else KUBECONFIG, else
    /// ~/.kube/config]
    #[arg(long, env = "SQUELCH_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// The namespace that squelch runs in
    #[arg(long, env = "SQUELCH_NAMESPACE", value_name = "NAMESPACE", default_value = "squelch")]
    pub namespace: String,
}

/// Flags of `squelch drain`.
#[derive(Clone, Debug, Args)]
pub struct DrainOptions {
    /// Where it is.
    #[command(flatten)]
    pub place: Place,

    /// The Deployment of the operator: it is scaled to none
    #[arg(long, env = "SQUELCH_DEPLOYMENT", value_name = "NAME", default_value = "squelch")]
    pub deployment: String,

    /// The Secret of the authority and the token: it is deleted
    #[arg(long, env = "SQUELCH_SECRET", value_name = "NAME", default_value = crate::SECRET)]
    pub secret: String,

    /// How long the pods may take to pay what they owe and end; more than --shutdown-timeout of `squelch run`
    #[arg(long, env = "SQUELCH_DRAIN_TIMEOUT", value_name = "DURATION", default_value = "90s",
          value_parser = drain_timeout)]
    pub timeout: Duration,
}

/// Flags of `squelch doctor`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Exit codes: 0 no finding is an error; 1 one is; 2 it could not look: wrong flags, no cluster, \
                        or an API server that does not answer."
)]
pub struct DoctorOptions {
    /// Where it is.
    #[command(flatten)]
    pub place: Place,

    /// The Deployment of the operator, whose flags say how it is installed
    #[arg(long, env = "SQUELCH_DEPLOYMENT", value_name = "NAME", default_value = "squelch")]
    pub deployment: String,

    /// The user under which squelch writes; rights and proof are asked for as this user [default: the ServiceAccount
    /// of the Deployment]
    #[arg(long, env = "SQUELCH_OWN_USER", value_name = "USER")]
    pub own_user: Option<String>,

    /// The Secret of the authority and the token [default: what the Deployment says, else squelch-webhook]
    #[arg(long, env = "SQUELCH_SECRET", value_name = "NAME")]
    pub secret: Option<String>,

    /// How findings are printed
    #[arg(long, short, value_enum, default_value_t = DoctorOutput::Text)]
    pub output: DoctorOutput,
}

/// How findings are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DoctorOutput {
    /// A line for each
    Text,
    /// For programs
    Json,
}

/// Flags of `squelch run`. Durations are written as in policies: 30s, 1m30s, 100ms.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Durations are whole numbers with the units h, m, s, ms, such as 30s or 1m30s. \
                        A flag goes before its environment variable.")]
pub struct RunOptions {
    /// How to reach the cluster: a kubeconfig file [default: the account of the pod, else KUBECONFIG, else
    /// ~/.kube/config]
    #[arg(long, env = "SQUELCH_KUBECONFIG", value_name = "FILE", help_heading = "Cluster")]
    pub kubeconfig: Option<PathBuf>,

    /// The username under which squelch's own writes arrive [default: asked of the API server, which must agree]
    #[arg(long, env = "SQUELCH_OWN_USER", value_name = "USER", help_heading = "Cluster")]
    pub own_user: Option<String>,

    /// The namespace that squelch's Service and Secret are in [default: that of the own user, else squelch]
    #[arg(long, env = "SQUELCH_NAMESPACE", value_name = "NAME", value_parser = dns_name, help_heading = "Cluster")]
    pub namespace: Option<String>,

    /// The pod that this process runs in: of several replicas the active one's carries the label that the Service
    /// selects. Without it no pod is looked at
    #[arg(long, env = "SQUELCH_POD_NAME", value_name = "NAME", help_heading = "Cluster")]
    pub pod_name: Option<String>,

    /// The ClusterRole whose end is the end of the webhook configuration too: the one that squelch is installed with
    #[arg(long, env = "SQUELCH_OWNER_CLUSTER_ROLE", value_name = "NAME", help_heading = "Webhook")]
    pub owner_cluster_role: Option<String>,

    /// Hold writes back as the policies say; false is the break glass: the webhook's rules are taken away and
    /// every Event passes
    #[arg(
        long,
        env = "SQUELCH_ENFORCE",
        value_name = "true|false",
        default_value_t = true,
        action = clap::ArgAction::Set,
        help_heading = "Webhook"
    )]
    pub enforce: bool,

    /// Where the API server reaches the webhook of a squelch outside the cluster, such as https://127.0.0.1:9443
    #[arg(
        long,
        env = "SQUELCH_WEBHOOK_URL",
        value_name = "URL",
        value_parser = webhook_url,
        conflicts_with = "webhook_service",
        help_heading = "Webhook"
    )]
    pub webhook_url: Option<WebhookUrl>,

    /// The Service in squelch's namespace through which the API server reaches the webhook; its port is 443 unless
    /// given. This or --webhook-url is needed
    #[arg(
        long,
        env = "SQUELCH_WEBHOOK_SERVICE",
        value_name = "NAME[:PORT]",
        value_parser = webhook_service,
        help_heading = "Webhook"
    )]
    pub webhook_service: Option<WebhookService>,

    /// Address and port of the webhook (HTTPS)
    #[arg(
        long,
        env = "SQUELCH_WEBHOOK_BIND",
        value_name = "ADDRESS:PORT",
        default_value = "0.0.0.0:9443",
        value_parser = bind,
        help_heading = "Webhook"
    )]
    pub webhook_bind: SocketAddr,

    /// The Secret in squelch's namespace that keeps the certificate authority and the webhook's token, for all
    /// replicas and over restarts. Without it both live as long as the process
    #[arg(long, env = "SQUELCH_SECRET", value_name = "NAME", value_parser = dns_name, help_heading = "Certificates")]
    pub secret: Option<String>,

    /// A directory with the certificate to serve in place of squelch's own: tls.crt, tls.key and ca.crt, read again
    /// when they change
    #[arg(long, env = "SQUELCH_CERTIFICATE_DIR", value_name = "DIRECTORY", help_heading = "Certificates")]
    pub certificate_dir: Option<PathBuf>,

    /// Authorities (PEM) of the callers' certificates: who connects to the webhook without a certificate of theirs is
    /// turned away. Read again when the file changes. The API server has to be told which certificate to show
    #[arg(long, env = "SQUELCH_CLIENT_CA", value_name = "FILE", help_heading = "Certificates")]
    pub client_ca: Option<PathBuf>,

    /// A common name or alternative name of the certificate that callers show; repeatable. Without it any name that
    /// --client-ca has signed will do
    #[arg(
        long,
        env = "SQUELCH_CLIENT_SUBJECT",
        value_name = "NAME",
        value_delimiter = ',',
        requires = "client_ca",
        help_heading = "Certificates"
    )]
    pub client_subject: Vec<String>,

    /// How long a certificate of squelch's own is valid, from 5s to 87600h (10 years). It is renewed after two
    /// thirds; its authority, which lasts three times as long, after two thirds of that
    #[arg(
        long,
        env = "SQUELCH_CERTIFICATE_LIFETIME",
        value_name = "DURATION",
        default_value = "2160h",
        value_parser = certificate_lifetime,
        help_heading = "Certificates"
    )]
    pub certificate_lifetime: Duration,

    /// How long the token in the webhook's path lasts, from 1m to 168h (7 days), at most as long as the authority. It is
    /// renewed after two thirds, and after calls of the webhook have failed, which the API server logs with the token
    #[arg(
        long,
        env = "SQUELCH_TOKEN_LIFETIME",
        value_name = "DURATION",
        default_value = "1h",
        value_parser = token_lifetime,
        help_heading = "Certificates"
    )]
    pub token_lifetime: Duration,

    /// For tests: the clock by which certificates are made is so much ahead, or behind if below zero
    #[arg(
        long,
        env = "SQUELCH_CLOCK_OFFSET",
        value_name = "DURATION",
        default_value = "0s",
        value_parser = clock_offset,
        allow_hyphen_values = true,
        hide = true
    )]
    pub clock_offset: SignedDuration,

    /// Address and port of /metrics, /livez and /readyz (plain HTTP)
    #[arg(
        long,
        env = "SQUELCH_HTTP_BIND",
        value_name = "ADDRESS:PORT",
        default_value = "0.0.0.0:8080",
        value_parser = bind,
        help_heading = "Telemetry"
    )]
    pub http_bind: SocketAddr,

    /// How log lines are written
    #[arg(long, env = "SQUELCH_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text, help_heading = "Telemetry")]
    pub log_format: LogFormat,

    /// Which log lines are written: error, warn, info, debug, trace, or directives such as info,squelch=debug
    #[arg(
        long,
        env = "SQUELCH_LOG_LEVEL",
        value_name = "LEVEL",
        default_value = "info",
        value_parser = log_level,
        help_heading = "Telemetry"
    )]
    pub log_level: String,

    /// Least time between two writes of one policy's counters, from 1s to 1h
    #[arg(
        long,
        env = "SQUELCH_STATUS_INTERVAL",
        value_name = "DURATION",
        default_value = "10s",
        value_parser = status_interval,
        help_heading = "Limits"
    )]
    pub status_interval: Duration,

    /// Most status writes a second, all policies together, from 1 to 1000
    #[arg(
        long,
        env = "SQUELCH_STATUS_QPS",
        value_name = "NUMBER",
        default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..=1_000),
        help_heading = "Limits"
    )]
    pub status_qps: u32,

    /// Most looks at stored Events a second that pay what is owed, each a read and at most one write, from 1 to 10000
    #[arg(
        long,
        env = "SQUELCH_FLUSH_QPS",
        value_name = "NUMBER",
        default_value_t = 20,
        value_parser = clap::value_parser!(u32).range(1..=10_000),
        help_heading = "Limits"
    )]
    pub flush_qps: u32,

    /// The same while squelch shuts down, from 1 to 10000
    #[arg(
        long,
        env = "SQUELCH_SHUTDOWN_FLUSH_QPS",
        value_name = "NUMBER",
        default_value_t = 500,
        value_parser = clap::value_parser!(u32).range(1..=10_000),
        help_heading = "Limits"
    )]
    pub shutdown_flush_qps: u32,

    /// How long a shutdown may take to pay what is owed, from 0s to 1h; what is left is counted as lost
    #[arg(
        long,
        env = "SQUELCH_SHUTDOWN_TIMEOUT",
        value_name = "DURATION",
        default_value = "30s",
        value_parser = shutdown_timeout,
        help_heading = "Limits"
    )]
    pub shutdown_timeout: Duration,

    /// Most series that owe something to their stored Events, from 1 to 100000000. While so many do, a write that would
    /// make one more owe goes through in place of being folded
    #[arg(
        long,
        env = "SQUELCH_MAX_OWING",
        value_name = "NUMBER",
        default_value_t = 100_000,
        value_parser = clap::value_parser!(u32).range(1..=100_000_000),
        help_heading = "Limits"
    )]
    pub max_owing: u32,

    /// Most live series in all, from 1000 to 100000000; as many names are remembered beyond them. A million of
    /// both take up to 320 MiB of memory
    #[arg(
        long,
        env = "SQUELCH_MAX_SERIES",
        value_name = "NUMBER",
        default_value_t = 1_000_000,
        value_parser = clap::value_parser!(u32).range(1_000..=100_000_000),
        help_heading = "Limits"
    )]
    pub max_series: u32,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn run(flags: &[&str]) -> Result<RunOptions, String> {
        let words = ["squelch", "run"].iter().chain(flags);
        match Cli::try_parse_from(words).map_err(|error| error.to_string())?.command {
            Command::Run(options) => Ok(*options),
            _ => unreachable!("run was asked for"),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_defaults_are_those_of_the_contract() {
        let options = run(&[]).unwrap();
        assert!(options.enforce);
        assert_eq!(options.webhook_url, None);
        assert_eq!(options.webhook_bind.to_string(), "0.0.0.0:9443");
        assert_eq!(options.http_bind.to_string(), "0.0.0.0:8080");
        assert_eq!(options.status_interval, Duration::from_secs(10));
        assert_eq!((options.namespace, options.webhook_service, options.secret), (None, None, None));
        assert_eq!(options.certificate_lifetime, Duration::from_secs(90 * 24 * 3600));
        assert_eq!(options.token_lifetime, Duration::from_secs(3600));
        assert_eq!((options.certificate_dir, options.clock_offset), (None, SignedDuration::ZERO));
        assert_eq!((options.status_qps, options.flush_qps, options.shutdown_flush_qps), (5, 20, 500));
        assert_eq!(options.shutdown_timeout, Duration::from_secs(30));
        assert_eq!((options.max_series, options.max_owing), (1_000_000, 100_000));
        assert_eq!((options.log_format, options.log_level.as_str()), (LogFormat::Text, "info"));
    }

    #[test]
    fn subjects_need_an_authority() {
        assert!(run(&["--client-subject=kube-apiserver"]).unwrap_err().contains("--client-ca"));
        let options = run(&["--client-ca=ca.crt", "--client-subject=a,b", "--client-subject=c"]).unwrap();
        assert_eq!(options.client_subject, ["a", "b", "c"]);
        assert_eq!(run(&[]).unwrap().client_ca, None);
    }

    #[test]
    fn every_flag_of_run_is_documented_and_has_its_variable() {
        let command = Cli::command();
        let run = command.find_subcommand("run").unwrap();
        for flag in run.get_arguments().filter(|flag| flag.get_id() != "help") {
            let long = flag.get_long().unwrap();
            let variable = format!("SQUELCH_{}", long.replace('-', "_").to_uppercase());
            assert_eq!(flag.get_env().unwrap().to_str(), Some(&*variable));
            assert!(flag.get_help().is_some(), "--{long}");
        }
    }

    #[test]
    fn a_webhook_url_has_no_path_and_is_kept_without_a_slash() {
        for (text, expected) in [
            ("https://127.0.0.1:9443", "https://127.0.0.1:9443"),
            ("https://squelch.example/", "https://squelch.example"),
            ("https://[::1]:9443", "https://[::1]:9443"),
        ] {
            assert_eq!(run(&["--webhook-url", text]).unwrap().webhook_url.unwrap().as_str(), expected);
        }
    }

    #[test]
    fn a_wrong_flag_is_answered_with_a_right_one() {
        for (flag, value, expected) in [
            ("--namespace", "Squelch", "lower case letters, digits and dashes"),
            ("--secret", "-a", "lower case letters, digits and dashes"),
            ("--webhook-service", "squelch:0", "such as squelch or squelch:443"),
            ("--webhook-service", "squelch.squelch.svc", "such as squelch or squelch:443"),
            ("--certificate-lifetime", "1s", "between 5s and 87600h, such as 2160h"),
            ("--certificate-lifetime", "87601h", "between 5s and 87600h, such as 2160h"),
            ("--token-lifetime", "30s", "between 1m and 168h, such as 1h"),
            ("--token-lifetime", "169h", "between 1m and 168h, such as 1h"),
            ("--clock-offset", "-400d", "such as 6m or 1h30m"),
            ("--webhook-url", "http://127.0.0.1:9443", "https only"),
            ("--webhook-url", "https://127.0.0.1:9443/events", "chooses the path itself"),
            ("--webhook-url", "https://127.0.0.1:9443?x=1", "chooses the path itself"),
            ("--webhook-url", "https://me@127.0.0.1:9443", "with a user"),
            ("--webhook-url", "127.0.0.1:9443", "such as https://127.0.0.1:9443"),
            ("--webhook-url", "https://", "such as https://127.0.0.1:9443"),
            ("--webhook-bind", ":9443", "such as 0.0.0.0:8080"),
            ("--status-interval", "10", "such as 6m or 1h30m"),
            ("--status-interval", "0s", "between 1s and 1h, such as 10s"),
            ("--shutdown-timeout", "2h", "between 0s and 1h, such as 30s"),
            ("--status-qps", "0", "1..=1000"),
            ("--max-series", "1", "1000..=100000000"),
            ("--log-format", "xml", "possible values: text, json"),
            ("--log-level", "squelch=loud", "such as info,squelch=debug"),
            ("--enforce", "maybe", "possible values: true, false"),
        ] {
            let answer = run(&[&format!("{flag}={value}")]).unwrap_err();
            assert!(answer.contains(expected) && answer.contains(flag), "{flag} {value}: {answer}");
        }
    }

    #[test]
    fn the_webhook_is_reached_one_way() {
        let service = |text| run(&["--webhook-service", text]).unwrap().webhook_service.unwrap();
        assert_eq!(service("squelch"), WebhookService { name: "squelch".to_owned(), port: 443 });
        assert_eq!(service("squelch:9443").port, 9443);
        let both =
            run(&["--webhook-service", "squelch", "--webhook-url", "https://127.0.0.1:1"]).unwrap_err();
        assert!(both.contains("cannot be used with"), "{both}");
    }

    #[test]
    fn a_clock_may_be_ahead_or_behind() {
        let offset = |text| run(&["--clock-offset", text]).unwrap().clock_offset;
        assert_eq!(offset("9600h"), SignedDuration::from_hours(9600));
        assert_eq!(offset("-9600h"), SignedDuration::from_hours(-9600));
    }
}
