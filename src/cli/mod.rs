//! The commands that read a cluster as the user of `kubectl`, and their common flags.

mod connection;
mod readable_event;
pub mod record;
pub mod suggest;
pub mod top;
pub mod why;

pub use connection::{ClusterConnection, ClusterFlags};
