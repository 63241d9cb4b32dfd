//! Reviews by the thousand, as the API server sends them: over few connections that it keeps, HTTP/1.1 over TLS.
//!
//! [`run`] asks one server for a while, either as fast as it answers or at a rate. At a rate the loop is open: each
//! review has a time at which it is meant to be sent, and what it took is counted from there. A server that stalls
//! makes all that were due meanwhile late, and not only the one that it stalled on.

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
