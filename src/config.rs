//! The command line. Every flag of `squelch run` has an environment variable: `SQUELCH_` and its name.

mod values;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use jiff::SignedDuration;

use crate::output::OutputFormat;
use crate::replay;
use crate::telemetry::LogFormat;

pub use values::{WebhookService, WebhookUrl};
use values::{
    annotation, bind, certificate_lifetime, clock_offset, dns_name, label, log_level, shutdown_timeout,
    status_interval, token_lifetime, uninstall_timeout, webhook_service, webhook_url,
};

/// Event policy operator for Kubernetes: compacts, aggregates and limits Events, and counts what it suppresses.
#[derive(Debug, Parser)]
#[command(name = "squelch", version, about, max_term_width = 110)]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the operator: watch policies, decide Event writes, flush pending occurrences
    Run(Box<RunOptions>),
    /// Print the CustomResourceDefinitions as YAML, or write them to a directory
    Crds(CrdsOptions),
    /// Try policies on recorded Events, without a cluster: shows what they would suppress, and what would reach etcd
    Replay(Box<replay::Options>),
    /// Stop the operator, wait until it has flushed, and delete its webhook configuration and its Secret. The chart
    /// runs this before it is deleted
    Uninstall(UninstallOptions),
    /// Check a running installation: what is wrong, and how to repair it
    Doctor(DoctorOptions),
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
    /// Kubeconfig file [default: the ServiceAccount of the pod, else KUBECONFIG, else ~/.kube/config]
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

    /// Output format
    #[arg(long, short, value_enum, default_value_t = OutputFormat::Table)]
    pub output: OutputFormat,
}

/// Flags of `squelch run`. Durations have the format of policies: 30s, 1m30s, 100ms.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Durations are whole numbers with the units h, m, s, ms, such as 30s or 1m30s. \
                        A flag overrides its environment variable.")]
pub struct RunOptions {
    /// Kubeconfig file [default: the ServiceAccount of the pod, else KUBECONFIG, else ~/.kube/config]
    #[arg(long, env = "SQUELCH_KUBECONFIG", value_name = "FILE", help_heading = "Cluster")]
    pub kubeconfig: Option<PathBuf>,

    /// Username of squelch's own writes. It must be the one that the API server knows [default: read from the API server]
    #[arg(long, env = "SQUELCH_OWN_USER", value_name = "USER", help_heading = "Cluster")]
    pub own_user: Option<String>,

    /// Namespace of squelch's Service and Secret [default: the namespace of the ServiceAccount, else squelch]
    #[arg(
        long,
        env = "SQUELCH_INSTALL_NAMESPACE",
        value_name = "NAMESPACE",
        value_parser = dns_name,
        help_heading = "Cluster"
    )]
    pub install_namespace: Option<String>,

    /// Pod of this process. The active replica labels its pod, and the Service selects that label. Without this flag no
    /// pod is read or labelled
    #[arg(long, env = "SQUELCH_POD_NAME", value_name = "NAME", help_heading = "Cluster")]
    pub pod_name: Option<String>,

    /// ClusterRole that owns the webhook configuration: the configuration is garbage-collected with it
    #[arg(long, env = "SQUELCH_OWNER_CLUSTER_ROLE", value_name = "NAME", help_heading = "Webhook")]
    pub owner_cluster_role: Option<String>,

    /// Label of the webhook configuration. Repeatable
    #[arg(
        long,
        env = "SQUELCH_WEBHOOK_LABEL",
        value_name = "KEY=VALUE",
        value_parser = label,
        help_heading = "Webhook"
    )]
    pub webhook_label: Vec<(String, String)>,

    /// Annotation of the webhook configuration, for platforms that read one there. Repeatable
    #[arg(
        long,
        env = "SQUELCH_WEBHOOK_ANNOTATION",
        value_name = "KEY=VALUE",
        value_parser = annotation,
        help_heading = "Webhook"
    )]
    pub webhook_annotation: Vec<(String, String)>,

    /// Break glass: remove the webhook's rules, so that every Event is stored as written
    #[arg(
        long,
        env = "SQUELCH_DISARM",
        value_name = "true|false",
        default_value_t = false,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        action = clap::ArgAction::Set,
        help_heading = "Webhook"
    )]
    pub disarm: bool,

    /// URL of the webhook for a squelch outside the cluster, such as https://127.0.0.1:9443
    #[arg(
        long,
        env = "SQUELCH_WEBHOOK_URL",
        value_name = "URL",
        value_parser = webhook_url,
        conflicts_with = "webhook_service",
        help_heading = "Webhook"
    )]
    pub webhook_url: Option<WebhookUrl>,

    /// Service in squelch's namespace through which the API server reaches the webhook. Default port: 443. Either this
    /// or --webhook-url is required
    #[arg(
        long,
        env = "SQUELCH_WEBHOOK_SERVICE",
        value_name = "NAME[:PORT]",
        value_parser = webhook_service,
        help_heading = "Webhook"
    )]
    pub webhook_service: Option<WebhookService>,

    /// Bind address of the webhook (HTTPS)
    #[arg(
        long,
        env = "SQUELCH_WEBHOOK_BIND_ADDRESS",
        value_name = "ADDRESS:PORT",
        default_value = "0.0.0.0:9443",
        value_parser = bind,
        help_heading = "Webhook"
    )]
    pub webhook_bind_address: SocketAddr,

    /// Secret in squelch's namespace that stores the certificate authority and the webhook's token for all replicas.
    /// Without it both last as long as the process
    #[arg(long, env = "SQUELCH_SECRET", value_name = "NAME", value_parser = dns_name, help_heading = "Certificates")]
    pub secret: Option<String>,

    /// Directory of the served certificate: tls.crt, tls.key and ca.crt, reloaded when they change. It replaces squelch's
    /// own certificate
    #[arg(long, env = "SQUELCH_CERT_DIR", value_name = "DIRECTORY", help_heading = "Certificates")]
    pub cert_dir: Option<PathBuf>,

    /// PEM file of certificate authorities. Clients of the webhook must present a certificate that one of them signed. The
    /// file is reloaded when it changes. The API server must be configured to present such a certificate
    #[arg(long, env = "SQUELCH_CLIENT_CA_FILE", value_name = "FILE", help_heading = "Certificates")]
    pub client_ca_file: Option<PathBuf>,

    /// Accepted common name or subject alternative name of the client certificate; repeatable. Default: any name that
    /// --client-ca-file has signed
    #[arg(
        long,
        env = "SQUELCH_CLIENT_SUBJECT",
        value_name = "NAME",
        value_delimiter = ',',
        requires = "client_ca_file",
        help_heading = "Certificates"
    )]
    pub client_subject: Vec<String>,

    /// Lifetime of squelch's own certificate, from 5s to 87600h (10 years). It is renewed after two thirds. Its authority
    /// lasts three times as long, and is renewed after two thirds of that
    #[arg(
        long,
        env = "SQUELCH_CERTIFICATE_LIFETIME",
        value_name = "DURATION",
        default_value = "2160h",
        value_parser = certificate_lifetime,
        help_heading = "Certificates"
    )]
    pub certificate_lifetime: Duration,

    /// Lifetime of the token in the webhook's path, from 1m to 168h (7 days), at most that of the authority. It is renewed
    /// after two thirds, and after failed calls of the webhook, since the API server logs them with the token
    #[arg(
        long,
        env = "SQUELCH_TOKEN_LIFETIME",
        value_name = "DURATION",
        default_value = "1h",
        value_parser = token_lifetime,
        help_heading = "Certificates"
    )]
    pub token_lifetime: Duration,

    /// For tests: offset of the clock that certificates are issued by
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

    /// Bind address of /metrics, /livez and /readyz (plain HTTP)
    #[arg(
        long,
        env = "SQUELCH_HTTP_BIND_ADDRESS",
        value_name = "ADDRESS:PORT",
        default_value = "0.0.0.0:8080",
        value_parser = bind,
        help_heading = "Telemetry"
    )]
    pub http_bind_address: SocketAddr,

    /// Log format
    #[arg(long, env = "SQUELCH_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text, help_heading = "Telemetry")]
    pub log_format: LogFormat,

    /// Log level: error, warn, info, debug, trace, or directives such as info,squelch=debug
    #[arg(
        long,
        env = "SQUELCH_LOG_LEVEL",
        value_name = "LEVEL",
        default_value = "info",
        value_parser = log_level,
        help_heading = "Telemetry"
    )]
    pub log_level: String,

    /// Minimum time between two status writes of one policy, from 1s to 1h
    #[arg(
        long,
        env = "SQUELCH_STATUS_INTERVAL",
        value_name = "DURATION",
        default_value = "10s",
        value_parser = status_interval,
        help_heading = "Limits"
    )]
    pub status_interval: Duration,

    /// Maximum status writes per second, all policies together, from 1 to 1000
    #[arg(
        long,
        env = "SQUELCH_STATUS_QPS",
        value_name = "NUMBER",
        default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..=1_000),
        help_heading = "Limits"
    )]
    pub status_qps: u32,

    /// Maximum flushes per second, from 1 to 10000. One flush is one read and at most one write of a stored Event
    #[arg(
        long,
        env = "SQUELCH_FLUSH_QPS",
        value_name = "NUMBER",
        default_value_t = 20,
        value_parser = clap::value_parser!(u32).range(1..=10_000),
        help_heading = "Limits"
    )]
    pub flush_qps: u32,

    /// Maximum flushes per second during shutdown, from 1 to 10000
    #[arg(
        long,
        env = "SQUELCH_SHUTDOWN_FLUSH_QPS",
        value_name = "NUMBER",
        default_value_t = 500,
        value_parser = clap::value_parser!(u32).range(1..=10_000),
        help_heading = "Limits"
    )]
    pub shutdown_flush_qps: u32,

    /// Maximum time to flush during shutdown, from 0s to 1h. Occurrences that are still pending then are counted as lost
    #[arg(
        long,
        env = "SQUELCH_SHUTDOWN_TIMEOUT",
        value_name = "DURATION",
        default_value = "30s",
        value_parser = shutdown_timeout,
        help_heading = "Limits"
    )]
    pub shutdown_timeout: Duration,

    /// Maximum series with pending occurrences, from 1 to 100000000. At the limit, a write that would add one is admitted
    /// instead of merged
    #[arg(
        long,
        env = "SQUELCH_MAX_PENDING_SERIES",
        value_name = "NUMBER",
        default_value_t = 100_000,
        value_parser = clap::value_parser!(u32).range(1..=100_000_000),
        help_heading = "Limits"
    )]
    pub max_pending_series: u32,

    /// Maximum live series, from 1000 to 100000000. The same number of further Event names is remembered. One million
    /// takes up to 320 MiB of memory
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
            _ => unreachable!("the arguments begin with run"),
        }
    }

    #[test]
    fn the_command_line_definition_is_valid() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_defaults_are_as_documented() {
        let options = run(&[]).unwrap();
        assert!(!options.disarm);
        assert_eq!(options.webhook_url, None);
        assert_eq!(options.webhook_bind_address.to_string(), "0.0.0.0:9443");
        assert_eq!(options.http_bind_address.to_string(), "0.0.0.0:8080");
        assert_eq!(options.status_interval, Duration::from_secs(10));
        assert_eq!((options.install_namespace, options.webhook_service, options.secret), (None, None, None));
        assert_eq!(options.certificate_lifetime, Duration::from_secs(90 * 24 * 3600));
        assert_eq!(options.token_lifetime, Duration::from_secs(3600));
        assert_eq!((options.cert_dir, options.clock_offset), (None, SignedDuration::ZERO));
        assert_eq!((options.status_qps, options.flush_qps, options.shutdown_flush_qps), (5, 20, 500));
        assert_eq!(options.shutdown_timeout, Duration::from_secs(30));
        assert_eq!((options.max_series, options.max_pending_series), (1_000_000, 100_000));
        assert_eq!((options.log_format, options.log_level.as_str()), (LogFormat::Text, "info"));
    }

    #[test]
    fn disarm_is_a_switch_that_can_be_set_to_false() {
        assert!(run(&["--disarm"]).unwrap().disarm && run(&["--disarm=true"]).unwrap().disarm);
        assert!(!run(&["--disarm=false"]).unwrap().disarm);
        assert!(run(&["--disarm", "--secret=keys"]).unwrap().disarm);
    }

    #[test]
    fn labels_and_annotations_of_the_webhook_configuration_are_repeatable() {
        let options =
            run(&["--webhook-annotation=admissions.enforcer/disabled=true", "--webhook-annotation=a=b=c, d"]);
        let expected = [("admissions.enforcer/disabled", "true"), ("a", "b=c, d")];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(options.unwrap().webhook_annotation, expected);
        assert_eq!(
            run(&["--webhook-label=team="]).unwrap().webhook_label,
            [("team".to_owned(), String::new())]
        );
    }

    #[test]
    fn client_subjects_require_a_client_ca_file() {
        assert!(run(&["--client-subject=kube-apiserver"]).unwrap_err().contains("--client-ca-file"));
        let options =
            run(&["--client-ca-file=ca.crt", "--client-subject=a,b", "--client-subject=c"]).unwrap();
        assert_eq!(options.client_subject, ["a", "b", "c"]);
        assert_eq!(run(&[]).unwrap().client_ca_file, None);
    }

    #[test]
    fn every_flag_of_run_has_a_help_text_and_a_variable() {
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
    fn a_webhook_url_has_no_path_and_loses_its_trailing_slash() {
        for (text, expected) in [
            ("https://127.0.0.1:9443", "https://127.0.0.1:9443"),
            ("https://squelch.example/", "https://squelch.example"),
            ("https://[::1]:9443", "https://[::1]:9443"),
        ] {
            assert_eq!(run(&["--webhook-url", text]).unwrap().webhook_url.unwrap().as_str(), expected);
        }
    }

    #[test]
    fn an_invalid_value_is_refused_with_a_valid_example() {
        for (flag, value, expected) in [
            ("--install-namespace", "Squelch", "lower case letters, digits and dashes"),
            ("--secret", "-a", "lower case letters, digits and dashes"),
            ("--webhook-service", "squelch:0", "such as squelch or squelch:443"),
            ("--webhook-service", "squelch.squelch.svc", "such as squelch or squelch:443"),
            ("--certificate-lifetime", "1s", "between 5s and 87600h, such as 2160h"),
            ("--certificate-lifetime", "87601h", "between 5s and 87600h, such as 2160h"),
            ("--token-lifetime", "30s", "between 1m and 168h, such as 1h"),
            ("--token-lifetime", "169h", "between 1m and 168h, such as 1h"),
            ("--clock-offset", "-400d", "such as 6m or 1h30m"),
            ("--webhook-label", "team", "must be KEY=VALUE, such as example.com/team=platform"),
            ("--webhook-label", "team=a b", "at most 63 letters, digits"),
            ("--webhook-annotation", "a/b/c=d", "KEY must be a name with an optional domain"),
            ("--webhook-annotation", "squelch.dev/disarm=x", "reserved for squelch itself"),
            ("--webhook-url", "http://127.0.0.1:9443", "https only"),
            ("--webhook-url", "https://127.0.0.1:9443/events", "chooses the path itself"),
            ("--webhook-url", "https://127.0.0.1:9443?x=1", "chooses the path itself"),
            ("--webhook-url", "https://me@127.0.0.1:9443", "with a user"),
            ("--webhook-url", "127.0.0.1:9443", "such as https://127.0.0.1:9443"),
            ("--webhook-url", "https://", "such as https://127.0.0.1:9443"),
            ("--webhook-bind-address", ":9443", "such as 0.0.0.0:8080"),
            ("--status-interval", "10", "such as 6m or 1h30m"),
            ("--status-interval", "0s", "between 1s and 1h, such as 10s"),
            ("--shutdown-timeout", "2h", "between 0s and 1h, such as 30s"),
            ("--status-qps", "0", "1..=1000"),
            ("--max-series", "1", "1000..=100000000"),
            ("--log-format", "xml", "possible values: text, json"),
            ("--log-level", "squelch=loud", "such as info,squelch=debug"),
            ("--disarm", "maybe", "possible values: true, false"),
        ] {
            let answer = run(&[&format!("{flag}={value}")]).unwrap_err();
            assert!(answer.contains(expected) && answer.contains(flag), "{flag} {value}: {answer}");
        }
    }

    #[test]
    fn webhook_service_and_webhook_url_exclude_each_other() {
        let service = |text| run(&["--webhook-service", text]).unwrap().webhook_service.unwrap();
        assert_eq!(service("squelch"), WebhookService { name: "squelch".to_owned(), port: 443 });
        assert_eq!(service("squelch:9443").port, 9443);
        let both =
            run(&["--webhook-service", "squelch", "--webhook-url", "https://127.0.0.1:1"]).unwrap_err();
        assert!(both.contains("cannot be used with"), "{both}");
    }

    #[test]
    fn a_clock_offset_may_be_negative() {
        let offset = |text| run(&["--clock-offset", text]).unwrap().clock_offset;
        assert_eq!(offset("9600h"), SignedDuration::from_hours(9600));
        assert_eq!(offset("-9600h"), SignedDuration::from_hours(-9600));
    }
}
