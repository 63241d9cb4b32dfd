//! `squelch doctor`: what is wrong with a running installation, and how to repair it.
//!
//! [`collect()`] reads a [`Snapshot`] of the installation. The checks are pure functions from the snapshot to findings.

mod api_servers;
mod apiserver;
mod collect;
mod configuration;
mod definitions;
mod finding;
#[cfg(test)]
mod fixtures;
mod keys;
mod policies;
mod replicas;
mod rights;
mod served;
mod snapshot;
mod watches;

pub use collect::{Clients, collect};
pub use finding::{DoctorReport, Finding, Level};
pub use rights::{Right, needed};
pub use snapshot::{Installation, Observed, ProbeFound, Snapshot, Unreadable};

/// Returns all findings. A finding may explain the ones after it.
pub fn findings(snapshot: &Snapshot) -> Vec<Finding> {
    let checks: [fn(&Snapshot) -> Vec<Finding>; 10] = [
        apiserver::version,
        definitions::findings,
        rights::findings,
        replicas::findings,
        watches::findings,
        keys::findings,
        configuration::findings,
        api_servers::findings,
        policies::findings,
        apiserver::writes,
    ];
    checks.iter().flat_map(|check| check(snapshot)).collect()
}
