//! The schedule of the writes of reports and receipts. Pure: time is an argument.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use squelch_engine::{Counters, Mode, Moment, NamespaceUids, ScopeCounters};

use crate::api::DropReport;

use super::content::{PolicyRef, PolicyUid, Suppressed};
use super::receipts::EnforcedDrops;
use super::windows::{WindowCounts, Windows};

/// Limits on the rate of the writes of reports and receipts.
#[derive(Clone, Copy, Debug)]
pub struct ReportLimits {
    /// Minimum time between two writes of the report of one namespace.
    pub interval: Duration,
    /// Minimum time between two receipts of one policy in one namespace. `None`: no receipts are written.
    pub receipt_interval: Option<Duration>,
    /// Maximum writes per second in total.
    pub qps: u32,
}

impl ReportLimits {
    /// Minimum time between two writes of any kind.
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
    /// Whether the report is created if there is none: something was suppressed since its last write.
    pub may_create: bool,
    /// The sum of what was counted.
    sum: Counters,
}

/// A receipt that is out of date.
#[derive(Clone, Debug)]
pub struct DueReceipt {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Uid of the policy.
    pub policy: PolicyUid,
    /// What the engine has counted for the policy in the namespace.
    pub counted: Suppressed,
    /// What was dropped since the receipt before.
    pub new: EnforcedDrops,
}

/// A write that is due.
#[derive(Clone, Debug)]
pub enum DueWrite {
    /// Of a report.
    Report(OutdatedReport),
    /// Of a receipt.
    Receipt(DueReceipt),
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
    limits: ReportLimits,
    tracked: HashMap<Arc<str>, TrackedNamespace>,
}

#[derive(Debug, Default)]
struct TrackedNamespace {
    /// Uid of the namespace, if it is known.
    uid: Option<Arc<str>>,
    /// The report in the cluster before the first write of this process.
    base: Option<KnownReport>,
    /// The content of the base of a report that was deleted. One that others have restored has it, and what this process has
    /// counted since.
    deleted: Option<DropReport>,
    /// The sum of the counters in the last written report, without those of the base.
    written: Counters,
    last_attempt: Option<Moment>,
    /// The counts of each policy at the last refresh.
    counted: BTreeMap<PolicyUid, WindowCounts>,
    /// The occurrences since the start of the process by time.
    windows: Windows,
    receipts: BTreeMap<PolicyUid, LastReceipt>,
}

impl TrackedNamespace {
    /// Forgets a former namespace with this name. The engine keeps its counters, so what it has counted until now is no
    /// part of the windows and receipts of the new namespace.
    fn begin_anew(&mut self, counted: &BTreeMap<PolicyUid, Suppressed>) {
        let former = std::mem::take(self);
        for (policy, counted) in counted {
            let Some(before) = former.counted.get(policy) else { continue };
            if WindowCounts::from(&counted.counters).is_after(*before) {
                let drops = counted.enforced.clone();
                self.receipts.insert(policy.clone(), LastReceipt { last_attempt: None, drops });
                self.counted.insert(policy.clone(), *before);
            }
        }
    }
}

#[derive(Debug)]
struct LastReceipt {
    last_attempt: Option<Moment>,
    /// What was dropped until the last written receipt.
    drops: EnforcedDrops,
}

/// What the engine has counted in each namespace, by policy.
type CountedNamespaces = HashMap<Arc<str>, BTreeMap<PolicyUid, Suppressed>>;

impl ReportPlan {
    /// Creates a plan without known reports.
    pub fn new(limits: ReportLimits) -> Self {
        Self { limits, tracked: HashMap::new() }
    }

    /// Records what was counted since the last call, by time. Returns the writes that are due, those with the earliest last
    /// attempt first. Forgets namespaces that the engine does not know any more, and begins anew with those that were deleted
    /// and created again.
    pub fn due(
        &mut self,
        counters: Vec<ScopeCounters>,
        policies: &BTreeMap<PolicyUid, PolicyRef>,
        uids: &NamespaceUids,
        now: Moment,
        wall: Timestamp,
    ) -> Vec<DueWrite> {
        let all = by_namespace(counters, policies);
        self.track(&all, uids, wall);
        let receipts = self.due_receipts(&all, now);
        let interval = self.limits.interval;
        let reports = self.outdated(all, |tracked, report| {
            report.may_create && tracked.last_attempt.is_none_or(|last| now.since(last) >= interval)
        });
        let reports = reports.map(|(tracked, report)| (tracked.last_attempt, DueWrite::Report(report)));
        let mut due: Vec<_> = reports.collect();
        due.extend(receipts);
        due.sort_by_key(|(last_attempt, _)| *last_attempt);
        due.into_iter().map(|(_, due)| due).collect()
    }

    /// Forgets namespaces that do not exist any more, and adds what was counted since the last call to the windows.
    fn track(&mut self, all: &CountedNamespaces, uids: &NamespaceUids, wall: Timestamp) {
        self.tracked.retain(|namespace, _| all.contains_key(namespace));
        for (namespace, counted) in all {
            let tracked = self.tracked.entry(namespace.clone()).or_default();
            if tracked.uid.is_some() && tracked.uid.as_ref() != uids.get(namespace) {
                tracked.begin_anew(counted);
            }
            tracked.uid = tracked.uid.take().or_else(|| uids.get(namespace).cloned());
            tracked.receipts.retain(|policy, _| counted.contains_key(policy));
            let before = std::mem::take(&mut tracked.counted);
            for (policy, counted) in counted {
                let counts = WindowCounts::from(&counted.counters);
                let before = before.get(policy).copied().unwrap_or_default();
                tracked.windows.add(counts.since(before), wall);
                tracked.counted.insert(policy.clone(), counts);
            }
        }
    }

    /// Returns the reports for which `is_outdated` is true.
    fn outdated(
        &self,
        all: CountedNamespaces,
        is_outdated: impl Fn(&TrackedNamespace, &OutdatedReport) -> bool,
    ) -> impl Iterator<Item = (&TrackedNamespace, OutdatedReport)> {
        all.into_iter().filter_map(move |(namespace, counted)| {
            let tracked = self.tracked.get(&namespace)?;
            let mut sum = Counters::default();
            counted.values().for_each(|it| sum.add(&it.counters));
            let may_create = suppressed(&sum) != suppressed(&tracked.written);
            let report = OutdatedReport { namespace, counted, may_create, sum };
            is_outdated(tracked, &report).then_some((tracked, report))
        })
    }

    /// Returns the receipts of policies that have dropped something since their last receipt, in namespaces with a report.
    fn due_receipts(&self, all: &CountedNamespaces, now: Moment) -> Vec<(Option<Moment>, DueWrite)> {
        let Some(interval) = self.limits.receipt_interval else { return Vec::new() };
        let mut due = Vec::new();
        for (namespace, counted) in all {
            let has_report = |base: &KnownReport| !base.uid.is_empty();
            let Some(tracked) = { self.tracked.get(namespace) }
                .filter(|tracked| tracked.base.as_ref().is_some_and(has_report))
            else {
                continue;
            };
            for (policy, counted) in counted {
                let last = tracked.receipts.get(policy);
                let last_attempt = last.and_then(|last| last.last_attempt);
                let is_late = last_attempt.is_none_or(|last_attempt| now.since(last_attempt) >= interval);
                let before = last.map_or(0, |last| last.drops.occurrences);
                if !is_late || counted.enforced.occurrences == before {
                    continue;
                }
                let none = EnforcedDrops::default();
                let receipt = DueReceipt {
                    namespace: namespace.clone(),
                    policy: policy.clone(),
                    new: counted.enforced.since(last.map_or(&none, |last| &last.drops)),
                    counted: counted.clone(),
                };
                due.push((last_attempt, DueWrite::Receipt(receipt)));
            }
        }
        due
    }

    /// Returns all reports that lack anything, due or not, for the last writes before exit. First those that lack suppressed
    /// occurrences, last those that are not known to exist.
    pub fn all(
        &mut self,
        counters: Vec<ScopeCounters>,
        policies: &BTreeMap<PolicyUid, PolicyRef>,
        uids: &NamespaceUids,
        wall: Timestamp,
    ) -> Vec<OutdatedReport> {
        let all = by_namespace(counters, policies);
        self.track(&all, uids, wall);
        let reports = self.outdated(all, |tracked, report| report.sum != tracked.written);
        let mut reports: Vec<_> =
            reports.map(|(tracked, report)| ((!report.may_create, tracked.base.is_none()), report)).collect();
        reports.sort_by_key(|(order, _)| *order);
        reports.into_iter().map(|(_, report)| report).collect()
    }

    /// Returns the report that was in the cluster before the first write of this process. `None` if it was not read yet.
    pub fn base(&self, namespace: &str) -> Option<&KnownReport> {
        self.tracked.get(namespace)?.base.as_ref()
    }

    /// Records the report that was in the cluster.
    pub fn read(&mut self, namespace: &str, found: KnownReport) {
        let base = self.base_of(namespace, found);
        if let Some(tracked) = self.tracked.get_mut(namespace) {
            (tracked.base, tracked.deleted) = (Some(base), None);
        }
    }

    /// Returns the base for the report that was found in the cluster.
    pub fn base_of(&self, namespace: &str, found: KnownReport) -> KnownReport {
        let deleted = self.tracked.get(namespace).and_then(|tracked| tracked.deleted.clone());
        match deleted.filter(|_| !found.uid.is_empty()) {
            Some(content) => KnownReport { content, ..found },
            None => found,
        }
    }

    /// Records that the report has this uid since a write.
    pub fn written(&mut self, namespace: &str, uid: String) {
        if let Some(base) = self.tracked.get_mut(namespace).and_then(|tracked| tracked.base.as_mut()) {
            base.uid = uid;
        }
    }

    /// Records that the report was deleted. Others may have restored it.
    pub fn deleted(&mut self, namespace: &str) {
        if let Some(tracked) = self.tracked.get_mut(namespace) {
            tracked.deleted = tracked.base.take().map(|base| base.content);
        }
    }

    /// Forgets the report: it was deleted with its namespace.
    pub fn forget(&mut self, namespace: &str) {
        if let Some(tracked) = self.tracked.get_mut(namespace) {
            (tracked.base, tracked.deleted) = (None, None);
        }
    }

    /// Records an attempted write of a report.
    pub fn attempted(&mut self, due: &OutdatedReport, succeeded: bool, now: Moment) {
        let Some(tracked) = self.tracked.get_mut(&due.namespace) else { return };
        tracked.last_attempt = Some(now);
        if succeeded {
            tracked.written = due.sum;
        }
    }

    /// Records an attempted write of a receipt.
    pub fn attempted_receipt(&mut self, due: &DueReceipt, succeeded: bool, now: Moment) {
        let Some(tracked) = self.tracked.get_mut(&due.namespace) else { return };
        let new = || LastReceipt { last_attempt: None, drops: EnforcedDrops::default() };
        let receipt = tracked.receipts.entry(due.policy.clone()).or_insert_with(new);
        receipt.last_attempt = Some(now);
        if succeeded {
            receipt.drops = due.counted.enforced.clone();
        }
    }

    /// Returns the occurrences of a namespace by time.
    pub fn windows(&self, namespace: &str) -> Windows {
        self.tracked.get(namespace).map(|tracked| tracked.windows.clone()).unwrap_or_default()
    }
}

/// Returns the counters of existing policies by namespace. Those of deleted namespaces have no name.
fn by_namespace(
    counters: Vec<ScopeCounters>,
    policies: &BTreeMap<PolicyUid, PolicyRef>,
) -> CountedNamespaces {
    let mut all = CountedNamespaces::new();
    for scope in counters {
        if scope.namespace.is_empty() || !policies.contains_key(&scope.policy.uid) {
            continue;
        }
        let of_namespace = all.entry(scope.namespace).or_default();
        let suppressed = of_namespace.entry(scope.policy.uid).or_default();
        suppressed.counters.add(&scope.counters);
        if scope.mode == Mode::Enforce {
            suppressed.enforced = EnforcedDrops {
                occurrences: WindowCounts::from(&scope.counters).dropped,
                warnings: scope.counters.dropped_warnings,
                entries: scope.dropped.entries.clone(),
            };
        }
        suppressed.dropped.extend(scope.dropped.entries);
    }
    all
}

fn suppressed(counters: &Counters) -> u64 {
    let counts = WindowCounts::from(counters);
    counts.merged.saturating_add(counts.dropped)
}

#[cfg(test)]
mod tests;
