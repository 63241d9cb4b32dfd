//! What the tests of metrics share.

use squelch_engine::{Account, Counters, Disposition, Mode, PolicyId, TopDropped};

/// A line of the engine's accounts, in Enforce.
pub(in crate::metrics) fn account(namespace: &str, policy: &str, uid: &str, compacted: u64) -> Account {
    let mut counters = Counters::default();
    counters.count(Disposition::Compacted, compacted);
    Account {
        namespace: namespace.into(),
        policy: PolicyId { display: policy.into(), uid: uid.into() },
        mode: Mode::Enforce,
        counters,
        dropped: TopDropped::default(),
    }
}
