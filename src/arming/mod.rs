//! The webhook's place in the API server: armed while it is proven that the API server reaches it, its rules taken away
//! when it is not, when a person wants it, and when squelch ends.

mod client;
mod configuration;
mod keeper;
mod pace;
mod probe;
mod proof;
mod proving;
mod standing;
mod writer;

pub use client::{Address, ClientConfig};
pub use configuration::{
    Desired, EVENTS as EVENTS_ENTRY, MAX_NAMED_NAMESPACES, NAME as CONFIGURATION, PROBE as PROBE_ENTRY, Reach,
};
pub use keeper::Keeper;
pub use probe::{Answered, Probe};
pub use proving::Proving;
pub use standing::{DISARM_ANNOTATION, ENDED, NOT_YET};
pub use writer::Arming;
