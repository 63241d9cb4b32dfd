//! The tables: promised and measured values.

use std::fmt;

use e2e::figures::{grouped, median, table};
use e2e::load::Quantiles;
use serde::Serialize;

use super::samples::{Cell, Row, Sample, Samples};
use super::servers::Kind;

/// The report.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    promises: Vec<Promise>,
    servers: Samples,
    /// Time of the caller to write a review, in nanoseconds.
    writing: f64,
}

/// A promised figure and its measured value.
#[derive(Serialize)]
struct Promise {
    what: String,
    wanted: String,
    measured: f64,
    least: f64,
    most: f64,
    unit: &'static str,
    kept: bool,
}

impl Report {
    pub(crate) fn new(servers: Samples, writing: f64) -> Self {
        let of = |kind| servers.0.iter().find(|row| row.kind == kind);
        let (floor, go) = (of(Kind::Floor), of(Kind::Go));
        let rows = servers.0.iter().filter(|row| row.series.is_some());
        let promises = rows.flat_map(|row| promised(row, floor, go)).collect();
        Self { promises, servers, writing }
    }
}

fn promised(row: &Row, floor: Option<&Row>, go: Option<&Row>) -> Vec<Promise> {
    let name = name(row);
    let per_cpu = |sample: &Sample| sample.per_cpu_second;
    let late = |sample: &Sample| sample.latency.p99 / 1e6;
    let mut promises = Vec::new();
    if let Some(floor) = floor {
        for (rate, bound) in [(500, 1.3), (5_000, 1.15)] {
            let ratios = pairs(row, floor, Some(rate), |own, other| per_cpu(other) / per_cpu(own));
            let what = format!("{name}: a review at {}/s ÷ the floor's", grouped(rate as f64));
            promises.push(at_most(bound, "", what, &ratios));
        }
        let later = pairs(row, floor, Some(5_000), |own, other| late(own) - late(other));
        promises.push(at_most(1.0, " ms", format!("{name}: p99 at 5,000/s above the floor's"), &later));
    }
    if let Some(go) = go {
        let ratios = pairs(row, go, None, |own, other| per_cpu(own) / per_cpu(other));
        promises.push(at_least(3.5, format!("{name}: reviews per CPU second at saturation ÷ Go's"), &ratios));
    }
    if row.series == Some(1_000_000) {
        let samples = row.cells.iter().flat_map(|cell| &cell.rounds);
        let resident: Vec<_> = samples.map(|sample| sample.resident_mib).collect();
        promises.push(at_most(320.0, " MiB", format!("{name}: resident"), &resident));
    }
    promises.retain(|promise| !promise.measured.is_nan());
    promises
}

/// A ratio or difference per round, in which both servers were measured shortly after each other.
fn pairs(own: &Row, other: &Row, rate: Option<u64>, figure: impl Fn(&Sample, &Sample) -> f64) -> Vec<f64> {
    let (Some(own), Some(other)) = (own.at(rate), other.at(rate)) else { return Vec::new() };
    own.rounds.iter().zip(&other.rounds).map(|(own, other)| figure(own, other)).collect()
}

fn at_least(bound: f64, what: String, figures: &[f64]) -> Promise {
    promise(what, format!("at least {bound}"), "", figures, |measured| measured >= bound)
}

fn at_most(bound: f64, unit: &'static str, what: String, figures: &[f64]) -> Promise {
    promise(what, format!("at most {bound}{unit}"), unit, figures, |measured| measured <= bound)
}

fn promise(
    what: String,
    wanted: String,
    unit: &'static str,
    figures: &[f64],
    kept: impl Fn(f64) -> bool,
) -> Promise {
    let least = figures.iter().copied().fold(f64::INFINITY, f64::min);
    let most = figures.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let measured = median(figures);
    Promise { what, wanted, measured, least, most, unit, kept: kept(measured) }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: Vec<_> = self.promises.iter().map(promise_row).collect();
        let of_servers = |row: fn(&Row) -> Vec<String>| self.servers.0.iter().map(row).collect::<Vec<_>>();
        let promised =
            ["processor time of a review, and more", "required", "median", "minimum to maximum", "kept"];
        for text in [
            table(&promised, &rows),
            table(&costs_head(), &of_servers(costs)),
            table(&latency_head(), &of_servers(latencies)),
            table(&["figures of the caller", "500/s", "5,000/s", "20,000/s"], &self.caller()),
        ] {
            writeln!(f, "{text}")?;
        }
        for row in &self.servers.0 {
            for cell in row.cells.iter().filter(|cell| cell.rounds.iter().any(|sample| !sample.as_meant)) {
                writeln!(f, "**{} at {} did not answer as expected.**\n", name(row), rate_title(cell.rate))?;
            }
        }
        Ok(())
    }
}

fn promise_row(promise: &Promise) -> Vec<String> {
    let Promise { what, wanted, measured, least, most, unit, kept } = promise;
    let kept = if *kept { "yes" } else { "**no**" };
    vec![
        what.clone(),
        wanted.clone(),
        format!("{measured:.2}{unit}"),
        format!("{least:.2} to {most:.2}"),
        kept.to_owned(),
    ]
}

const RATES: [u64; 3] = [500, 5_000, 20_000];

fn costs_head() -> Vec<&'static str> {
    vec![
        "cost of a review",
        "at saturation",
        "per CPU second",
        "CPU s per million",
        "at 500/s",
        "at 5,000/s",
        "at 20,000/s",
        "resident",
    ]
}

fn costs(row: &Row) -> Vec<String> {
    let mut cells = vec![name(row)];
    let at_saturation = |text: fn(&Cell) -> String| cell_text(row.at(None), text);
    cells.push(at_saturation(|cell| format!("{}/s", grouped(cell.median(|sample| sample.rate)))));
    cells.push(at_saturation(|cell| grouped(cell.median(|sample| sample.per_cpu_second))));
    cells.push(at_saturation(|cell| format!("{:.1}", cell.median(|sample| 1e6 / sample.per_cpu_second))));
    for rate in RATES {
        cells.push(cell_text(row.at(Some(rate)), |cell| {
            format!("{:.1}", cell.median(|sample| 1e6 / sample.per_cpu_second))
        }));
    }
    let resident = row.cells.last().map_or(f64::NAN, |cell| cell.median(|sample| sample.resident_mib));
    cells.push(format!("{resident:.0} MiB"));
    cells
}

fn latency_head() -> Vec<&'static str> {
    vec!["p50 / p99 / p99.9 in ms", "at 500/s", "at 5,000/s", "at 20,000/s"]
}

fn latencies(row: &Row) -> Vec<String> {
    let cell = |rate| {
        cell_text(row.at(Some(rate)), |cell| {
            let of = |figure: fn(&Quantiles) -> f64| cell.median(|sample| figure(&sample.latency)) / 1e6;
            format!("{:.2} / {:.2} / {:.2}", of(|q| q.p50), of(|q| q.p99), of(|q| q.p999))
        })
    };
    [name(row)].into_iter().chain(RATES.map(cell)).collect()
}

/// The cell's figures, or the reached rate.
fn cell_text(cell: Option<&Cell>, figures: impl Fn(&Cell) -> String) -> String {
    match cell {
        None => String::new(),
        Some(cell) if cell.reached() => figures(cell),
        Some(cell) => format!("reached {}/s", grouped(cell.median(|sample| sample.rate))),
    }
}

impl Report {
    /// Figures of the caller. Only the floor is shown: a slow server makes the caller wait, at no processor cost.
    fn caller(&self) -> Vec<Vec<String>> {
        let Some(floor) = self.servers.0.iter().find(|row| row.kind == Kind::Floor) else {
            return Vec::new();
        };
        let line = |title: &str, figure: fn(&Cell) -> String| {
            let cells = RATES.map(|rate| floor.at(Some(rate)).map(figure).unwrap_or_default());
            [title.to_owned()].into_iter().chain(cells).collect::<Vec<_>>()
        };
        let writing = format!("{:.2}", self.writing / 1e3);
        vec![
            line("CPU s per million", |cell| {
                format!("{:.1}", cell.median(|sample| sample.caller_seconds_per_million))
            }),
            ["of which writing the reviews".to_owned()]
                .into_iter()
                .chain(RATES.map(|_| writing.clone()))
                .collect(),
            line("sent late with a free connection, p50 / p99 in ms", |cell| {
                let of = |figure: fn(&Quantiles) -> f64| cell.median(|sample| figure(&sample.delay)) / 1e6;
                format!("{:.2} / {:.2}", of(|q| q.p50), of(|q| q.p99))
            }),
        ]
    }
}

fn rate_title(rate: Option<u64>) -> String {
    rate.map_or("saturation".to_owned(), |rate| format!("{}/s", grouped(rate as f64)))
}

fn name(row: &Row) -> String {
    row.series
        .map_or(row.server.clone(), |series| format!("{}, {} series", row.server, grouped(series as f64)))
}
