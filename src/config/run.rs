//! The flags of `squelch run`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use hyper::Uri;
use jiff::SignedDuration;

use super::values::{
    CollectorHeader, LastTimestamp, WebhookService, WebhookUrl, annotation, bind, certificate_lifetime,
    clock_offset, collector_url, dns_name, label, log_level, receipt_interval, report_interval,
    shutdown_timeout, status_interval, token_lifetime, webhook_service, webhook_url,
};
use crate::telemetry::LogFormat;

/// Flags of `squelch run`. Durations have the format of policies: 30s, 1m30s, 100ms.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Durations are whole numbers with the units h, m, s, ms, such as 30s or 1m30s. \
                        A flag overrides its environment variable.")]
pub struct RunOptions {
    /// Kubeconfig file [default: KUBECONFIG, else ~/.kube/config, else the ServiceAccount of the pod]
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

    /// Minimum time between two writes of the EventDropReport of one namespace, from 1s to 1h
    #[arg(
        long,
        env = "SQUELCH_REPORT_INTERVAL",
        value_name = "DURATION",
        default_value = "30s",
        value_parser = report_interval,
        help_heading = "Limits"
    )]
    pub report_interval: Duration,

    /// Minimum time between two updates of the Event EventsDropped of one policy in one namespace, from 0s to 24h; 0s: no
    /// such Events
    #[arg(
        long,
        env = "SQUELCH_RECEIPT_INTERVAL",
        value_name = "DURATION",
        default_value = "10m",
        value_parser = receipt_interval,
        help_heading = "Limits"
    )]
    pub receipt_interval: Duration,

    /// Maximum writes of EventDropReports and EventsDropped Events per second, all namespaces together, from 1 to 1000
    #[arg(
        long,
        env = "SQUELCH_REPORT_QPS",
        value_name = "NUMBER",
        default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..=1_000),
        help_heading = "Limits"
    )]
    pub report_qps: u32,

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

    /// The time that a flush stores in `lastTimestamp` of Events that count in `count`: of the last occurrence, which is
    /// up to `idleTimeout` ago, or of the flush, for consumers that ignore Events by their age
    #[arg(
        long,
        env = "SQUELCH_LAST_TIMESTAMP",
        value_name = "TIME",
        default_value = "occurrence",
        help_heading = "Events"
    )]
    pub last_timestamp: LastTimestamp,

    /// File to which the Event writes are appended that policies export, one JSON object per line; - for standard output. It is
    /// opened again when it was renamed
    #[arg(long, env = "SQUELCH_EXPORT_FILE", value_name = "FILE", help_heading = "Export")]
    pub export_file: Option<PathBuf>,

    /// URL of an OpenTelemetry collector that gets the Event writes that policies export, as logs by OTLP over HTTP, such as
    /// http://collector.monitoring:4318. Without a path: /v1/logs
    #[arg(
        long,
        env = "SQUELCH_EXPORT_OTLP",
        value_name = "URL",
        value_parser = collector_url,
        help_heading = "Export"
    )]
    pub export_otlp: Option<Uri>,

    /// Header of each request to the collector, for example for authentication. Repeatable
    #[arg(
        long,
        env = "SQUELCH_EXPORT_OTLP_HEADER",
        value_name = "NAME=VALUE",
        value_delimiter = ',',
        hide_env_values = true,
        requires = "export_otlp",
        help_heading = "Export"
    )]
    pub export_otlp_header: Vec<CollectorHeader>,

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
