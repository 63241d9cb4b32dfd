//! What the tests of metrics share.

use squelch_engine::{Counters, Disposition, Mode, PolicyId, ScopeCounters, TopDropped};

/// A line of the engine's accounts, in Enforce.
pub(in crate::metrics) fn account(namespace: &str, policy: &str, uid: &str, compacted: u64) -> ScopeCounters {
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
