//! What the end-to-end tests and the demo stand on: a real API server, squelch as a process with the rights that
//! it is installed with, real recorders as processes, and a count of what reached etcd.

pub mod accounts;
pub mod cluster;
pub mod emitters;
pub mod events;
pub mod kubectl;
pub mod law;
pub mod matrix;
pub mod metrics;
pub mod policy;
pub mod process;
pub mod prometheus;
pub mod proxy;
pub mod squelch;
pub mod test;
pub mod wait;
pub mod writes;

pub use cluster::Cluster;
pub use emitters::Emission;
pub use policy::Policy;
pub use prometheus::Prometheus;
pub use proxy::Detour;
pub use squelch::Squelch;
pub use test::Test;
pub use wait::{GENEROUS, wait_for};
pub use writes::Writes;
