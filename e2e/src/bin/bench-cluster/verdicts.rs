//! The promised costs of squelch, and the measured values.

use e2e::figures::median;
use serde::Serialize;

use crate::cell::Cell;
use crate::figures::Paired;
use crate::groups::Group;
use crate::setting::Setting;
use crate::work::Pace;

/// A promise with its measured value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Verdict {
    pub(crate) what: String,
    pub(crate) wanted: String,
    pub(crate) measured: String,
    pub(crate) kept: bool,
}

/// A figure under a setting and without a webhook, for the rounds that have both.
pub(crate) fn paired(cells: &[Cell], setting: Setting, figure: impl Fn(&Cell) -> f64) -> Option<Paired> {
    paired_with(cells, [setting, Setting::None], figure)
}

/// A figure under two settings, the second of which is measured twice in each round.
fn paired_with(
    cells: &[Cell],
    [with, without]: [Setting; 2],
    figure: impl Fn(&Cell) -> f64,
) -> Option<Paired> {
    let rounds = cells.iter().map(|cell| cell.round).max()? + 1;
    let (mut with_it, mut without_it) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let of = |setting| {
            let cells = cells.iter().filter(move |cell| cell.round == round && cell.setting == setting);
            cells.map(&figure).collect::<Vec<_>>()
        };
        // Not every setting is in every round.
        if let ([value], [before, after]) = (&of(with)[..], &of(without)[..]) {
            with_it.push(*value);
            without_it.push([*before, *after]);
        }
    }
    (!with_it.is_empty()).then(|| Paired::of(&with_it, &without_it))
}

/// The verdicts of a group.
pub(crate) fn of(group: Group, cells: &[Cell]) -> Vec<Verdict> {
    let mut verdicts = match group {
        Group::Patches => throughput(cells),
        Group::Creates => passing(cells, "creates that are all admitted", 0.75),
        Group::Unmatched => passing(cells, "creates that no policy matches", 0.95),
        Group::PacedPatches => {
            let settings = [Setting::Enforce, Setting::None];
            latencies(cells, settings, "484 hot-loop patches/s", "Enforce − no webhook")
        }
        Group::Export => {
            let settings = [Setting::ExportAway, Setting::Export];
            latencies(
                cells,
                settings,
                "2,000 occurrences/s in 250 writes/s",
                "collector away − collector runs",
            )
        }
        Group::Minute => etcd(cells, "a hot loop", 0.01),
        Group::Storm => etcd(cells, "the storm", 0.1),
        Group::PacedCreates | Group::Limiter => Vec::new(),
    };
    verdicts.push(conservation(cells));
    verdicts
}

/// More throughput or less processor time is sufficient.
fn throughput(cells: &[Cell]) -> Vec<Verdict> {
    let [rate, cpu] = [Cell::per_second, Cell::cpu].map(|figure| {
        let paired = paired(cells, Setting::Enforce, figure);
        median(&paired.map(|paired| paired.ratios).unwrap_or_default())
    });
    vec![Verdict {
        what: "hot-loop patches: Enforce ÷ no webhook, writes/s; or processor time per write".to_owned(),
        wanted: "at least 1.05; or at most 1.00".to_owned(),
        measured: format!("{rate:.2}; {cpu:.2}"),
        kept: rate >= 1.05 || (cpu > 0.0 && cpu <= 1.0),
    }]
}

fn passing(cells: &[Cell], what: &str, at_least: f64) -> Vec<Verdict> {
    let ratios = paired(cells, Setting::Enforce, Cell::per_second).map(|paired| paired.ratios);
    let ratio = median(&ratios.unwrap_or_default());
    let suppressed: usize =
        cells.iter().flat_map(|cell| &cell.statuses).filter(|it| *it.0 != 200).map(|it| *it.1).sum();
    vec![
        Verdict {
            what: format!("{what}: Enforce ÷ no webhook, writes/s"),
            wanted: format!("at least {at_least:.2}"),
            measured: format!("{ratio:.2}"),
            kept: ratio >= at_least,
        },
        Verdict {
            what: "creates that were not admitted".to_owned(),
            wanted: "0".to_owned(),
            measured: suppressed.to_string(),
            kept: suppressed == 0,
        },
    ]
}

fn latencies(cells: &[Cell], settings: [Setting; 2], load: &str, difference: &str) -> Vec<Verdict> {
    let figures = [("p50", 0), ("p99", 1)].into_iter().filter_map(|(name, at)| {
        let paired = paired_with(cells, settings, |cell| cell.event_ms[at])?;
        Some(Verdict {
            what: format!("{load}: {name}, {difference}"),
            wanted: format!("at most {:.2} ms, the noise", paired.noise),
            measured: format!("{:+.2} ms", median(&paired.differences)),
            kept: paired.is_no_more(),
        })
    });
    figures.collect()
}

/// Maximum share of the etcd writes without a webhook.
fn etcd(cells: &[Cell], what: &str, at_most: f64) -> Vec<Verdict> {
    let paces = [Pace::Recorded, Pace::PerSecond(484), Pace::Closed].into_iter();
    let verdicts = paces.filter_map(|pace| {
        let puts = |setting| {
            let cell = cells.iter().find(|cell| cell.load.pace == pace && cell.setting == setting);
            cell.map(Cell::puts)
        };
        let part = puts(Setting::Enforce)? / puts(Setting::None)?;
        let title = cells.iter().find(|cell| cell.load.pace == pace)?.load.title();
        Some(Verdict {
            what: format!("etcd writes of {what}, Enforce ÷ no webhook ({title})"),
            wanted: format!("below {:.0} %", at_most * 100.0),
            measured: format!("{:.2} %", part * 100.0),
            kept: part < at_most,
        })
    });
    verdicts.collect()
}

fn conservation(cells: &[Cell]) -> Verdict {
    let counted = || cells.iter().filter(|cell| cell.counters.is_some());
    let wrong = counted().filter(|cell| cell.unaccounted.is_some()).count();
    let received: i64 = counted().filter_map(|cell| cell.counters).map(|counters| counters.received).sum();
    Verdict {
        what: format!("runs under squelch with unaccounted occurrences ({received} occurrences)"),
        wanted: "0".to_owned(),
        measured: format!("{wrong} of {}", counted().count()),
        kept: wrong == 0 && counted().count() > 0,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use e2e::bench::gauges::{Spent, Stored};
    use e2e::policy::Counters;

    use super::*;
    use crate::cell::Load;
    use crate::work::{EventApi, Work};

    fn cell(round: usize, setting: Setting, writes: usize, cpu: f64, puts: f64) -> Cell {
        let load = Load { work: Work::HotLoop, api: EventApi::Core, pace: Pace::PerSecond(484), seconds: 1 };
        Cell {
            load,
            setting,
            round,
            seconds: 1.0,
            writes,
            statuses: BTreeMap::from([(200, writes)]),
            event_ms: [writes as f64 / 100.0; 2],
            lease_ms: [1.0; 2],
            lease_writes: 0,
            spent: Spent { api_server: cpu, ..Spent::default() },
            stored: Stored { puts, ..Stored::default() },
            puts_later: 0.0,
            counters: setting.mode().map(|_| Counters { received: 10, ..Counters::default() }),
            unaccounted: None,
        }
    }

    /// Two rounds; without a webhook 1,000 and 1,010 writes of 1 ms, each of which reaches etcd.
    fn measured(with: impl Fn(usize) -> Cell) -> Vec<Cell> {
        let none = |round, writes| cell(round, Setting::None, writes, writes as f64 / 1000.0, writes as f64);
        (0..2).flat_map(|round| [none(round, 1000), with(round), none(round, 1010)]).collect()
    }

    #[test]
    fn more_throughput_or_less_processor_time_meets_the_promise() {
        let kept = |writes, cpu| {
            let cells = measured(|round| cell(round, Setting::Enforce, writes, cpu, 1.0));
            of(Group::Patches, &cells)[0].kept
        };
        assert!(kept(1100, 2.0), "a tenth more throughput");
        assert!(kept(900, 0.8), "less processor time per write");
        assert!(!kept(1020, 1.1));
    }

    #[test]
    fn creates_pass_and_are_not_much_slower() {
        let mut cells = measured(|round| cell(round, Setting::Enforce, 800, 1.0, 800.0));
        assert!(of(Group::Creates, &cells).iter().all(|verdict| verdict.kept));
        cells[1].statuses.insert(409, 1);
        assert!(!of(Group::Creates, &cells)[1].kept);
        let slow = measured(|round| cell(round, Setting::Enforce, 700, 1.0, 700.0));
        assert!(!of(Group::Creates, &slow)[0].kept);
    }

    #[test]
    fn latency_is_compared_with_the_noise() {
        // Without: 10.0 and 10.1 ms, a noise of 0.1.
        let kept = |writes| {
            let cells = measured(|round| cell(round, Setting::Enforce, writes, 1.0, 1.0));
            of(Group::PacedPatches, &cells)
                .iter()
                .filter(|verdict| verdict.what.contains("p99"))
                .all(|it| it.kept)
        };
        assert!(kept(1014));
        assert!(!kept(1020));
    }

    #[test]
    fn etcd_writes_are_counted_until_squelch_has_ended() {
        let mut cells = measured(|round| cell(round, Setting::Enforce, 1000, 1.0, 8.0));
        assert!(of(Group::Minute, &cells)[0].kept);
        cells[1].puts_later = 5.0;
        assert!(!of(Group::Minute, &cells)[0].kept);
    }

    #[test]
    fn one_lost_occurrence_breaks_the_promise() {
        let mut cells = measured(|round| cell(round, Setting::Enforce, 1000, 1.0, 8.0));
        assert!(of(Group::PacedCreates, &cells)[0].kept);
        cells[1].unaccounted = Some("one is missing".to_owned());
        assert!(!of(Group::PacedCreates, &cells)[0].kept);
        cells.retain(|cell| cell.setting == Setting::None);
        assert!(!of(Group::PacedCreates, &cells)[0].kept, "no run was checked");
    }
}
