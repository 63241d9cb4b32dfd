//! The webhook's place in the API server: armed while squelch can answer, its rules taken away when it ends.

mod configuration;
mod writer;

pub use configuration::{Address, ClientConfig, Desired, MAX_NAMED_NAMESPACES, NAME as CONFIGURATION, Reach};
pub use writer::{Arming, run};
