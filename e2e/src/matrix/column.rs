//! A column: every cell at the same time on one squelch.

use std::time::Duration;

use anyhow::{Result, bail};
use futures::future::try_join_all;
use tokio::time::interval;

use crate::conservation::UNEXPLAINED;
use crate::emitters::{Report, RunningEmitter};
use crate::faults::Frozen;
use crate::metrics::Samples;
use crate::policy::Counters;
use crate::squelch::StartOptions;
use crate::wait::{not_yet, pass};
use crate::{FaultProxy, GENEROUS, Policy, STORM, Squelch, Test, wait_for};

use super::evidence::{Evidence, Sent, Stored};
use super::invariants::failed_open_often;
use super::trouble;
use super::{Cell, Column, invariants, table};

/// Interval of squelch restarts.
const LIFE: Duration = Duration::from_secs(5);
/// The API server is stopped for this long after its restart: longer than the renew deadline of the Lease. When it
/// continues, it asks about writes of Events that it has read before.
const PAUSE: Duration = Duration::from_secs(6);
/// Deadline of the flushes, with a tenth of the calls failing.
const QUIET: Duration = Duration::from_secs(120);

/// A column is repeated if squelch disarmed the webhook meanwhile: the API server was too slow for its probes, and the number
/// of writes that passed without a review is not known.
const ATTEMPTS: usize = 3;

/// Runs these cells for about `time`, prints a line for each, and checks the invariants.
///
/// # Errors
/// If an invariant is violated, or a deadline passes, or if each run was too slow to be judged.
pub async fn run(column: Column, cells: &[Cell], time: Duration) -> Result<()> {
    for _ in 0..ATTEMPTS {
        if was_judged(column, cells, time).await? {
            return Ok(());
        }
        eprintln!(
            "the machine was too slow: the webhook was disarmed, or too many writes failed open; once more"
        );
    }
    bail!("the machine was too slow in each of {ATTEMPTS} runs")
}

/// Runs the cells once. Returns false if the webhook was disarmed meanwhile, or decided too few writes, so that nothing can be
/// judged.
async fn was_judged(column: Column, cells: &[Cell], time: Duration) -> Result<bool> {
    let (stage, squelch) = Stage::set(column, cells).await?;
    let storms = stage.storms(time)?;
    let (squelch, before) = stage.trouble(squelch, &storms, time).await?;
    let reports = all_end(storms).await?;
    squelch.wait_until_idle(QUIET).await?;
    let evidence = stage.evidence(&squelch, &reports, &before).await?;
    let is_judged = !squelch.metrics().await?.was_disarmed() && !evidence.iter().any(failed_open_often);
    let verdict = if is_judged { judge(&evidence) } else { Ok(()) };
    stage.end(squelch).await?;
    verdict?;
    stage.passed()?;
    Ok(is_judged)
}

/// The environment of a column.
struct Stage {
    test: Test,
    column: Column,
    proxy: Option<FaultProxy>,
    cells: Vec<Place>,
    /// Reviews that the API server admitted without an answer before.
    failed_reviews: i64,
}

/// A cell with its namespace.
struct Place {
    cell: Cell,
    test: Test,
    policy: Policy,
}

/// The emitters of each cell.
type Storms = Vec<Vec<RunningEmitter>>;

impl Stage {
    async fn set(column: Column, cells: &[Cell]) -> Result<(Self, Squelch)> {
        let test = Test::begin("matrix").await?;
        let proxy = match column {
            Column::Faults => Some(FaultProxy::start(&test.cluster).await?),
            _ => None,
        };
        let squelch = test
            .squelch_with_options(StartOptions { proxy: proxy.as_ref(), ..StartOptions::default() })
            .await?;
        if let Some(proxy) = &proxy {
            trouble::begin(proxy);
        }
        let place = async |cell: &Cell| {
            let test = test.neighbour().await?;
            let policy = test.policy(&cell.row.policy()).await?;
            anyhow::Ok(Place { cell: *cell, test, policy })
        };
        let cells = try_join_all(cells.iter().map(place)).await?;
        let failed_reviews = test.cluster.failed_reviews()?.all();
        Ok((Self { test, column, proxy, cells, failed_reviews }, squelch))
    }

    /// Starts all clients.
    fn storms(&self, time: Duration) -> Result<Storms> {
        let of = |place: &Place| {
            let emissions = place.cell.emissions(time);
            emissions.iter().map(|emission| place.test.emit(emission)).collect()
        };
        self.cells.iter().map(of).collect()
    }

    /// Applies the faults of the column while the clients report. Returns the squelch that runs afterwards, and the
    /// counters of each cell at its start.
    async fn trouble(
        &self,
        squelch: Squelch,
        storms: &Storms,
        time: Duration,
    ) -> Result<(Squelch, Vec<Counters>)> {
        let none = vec![Counters::default(); self.cells.len()];
        match self.column {
            Column::Quiet | Column::Faults => Ok((squelch, none)),
            Column::Restarts => self.restarts(squelch, storms).await,
            Column::ApiServer => {
                // A fixed time, so that the restart is in the middle.
                pass(time / 2).await;
                self.test.cluster.restart_apiserver(false, &[]).await?;
                let _frozen = Frozen::component(&self.test.cluster, "kube-apiserver")?;
                pass(PAUSE).await;
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
        eprintln!("squelch ran {lives} times");
        Ok((squelch, counters))
    }

    async fn counters(&self) -> Result<Vec<Counters>> {
        try_join_all(self.cells.iter().map(|place| place.policy.counters())).await
    }

    /// The evidence of each cell, once everything is idle.
    async fn evidence(
        &self,
        squelch: &Squelch,
        reports: &[Vec<Report>],
        before: &[Counters],
    ) -> Result<Vec<Evidence>> {
        let scrape = squelch.metrics().await?;
        // Allowed while the Lease had expired, because the API server was away for longer than its renew deadline.
        let while_inactive = scrape.reviews("standby") as i64;
        let failed_open = scrape.occurrences(&[("disposition", "failed_open")]) as i64;
        let undecided = self.unanswered()? + while_inactive + failed_open;
        let mut all = Vec::new();
        for (place, (reports, before)) in self.cells.iter().zip(reports.iter().zip(before)) {
            let metrics = counted(&scrape, &place.test.namespace);
            all.push(Evidence {
                cell: place.cell,
                column: self.column,
                sent: Sent::of(reports),
                stored: Stored::of(&place.test.events(None).await?),
                status: settled(&place.policy, before.received + metrics.received).await?,
                status_before: *before,
                metrics,
                lost: scrape.sum("squelch_lost_occurrences_total", &[namespace(place)]) as i64,
                reviews: self.reviews(place),
                undecided,
            });
        }
        Ok(all)
    }

    /// Reviews that the API server admitted without an answer although the proxy injected no fault.
    fn unanswered(&self) -> Result<i64> {
        let reviews = self.cells.iter().map(|place| self.reviews(place));
        let cut: u64 = reviews.map(|it| it.cut_before + it.cut_after).sum();
        Ok(self.test.cluster.failed_reviews()?.all() - self.failed_reviews - cut as i64)
    }

    fn reviews(&self, place: &Place) -> crate::proxy::ReviewCounts {
        self.proxy.as_ref().map(|proxy| proxy.reviews(&place.test.namespace)).unwrap_or_default()
    }

    /// Stops squelch; columns with faults do not check its log.
    async fn end(&self, squelch: Squelch) -> Result<()> {
        if let Some(proxy) = &self.proxy {
            proxy.end_all_faults();
            eprintln!("{}", table::faults(proxy));
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

async fn all_end(storms: Storms) -> Result<Vec<Vec<Report>>> {
    let ends = storms.into_iter().map(|storm| try_join_all(storm.into_iter().map(|it| it.finish(STORM))));
    try_join_all(ends).await
}

/// The counters of a namespace in the metrics of one process.
fn counted(scrape: &Samples, namespace: &str) -> Counters {
    let namespace = ("event_namespace", namespace);
    let of = |disposition| scrape.occurrences(&[namespace, ("disposition", disposition)]) as i64;
    Counters {
        received: scrape.occurrences(&[namespace]) as i64,
        admitted: of("admitted"),
        compacted: of("compacted"),
        aggregated: of("aggregated"),
        filtered: of("filtered"),
        throttled: of("throttled"),
        muted: of("muted"),
        failed_open: of("failed_open"),
        recovered: scrape.sum("squelch_recovered_occurrences_total", &[namespace]) as i64,
        dropped_warnings: scrape.sum("squelch_dropped_warnings_total", &[namespace]) as i64,
    }
}

/// The counters once the status has this many received occurrences; after the deadline, the last counters, which then
/// violate an invariant.
async fn settled(policy: &Policy, received: i64) -> Result<Counters> {
    let settled = wait_for("the last status", GENEROUS, async || {
        let counters = policy.counters().await.map_err(not_yet)?;
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
        let verdict = invariants::check(evidence);
        eprintln!("{}", table::line(evidence, verdict.is_ok()));
        if let Err(error) = verdict {
            let (column, cell) = (evidence.column, evidence.cell);
            broken.push(format!("{column}, {}, {}:\n    {error}", cell.client, cell.row));
        }
    }
    if broken.is_empty() {
        Ok(())
    } else {
        bail!("{UNEXPLAINED}: violated invariants:\n{}", broken.join("\n"))
    }
}
