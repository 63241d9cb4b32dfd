//! Probes: dry-run Events through each API server, which the webhook signs. They show which API servers reach the
//! webhook.

mod api_servers;
mod clients;
mod outcome;
mod prober;
mod reachability;
mod request;
mod server;
mod status;
mod target;

pub use api_servers::addresses;
pub use clients::ApiServerClients;
pub use prober::{Prober, Probing};
pub(super) use reachability::FailingServers;
pub use request::{Probe, ProbeReport};
pub(super) use status::ProbeStatus;
