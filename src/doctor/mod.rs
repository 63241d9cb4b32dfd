//! `squelch doctor`: what is wrong with a running installation, and what to do about it.
//!
//! [`look`] reads all there is to read and judges nothing; the checks below are pure, each from what was seen to its
//! findings.

mod apiserver;
mod configuration;
mod definitions;
mod finding;
mod keys;
mod look;
mod policies;
mod replicas;
mod rights;
mod seen;
mod served;
#[cfg(test)]
mod testing;
mod watches;

pub use finding::{Finding, Level, json, text, worst};
pub use look::{Clients, look};
pub use rights::{Right, needed};
pub use seen::{Installation, Look, Seen, Unseen};

/// Every finding, in the order in which to read them: what comes first explains what comes later.
pub fn findings(seen: &Seen) -> Vec<Finding> {
    let checks: [fn(&Seen) -> Vec<Finding>; 9] = [
        apiserver::version,
        definitions::findings,
        rights::findings,
        replicas::findings,
        watches::findings,
        keys::findings,
        configuration::findings,
        policies::findings,
        apiserver::writes,
    ];
    checks.iter().flat_map(|check| check(seen)).collect()
}
