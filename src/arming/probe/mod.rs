//! Probes: dry-run Events through the API server, which the webhook signs. They show whether the API server reaches the
//! webhook.

mod prober;
mod reachability;
mod request;

pub(super) use prober::ProbeStatus;
pub use prober::Prober;
pub use request::{Probe, ProbeReport};
