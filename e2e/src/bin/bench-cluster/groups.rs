//! Groups of measurements: each is one section of docs/benchmarks/results.md and takes some minutes.

use anyhow::Result;
use clap::ValueEnum;

use crate::cell::{Cell, Load};
use crate::setting::Setting;
use crate::stage::Stage;
use crate::work::{EventApi, Pace, Work};

/// Rate of kubernetes#141022.
const RATE: u32 = 484;

/// "No webhook" comes first and last: the settings between are compared with both, and both with each other. In EXPORT the
/// collector that runs does.
const ROUND: &[Setting] = &[Setting::None, Setting::Go, Setting::Observe, Setting::Enforce, Setting::None];
const ONCE: &[Setting] = &[Setting::None, Setting::Go, Setting::Observe, Setting::Enforce];
const EXPORT: &[Setting] = &[Setting::Export, Setting::ExportAway, Setting::Export];
const LIMITERS: &[Setting] = &[Setting::None, Setting::Limiter, Setting::Enforce];

/// A group of measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Group {
    /// Hot-loop patches, as fast as possible (6 min)
    Patches,
    /// New Events that are all admitted, as fast as possible (6 min)
    Creates,
    /// New Events that no policy matches, as fast as possible (6 min)
    Unmatched,
    /// Hot-loop patches, 484/s (7 min)
    PacedPatches,
    /// New Events, 484/s (4 min)
    PacedCreates,
    /// A minute of a hot loop: etcd writes (3 min)
    Minute,
    /// The storm of kubernetes#141022 in a minute: at its own rate, and as fast as possible (8 min)
    Storm,
    /// Upstream's EventRateLimit, through both APIs (7 min)
    Limiter,
    /// Export to an OpenTelemetry collector, which is away for a minute in each round (17 min)
    Export,
}

/// The measurements of a group.
struct Plan {
    rounds: usize,
    settings: &'static [Setting],
    loads: Vec<Load>,
    /// Whether squelch restarts for each cell, so that all its writes until its exit belong to that cell.
    fresh: bool,
}

impl Group {
    /// The name in the markers of docs/benchmarks/results.md and in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Patches => "patches",
            Self::Creates => "creates",
            Self::Unmatched => "unmatched",
            Self::PacedPatches => "paced-patches",
            Self::PacedCreates => "paced-creates",
            Self::Minute => "minute",
            Self::Storm => "storm",
            Self::Limiter => "limiter",
            Self::Export => "export",
        }
    }

    /// Measures the cells; they are in the order of measurement.
    pub(crate) async fn measure(self, stage: &mut Stage, short: bool) -> Result<Vec<Cell>> {
        let plan = self.plan(short);
        let mut cells = Vec::new();
        for round in 0..plan.rounds {
            let mut settings = plan.settings.to_vec();
            // Settings without a promise are measured in every third round.
            settings.retain(|setting| round % 3 == 0 || setting.has_promise());
            // The order alternates between rounds.
            if round % 2 == 1 {
                settings.reverse();
            }
            for setting in settings {
                for load in &plan.loads {
                    stage.enter(setting, plan.fresh, &mut cells).await?;
                    let cell = stage.measure(*load, setting, round, cells.len()).await?;
                    eprintln!(
                        "==> {} {}/{}: {}, {}: {:.0}/s, p50 {:.2} ms, p99 {:.2} ms, {:.0} µs, {:.3} puts",
                        self.name(),
                        round + 1,
                        plan.rounds,
                        load.title(),
                        setting.title(),
                        cell.per_second(),
                        cell.event_ms[0],
                        cell.event_ms[1],
                        cell.cpu(),
                        cell.puts()
                    );
                    cells.push(cell);
                }
            }
        }
        stage.enter(Setting::None, true, &mut cells).await?;
        Ok(cells)
    }

    fn plan(self, short: bool) -> Plan {
        let load = |work, pace, seconds: u64| Load {
            work,
            api: EventApi::Core,
            pace,
            seconds: if short { seconds.min(3) } else { seconds },
        };
        let rate = Pace::PerSecond(RATE);
        let (rounds, settings, loads) = match self {
            Self::Patches => (9, ROUND, vec![load(Work::HotLoop, Pace::Closed, 5)]),
            Self::Creates => (9, ROUND, vec![load(Work::Creates, Pace::Closed, 5)]),
            Self::Unmatched => (9, ROUND, vec![load(Work::Unmatched, Pace::Closed, 5)]),
            Self::PacedPatches => (9, ROUND, vec![load(Work::HotLoop, rate, 6)]),
            Self::PacedCreates => (5, ROUND, vec![load(Work::Creates, rate, 6)]),
            Self::Minute => (1, ONCE, vec![load(Work::HotLoop, rate, 60)]),
            Self::Storm => {
                let storm = |pace, seconds| load(Work::Storm, pace, seconds);
                (1, ONCE, vec![storm(Pace::Recorded, 60), storm(Pace::Closed, 30)])
            }
            Self::Limiter => {
                let both = |work, pace| {
                    [EventApi::Core, EventApi::New].map(|api| Load { api, ..load(work, pace, 4) })
                };
                let loads =
                    [both(Work::Creates, rate), both(Work::HotLoop, rate), both(Work::HotLoop, Pace::Closed)];
                (3, LIMITERS, loads.concat())
            }
            // 2,000 occurrences a second.
            Self::Export => (5, EXPORT, vec![load(Work::Batches, Pace::PerSecond(250), 60)]),
        };
        let fresh = matches!(self, Self::Minute | Self::Storm);
        Plan { rounds: if short { 1 } else { rounds }, settings, loads, fresh }
    }
}
