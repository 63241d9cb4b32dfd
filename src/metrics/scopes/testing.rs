//! Helpers for the tests of metrics.

use squelch_engine::{Counters, Disposition, Mode, PolicyId, ScopeCounters, TopDropped};

/// Counters of a policy in mode Enforce, with this number of compacted occurrences.
pub(in crate::metrics) fn scope(namespace: &str, policy: &str, uid: &str, compacted: u64) -> ScopeCounters {
    let mut counters = Counters::default();
    counters.count(Disposition::Compacted, compacted);
    ScopeCounters {
        namespace: namespace.into(),
        policy: PolicyId { display: policy.into(), uid: uid.into() },
        mode: Mode::Enforce,
        counters,
        dropped: TopDropped::default(),
    }
}
