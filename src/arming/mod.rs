//! Arming: keeps the MutatingWebhookConfiguration. The webhook is *armed* while the configuration has its rules.
//! squelch removes the rules when probes show that the API server does not reach the webhook, when a person asks for
//! it, and at shutdown.

mod additions;
mod client_config;
mod conditions;
mod configuration;
mod configuration_api;
mod controller;
mod probe;
mod rearming;
mod state;
mod write_limiter;

pub use additions::additions_to;
pub use client_config::{Address, ClientConfig};
pub use conditions::matched_by_a_policy;
pub use configuration::{CONFIGURATION, ConfigurationMetadata, Desired, EVENTS_ENTRY, PROBE_ENTRY};
pub use configuration_api::ConfigurationApi;
pub use controller::ArmingController;
pub use probe::{ApiServerClients, Probe, ProbeReport, Prober, Probing, addresses};
pub use state::{DISARM_ANNOTATION, NOT_PROBED_YET, SHUT_DOWN};
