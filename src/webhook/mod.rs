//! The way of a write: bytes -> [`review`] -> observation -> verdict -> bytes.
//!
//! It asks the policies and the engine, and knows neither who watches policies nor who pays debts.

mod answer;
mod body;
mod caller;
mod guests;
mod handler;
mod patch;
mod probe;
pub mod review;
mod room;
mod router;
pub mod server;
mod turns;

pub use handler::Webhook;
pub use router::{Router, path, router};
