//! The rows of the operator, in the order of their dependencies.

use super::{Crates, Knows, NO_ANYHOW, NO_KUBERNETES, Row};

pub(crate) const OPERATOR: &[Row] = &[
    // The API of users.
    Row {
        files: &["src/api/"],
        knows: Knows::TheWorld,
        modules: &["api", "squelch_engine::sanitise"],
        crates: NO_ANYHOW,
    },
    // The engine decides by its arguments only. Cargo keeps Kubernetes, tokio and the rest of squelch out of this
    // crate, but not std.
    Row {
        files: &["crates/engine/src/"],
        knows: Knows::Arguments,
        modules: &[""],
        crates: Crates::AllBut(&[]),
    },
    // Compiles a spec for the engine, and selects the governing policy.
    Row {
        files: &[
            "src/policy/glob.rs",
            "src/policy/compile/",
            "src/policy/order.rs",
            "src/policy/restrictions.rs",
            "src/policy/selection.rs",
            "src/policy/set.rs",
        ],
        knows: Knows::Arguments,
        modules: &[
            "api",
            "squelch_engine",
            "policy::compile",
            "policy::glob",
            "policy::order",
            "policy::restrictions",
            "policy::selection",
            "policy::set",
        ],
        crates: Crates::Only(&["jiff", "thiserror", "wide"]),
    },
    // Timeouts and backoff of watches.
    Row { files: &["src/watching/"], knows: Knows::TheWorld, modules: &["watching"], crates: NO_ANYHOW },
    Row {
        files: &["src/policy/"],
        knows: Knows::TheWorld,
        modules: &["api", "squelch_engine", "policy", "watching"],
        crates: NO_ANYHOW,
    },
    // The only module that reads clocks.
    Row {
        files: &["src/clock.rs"],
        knows: Knows::TheWorld,
        modules: &["squelch_engine"],
        crates: NO_KUBERNETES,
    },
    Row {
        files: &["src/metrics/"],
        knows: Knows::TheWorld,
        modules: &["clock", "squelch_engine", "metrics"],
        crates: NO_KUBERNETES,
    },
    // Limits of connections, and which of them are closed for new ones.
    Row { files: &["src/descriptors.rs"], knows: Knows::TheWorld, modules: &[], crates: NO_KUBERNETES },
    Row {
        files: &["src/accept.rs"],
        knows: Knows::TheWorld,
        modules: &["clock", "descriptors", "log_limit"],
        crates: NO_KUBERNETES,
    },
    Row {
        files: &["src/log_limit.rs"],
        knows: Knows::Arguments,
        modules: &["squelch_engine::Moment"],
        crates: Crates::Only(&[]),
    },
    // Schedules of keys.
    Row {
        files: &["src/tls/rotation.rs", "src/tls/rotation/"],
        knows: Knows::Arguments,
        modules: &["tls::rotation"],
        crates: Crates::Only(&["jiff"]),
    },
    Row { files: &["src/tls/"], knows: Knows::TheWorld, modules: &["tls"], crates: NO_KUBERNETES },
    // Until when a replica is active: the webhook checks it.
    Row {
        files: &["src/leader/lease_deadline.rs"],
        knows: Knows::TheWorld,
        modules: &["clock", "squelch_engine::Moment"],
        crates: NO_KUBERNETES,
    },
    // From bytes to an observation, from a verdict to bytes. (std::io is for the Write of a Vec.)
    Row {
        files: &["src/webhook/review/", "src/webhook/patch.rs", "src/webhook/response.rs"],
        knows: Knows::Arguments,
        modules: &["squelch_engine", "webhook::patch", "webhook::response", "webhook::review"],
        crates: Crates::Only(&[
            "base64",
            "bytes",
            "jiff",
            "memchr",
            "serde_json",
            "simdutf8",
            "thiserror",
            "wide",
        ]),
    },
    Row {
        files: &["src/webhook/"],
        knows: Knows::TheWorld,
        modules: &[
            "PROBE_ANNOTATION",
            "PROBE_SIGNATURE_ANNOTATION",
            "PROBE_PATH",
            "accept",
            "clock",
            "squelch_engine",
            "leader::LeaseDeadline",
            "log_limit",
            "metrics",
            "policy",
            "tls",
            "webhook",
        ],
        crates: NO_KUBERNETES,
    },
    // The Events that a flush reads and writes.
    Row {
        files: &["src/flush/event.rs", "src/flush/stored.rs", "src/flush/valid.rs"],
        knows: Knows::Arguments,
        modules: &["squelch_engine", "flush::stored", "flush::valid"],
        crates: Crates::Only(&["jiff", "serde", "serde_json"]),
    },
    // The validation of the API server.
    Row {
        files: &["src/flush/checks.rs"],
        knows: Knows::Arguments,
        modules: &[],
        crates: Crates::Only(&["k8s_openapi", "serde_json"]),
    },
    // Meaning of the API server's answers, and pauses.
    Row {
        files: &["src/flush/pause.rs", "src/flush/refusal.rs"],
        knows: Knows::Arguments,
        modules: &["squelch_engine", "metrics::FlushResult"],
        crates: Crates::Only(&["serde", "serde_json"]),
    },
    Row {
        files: &["src/flush/"],
        knows: Knows::TheWorld,
        modules: &["FIELD_MANAGER", "clock", "squelch_engine", "flush", "metrics"],
        crates: NO_ANYHOW,
    },
    // Writes squelch's own Events.
    Row { files: &["src/announcer.rs"], knows: Knows::TheWorld, modules: &[], crates: NO_ANYHOW },
    // Leader election, by what was read of the Lease.
    Row {
        files: &["src/leader/election.rs"],
        knows: Knows::Arguments,
        modules: &["squelch_engine::Moment"],
        crates: Crates::Only(&[]),
    },
    Row {
        files: &["src/leader/"],
        knows: Knows::TheWorld,
        modules: &["FIELD_MANAGER", "announcer", "clock", "squelch_engine", "leader", "metrics"],
        crates: NO_ANYHOW,
    },
    // Contents and schedule of a status, and its changes.
    Row {
        files: &["src/status/desired.rs", "src/status/dropped.rs", "src/status/plan.rs", "src/status/plan/"],
        knows: Knows::Arguments,
        modules: &[
            "api",
            "squelch_engine",
            "policy::Armed",
            "policy::ExceededLimit",
            "policy::Exclusion",
            "policy::Compiled",
            "policy::Effect",
            "policy::Invalid",
            "policy::InvalidKind",
            "policy::Limit",
            "policy::MAX_LABELS",
            "policy::MAX_POLICIES",
            "policy::Policy",
            "policy::Set",
            "status::desired",
            "status::dropped",
            "status::transitions",
            "status::plan",
        ],
        crates: Crates::Only(&["jiff", "k8s_openapi"]),
    },
    Row {
        files: &["src/status/"],
        knows: Knows::TheWorld,
        modules: &[
            "FIELD_MANAGER",
            "announcer",
            "api",
            "clock",
            "metrics",
            "squelch_engine",
            "policy",
            "status",
        ],
        crates: NO_ANYHOW,
    },
    // Contents and schedule of a report.
    Row {
        files: &["src/reports/content.rs", "src/reports/plan.rs"],
        knows: Knows::Arguments,
        modules: &["api", "squelch_engine", "reports::content", "status::dropped_by", "status::plus_counted"],
        crates: Crates::Only(&["jiff", "k8s_openapi", "serde_json"]),
    },
    Row {
        files: &["src/reports/"],
        knows: Knows::TheWorld,
        modules: &[
            "FIELD_MANAGER",
            "api",
            "clock",
            "log_limit",
            "squelch_engine",
            "policy::Store",
            "reports",
            "status::ReadCounters",
        ],
        crates: NO_ANYHOW,
    },
    // The desired webhook configuration, and what probes show.
    Row {
        files: &[
            "src/arming/additions.rs",
            "src/arming/client_config.rs",
            "src/arming/conditions.rs",
            "src/arming/configuration.rs",
            "src/arming/probe/outcome.rs",
            "src/arming/probe/server.rs",
            "src/arming/probe/reachability.rs",
            "src/arming/rearming.rs",
            "src/arming/state.rs",
            "src/arming/write_limiter.rs",
        ],
        knows: Knows::Arguments,
        modules: &[
            "FIELD_MANAGER",
            "PROBE_PATH",
            "api::LabelRequirement",
            "arming::additions",
            "arming::client_config",
            "arming::conditions",
            "arming::configuration",
            "arming::probe::FailingServers",
            "arming::probe::outcome",
            "arming::probe::server",
            "squelch_engine::Moment",
            "squelch_engine::sanitise",
            "metrics::ProbeResult",
            "policy::NamespaceSelection",
            "policy::Restrictions",
        ],
        crates: Crates::Only(&["base64", "serde_json"]),
    },
    Row {
        files: &["src/arming/"],
        knows: Knows::TheWorld,
        modules: &[
            "FIELD_MANAGER",
            "PROBE_ANNOTATION",
            "PROBE_SIGNATURE_ANNOTATION",
            "announcer",
            "arming",
            "clock",
            "squelch_engine::Moment",
            "squelch_engine::sanitise",
            "descriptors",
            "metrics",
            "policy::Armed",
            "policy::NamespaceSelection",
            "policy::Restrictions",
            "tls",
            "watching",
        ],
        crates: NO_ANYHOW,
    },
    // Keeps the Secret, the served certificate and the accepted tokens.
    Row {
        files: &["src/keys/"],
        knows: Knows::TheWorld,
        modules: &[
            "FIELD_MANAGER",
            "arming::Address",
            "arming::ClientConfig",
            "arming::Desired",
            "clock",
            "keys",
            "metrics",
            "squelch_engine::Moment",
            "tls",
            "webhook::path",
        ],
        crates: NO_ANYHOW,
    },
];
