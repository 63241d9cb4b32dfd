//! The webhook's keys: certificate authorities and path tokens, in a Secret that all replicas share.

mod api_server_clock;
mod controller;
mod secret;
mod start;

pub use controller::KeysController;
pub use secret::SecretRef;
pub use start::{KeySettings, StartError};
