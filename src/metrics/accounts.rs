//! The engine's accounts as metrics, read at each scrape.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntCounterVec, IntGauge, Opts};

use super::labels::EvictionTable;
use super::table::{self, MAX_SCOPES, OTHER, Row};
use crate::engine::{Account, Counters, Disposition, Engine, Gauges, Mode};

/// Asks the engine whenever Prometheus asks.
pub(super) struct EngineCollector {
    engine: Arc<Engine>,
    described: Vec<Desc>,
    named: Mutex<NamedScopes>,
}

impl EngineCollector {
    pub(super) fn new(engine: Arc<Engine>) -> Self {
        let described = BY_SCOPE.iter().chain(&OF_ALL);
        Self { engine, described: described.map(|row| describe(row)).collect(), named: Mutex::default() }
    }
}

impl Collector for EngineCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.described.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let accounts = self.engine.accounts();
        let sums = self.named.lock().unwrap_or_else(PoisonError::into_inner).sum(&accounts);
        let mut families = families(&sums);
        let gauges = self.engine.gauges();
        families.extend(gauge(&table::SERIES, i64::try_from(gauges.series).unwrap_or(i64::MAX)));
        families.extend(gauge(&table::OWED, i64::try_from(gauges.owed).unwrap_or(i64::MAX)));
        families.extend(debt_refusals(&gauges));
        families.extend(evictions(&gauges));
        families
    }
}

/// What is counted per scope.
const BY_SCOPE: [&Row; 4] = [&table::EVENTS, &table::RECOVERED, &table::LOST, &table::DROPPED_WARNINGS];

/// What is told of the engine as a whole.
const OF_ALL: [&Row; 4] = [&table::OWED, &table::DEBT_REFUSALS, &table::SERIES, &table::EVICTIONS];

type Sums = BTreeMap<(String, String, &'static str), Counters>;

/// The pairs of namespace and policy that have children of their own. One that has keeps them as long as the process
/// lives: a counter must not fall because another pair came.
#[derive(Default)]
struct NamedScopes {
    pairs: BTreeSet<(String, String)>,
}

impl NamedScopes {
    /// The accounts by their labels; those of a policy that was made anew under its name are one.
    fn sum(&mut self, accounts: &[Account]) -> Sums {
        let mut lines: Vec<&Account> = accounts.iter().collect();
        lines.sort_by_key(|line| (Arc::clone(&line.namespace), Arc::clone(&line.policy.display)));
        let mut sums = Sums::new();
        for line in lines {
            let (namespace, policy) = self.label(line);
            sums.entry((namespace, policy, mode(line.mode))).or_default().add(&line.counters);
        }
        sums
    }

    fn label(&mut self, line: &Account) -> (String, String) {
        let pair = (line.namespace.to_string(), line.policy.display.to_string());
        if self.pairs.contains(&pair) {
            return pair;
        }
        if self.pairs.len() < MAX_SCOPES {
            self.pairs.insert(pair.clone());
            return pair;
        }
        (OTHER.to_owned(), OTHER.to_owned())
    }
}

fn families(sums: &Sums) -> Vec<MetricFamily> {
    let [events, recovered, lost, dropped_warnings] = BY_SCOPE.map(counter);
    for ((namespace, policy, mode), counters) in sums {
        for disposition in Disposition::ALL {
            events
                .with_label_values(&[namespace.as_str(), policy, mode, disposition.as_str()])
                .inc_by(counters.of(disposition));
        }
        recovered.with_label_values(&[namespace, policy]).inc_by(counters.recovered);
        lost.with_label_values(&[namespace, policy]).inc_by(counters.lost);
        // Its children are there in either mode; but Observe drops nothing.
        let dropped = if *mode == OBSERVE { 0 } else { counters.dropped_warnings };
        dropped_warnings.with_label_values(&[namespace, policy]).inc_by(dropped);
    }
    [events, recovered, lost, dropped_warnings].iter().flat_map(Collector::collect).collect()
}

/// The values of the label `mode`.
const ENFORCE: &str = "Enforce";
const OBSERVE: &str = "Observe";

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Enforce => ENFORCE,
        Mode::Observe => OBSERVE,
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

fn debt_refusals(gauges: &Gauges) -> Vec<MetricFamily> {
    let refusals = counter(&table::DEBT_REFUSALS);
    refusals.with_label_values::<&str>(&[]).inc_by(gauges.debts_refused);
    refusals.collect()
}

fn evictions(gauges: &Gauges) -> Vec<MetricFamily> {
    let evictions = counter(&table::EVICTIONS);
    for table in EvictionTable::ALL {
        let evicted = match table {
            EvictionTable::Series => gauges.series_evicted,
            EvictionTable::Contents => gauges.contents_evicted,
            EvictionTable::Names => gauges.names_evicted,
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
    use crate::engine::{PolicyId, TopDropped};

    fn account(namespace: &str, policy: &str, uid: &str, compacted: u64) -> Account {
        let mut counters = Counters::default();
        counters.count(Disposition::Compacted, compacted);
        Account {
            namespace: namespace.into(),
            policy: PolicyId { display: policy.into(), uid: uid.into() },
            mode: Mode::Enforce,
            counters,
            dropped: TopDropped::default(),
        }
    }

    #[test]
    fn every_disposition_is_there_from_the_start() {
        let sums = NamedScopes::default().sum(&[account("shop", "shop/fold", "1", 0)]);
        let events = families(&sums).remove(0);
        assert_eq!(events.get_metric().len(), Disposition::ALL.len());
    }

    #[test]
    fn a_warning_is_dropped_where_it_is_enforced() {
        let counters = Counters { dropped_warnings: 7, ..Counters::default() };
        let enforced = Account { counters, ..account("shop", "shop/fold", "1", 0) };
        let observed = Account { mode: Mode::Observe, ..enforced.clone() };
        let only_observed = Account { namespace: "other".into(), ..observed.clone() };
        let sums = NamedScopes::default().sum(&[enforced, observed, only_observed]);
        let families = families(&sums);
        let of = families.iter().find(|family| family.name() == table::DROPPED_WARNINGS.name).unwrap();
        let mut counts: Vec<f64> =
            of.get_metric().iter().map(|child| child.get_counter().get_value()).collect();
        counts.sort_by(f64::total_cmp);
        assert_eq!(counts, [0.0, 7.0], "and what only counts has its child from the start");
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
            ("groups", 3.0),
            ("names", 2.0),
            ("series", 1.0),
        ];
        assert_eq!(told, expected.map(|(table, evicted)| (table.to_owned(), evicted)));
    }

    #[test]
    fn a_policy_made_anew_counts_on() {
        let lines = [account("shop", "shop/fold", "1", 3), account("shop", "shop/fold", "2", 4)];
        let sums = NamedScopes::default().sum(&lines);
        let only: Vec<_> = sums.into_values().collect();
        assert_eq!(only.len(), 1);
        assert_eq!(only[0].of(Disposition::Compacted), 7);
    }

    #[test]
    fn beyond_the_cap_scopes_share_other_and_the_named_stay_named() {
        let mut named = NamedScopes::default();
        let late: Vec<Account> =
            (0..MAX_SCOPES).map(|at| account(&format!("n{at:04}"), "p", "u", 1)).collect();
        assert_eq!(named.sum(&late).len(), MAX_SCOPES);
        // Two that sort before all others come later.
        let mut all = vec![account("a", "p", "u", 5), account("b", "p", "u", 6)];
        all.extend(late);
        let sums = named.sum(&all);
        assert_eq!(sums.len(), MAX_SCOPES + 1);
        let other = &sums[&(OTHER.to_owned(), OTHER.to_owned(), "Enforce")];
        assert_eq!(other.of(Disposition::Compacted), 11);
        assert!(sums.contains_key(&("n0000".to_owned(), "p".to_owned(), "Enforce")));
    }
}
