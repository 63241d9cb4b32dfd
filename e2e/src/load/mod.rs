//! A load generator for reviews as the API server sends them: over few kept connections, HTTP/1.1 over TLS.
//!
//! [`run`] loads one server, either as fast as it answers or at a rate. At a rate the loop is open: each review has
//! an intended send time, and its latency counts from there. A stall of the server then delays all reviews that were
//! due meanwhile.

mod answers;
mod caller;
mod clock;
mod cores;
mod latency;
pub mod reviews;
mod run;
mod schedule;
mod usage;

pub use answers::Answers;
pub use caller::{Caller, Target};
pub use cores::Cores;
pub use latency::{Latency, Quantiles};
pub use reviews::Reviews;
pub use run::{CONNECTIONS, Load, Outcome, Pace, run, writing};
pub use usage::Usage;
