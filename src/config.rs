//! The command line: every flag of `squelch run` has an environment variable, `SQUELCH_` and its name.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use hyper::Uri;

use crate::api::parse_duration;
use crate::replay;
use crate::telemetry::LogFormat;

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
}

/// Flags of `squelch crds`.
#[derive(Debug, Args)]
pub struct CrdsOptions {
    /// Directory to write one file per definition into (made if missing); without it they are printed
    #[arg(long, value_name = "DIRECTORY")]
    pub out_dir: Option<PathBuf>,
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
    #[arg(long, env = "SQUELCH_WEBHOOK_URL", value_name = "URL", value_parser = webhook_url, help_heading = "Webhook")]
    pub webhook_url: Option<WebhookUrl>,

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

/// `--webhook-url`: https, a host, perhaps a port, no path; without a slash at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookUrl(String);

impl WebhookUrl {
    /// The URL, such as `https://127.0.0.1:9443`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its host, a name or an IP address, without the brackets of IPv6: what the certificate is for.
    pub fn host(&self) -> &str {
        let authority = self.0.trim_start_matches("https://");
        let host = authority
            .rsplit_once(':')
            .filter(|(_, port)| !port.ends_with(']'))
            .map_or(authority, |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']')
    }
}

impl fmt::Display for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn webhook_url(text: &str) -> Result<WebhookUrl, String> {
    let refuse = |what: &str| format!("{what}; write scheme, host and port, such as https://127.0.0.1:9443");
    let url: Uri = text.parse().map_err(|_| refuse("this is no URL"))?;
    if url.scheme_str() != Some("https") {
        return Err(refuse("the API server calls webhooks by https only"));
    }
    let authority = url.authority().filter(|authority| !authority.host().is_empty());
    let authority = authority.ok_or_else(|| refuse("the host is missing"))?;
    if authority.as_str().contains('@') {
        return Err(refuse("the API server refuses a webhook URL with a user"));
    }
    if url.path() != "/" || url.query().is_some() || text.contains('#') {
        return Err(refuse("squelch chooses the path itself"));
    }
    Ok(WebhookUrl(format!("https://{authority}")))
}

fn bind(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "write an IP address and a port, such as 0.0.0.0:8080 or [::]:8080".to_owned())
}

fn log_level(text: &str) -> Result<String, String> {
    match tracing_subscriber::EnvFilter::try_new(text) {
        Ok(_) if !text.trim().is_empty() => Ok(text.to_owned()),
        _ => {
            Err("write error, warn, info, debug or trace, or directives such as info,squelch=debug"
                .to_owned())
        }
    }
}

fn status_interval(text: &str) -> Result<Duration, String> {
    duration(text, "1s", "1h", "10s")
}

fn shutdown_timeout(text: &str) -> Result<Duration, String> {
    duration(text, "0s", "1h", "30s")
}

fn duration(text: &str, least: &str, most: &str, example: &str) -> Result<Duration, String> {
    let found = parse_duration(text).map_err(|bad| format!("the duration {bad}"))?;
    let limit = |text| parse_duration(text).expect("limits are constants that a test parses");
    if found < limit(least) || found > limit(most) {
        return Err(format!("the duration must be between {least} and {most}, such as {example}"));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn run(flags: &[&str]) -> Result<RunOptions, String> {
        let words = ["squelch", "run"].iter().chain(flags);
        match Cli::try_parse_from(words).map_err(|error| error.to_string())?.command {
            Command::Run(options) => Ok(*options),
            Command::Crds(_) | Command::Replay(_) => unreachable!("run was asked for"),
        }
    }

    #[test]
    fn the_certificate_is_for_the_host_alone() {
        let hosts = [
            "https://h.example",
            "https://h.example:9443",
            "https://127.0.0.1:1",
            "https://[::1]:1",
            "https://[::1]",
        ];
        let hosts = hosts.map(|url| webhook_url(url).unwrap().host().to_owned());
        assert_eq!(hosts, ["h.example", "h.example", "127.0.0.1", "::1", "::1"]);
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
        assert_eq!((options.status_qps, options.flush_qps, options.shutdown_flush_qps), (5, 20, 500));
        assert_eq!(options.shutdown_timeout, Duration::from_secs(30));
        assert_eq!((options.max_series, options.max_owing), (1_000_000, 100_000));
        assert_eq!((options.log_format, options.log_level.as_str()), (LogFormat::Text, "info"));
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
            let answer = run(&[flag, value]).unwrap_err();
            assert!(answer.contains(expected) && answer.contains(flag), "{flag} {value}: {answer}");
        }
    }
}
