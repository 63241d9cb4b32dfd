//! The counts behind the metrics that have the labels `event_namespace` and `policy`.
//!
//! The engine's lines come and go with policies and namespaces. A series must not fall when a line goes, so each series
//! has a sum of its own. A scrape adds to it what its lines have counted since the scrape before. The law:
//!
//! - Each occurrence is added to one series, once. Counts never move from one series to another.
//! - A series never falls while it is exported: `other` keeps the counts of lines that are gone.
//! - A series is removed an hour after its last line. A series that returns begins at 0, which Prometheus takes for a
//!   counter reset.
//!
//! So `increase()` is right for each series, and the increases of all series add up to what the engine counted.
//! The values of all series add up to less than that once a series is removed. Adding them to `other` then would look
//! like new occurrences.

mod lines;
#[cfg(test)]
pub(super) mod testing;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use squelch_engine::{Counters, Mode, Moment, ScopeCounters, is_cluster_scoped};

use super::table::{MAX_OF_NAMESPACE, MAX_SCOPES, OTHER};
use lines::{Line, Lines, Step};

/// A series without lines is exported for this long: longer than the ranges of the alerts, so that they see its last
/// value.
const KEPT: Duration = Duration::from_secs(3600);

/// `event_namespace` and `policy` of a series.
pub(super) type Labels = (Arc<str>, Arc<str>);

/// Counts by mode; `None`: nothing is counted in this mode.
pub(super) type ByMode = [(Mode, Option<Counters>); 2];

/// Cluster-scoped policies, and where they govern.
#[derive(Clone, Debug, Default)]
pub struct InForce {
    /// Every cluster-scoped policy that governs something, by name.
    pub policies: Vec<(Arc<str>, Mode)>,
    /// Namespaces and the policies that govern there: at most [`MAX_SCOPES`] pairs.
    pub pairs: Vec<(Arc<str>, Arc<str>, Mode)>,
    /// Whether `pairs` has all of them.
    pub complete: bool,
}

/// The maximum numbers of series.
#[derive(Clone, Copy)]
struct Limits {
    /// In all, without the last one.
    all: usize,
    /// With the same `event_namespace`.
    namespace: usize,
}

/// Every exported series.
pub(super) struct Scopes {
    limits: Limits,
    series: BTreeMap<Labels, Series>,
    /// How many of them each namespace has; `other` counts as one, but its last series does not count.
    of_namespace: HashMap<Arc<str>, usize>,
    /// How many of them are spare.
    spares: usize,
    in_force: InForce,
    lines: Lines,
}

/// One series.
struct Series {
    counts: ByMode,
    /// When it last had a line, or a policy in force.
    used: Moment,
    /// No line has had it yet: it can make room for another.
    spare: bool,
}

impl Default for Scopes {
    fn default() -> Self {
        Self::new(Limits { all: MAX_SCOPES, namespace: MAX_OF_NAMESPACE })
    }
}

impl Scopes {
    fn new(limits: Limits) -> Self {
        let mut scopes = Self {
            limits,
            series: BTreeMap::new(),
            of_namespace: HashMap::new(),
            spares: 0,
            in_force: InForce::default(),
            lines: Lines::default(),
        };
        scopes.begin(last(), Mode::Enforce, Moment::default());
        scopes
    }

    /// Takes the cluster-scoped policies as they are now: their series begin with 0 before the first write.
    pub(super) fn put_in_force(&mut self, in_force: InForce) {
        self.in_force = in_force;
    }

    /// Adds what the engine has counted since the last call. `accounts` are all its lines (`Engine::all_accounts`).
    pub(super) fn add(&mut self, accounts: &[ScopeCounters], now: Moment) {
        self.export_in_force(now);
        let Step { grown, first, departed } = self.lines.step(accounts);
        for (labels, mode, counters) in grown {
            self.count(&labels, mode, &counters, now);
        }
        for (line, counters) in first {
            let labels = self.labels_at_first(&line);
            self.count(&labels, line.mode, &counters, now);
            self.lines.assign(&line, labels);
        }
        for (policy, mode, counters) in departed {
            let labels = self.shared(&policy);
            self.count(&labels, mode, &counters, now);
        }
        self.promote(now);
        self.remove_unused(now);
    }

    /// The series by their labels, in order.
    pub(super) fn all(&self) -> impl Iterator<Item = (&Labels, &ByMode)> {
        self.series.iter().map(|(labels, series)| (labels, &series.counts))
    }

    fn export_in_force(&mut self, now: Moment) {
        let in_force = std::mem::take(&mut self.in_force);
        for (policy, mode) in &in_force.policies {
            let labels = self.shared(policy);
            self.begin(labels, *mode, now);
        }
        for (namespace, policy, mode) in &in_force.pairs {
            let own = (namespace.clone(), policy.clone());
            if self.series.contains_key(&own) || self.has_share(namespace) && !self.is_full() {
                self.begin(own, *mode, now);
            }
        }
        self.in_force = in_force;
    }

    /// The series for what a line had counted before its first scrape.
    fn labels_at_first(&mut self, line: &Line) -> Labels {
        let own = (line.namespace.clone(), line.policy.clone());
        if self.in_force.complete || !is_cluster_scoped(&line.policy) || self.series.contains_key(&own) {
            return self.labels(line);
        }
        // A series of its own would begin with these counts, and `increase()` would not see them.
        self.shared(&line.policy)
    }

    /// Lines that share a series get their own as soon as there is room. What they have counted so far stays.
    fn promote(&mut self, now: Moment) {
        for (line, shared) in self.lines.sharing() {
            if !self.has_room() {
                return;
            }
            let labels = self.labels(&line);
            if labels != shared {
                self.count(&labels, line.mode, &Counters::default(), now);
                self.lines.assign(&line, labels);
            }
        }
    }

    fn remove_unused(&mut self, now: Moment) {
        let last = last();
        let unused =
            self.series.iter().filter(|(labels, series)| now.since(series.used) >= KEPT && **labels != last);
        for labels in unused.map(|(labels, _)| labels.clone()).collect::<Vec<_>>() {
            self.remove(&labels);
        }
    }
}

/// Which series a line has.
impl Scopes {
    /// Its own if there is room; else the one of its namespace, of its policy, or the last one.
    fn labels(&mut self, line: &Line) -> Labels {
        let own = (line.namespace.clone(), line.policy.clone());
        if self.series.contains_key(&own) || self.has_share(&line.namespace) && self.make_room() {
            return own;
        }
        let of_namespace = (line.namespace.clone(), Arc::from(OTHER));
        let may_be_made = !self.has_share(&line.namespace) && self.make_room();
        if may_be_made || self.series.contains_key(&of_namespace) {
            return of_namespace;
        }
        self.shared(&line.policy)
    }

    /// The one of a cluster-scoped policy whatever the namespace, if there is room; else the last one.
    fn shared(&mut self, policy: &Arc<str>) -> Labels {
        let other: Arc<str> = OTHER.into();
        let of_policy = (other.clone(), policy.clone());
        let has_one = is_cluster_scoped(policy)
            && (self.series.contains_key(&of_policy) || self.has_share(&other) && self.make_room());
        if has_one { of_policy } else { last() }
    }

    /// Whether a namespace may have one more series of a policy. Its last place is for `other`.
    fn has_share(&self, namespace: &Arc<str>) -> bool {
        self.of_namespace.get(namespace).is_none_or(|number| number + 1 < self.limits.namespace)
    }

    /// Whether there is no place for one more series. The last series does not count.
    fn is_full(&self) -> bool {
        self.series.len() > self.limits.all
    }

    /// Whether there is a place for one more series, or one that can be spared.
    fn has_room(&self) -> bool {
        !self.is_full() || self.spares > 0
    }

    /// Makes a place for one more series, if need be by removing one that has counted nothing.
    fn make_room(&mut self) -> bool {
        if !self.is_full() || self.spares == 0 {
            return !self.is_full();
        }
        let spare = self.series.iter().rev().find(|(_, series)| series.spare);
        let Some(labels) = spare.map(|(labels, _)| labels.clone()) else { return false };
        self.remove(&labels);
        true
    }

    /// Begins a series with 0, unless it is exported already.
    fn begin(&mut self, labels: Labels, mode: Mode, now: Moment) {
        if let Some(series) = self.series.get_mut(&labels) {
            series.used = now;
            series.of(mode);
            return;
        }
        if labels != last() {
            *self.of_namespace.entry(labels.0.clone()).or_default() += 1;
        }
        let spare = &*labels.0 != OTHER;
        self.spares += usize::from(spare);
        let counts = [(Mode::Enforce, None), (Mode::Observe, None)];
        self.series.entry(labels).or_insert(Series { counts, used: now, spare }).of(mode);
    }

    fn count(&mut self, labels: &Labels, mode: Mode, counters: &Counters, now: Moment) {
        self.begin(labels.clone(), mode, now);
        if let Some(series) = self.series.get_mut(labels) {
            self.spares -= usize::from(std::mem::take(&mut series.spare));
            series.of(mode).add(counters);
        }
    }

    fn remove(&mut self, labels: &Labels) {
        let Some(removed) = self.series.remove(labels) else { return };
        self.spares -= usize::from(removed.spare);
        if let Some(number) = self.of_namespace.get_mut(&labels.0) {
            *number -= 1;
            if *number == 0 {
                self.of_namespace.remove(&labels.0);
            }
        }
    }
}

impl Series {
    fn of(&mut self, mode: Mode) -> &mut Counters {
        let [enforce, observe] = &mut self.counts;
        let (_, counts) = if mode == Mode::Enforce { enforce } else { observe };
        counts.get_or_insert_default()
    }
}

/// The series of everything that has no other.
fn last() -> Labels {
    (OTHER.into(), OTHER.into())
}
