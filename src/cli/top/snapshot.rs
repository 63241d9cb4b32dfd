//! What `squelch top` has read, and what it shows of it, in order. Pure: time is an argument.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use clap::ValueEnum;
use jiff::Timestamp;
use kube::core::DynamicObject;
use kube::runtime::watcher::Event;
use serde::Serialize;

use crate::api::{PolicyCounters, ReportedDrops};

use crate::replay::text::plural;

use super::rows::{NamespaceLine, PolicyLine, full_name, shown};

/// The order of namespaces and policies. The largest number comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TopOrder {
    /// Suppressed occurrences
    Suppressed,
    /// Dropped occurrences
    Dropped,
    /// Dropped occurrences of Warnings
    Warnings,
    /// Suppressed occurrences per second, of namespaces in the live view
    Rate,
}

impl TopOrder {
    /// The word of the option.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Suppressed => "suppressed",
            Self::Dropped => "dropped",
            Self::Warnings => "warnings",
            Self::Rate => "rate",
        }
    }

    /// The order after this one.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Suppressed => Self::Dropped,
            Self::Dropped => Self::Warnings,
            Self::Warnings => Self::Rate,
            Self::Rate => Self::Suppressed,
        }
    }
}

/// A resource that `squelch top` reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TopSource {
    /// `EventDropReports`.
    Reports,
    /// `EventPolicies`.
    Policies,
    /// `ClusterEventPolicies`.
    ClusterPolicies,
}

impl TopSource {
    /// All of them.
    pub(super) const ALL: [Self; 3] = [Self::Reports, Self::Policies, Self::ClusterPolicies];

    /// The kind of its objects.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::Reports => "EventDropReport",
            Self::Policies => "EventPolicy",
            Self::ClusterPolicies => "ClusterEventPolicy",
        }
    }

    fn resource(self) -> &'static str {
        match self {
            Self::Reports => "eventdropreports.squelch.dev",
            Self::Policies => "eventpolicies.squelch.dev",
            Self::ClusterPolicies => "clustereventpolicies.squelch.dev",
        }
    }

    /// What the views lack without it.
    pub(super) fn loss(self) -> &'static str {
        match self {
            Self::Reports => "no namespaces and no offenders are shown",
            Self::Policies => "no EventPolicies are shown",
            Self::ClusterPolicies => "no ClusterEventPolicies are shown",
        }
    }

    /// Says that a right is missing, and what is missing because of that.
    pub(super) fn forbidden(self, verb: &str, namespace: Option<&str>, loss: &str) -> String {
        let place = match (self, namespace) {
            (Self::ClusterPolicies, _) => String::new(),
            (_, None) => " in all namespaces".to_owned(),
            (_, Some(namespace)) => format!(" in the namespace {namespace}"),
        };
        format!("you may not {verb} {}{place}: {loss}", self.resource())
    }

    /// Says that there is no such resource.
    pub(super) fn not_installed(self) -> String {
        format!("squelch is not installed in this cluster (no {} definition)", self.kind())
    }
}

/// Why a list or a watch failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TopFailure {
    /// The user lacks this verb.
    Forbidden(&'static str),
    /// The API server knows no such resource.
    NotInstalled,
    /// Anything else, with its text.
    Disconnected(String),
}

/// An entry of `dropped` of one report.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Offender<'a> {
    pub(super) namespace: &'a str,
    #[serde(flatten)]
    pub(super) drops: &'a ReportedDrops,
}

/// The objects of one resource by key. `None` is an object with a structure that this version cannot read.
#[derive(Debug)]
struct Objects<T> {
    current: BTreeMap<String, Option<T>>,
    /// The objects of a list that is not complete yet.
    listed: BTreeMap<String, Option<T>>,
    is_complete: bool,
}

impl<T> Default for Objects<T> {
    fn default() -> Self {
        Self { current: BTreeMap::new(), listed: BTreeMap::new(), is_complete: false }
    }
}

impl<T> Objects<T> {
    fn apply(
        &mut self,
        event: Event<DynamicObject>,
        read: impl Fn(&DynamicObject) -> (String, Option<T>),
        follow: impl Fn(&mut T, &T),
    ) {
        let following = |current: &BTreeMap<String, Option<T>>, object: &DynamicObject| {
            let (key, mut row) = read(object);
            if let (Some(row), Some(Some(former))) = (&mut row, current.get(&key)) {
                follow(row, former);
            }
            (key, row)
        };
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(object) => self.listed.extend([following(&self.current, &object)]),
            Event::InitDone => {
                self.current = std::mem::take(&mut self.listed);
                self.is_complete = true;
            }
            Event::Apply(object) => {
                let (key, row) = following(&self.current, &object);
                self.current.insert(key, row);
            }
            Event::Delete(object) => {
                self.current.remove(&read(&object).0);
            }
        }
    }

    fn rows(&self) -> impl Iterator<Item = &T> {
        self.current.values().flatten()
    }

    fn unreadable(&self) -> usize {
        self.current.values().filter(|row| row.is_none()).count()
    }
}

/// Everything that was read.
#[derive(Debug, Default)]
pub(super) struct TopModel {
    /// The selected namespace; `None` for all.
    pub(super) namespace: Option<String>,
    /// The resources that are read. The others are in `missing`.
    pub(super) sources: Vec<TopSource>,
    /// Rights that were missing at the start.
    pub(super) missing: Vec<String>,
    reports: Objects<NamespaceLine>,
    policies: Objects<PolicyLine>,
    cluster_policies: Objects<PolicyLine>,
    failures: BTreeMap<TopSource, (TopFailure, Timestamp)>,
}

impl TopModel {
    /// Nothing yet of these resources.
    pub(super) fn new(namespace: Option<&str>, sources: &[TopSource], missing: Vec<String>) -> Self {
        let (namespace, sources) = (namespace.map(str::to_owned), sources.to_vec());
        Self { namespace, sources, missing, ..Self::default() }
    }

    /// Applies an event of a list or watch.
    pub(super) fn apply(&mut self, source: TopSource, event: Event<DynamicObject>, now: Timestamp) {
        let policy = |object: &DynamicObject| {
            let (namespace, name) = (object.metadata.namespace.as_deref(), object.metadata.name.as_deref());
            (full_name(namespace, name.unwrap_or_default()), PolicyLine::of(source.kind(), object))
        };
        let report = |object: &DynamicObject| {
            (object.metadata.namespace.clone().unwrap_or_default(), NamespaceLine::of(object))
        };
        match source {
            TopSource::Reports => self.reports.apply(event, report, |row, former| row.follow(former, now)),
            TopSource::Policies => self.policies.apply(event, policy, |_, _| ()),
            TopSource::ClusterPolicies => self.cluster_policies.apply(event, policy, |_, _| ()),
        }
    }

    /// Whether a resource was listed completely.
    pub(super) fn is_listed(&self, source: TopSource) -> bool {
        match source {
            TopSource::Reports => self.reports.is_complete,
            TopSource::Policies => self.policies.is_complete,
            TopSource::ClusterPolicies => self.cluster_policies.is_complete,
        }
    }

    /// Whether all resources were listed completely.
    pub(super) fn is_complete(&self) -> bool {
        self.sources.iter().all(|source| self.is_listed(*source))
    }

    /// Keeps the failure of a list or watch, with the time of the first one in a row.
    pub(super) fn failed(&mut self, source: TopSource, failure: TopFailure, now: Timestamp) {
        let since = self.failures.get(&source).map_or(now, |(_, since)| *since);
        self.failures.insert(source, (failure, since));
    }

    /// The API server has responded to a request for this resource.
    pub(super) fn responded(&mut self, source: TopSource) {
        self.failures.remove(&source);
    }

    /// What is missing or outdated, one line each.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = self.missing.clone();
        let mut disconnected: Option<(&str, Timestamp)> = None;
        for (source, (failure, since)) in &self.failures {
            match failure {
                TopFailure::Forbidden(verb) => {
                    notes.push(source.forbidden(
                        verb,
                        self.namespace.as_deref(),
                        "what is shown may be outdated",
                    ));
                }
                TopFailure::NotInstalled => notes.push(source.not_installed()),
                TopFailure::Disconnected(error) if disconnected.is_none_or(|(_, first)| *since < first) => {
                    disconnected = Some((error, *since));
                }
                TopFailure::Disconnected(_) => {}
            }
        }
        if let Some((error, since)) = disconnected {
            let since = since.strftime("%H:%M:%S UTC");
            notes.push(format!("not connected since {since}, retrying: {}", shown(error)));
        }
        let unreadable =
            self.reports.unreadable() + self.policies.unreadable() + self.cluster_policies.unreadable();
        if unreadable > 0 {
            let objects = plural(unreadable as u64, "object is", "objects are");
            notes.push(format!(
                "{objects} of another version of squelch and not shown; update kubectl-squelch"
            ));
        }
        notes
    }

    /// The scope, for titles.
    pub(super) fn scope(&self) -> String {
        self.namespace
            .as_ref()
            .map_or_else(|| "all namespaces".to_owned(), |name| format!("namespace {name}"))
    }

    /// The namespaces with a report, ordered. Equal ones are ordered by suppressed occurrences, then by name.
    pub(super) fn namespaces(&self, order: TopOrder, now: Timestamp) -> Vec<&NamespaceLine> {
        let mut rows: Vec<_> = self.reports.rows().collect();
        rows.sort_by(|one, other| {
            let first = match order {
                TopOrder::Suppressed => std::cmp::Ordering::Equal,
                TopOrder::Dropped => other.dropped_occurrences.cmp(&one.dropped_occurrences),
                TopOrder::Warnings => other.dropped_warnings.cmp(&one.dropped_warnings),
                TopOrder::Rate => {
                    let rate = |row: &NamespaceLine| row.rate(now).unwrap_or(-1.0);
                    rate(other).total_cmp(&rate(one))
                }
            };
            let key = |row: &NamespaceLine| Reverse(row.suppressed);
            first.then_with(|| (key(one), &one.namespace).cmp(&(key(other), &other.namespace)))
        });
        rows
    }

    /// The policies of both kinds, ordered in the same way.
    pub(super) fn policies(&self, order: TopOrder) -> Vec<&PolicyLine> {
        let number = |counters: &PolicyCounters| match order {
            TopOrder::Suppressed | TopOrder::Rate => counters.suppressed(),
            TopOrder::Dropped => counters.dropped(),
            TopOrder::Warnings => counters.dropped_warnings,
        };
        let mut rows: Vec<_> = self.policies.rows().chain(self.cluster_policies.rows()).collect();
        rows.sort_by_cached_key(|row| {
            (Reverse(number(&row.counters)), Reverse(row.counters.suppressed()), row.full_name())
        });
        rows
    }

    /// The entries of all reports with the most dropped occurrences, at most `limit`, and the number of all entries.
    pub(super) fn offenders(&self, limit: usize) -> (Vec<Offender<'_>>, usize) {
        let rows = self.reports.rows();
        let mut all: Vec<Offender<'_>> = rows
            .flat_map(|row| row.dropped.iter().map(|drops| Offender { namespace: &row.namespace, drops }))
            .collect();
        let total = all.len();
        let order = |one: &Offender<'_>, other: &Offender<'_>| {
            let by_count = other.drops.count.cmp(&one.drops.count);
            by_count
                .then_with(|| (one.namespace, &one.drops.reason).cmp(&(other.namespace, &other.drops.reason)))
        };
        if total > limit {
            // A cluster of 10,000 namespaces can have 200,000 entries: only those that are shown are sorted.
            all.select_nth_unstable_by(limit, order);
            all.truncate(limit);
        }
        all.sort_by(order);
        (all, total)
    }

    /// The report of a namespace.
    pub(super) fn namespace(&self, name: &str) -> Option<&NamespaceLine> {
        self.reports.current.get(name)?.as_ref()
    }

    /// A policy, by its full name.
    pub(super) fn policy(&self, full_name: &str) -> Option<&PolicyLine> {
        let objects = if full_name.contains('/') { &self.policies } else { &self.cluster_policies };
        objects.current.get(full_name)?.as_ref()
    }

    /// The sums of suppressed occurrences, of dropped ones, and of dropped Warnings over all reports.
    pub(super) fn totals(&self) -> [i64; 3] {
        self.reports.rows().fold([0; 3], |[suppressed, dropped, warnings], row| {
            [
                suppressed.saturating_add(row.suppressed),
                dropped.saturating_add(row.dropped_occurrences),
                warnings.saturating_add(row.dropped_warnings),
            ]
        })
    }
}

#[cfg(test)]
mod tests;
