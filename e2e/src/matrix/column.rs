//! One column: every cell at the same time, on one squelch.

use std::time::Duration;

use anyhow::{Result, bail};
use futures::future::try_join_all;
use tokio::time::interval;

use crate::emitters::{Emitting, Told};
use crate::metrics::Samples;
use crate::policy::Counters;
use crate::squelch::Way;
use crate::wait::told;
use crate::{Detour, GENEROUS, Policy, Squelch, Test, wait_for};

use super::evidence::{Evidence, Sent, Stored};
use super::trouble;
use super::{Cell, Column, laws, table};

/// Between two ends of squelch.
const LIFE: Duration = Duration::from_secs(5);
/// For the clients to end. client-go comes again 10 s after a failure, and a busy machine takes its time.
const CLIENTS: Duration = Duration::from_secs(180);
/// For every debt to be paid, with a tenth of the calls failing.
const QUIET: Duration = Duration::from_secs(120);

/// Runs these cells for about `time`, prints a line for each, and says which laws were broken.
///
/// # Errors
/// The broken laws; or that something did not come about in time.
pub async fn run(column: Column, cells: &[Cell], time: Duration) -> Result<()> {
    let (mut stage, squelch) = Stage::set(column, cells).await?;
    let storms = stage.storms(time)?;
    let (squelch, before) = stage.trouble(squelch, &storms, time).await?;
    let told = all_end(storms).await?;
    squelch.is_quiet(QUIET).await?;
    let evidence = stage.evidence(&squelch, &told, &before).await?;
    let verdict = judge(&evidence);
    stage.end(squelch).await?;
    verdict?;
    stage.passed()
}

/// Where a column plays.
struct Stage {
    test: Test,
    column: Column,
    detour: Option<Detour>,
    cells: Vec<Place>,
    /// Reviews that the API server had given up before. Negative: those of a former API server, which the one that runs
    /// does not count.
    given_up: i64,
}

/// A cell with its namespace.
struct Place {
    cell: Cell,
    test: Test,
    policy: Policy,
}

/// The emitters of each cell.
type Storms = Vec<Vec<Emitting>>;

impl Stage {
    async fn set(column: Column, cells: &[Cell]) -> Result<(Self, Squelch)> {
        let test = Test::begin("matrix").await?;
        let detour = match column {
            Column::Faults => Some(Detour::start(&test.cluster).await?),
            _ => None,
        };
        let squelch = test.squelch_by(Way { by: detour.as_ref(), ..Way::default() }).await?;
        if let Some(detour) = &detour {
            trouble::begin(detour);
        }
        let place = async |cell: &Cell| {
            let test = test.neighbour().await?;
            let policy = test.policy(&cell.row.policy()).await?;
            anyhow::Ok(Place { cell: *cell, test, policy })
        };
        let cells = try_join_all(cells.iter().map(place)).await?;
        let given_up = test.cluster.given_up().await?;
        Ok((Self { test, column, detour, cells, given_up }, squelch))
    }

    /// All clients begin.
    fn storms(&self, time: Duration) -> Result<Storms> {
        let of = |place: &Place| {
            let emissions = place.cell.emissions(time);
            emissions.iter().map(|emission| place.test.emit(emission)).collect()
        };
        self.cells.iter().map(of).collect()
    }

    /// What happens to squelch and the API server while they report. The squelch that runs afterwards, and the
    /// counters of each cell when it began.
    async fn trouble(
        &mut self,
        squelch: Squelch,
        storms: &Storms,
        time: Duration,
    ) -> Result<(Squelch, Vec<Counters>)> {
        let none = vec![Counters::default(); self.cells.len()];
        match self.column {
            Column::Quiet | Column::Faults => Ok((squelch, none)),
            Column::Restarts => self.restarts(squelch, storms).await,
            Column::ApiServer => {
                // It is the time itself that is waited for: in the middle of everything.
                let mut halves = interval(time / 2);
                halves.tick().await;
                halves.tick().await;
                // A new API server counts from 0: what this one has given up is added to what that will.
                let given_up = self.test.cluster.given_up().await? - self.given_up;
                self.given_up = -given_up;
                self.test.cluster.restart_apiserver(false, &[]).await?;
                Ok((squelch, none))
            }
        }
    }

    async fn restarts(&self, mut squelch: Squelch, storms: &Storms) -> Result<(Squelch, Vec<Counters>)> {
        let mut counters = self.counters().await?;
        let mut lives = 1;
        let mut ends = interval(LIFE);
        ends.tick().await;
        while !all_have_ended(storms)? {
            ends.tick().await;
            squelch.stop().await?;
            counters = self.counters().await?;
            squelch = self.test.squelch().await?;
            lives += 1;
        }
        eprintln!("squelch lived {lives} times");
        Ok((squelch, counters))
    }

    async fn counters(&self) -> Result<Vec<Counters>> {
        try_join_all(self.cells.iter().map(|place| place.policy.counters())).await
    }

    /// All that is known now, when all is quiet.
    async fn evidence(
        &self,
        squelch: &Squelch,
        told: &[Vec<Told>],
        before: &[Counters],
    ) -> Result<Vec<Evidence>> {
        let scrape = squelch.metrics().await?;
        let late = self.late().await?;
        let mut all = Vec::new();
        for (place, (told, before)) in self.cells.iter().zip(told.iter().zip(before)) {
            let metrics = counted(&scrape, &place.test.namespace);
            all.push(Evidence {
                cell: place.cell,
                column: self.column,
                sent: Sent::of(told),
                stored: Stored::of(&place.test.events(None).await?),
                status: settled(&place.policy, before.received + metrics.received).await?,
                status_before: *before,
                metrics,
                lost: scrape.sum("squelch_lost_occurrences_total", &[namespace(place)]) as i64,
                reviews: self.reviews(place),
                late,
            });
        }
        Ok(all)
    }

    /// Reviews that the API server gave up although the proxy did nothing.
    async fn late(&self) -> Result<i64> {
        let reviews = self.cells.iter().map(|place| self.reviews(place));
        let cut: u64 = reviews.map(|it| it.cut_before + it.cut_after).sum();
        Ok(self.test.cluster.given_up().await? - self.given_up - cut as i64)
    }

    fn reviews(&self, place: &Place) -> crate::proxy::Tally {
        self.detour.as_ref().map(|detour| detour.reviews(&place.test.namespace)).unwrap_or_default()
    }

    /// squelch's end is not what the columns with faults are about.
    async fn end(&self, squelch: Squelch) -> Result<()> {
        if let Some(detour) = &self.detour {
            detour.end_all_faults();
            eprintln!("{}", table::faults(detour));
        }
        match self.column {
            Column::Quiet | Column::Restarts => squelch.stop().await,
            Column::Faults | Column::ApiServer => squelch.stop_after_trouble().await,
        }
    }

    fn passed(self) -> Result<()> {
        for place in self.cells {
            place.test.passed()?;
        }
        self.test.passed()
    }
}

fn namespace(place: &Place) -> (&'static str, &str) {
    ("event_namespace", &place.test.namespace)
}

fn all_have_ended(storms: &Storms) -> Result<bool> {
    for emitting in storms.iter().flatten() {
        if emitting.so_far()?.summary.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn all_end(storms: Storms) -> Result<Vec<Vec<Told>>> {
    let ends = storms.into_iter().map(|storm| try_join_all(storm.into_iter().map(|it| it.finish(CLIENTS))));
    try_join_all(ends).await
}

/// What the metrics of one life tell of a namespace.
fn counted(scrape: &Samples, namespace: &str) -> Counters {
    let namespace = ("event_namespace", namespace);
    let of =
        |disposition| scrape.sum("squelch_events_total", &[namespace, ("disposition", disposition)]) as i64;
    Counters {
        received: scrape.sum("squelch_events_total", &[namespace]) as i64,
        admitted: of("admitted"),
        compacted: of("compacted"),
        aggregated: of("aggregated"),
        filtered: of("filtered"),
        throttled: of("throttled"),
        failed_open: of("failed_open"),
        recovered: scrape.sum("squelch_recovered_occurrences_total", &[namespace]) as i64,
    }
}

/// The status once it tells of so many; or what it tells in their place, for the laws to complain of.
async fn settled(policy: &Policy, received: i64) -> Result<Counters> {
    let settled = wait_for("the last status", GENEROUS, async || {
        let counters = policy.counters().await.map_err(told)?;
        if counters.received == received { Ok(counters) } else { Err(format!("{counters:?}")) }
    })
    .await;
    match settled {
        Ok(counters) => Ok(counters),
        Err(_) => policy.counters().await,
    }
}

fn judge(evidence: &[Evidence]) -> Result<()> {
    let mut broken = Vec::new();
    eprintln!("{}", table::header());
    for evidence in evidence {
        let verdict = laws::check(evidence);
        eprintln!("{}", table::line(evidence, verdict.is_ok()));
        if let Err(error) = verdict {
            let (column, cell) = (evidence.column, evidence.cell);
            broken.push(format!("{column}, {}, {}:\n    {error}", cell.client, cell.row));
        }
    }
    if broken.is_empty() { Ok(()) } else { bail!("laws are broken:\n{}", broken.join("\n")) }
}
