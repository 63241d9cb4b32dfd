//! Counters of removed scopes.
//!
//! Namespaces come and go under a cluster-scoped policy. When the engine removes the scope of a deleted
//! namespace, [`GoneNamespaces`] keeps its counters, so that a policy's sum never decreases.
//!
//! When a policy is deleted, its scope is removed after everything pending is written or lost. [`GonePolicies`]
//! keeps its counters for a while, so that the last scrape sees them. If another policy takes the same name,
//! they are kept as long as that policy exists. Metrics identify a policy by its name and must not decrease.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dashmap::DashMap;

use crate::state::scope::Scope;
use crate::{Counters, KnownPolicy, Mode, Moment, ScopeCounters, TopDropped};

/// Time after which an unknown namespace counts as deleted. A new one may not be known yet.
pub(crate) const GONE_AFTER: Duration = Duration::from_secs(10 * 60);

/// One entry for each policy, by uid, and mode. Bounded by the number of existing policies.
#[derive(Default)]
pub(crate) struct GoneNamespaces {
    by_policy: DashMap<(Arc<str>, Mode), ScopeCounters>,
    /// Number of entries added so far.
    moves: AtomicU64,
}

impl GoneNamespaces {
    /// Keeps the counters of a scope whose policy still exists. Called under the lock of its namespace.
    pub(crate) fn keep(&self, scope: &Scope) {
        if scope.counters == Counters::default() {
            return;
        }
        self.moves.fetch_add(1, Ordering::SeqCst);
        // The top dropped of a deleted namespace are of no use.
        let line = ScopeCounters {
            dropped: TopDropped::default(),
            ..scope.scope_counters(&Arc::from(String::new()))
        };
        let key = (line.policy.uid.clone(), line.mode);
        match self.by_policy.get_mut(&key) {
            Some(mut kept) => kept.counters.add(&line.counters),
            None => drop(self.by_policy.insert(key, line)),
        }
    }

    /// Removes the entries of deleted policies.
    pub(crate) fn retain(&self, policies: &HashMap<&Arc<str>, &KnownPolicy>) {
        self.by_policy.retain(|(uid, _), _| policies.contains_key(uid));
    }

    /// Returns the current counters and the retained ones, each exactly once. Repeats if a scope moved
    /// meanwhile.
    pub(crate) fn with(&self, living: impl Fn() -> Vec<ScopeCounters>) -> Vec<ScopeCounters> {
        loop {
            let moves = self.moves.load(Ordering::SeqCst);
            let mut lines = living();
            lines.extend(self.by_policy.iter().map(|line| line.clone()));
            if self.moves.load(Ordering::SeqCst) == moves {
                return lines;
            }
        }
    }
}

/// Retention of a deleted policy's counters. Longer than any scrape interval.
const KEPT: Duration = Duration::from_secs(10 * 60);

/// Maximum number of retained entries. At the limit the oldest is removed.
const MAX_LINES: usize = 256;

/// One entry for each policy name and mode.
#[derive(Default)]
pub(crate) struct GonePolicies(Vec<RetainedLine>);

struct RetainedLine {
    scope_counters: ScopeCounters,
    /// Time of the first tick that saw the entry.
    since: Option<Moment>,
}

impl GonePolicies {
    /// Keeps the counters of a scope whose policy was deleted.
    pub(crate) fn keep(&mut self, scope: &Scope, namespace: &Arc<str>) {
        // The list of dropped Events belongs to the status of the deleted policy.
        let scope_counters =
            ScopeCounters { dropped: TopDropped::default(), ..scope.scope_counters(namespace) };
        if scope_counters.counters == Counters::default() {
            return;
        }
        let of_same = |kept: &&mut RetainedLine| {
            kept.scope_counters.policy.display == scope_counters.policy.display
                && kept.scope_counters.mode == scope_counters.mode
        };
        if let Some(kept) = self.0.iter_mut().find(of_same) {
            kept.scope_counters.counters.add(&scope_counters.counters);
            kept.since = None;
            return;
        }
        if self.0.len() == MAX_LINES {
            self.0.remove(0);
        }
        self.0.push(RetainedLine { scope_counters, since: None });
    }

    /// Removes old entries whose policy name no longer exists. A metric that disappears may start anew.
    pub(crate) fn retain(&mut self, living: &[Scope], now: Moment) {
        self.0.retain_mut(|kept| {
            let since = *kept.since.get_or_insert(now);
            let has_successor =
                living.iter().any(|it| it.policy().display == kept.scope_counters.policy.display);
            has_successor || now.since(since) < KEPT
        });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = ScopeCounters> {
        self.0.iter().map(|kept| kept.scope_counters.clone())
    }
}

#[cfg(test)]
mod tests;
