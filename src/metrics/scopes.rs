//! The values of the metrics with the labels `event_namespace` and `policy`.
//!
//! The engine adds and removes [`ScopeCounters`] with policies and namespaces. In this module, a scope is one of them, and
//! a series is a time series that Prometheus scrapes. A series must not decrease when a scope is removed, so each series
//! has its own sum. A scrape adds the increments of its scopes since the last scrape. Invariants:
//!
//! - Each occurrence is added to one series, once. Counts never move between series.
//! - A series never decreases while it is exported: `_other` keeps the counts of removed scopes.
//! - A series is removed an hour after its last scope. If it returns, it starts at 0, a counter reset for Prometheus.
//!
//! So `increase()` is correct for each series, and the sum over all series is the number that the engine counted. The
//! sum of the values is less than that after a series is removed. Adding the removed values to `_other` would look like new
//! occurrences.

mod increments;
#[cfg(test)]
pub(super) mod testing;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use squelch_engine::{Counters, Mode, Moment, ScopeCounters, is_cluster_scoped};

use super::table::{MAX_OF_NAMESPACE, MAX_SCOPES, OTHER};
use increments::{Increments, LastScrape, ScopeKey};

/// Time for which a series without scopes is exported. It is longer than the ranges of the alerts, so that they include the
/// last value.
const RETENTION: Duration = Duration::from_secs(3600);

/// `event_namespace` and `policy` of a series.
pub(super) type SeriesLabels = (Arc<str>, Arc<str>);

/// Counters by mode. `None` if no policy of the series has had the mode.
pub(super) type ByMode = [(Mode, Option<Counters>); 2];

/// The cluster-scoped policies in force, and the namespaces in which they govern.
#[derive(Clone, Debug, Default)]
pub struct InForce {
    /// Names of the cluster-scoped policies that govern writes.
    pub policies: Vec<(Arc<str>, Mode)>,
    /// Namespaces with the policies that govern there: at most [`MAX_SCOPES`] pairs.
    pub pairs: Vec<(Arc<str>, Arc<str>, Mode)>,
    /// Whether `pairs` contains all of them.
    pub complete: bool,
}

/// Maximum numbers of series.
#[derive(Clone, Copy)]
struct SeriesLimits {
    /// In total, without the series `_other`, `_other`.
    total: usize,
    /// With the same `event_namespace`.
    per_namespace: usize,
}

/// All exported series.
pub(super) struct Scopes {
    limits: SeriesLimits,
    series: BTreeMap<SeriesLabels, ExportedSeries>,
    /// Number of series per `event_namespace`, without the series `_other`, `_other`.
    of_namespace: HashMap<Arc<str>, usize>,
    /// Number of unused series.
    unused: usize,
    in_force: InForce,
    last_scrape: LastScrape,
}

/// An exported series.
struct ExportedSeries {
    counts: ByMode,
    /// Last time at which it had a scope or a policy in force.
    used: Moment,
    /// Whether no scope has used it yet, so that it can be replaced by another series.
    unused: bool,
}

impl Default for Scopes {
    fn default() -> Self {
        Self::new(SeriesLimits { total: MAX_SCOPES, per_namespace: MAX_OF_NAMESPACE })
    }
}

impl Scopes {
    fn new(limits: SeriesLimits) -> Self {
        let mut scopes = Self {
            limits,
            series: BTreeMap::new(),
            of_namespace: HashMap::new(),
            unused: 0,
            in_force: InForce::default(),
            last_scrape: LastScrape::default(),
        };
        scopes.start(other(), Mode::Enforce, Moment::default());
        scopes
    }

    /// Sets the cluster-scoped policies in force. Their series start at 0 before the first write.
    pub(super) fn set_in_force(&mut self, in_force: InForce) {
        self.in_force = in_force;
    }

    /// Adds the increments since the last call. `counters` are those of `Engine::all_counters`.
    pub(super) fn add(&mut self, counters: &[ScopeCounters], now: Moment) {
        self.export_in_force(now);
        let Increments { known, new, retained } = self.last_scrape.increments(counters);
        for (labels, mode, counters) in known {
            self.count(&labels, mode, &counters, now);
        }
        for (key, counters) in new {
            let labels = self.initial_labels(&key);
            self.count(&labels, key.mode, &counters, now);
            self.last_scrape.assign(&key, labels);
        }
        for (policy, mode, counters) in retained {
            let labels = self.shared(&policy);
            self.count(&labels, mode, &counters, now);
        }
        self.promote(now);
        self.remove_expired(now);
    }

    /// The series by labels, in order.
    pub(super) fn all(&self) -> impl Iterator<Item = (&SeriesLabels, &ByMode)> {
        self.series.iter().map(|(labels, series)| (labels, &series.counts))
    }

    fn export_in_force(&mut self, now: Moment) {
        let in_force = std::mem::take(&mut self.in_force);
        for (policy, mode) in &in_force.policies {
            let labels = self.shared(policy);
            self.start(labels, *mode, now);
        }
        for (namespace, policy, mode) in &in_force.pairs {
            let own = (namespace.clone(), policy.clone());
            if self.series.contains_key(&own) || self.has_namespace_capacity(namespace) && !self.is_at_limit()
            {
                self.start(own, *mode, now);
            }
        }
        self.in_force = in_force;
    }

    /// The series for the counters of a new scope.
    fn initial_labels(&mut self, key: &ScopeKey) -> SeriesLabels {
        let own = (key.namespace.clone(), key.policy.clone());
        if self.in_force.complete || !is_cluster_scoped(&key.policy) || self.series.contains_key(&own) {
            return self.labels(key);
        }
        // A new series would start with these counts, and `increase()` would not include them.
        self.shared(&key.policy)
    }

    /// Assigns series of their own to scopes that share one, up to the limits. Their counts so far stay in the shared series.
    fn promote(&mut self, now: Moment) {
        for (key, shared) in self.last_scrape.sharing() {
            if !self.has_capacity() {
                return;
            }
            let labels = self.labels(&key);
            if labels != shared {
                self.count(&labels, key.mode, &Counters::default(), now);
                self.last_scrape.assign(&key, labels);
            }
        }
    }

    fn remove_expired(&mut self, now: Moment) {
        let other = other();
        let expired = self
            .series
            .iter()
            .filter(|(labels, series)| now.since(series.used) >= RETENTION && **labels != other);
        for labels in expired.map(|(labels, _)| labels.clone()).collect::<Vec<_>>() {
            self.remove(&labels);
        }
    }
}

/// The choice of the series for a scope.
impl Scopes {
    /// The scope's own series within the limits, otherwise that of its namespace, of its policy, or `_other`, `_other`.
    fn labels(&mut self, key: &ScopeKey) -> SeriesLabels {
        let own = (key.namespace.clone(), key.policy.clone());
        if self.series.contains_key(&own)
            || self.has_namespace_capacity(&key.namespace) && self.ensure_capacity()
        {
            return own;
        }
        let of_namespace = (key.namespace.clone(), Arc::from(OTHER));
        let can_start = !self.has_namespace_capacity(&key.namespace) && self.ensure_capacity();
        if can_start || self.series.contains_key(&of_namespace) {
            return of_namespace;
        }
        self.shared(&key.policy)
    }

    /// The series of a cluster-scoped policy for all namespaces within the limits, otherwise `_other`, `_other`.
    fn shared(&mut self, policy: &Arc<str>) -> SeriesLabels {
        let all: Arc<str> = OTHER.into();
        let of_policy = (all.clone(), policy.clone());
        let has_one = is_cluster_scoped(policy)
            && (self.series.contains_key(&of_policy)
                || self.has_namespace_capacity(&all) && self.ensure_capacity());
        if has_one { of_policy } else { other() }
    }

    /// Whether a namespace can have one more series of a policy. Its last one is reserved for `_other`.
    fn has_namespace_capacity(&self, namespace: &Arc<str>) -> bool {
        self.of_namespace.get(namespace).is_none_or(|number| number + 1 < self.limits.per_namespace)
    }

    /// Whether the total limit is reached. The series `_other`, `_other` is not included.
    fn is_at_limit(&self) -> bool {
        self.series.len() > self.limits.total
    }

    /// Whether one more series fits within the total limit, or an unused one can be replaced.
    fn has_capacity(&self) -> bool {
        !self.is_at_limit() || self.unused > 0
    }

    /// Ensures capacity for one more series, at the limit by removing an unused one. Returns whether there is any.
    fn ensure_capacity(&mut self) -> bool {
        if !self.is_at_limit() || self.unused == 0 {
            return !self.is_at_limit();
        }
        let unused = self.series.iter().rev().find(|(_, series)| series.unused);
        let Some(labels) = unused.map(|(labels, _)| labels.clone()) else { return false };
        self.remove(&labels);
        true
    }

    /// Starts a series at 0, unless it is exported already.
    fn start(&mut self, labels: SeriesLabels, mode: Mode, now: Moment) {
        if let Some(series) = self.series.get_mut(&labels) {
            series.used = now;
            series.of(mode);
            return;
        }
        if labels != other() {
            *self.of_namespace.entry(labels.0.clone()).or_default() += 1;
        }
        let unused = &*labels.0 != OTHER;
        self.unused += usize::from(unused);
        let counts = [(Mode::Enforce, None), (Mode::Observe, None)];
        self.series.entry(labels).or_insert(ExportedSeries { counts, used: now, unused }).of(mode);
    }

    fn count(&mut self, labels: &SeriesLabels, mode: Mode, counters: &Counters, now: Moment) {
        self.start(labels.clone(), mode, now);
        if let Some(series) = self.series.get_mut(labels) {
            self.unused -= usize::from(std::mem::take(&mut series.unused));
            series.of(mode).add(counters);
        }
    }

    fn remove(&mut self, labels: &SeriesLabels) {
        let Some(removed) = self.series.remove(labels) else { return };
        self.unused -= usize::from(removed.unused);
        if let Some(number) = self.of_namespace.get_mut(&labels.0) {
            *number -= 1;
            if *number == 0 {
                self.of_namespace.remove(&labels.0);
            }
        }
    }
}

impl ExportedSeries {
    fn of(&mut self, mode: Mode) -> &mut Counters {
        let [enforce, observe] = &mut self.counts;
        let (_, counts) = if mode == Mode::Enforce { enforce } else { observe };
        counts.get_or_insert_default()
    }
}

/// The series for all scopes without another one.
fn other() -> SeriesLabels {
    (OTHER.into(), OTHER.into())
}
