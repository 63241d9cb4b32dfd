//! squelch: the Event policy operator for Kubernetes.
//!
//! A write of an Event arrives as bytes at [`webhook`], becomes an [`squelch_engine::Observation`], is governed by at
//! most one policy ([`policy`]), is decided by the [`squelch_engine`], and leaves as bytes again. What the engine holds
//! back it owes; [`flush`] pays. [`status`] and [`metrics`] tell. `ARCHITECTURE.md` has the picture.

pub mod accept;
pub mod admin;
pub mod announcer;
pub mod api;
pub mod app;
pub mod arming;
pub mod clock;
pub mod config;
pub mod descriptors;
pub mod doctor;
pub mod flush;
pub mod leader;
pub mod metrics;
pub mod policy;
pub mod replay;
pub mod status;
pub mod telemetry;
pub mod tls;
pub mod webhook;

/// The field manager of every write of squelch's.
pub const FIELD_MANAGER: &str = "squelch";

/// The Secret of the authority and the token, unless another is named.
pub const SECRET: &str = "squelch-webhook";

/// The oldest Kubernetes that squelch works with: matchConditions of webhooks, on which it relies to leave its own
/// writes out, are pruned below.
pub const OLDEST_KUBERNETES: (u32, u32) = (1, 30);

/// The annotation of a dry-run Event with which squelch asks its own webhook for a proof: a number used once.
pub const PROBE_ANNOTATION: &str = "squelch.dev/probe";

/// The annotation that the webhook adds in answer: the mark over that number.
pub const PROOF_ANNOTATION: &str = "squelch.dev/proof";

/// What follows the token in the path where the API server asks for that.
pub const PROOF_PATH: &str = "/proof";
