//! The path of a write: bytes -> [`review`] -> observation -> verdict -> bytes.
//!
//! This module reads policies and calls the engine. It must not depend on the policy watch or on the flush writer.

mod body;
mod cancellation;
mod connection;
mod handler;
mod limiter;
mod long_reviews;
mod patch;
mod probe;
mod read_limit;
mod response;
pub mod review;
mod router;
pub mod server;

pub use handler::Webhook;
pub use router::{Router, path, router};
