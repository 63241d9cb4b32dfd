//! Samples and their medians.

use e2e::figures::{grouped, median};
use e2e::load::{Answers, Outcome, Pace, Quantiles};
use serde::Serialize;

use super::servers::{Kind, Server};

/// Share of the offered reviews that must be answered in time for a rate to count as reached.
const REACHED: f64 = 0.98;

/// One measurement of one server.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Sample {
    /// Reviews answered in time, per second.
    pub(crate) rate: f64,
    /// Reviews per second of processor time of the server.
    pub(crate) per_cpu_second: f64,
    /// Latency from the intended send time to the read answer.
    pub(crate) latency: Quantiles,
    /// Delay of the caller itself.
    pub(crate) delay: Quantiles,
    /// Processor time of the caller for a million reviews.
    pub(crate) caller_seconds_per_million: f64,
    pub(crate) resident_mib: f64,
    pub(crate) answers: Answers,
    /// Whether every review had the expected answer.
    pub(crate) as_meant: bool,
}

impl Sample {
    pub(crate) fn of(outcome: &Outcome, as_meant: bool) -> Self {
        let answered = outcome.answers.number() as f64;
        if let Some(failure) = &outcome.failure {
            eprintln!("a review was not answered: {failure}");
        }
        Self {
            rate: outcome.in_time as f64 / outcome.seconds,
            per_cpu_second: answered / outcome.server_seconds,
            latency: outcome.latency.quantiles(),
            delay: outcome.delay.quantiles(),
            caller_seconds_per_million: outcome.caller_seconds / answered * 1e6,
            resident_mib: outcome.resident_mib,
            answers: outcome.answers,
            as_meant: as_meant && outcome.failure.is_none(),
        }
    }
}

/// All samples of one server at one pace, by round.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Cell {
    /// Offered reviews per second; none: as fast as possible.
    pub(crate) rate: Option<u64>,
    pub(crate) rounds: Vec<Sample>,
}

impl Cell {
    /// The median of one figure.
    pub(crate) fn median(&self, figure: impl Fn(&Sample) -> f64) -> f64 {
        median(&self.rounds.iter().map(figure).collect::<Vec<_>>())
    }

    /// Whether the rate was reached, in the median round.
    pub(crate) fn reached(&self) -> bool {
        self.rate.is_none_or(|rate| self.median(|sample| sample.rate) >= REACHED * rate as f64)
    }
}

/// All samples of one server.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    pub(crate) server: String,
    #[serde(skip)]
    pub(crate) kind: Kind,
    pub(crate) series: Option<usize>,
    pub(crate) cells: Vec<Cell>,
}

impl Row {
    pub(crate) fn at(&self, rate: Option<u64>) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.rate == rate)
    }
}

/// All samples.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct Samples(pub(crate) Vec<Row>);

impl Samples {
    pub(crate) fn new(servers: &[Server]) -> Self {
        Self(servers.iter().map(Row::new).collect())
    }

    /// Adds a sample of the server at this index.
    pub(crate) fn add(&mut self, at: usize, pace: Pace, sample: Sample) {
        let rate = rate(pace);
        let cells = &mut self.0[at].cells;
        match cells.iter_mut().find(|cell| cell.rate == rate) {
            Some(cell) => cell.rounds.push(sample),
            None => cells.push(Cell { rate, rounds: vec![sample] }),
        }
    }
}

impl Row {
    fn new(server: &Server) -> Self {
        let series = matches!(server.kind, Kind::Enforce | Kind::Observe).then_some(server.series);
        Self { server: server.kind.to_string(), kind: server.kind, series, cells: Vec::new() }
    }
}

/// Reviews per second.
fn rate(pace: Pace) -> Option<u64> {
    match pace {
        Pace::Rate(rate) => Some(rate),
        Pace::Closed => None,
    }
}

pub(crate) fn title(pace: Pace) -> String {
    rate(pace).map_or("saturation".to_owned(), |rate| format!("{}/s", grouped(rate as f64)))
}
