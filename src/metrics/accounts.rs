//! The engine's accounts as metrics, read at each scrape.

use std::sync::{Arc, Mutex, PoisonError};

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntCounterVec, IntGauge, IntGaugeVec, Opts};
use squelch_engine::{Disposition, Engine, Gauges, Mode};

use super::labels::{EntryTable, EvictionTable, PendingLimit};
use super::scopes::Scopes;
use super::table::{self, Row};
use crate::clock;

/// Asks the engine whenever Prometheus asks.
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
            // Under the lock, so that no two collections add the same counts.
            scopes.add(&self.engine.all_counters(), clock::now());
            families(&scopes)
        };
        let gauges = self.engine.gauges();
        families.extend(gauge(&table::SERIES, i64::try_from(gauges.series).unwrap_or(i64::MAX)));
        families.extend(gauge(&table::ENDED_SERIES, i64::try_from(gauges.ended).unwrap_or(i64::MAX)));
        families.extend(gauge(&table::OWED, i64::try_from(gauges.pending_occurrences).unwrap_or(i64::MAX)));
        families.extend(gauge(&table::TEXT, i64::try_from(gauges.text).unwrap_or(i64::MAX)));
        families.extend(table_entries(&gauges));
        families.extend(debt_refusals(&gauges));
        families.extend(evictions(&gauges));
        families
    }
}

/// What is counted per scope.
const BY_SCOPE: [&Row; 4] = [&table::EVENTS, &table::RECOVERED, &table::LOST, &table::DROPPED_WARNINGS];

/// What is told of the engine as a whole.
const OF_ALL: [&Row; 7] = [
    &table::OWED,
    &table::DEBT_REFUSALS,
    &table::SERIES,
    &table::ENDED_SERIES,
    &table::TABLE_ENTRIES,
    &table::TEXT,
    &table::EVICTIONS,
];

fn families(scopes: &Scopes) -> Vec<MetricFamily> {
    let [events, recovered, lost, dropped_warnings] = BY_SCOPE.map(counter);
    for ((namespace, policy), by_mode) in scopes.all() {
        let modes = by_mode.iter().filter_map(|(mode, counters)| Some((mode, counters.as_ref()?)));
        for (mode, counters) in modes {
            for disposition in Disposition::ALL {
                events
                    .with_label_values(&[&**namespace, policy, mode_name(*mode), disposition.as_str()])
                    .inc_by(counters.of(disposition));
            }
            recovered.with_label_values(&[&**namespace, policy]).inc_by(counters.recovered);
            lost.with_label_values(&[&**namespace, policy]).inc_by(counters.lost);
            // Its children are there in either mode; but Observe drops nothing.
            let dropped = if *mode == Mode::Observe { 0 } else { counters.dropped_warnings };
            dropped_warnings.with_label_values(&[&**namespace, policy]).inc_by(dropped);
        }
    }
    [events, recovered, lost, dropped_warnings].iter().flat_map(Collector::collect).collect()
}

/// The label `mode`.
fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Enforce => "Enforce",
        Mode::Observe => "Observe",
    }
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

fn debt_refusals(gauges: &Gauges) -> Vec<MetricFamily> {
    let refusals = counter(&table::DEBT_REFUSALS);
    for limit in PendingLimit::ALL {
        let admitted = match limit {
            PendingLimit::Series => gauges.pending_limit_admissions.series,
            PendingLimit::Text => gauges.pending_limit_admissions.text,
        };
        refusals.with_label_values(&[limit.as_str()]).inc_by(admitted);
    }
    refusals.collect()
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
    use crate::metrics::scopes::testing::account;
    use squelch_engine::{Counters, ScopeCounters};

    fn counted(accounts: &[ScopeCounters]) -> Vec<MetricFamily> {
        let mut scopes = Scopes::default();
        scopes.add(accounts, clock::now());
        families(&scopes)
    }

    #[test]
    fn every_disposition_is_there_from_the_start() {
        let events = counted(&[account("shop", "shop/fold", "1", 0)]).remove(0);
        assert_eq!(events.get_metric().len(), 2 * Disposition::ALL.len(), "of the policy and of `other`");
    }

    #[test]
    fn a_warning_is_dropped_where_it_is_enforced() {
        let counters = Counters { dropped_warnings: 7, ..Counters::default() };
        let enforced = ScopeCounters { counters, ..account("shop", "shop/fold", "1", 0) };
        let observed = ScopeCounters { mode: Mode::Observe, ..enforced.clone() };
        let only_observed = ScopeCounters { counters, mode: Mode::Observe, ..account("x", "x/fold", "2", 0) };
        let families = counted(&[enforced, observed, only_observed]);
        let of = families.iter().find(|family| family.name() == table::DROPPED_WARNINGS.name).unwrap();
        let mut counts: Vec<f64> =
            of.get_metric().iter().map(|child| child.get_counter().get_value()).collect();
        counts.sort_by(f64::total_cmp);
        assert_eq!(counts, [0.0, 0.0, 7.0], "and what only counts has its child from the start");
    }

    #[test]
    fn evictions_are_told_apart_by_table() {
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
        let told = families[0].get_metric().iter();
        let mut told: Vec<_> = told
            .map(|child| (child.get_label()[0].value().to_owned(), child.get_counter().get_value()))
            .collect();
        told.sort_by(|one, other| one.0.cmp(&other.0));
        let expected = [
            ("buckets", 4.0),
            ("contents", 6.0),
            ("dropped", 5.0),
            ("ended", 7.0),
            ("groups", 3.0),
            ("names", 2.0),
            ("series", 1.0),
        ];
        assert_eq!(told, expected.map(|(table, evicted)| (table.to_owned(), evicted)));
    }
}
