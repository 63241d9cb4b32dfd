//! The engine's counters and gauges as metrics, read at each scrape.

use std::sync::{Arc, Mutex, PoisonError};

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntCounterVec, IntGauge, IntGaugeVec, Opts};
use squelch_engine::{Disposition, Engine, Gauges, Mode, split_display};

use super::labels::{EntryTable, EvictionTable, PendingLimit, PolicyKind};
use super::scopes::Scopes;
use super::table::{self, Row};
use crate::clock;

/// Collects the engine's metrics.
pub(super) struct EngineCollector {
    engine: Arc<Engine>,
    described: Vec<Desc>,
    scopes: Arc<Mutex<Scopes>>,
}

impl EngineCollector {
    pub(super) fn new(engine: Arc<Engine>, scopes: Arc<Mutex<Scopes>>) -> Self {
        let described = BY_SCOPE.iter().chain(&OF_ALL);
        Self { engine, described: described.map(|row| describe(row)).collect(), scopes }
    }
}

impl Collector for EngineCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.described.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut families = {
            let mut scopes = self.scopes.lock().unwrap_or_else(PoisonError::into_inner);
            // The lock keeps two collections from adding the same increments.
            scopes.add(&self.engine.all_counters(), clock::now());
            families(&scopes)
        };
        let gauges = self.engine.gauges();
        families.extend(gauge(&table::SERIES, i64::try_from(gauges.series).unwrap_or(i64::MAX)));
        families.extend(gauge(&table::ENDED_SERIES, i64::try_from(gauges.ended).unwrap_or(i64::MAX)));
        families
            .extend(gauge(&table::PENDING, i64::try_from(gauges.pending_occurrences).unwrap_or(i64::MAX)));
        families.extend(gauge(&table::TEXT, i64::try_from(gauges.text).unwrap_or(i64::MAX)));
        families.extend(table_entries(&gauges));
        families.extend(pending_limit_admissions(&gauges));
        families.extend(evictions(&gauges));
        families
    }
}

/// Metrics per scope.
const BY_SCOPE: [&Row; 6] = [
    &table::OCCURRENCES,
    &table::OBSERVED_OCCURRENCES,
    &table::RECOVERED,
    &table::LOST,
    &table::DROPPED_WARNINGS,
    &table::OBSERVED_DROPPED_WARNINGS,
];

/// Metrics of the whole engine.
const OF_ALL: [&Row; 7] = [
    &table::PENDING,
    &table::PENDING_LIMIT_ADMISSIONS,
    &table::SERIES,
    &table::ENDED_SERIES,
    &table::TABLE_ENTRIES,
    &table::TEXT,
    &table::EVICTIONS,
];

fn families(scopes: &Scopes) -> Vec<MetricFamily> {
    let [occurrences, observed, recovered, lost, dropped_warnings, observed_dropped] = BY_SCOPE.map(counter);
    for ((namespace, policy), by_mode) in scopes.all() {
        let (kind, name) = policy_labels(policy);
        let scope = [&**namespace, kind, name];
        let modes = by_mode.iter().filter_map(|(mode, counters)| Some((mode, counters.as_ref()?)));
        for (mode, counters) in modes {
            let (occurrences, dropped_warnings) = match mode {
                Mode::Enforce => (&occurrences, &dropped_warnings),
                Mode::Observe => (&observed, &observed_dropped),
            };
            for disposition in Disposition::ALL {
                let [namespace, kind, name] = scope;
                occurrences
                    .with_label_values(&[namespace, kind, name, disposition.as_str()])
                    .inc_by(counters.of(disposition));
            }
            recovered.with_label_values(&scope).inc_by(counters.recovered);
            lost.with_label_values(&scope).inc_by(counters.lost);
            dropped_warnings.with_label_values(&scope).inc_by(counters.dropped_warnings);
        }
    }
    let families = [occurrences, observed, recovered, lost, dropped_warnings, observed_dropped];
    families.iter().flat_map(Collector::collect).collect()
}

/// Returns the labels `policy_kind` and `policy` of a policy's display name.
fn policy_labels(display: &str) -> (&str, &str) {
    if display == table::OTHER {
        return (table::OTHER, table::OTHER);
    }
    let (namespace, name) = split_display(display);
    let kind = if namespace.is_some() { PolicyKind::EventPolicy } else { PolicyKind::ClusterEventPolicy };
    (kind.as_str(), name)
}

fn counter(row: &Row) -> IntCounterVec {
    IntCounterVec::new(Opts::new(row.name, row.help), row.labels)
        .expect("the table holds valid names and labels")
}

fn gauge(row: &Row, value: i64) -> Vec<MetricFamily> {
    let gauge = IntGauge::new(row.name, row.help).expect("the table holds valid names");
    gauge.set(value);
    gauge.collect()
}

fn table_entries(gauges: &Gauges) -> Vec<MetricFamily> {
    let row = &table::TABLE_ENTRIES;
    let entries = IntGaugeVec::new(Opts::new(row.name, row.help), row.labels)
        .expect("the table holds valid names and labels");
    for table in EntryTable::ALL {
        let number = match table {
            EntryTable::Namespaces => gauges.namespaces,
            EntryTable::Names => gauges.names,
            EntryTable::Groups => gauges.groups,
            EntryTable::Fingerprints => gauges.fingerprints,
            EntryTable::Buckets => gauges.buckets,
            EntryTable::Dropped => gauges.dropped,
        };
        entries.with_label_values(&[table.as_str()]).set(i64::try_from(number).unwrap_or(i64::MAX));
    }
    entries.collect()
}

fn pending_limit_admissions(gauges: &Gauges) -> Vec<MetricFamily> {
    let admissions = counter(&table::PENDING_LIMIT_ADMISSIONS);
    for limit in PendingLimit::ALL {
        let admitted = match limit {
            PendingLimit::Series => gauges.pending_limit_admissions.series,
            PendingLimit::Text => gauges.pending_limit_admissions.text,
        };
        admissions.with_label_values(&[limit.as_str()]).inc_by(admitted);
    }
    admissions.collect()
}

fn evictions(gauges: &Gauges) -> Vec<MetricFamily> {
    let evictions = counter(&table::EVICTIONS);
    for table in EvictionTable::ALL {
        let evicted = match table {
            EvictionTable::Series => gauges.series_evicted,
            EvictionTable::Contents => gauges.contents_evicted,
            EvictionTable::Names => gauges.names_evicted,
            EvictionTable::Ended => gauges.ended_evicted,
            EvictionTable::Groups => gauges.groups_evicted,
            EvictionTable::Buckets => gauges.buckets_evicted,
            EvictionTable::Dropped => gauges.dropped_evicted,
        };
        evictions.with_label_values(&[table.as_str()]).inc_by(evicted);
    }
    evictions.collect()
}

fn describe(row: &Row) -> Desc {
    let labels = row.labels.iter().map(|&label| label.to_owned()).collect();
    Desc::new(row.name.to_owned(), row.help.to_owned(), labels, std::collections::HashMap::new())
        .expect("the table holds valid names and labels")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::scopes::testing::scope;
    use squelch_engine::{Counters, ScopeCounters};

    fn collected(counters: &[ScopeCounters]) -> Vec<MetricFamily> {
        let mut scopes = Scopes::default();
        scopes.add(counters, clock::now());
        families(&scopes)
    }

    #[test]
    fn all_dispositions_are_exported_from_the_start() {
        let occurrences = collected(&[scope("shop", "shop/p", "1", 0)]).remove(0);
        let series = occurrences.get_metric().len();
        assert_eq!(series, 2 * Disposition::ALL.len(), "of the policy and of `_other`");
    }

    #[test]
    fn a_dropped_warning_of_mode_observe_has_its_own_metric() {
        let counters = Counters { dropped_warnings: 7, ..Counters::default() };
        let enforced = ScopeCounters { counters, ..scope("shop", "shop/p", "1", 0) };
        let observed = ScopeCounters { mode: Mode::Observe, ..enforced.clone() };
        let only_observed = ScopeCounters { counters, mode: Mode::Observe, ..scope("x", "x/p", "2", 0) };
        let families = collected(&[enforced, observed, only_observed]);
        let of = |row: &Row| {
            let family = families.iter().find(|family| family.name() == row.name).unwrap();
            let children = family.get_metric().iter().map(|child| child.get_counter().get_value());
            let mut counts: Vec<f64> = children.collect();
            counts.sort_by(f64::total_cmp);
            counts
        };
        // The last series, which counts all other scopes, is in mode Enforce.
        assert_eq!(of(&table::DROPPED_WARNINGS), [0.0, 7.0]);
        assert_eq!(of(&table::OBSERVED_DROPPED_WARNINGS), [7.0, 7.0]);
    }

    #[test]
    fn evictions_are_counted_by_table() {
        let gauges = Gauges {
            series_evicted: 1,
            names_evicted: 2,
            groups_evicted: 3,
            buckets_evicted: 4,
            dropped_evicted: 5,
            contents_evicted: 6,
            ended_evicted: 7,
            ..Gauges::default()
        };
        let families = evictions(&gauges);
        let exported = families[0].get_metric().iter();
        let mut exported: Vec<_> = exported
            .map(|child| (child.get_label()[0].value().to_owned(), child.get_counter().get_value()))
            .collect();
        exported.sort_by(|one, other| one.0.cmp(&other.0));
        let expected = [
            ("buckets", 4.0),
            ("contents", 6.0),
            ("dropped", 5.0),
            ("ended", 7.0),
            ("groups", 3.0),
            ("names", 2.0),
            ("series", 1.0),
        ];
        assert_eq!(exported, expected.map(|(table, evicted)| (table.to_owned(), evicted)));
    }
}
