//! Common code of the end-to-end tests and of the demo: a real API server, squelch as a process with the permissions
//! of an installation, real recorders as processes, and a count of the writes in etcd.

pub mod accounts;
pub mod cluster;
pub mod conservation;
pub mod documents;
pub mod emitters;
pub mod events;
pub mod faults;
pub mod figures;
pub mod helm;
pub mod kubectl;
pub mod load;
pub mod machine_load;
pub mod matrix;
pub mod metrics;
pub mod node;
pub mod other_webhook;
pub mod policy;
pub mod process;
pub mod prometheus;
pub mod proxy;
pub mod rights;
pub mod rows;
pub mod squelch;
pub mod stage;
pub mod storm;
pub mod test;
pub mod user;
pub mod wait;
pub mod writer;
pub mod writes;

pub use cluster::Cluster;
pub use emitters::Emission;
pub use helm::Helm;
pub use node::Node;
pub use policy::Policy;
pub use prometheus::Prometheus;
pub use proxy::FaultProxy;
pub use squelch::Squelch;
pub use storm::Storm;
pub use test::Test;
pub use user::User;
pub use wait::{GENEROUS, wait_for};
pub use writer::Writer;
pub use writes::Writes;
