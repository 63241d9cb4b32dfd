//! squelch: an operator that applies policies to the Events of a Kubernetes cluster.
//!
//! The API server sends each write of an Event to [`webhook`], which decodes it to a [`squelch_engine::Observation`].
//! [`policy`] selects the policy that governs it. The [`squelch_engine`] decides, and the webhook encodes the response.
//! [`flush`] writes pending occurrences to stored Events. [`status`] and [`metrics`] report the counters. See
//! `ARCHITECTURE.md` for an overview.

pub mod accept;
pub mod admin;
pub mod announcer;
pub mod api;
pub mod app;
pub mod arming;
mod cel;
pub mod cli;
pub mod clock;
pub mod config;
pub mod descriptors;
pub mod doctor;
pub mod export;
pub mod flush;
pub mod keys;
mod kubeconfig;
pub mod leader;
mod log_limit;
pub mod metrics;
pub mod output;
pub mod policy;
pub mod replay;
pub mod reports;
pub mod status;
pub mod telemetry;
pub mod tls;
mod watching;
pub mod webhook;

/// The field manager of all writes by squelch.
pub const FIELD_MANAGER: &str = "squelch";

/// The `reportingController` of Events about squelch and its decisions.
pub const REPORTING_CONTROLLER: &str = "squelch.dev/squelch";

/// Default name of the Secret with the certificate authority and the token.
pub const SECRET: &str = "squelch-webhook";

/// The minimum version of Kubernetes. squelch excludes its own writes with the matchConditions of webhooks, which older API
/// servers prune.
pub const OLDEST_KUBERNETES: (u32, u32) = (1, 30);

/// The annotation of a probe, which is a dry-run Event. Its value is a nonce.
pub const PROBE_ANNOTATION: &str = "squelch.dev/probe";

/// The annotation that the webhook adds to a probe: the signature of the nonce.
pub const PROBE_SIGNATURE_ANNOTATION: &str = "squelch.dev/probe-signature";

/// The end of the webhook's path for probes, after the token.
pub const PROBE_PATH: &str = "/probe";
