//! The increments of the engine's counters since the last scrape.

use std::collections::HashMap;
use std::sync::Arc;

use squelch_engine::{Counters, Mode, ScopeCounters};

use super::SeriesLabels;

/// Namespace, policy name and mode of a [`ScopeCounters`]. Consecutive policies with the same name share a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ScopeKey {
    pub(super) namespace: Arc<str>,
    pub(super) policy: Arc<str>,
    pub(super) mode: Mode,
}

/// The engine's counters at the last scrape.
#[derive(Default)]
pub(super) struct LastScrape {
    scopes: HashMap<ScopeKey, Scraped>,
    /// Counters of cluster-scoped policies in deleted namespaces, by policy uid and mode.
    retained: HashMap<(Arc<str>, Mode), Counters>,
}

/// The increments since the last scrape.
#[derive(Default)]
pub(super) struct Increments {
    /// Increments of scopes that the last scrape had, including zeros.
    pub(super) known: Vec<(SeriesLabels, Mode, Counters)>,
    /// Counters of new scopes, in order. The caller [assigns](LastScrape::assign) a series to each.
    pub(super) new: Vec<(ScopeKey, Counters)>,
    /// Increments of scopes between their last scrape and their end: policy, mode, counters.
    pub(super) retained: Vec<(Arc<str>, Mode, Counters)>,
}

struct Scraped {
    counters: CountersByUid,
    labels: Option<SeriesLabels>,
}

/// The counters of a scope, for each policy uid that had its name.
#[derive(Default)]
struct CountersByUid(Vec<(Arc<str>, Counters)>);

impl LastScrape {
    /// Returns the increments since the last call, and stores the current counters.
    pub(super) fn increments(&mut self, current: &[ScopeCounters]) -> Increments {
        let mut increments = Increments::default();
        let mut before = std::mem::take(&mut self.scopes);
        // Scraped counters of scopes that have ended, by policy uid and mode.
        let mut ended: HashMap<(Arc<str>, Mode), Counters> = HashMap::new();
        let mut end = |mode: Mode, counters: &CountersByUid| {
            for (uid, counters) in &counters.0 {
                ended.entry((uid.clone(), mode)).or_default().add(counters);
            }
        };
        for (key, counters) in by_key(current) {
            let Some(Scraped { counters: last, labels: Some(labels) }) = before.remove(&key) else {
                increments.new.push((key.clone(), counters.sum()));
                self.scopes.insert(key, Scraped { counters, labels: None });
                continue;
            };
            let increment = if counters.continues(&last) {
                difference(&counters.sum(), &last.sum())
            } else {
                let (continued, over) = last.divide(&counters);
                end(key.mode, &over);
                difference(&counters.sum(), &continued.sum())
            };
            increments.known.push((labels.clone(), key.mode, increment));
            self.scopes.insert(key, Scraped { counters, labels: Some(labels) });
        }
        before.iter().for_each(|(key, scraped)| end(key.mode, &scraped.counters));
        increments.retained = self.retained_increments(current, &ended);
        // A fixed order, so that at the limit the same scopes get series of their own.
        increments.new.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        increments
    }

    /// Returns the increments of scopes between their last scrape and their end. The engine adds the counters of a deleted
    /// namespace to the retained counters of the policy.
    fn retained_increments(
        &mut self,
        current: &[ScopeCounters],
        ended: &HashMap<(Arc<str>, Mode), Counters>,
    ) -> Vec<(Arc<str>, Mode, Counters)> {
        let before = std::mem::take(&mut self.retained);
        let retained = current.iter().filter(|scope| scope.namespace.is_empty());
        let unscraped = retained.filter_map(|ScopeCounters { policy, mode, counters, .. }| {
            let (none, key) = (Counters::default(), (policy.uid.clone(), *mode));
            let increment = difference(counters, before.get(&key).unwrap_or(&none));
            let unscraped = difference(&increment, ended.get(&key).unwrap_or(&none));
            self.retained.insert(key, *counters);
            (unscraped != none).then(|| (policy.display.clone(), *mode, unscraped))
        });
        unscraped.collect()
    }

    /// Assigns the series with these labels to a scope.
    pub(super) fn assign(&mut self, key: &ScopeKey, labels: SeriesLabels) {
        if let Some(scraped) = self.scopes.get_mut(key) {
            scraped.labels = Some(labels);
        }
    }

    /// The scopes without a series of their own, each with its shared series, in order.
    pub(super) fn sharing(&self) -> Vec<(ScopeKey, SeriesLabels)> {
        let sharing = self.scopes.iter().filter_map(|(key, scraped)| {
            let labels = scraped.labels.clone()?;
            (labels.0 != key.namespace || labels.1 != key.policy).then(|| (key.clone(), labels))
        });
        let mut sharing: Vec<_> = sharing.collect();
        sharing.sort_unstable();
        sharing
    }
}

impl CountersByUid {
    fn sum(&self) -> Counters {
        let mut sum = Counters::default();
        self.0.iter().for_each(|(_, counters)| sum.add(counters));
        sum
    }

    /// Whether the sum continues from `before`. Counts may have moved between the uids.
    fn continues(&self, before: &Self) -> bool {
        let was_scraped = |uid| before.0.iter().any(|(before, _)| before == uid);
        !has_decreased(&before.sum(), &self.sum()) && self.0.iter().any(|(uid, _)| was_scraped(uid))
    }

    /// Divides these counters into those that continue in `now`, and those that have ended. Each policy ends alone: if the
    /// namespace is deleted, the engine still retains the counters of a former policy with this name for a while.
    fn divide(self, now: &Self) -> (Self, Self) {
        let (continued, ended) = self.0.into_iter().partition(|(uid, counters)| {
            now.0.iter().any(|(same, now)| same == uid && !has_decreased(counters, now))
        });
        (Self(continued), Self(ended))
    }
}

/// The counters of existing namespaces, by key.
fn by_key(current: &[ScopeCounters]) -> HashMap<ScopeKey, CountersByUid> {
    let mut by_key: HashMap<ScopeKey, CountersByUid> = HashMap::with_capacity(current.len());
    for ScopeCounters { namespace, policy, mode, counters, dropped: _ } in current {
        // An empty namespace marks retained counters: see `retained_increments`.
        if namespace.is_empty() {
            continue;
        }
        let (namespace, display) = (namespace.clone(), policy.display.clone());
        let counted = by_key.entry(ScopeKey { namespace, policy: display, mode: *mode }).or_default();
        counted.0.push((policy.uid.clone(), *counters));
    }
    by_key
}

/// Whether a count is lower in `after` than in `before`.
fn has_decreased(before: &Counters, after: &Counters) -> bool {
    difference(before, after) != Counters::default()
}

/// `after - before`, saturating at 0.
fn difference(after: &Counters, before: &Counters) -> Counters {
    let mut by_disposition = after.by_disposition;
    for (count, before) in by_disposition.iter_mut().zip(before.by_disposition) {
        *count = count.saturating_sub(before);
    }
    Counters {
        by_disposition,
        recovered: after.recovered.saturating_sub(before.recovered),
        lost: after.lost.saturating_sub(before.lost),
        dropped_warnings: after.dropped_warnings.saturating_sub(before.dropped_warnings),
    }
}
