//! The engine's counters of each policy.

use std::collections::HashMap;
use std::sync::Arc;

use squelch_engine::{Counters, ScopeCounters, TopDropped};

use crate::status::dropped::DroppedIn;

/// The engine's counters of a policy.
#[derive(Default)]
pub(super) struct Counted {
    pub(super) counters: Counters,
    pub(super) dropped: Vec<DroppedIn>,
}

/// Returns the sums over namespaces and modes, by policy uid.
pub(super) fn sums(counters: &[ScopeCounters]) -> HashMap<Arc<str>, Counted> {
    let mut sums: HashMap<Arc<str>, Counted> = HashMap::new();
    let mut dropped: HashMap<(&Arc<str>, &Arc<str>), TopDropped> = HashMap::new();
    for scope in counters {
        let uid = &scope.policy.uid;
        sums.entry(uid.clone()).or_default().counters.add(&scope.counters);
        if !scope.dropped.entries.is_empty() {
            dropped.entry((uid, &scope.namespace)).or_default().add(&scope.dropped);
        }
    }
    for ((uid, namespace), top) in dropped {
        let counted = sums.entry(uid.clone()).or_default();
        counted.dropped.extend(top.entries.into_iter().map(|entry| (namespace.clone(), entry)));
    }
    sums
}
