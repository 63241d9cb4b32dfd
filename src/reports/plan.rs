//! The schedule of report writes. Pure: time is an argument.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use squelch_engine::{Counters, Disposition, Moment, NamespaceUids, ScopeCounters};

use crate::api::DropReport;

use super::content::{PolicyRef, PolicyUid, Suppressed};

/// Limits on the rate of report writes.
#[derive(Clone, Copy, Debug)]
pub struct ReportLimits {
    /// Minimum time between two writes in one namespace.
    pub interval: Duration,
    /// Maximum writes per second in total.
    pub qps: u32,
}

impl ReportLimits {
    /// Minimum time between two writes.
    pub(super) fn pause(self) -> Duration {
        Duration::from_secs(1) / self.qps.max(1)
    }
}

/// A namespace whose report is out of date.
#[derive(Clone, Debug)]
pub struct OutdatedReport {
    /// The namespace.
    pub namespace: Arc<str>,
    /// What the engine has counted there, by policy.
    pub counted: BTreeMap<PolicyUid, Suppressed>,
    /// The number of suppressed occurrences among it.
    suppressed: u64,
    /// Uid of the namespace, if it is known.
    namespace_uid: Option<Arc<str>>,
}

/// The report of a namespace before the first write of this process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KnownReport {
    /// `metadata.uid`; empty if there was none. Another one belongs to another namespace of the same name.
    pub uid: String,
    /// Its content. squelch adds to it what the engine has counted since.
    pub content: DropReport,
}

/// The known reports in the cluster, and the times of their writes.
#[derive(Debug)]
pub struct ReportPlan {
    interval: Duration,
    tracked: HashMap<Arc<str>, TrackedReport>,
}

#[derive(Debug, Default)]
struct TrackedReport {
    /// Uid of the namespace, if it was known at the first write.
    namespace_uid: Option<Arc<str>>,
    /// The report in the cluster before the first write of this process.
    base: Option<KnownReport>,
    /// The number of suppressed occurrences in the last written report, without those of the base.
    suppressed: u64,
    last_attempt: Option<Moment>,
}

impl ReportPlan {
    /// Creates a plan without known reports.
    pub fn new(limits: ReportLimits) -> Self {
        Self { interval: limits.interval, tracked: HashMap::new() }
    }

    /// Returns the namespaces whose reports are due, those with the earliest last write first. Forgets namespaces that the
    /// engine does not know any more, and those that were deleted and created again.
    pub fn due(
        &mut self,
        counters: Vec<ScopeCounters>,
        policies: &BTreeMap<PolicyUid, PolicyRef>,
        uids: &NamespaceUids,
        now: Moment,
    ) -> Vec<OutdatedReport> {
        let all = by_namespace(counters, policies);
        self.tracked.retain(|namespace, tracked| {
            let is_same =
                tracked.namespace_uid.is_none() || tracked.namespace_uid.as_ref() == uids.get(namespace);
            is_same && all.contains_key(namespace)
        });
        let mut due: Vec<_> = { all.into_iter() }
            .filter_map(|(namespace, counted)| {
                let suppressed = counted.values().map(|it| suppressed(&it.counters)).sum();
                let tracked = self.tracked.get(&namespace);
                let last_attempt = tracked.and_then(|tracked| tracked.last_attempt);
                let is_outdated = suppressed != tracked.map_or(0, |tracked| tracked.suppressed);
                let is_late = last_attempt.is_none_or(|last| now.since(last) >= self.interval);
                (is_outdated && is_late).then_some((
                    last_attempt,
                    OutdatedReport {
                        namespace_uid: uids.get(&namespace).cloned(),
                        namespace,
                        counted,
                        suppressed,
                    },
                ))
            })
            .collect();
        due.sort_by_key(|(last_attempt, _)| *last_attempt);
        due.into_iter().map(|(_, due)| due).collect()
    }

    /// Returns all outdated reports, due or not, for the last writes before exit.
    pub fn all(
        &mut self,
        counters: Vec<ScopeCounters>,
        policies: &BTreeMap<PolicyUid, PolicyRef>,
        uids: &NamespaceUids,
    ) -> Vec<OutdatedReport> {
        let interval = std::mem::take(&mut self.interval);
        let due = self.due(counters, policies, uids, Moment::default());
        self.interval = interval;
        due
    }

    /// Returns the report that was in the cluster before the first write of this process. `None` if it was not read yet.
    pub fn base(&self, namespace: &str) -> Option<&KnownReport> {
        self.tracked.get(namespace)?.base.as_ref()
    }

    /// Records the report that was in the cluster.
    pub fn read(&mut self, due: &OutdatedReport, base: KnownReport) {
        self.track(due).base = Some(base);
    }

    /// Records that the report has this uid since a write.
    pub fn written(&mut self, namespace: &str, uid: String) {
        if let Some(base) = self.tracked.get_mut(namespace).and_then(|tracked| tracked.base.as_mut()) {
            base.uid = uid;
        }
    }

    /// Forgets the report: it was deleted, alone or with its namespace.
    pub fn forget(&mut self, namespace: &str) {
        if let Some(tracked) = self.tracked.get_mut(namespace) {
            tracked.base = None;
        }
    }

    /// Records an attempted write.
    pub fn attempted(&mut self, due: &OutdatedReport, succeeded: bool, now: Moment) {
        let tracked = self.track(due);
        tracked.last_attempt = Some(now);
        if succeeded {
            tracked.suppressed = due.suppressed;
        }
    }

    fn track(&mut self, due: &OutdatedReport) -> &mut TrackedReport {
        let new = || TrackedReport { namespace_uid: due.namespace_uid.clone(), ..TrackedReport::default() };
        self.tracked.entry(due.namespace.clone()).or_insert_with(new)
    }
}

/// Returns the counters of existing policies by namespace. Those of deleted namespaces have no name.
fn by_namespace(
    counters: Vec<ScopeCounters>,
    policies: &BTreeMap<PolicyUid, PolicyRef>,
) -> HashMap<Arc<str>, BTreeMap<PolicyUid, Suppressed>> {
    let mut all: HashMap<Arc<str>, BTreeMap<PolicyUid, Suppressed>> = HashMap::new();
    for scope in counters {
        if scope.namespace.is_empty() || !policies.contains_key(&scope.policy.uid) {
            continue;
        }
        let of_namespace = all.entry(scope.namespace).or_default();
        let suppressed = of_namespace.entry(scope.policy.uid).or_default();
        suppressed.counters.add(&scope.counters);
        suppressed.dropped.extend(scope.dropped.entries);
    }
    all
}

fn suppressed(counters: &Counters) -> u64 {
    let merged = [Disposition::Compacted, Disposition::Aggregated];
    let dropped = [Disposition::Filtered, Disposition::Throttled, Disposition::Muted];
    merged.iter().chain(&dropped).map(|disposition| counters.of(*disposition)).sum()
}

#[cfg(test)]
mod tests;
