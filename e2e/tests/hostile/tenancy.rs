//! A namespace with a hostile and another user, a neighbour namespace, and the checks at the end of every row.

use std::cell::Cell;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::events::value;
use e2e::policy::Counters;
use e2e::{Policy, Squelch, Test, events};
use serde_json::{Value, json};
use squelch::metrics::table::MAX_OF_NAMESPACE;

use crate::script::{self, OCCURRENCES};
use crate::tenant::{Tenant, WriteResult};
use crate::texts::is_plain;

/// The hostile user, the other user of the same namespace, and the user of the neighbour namespace.
pub(crate) const HOSTILE: &str = "mallory";
const OTHER_USER: &str = "other-user";
const NEIGHBOUR: &str = "neighbour";

/// The designed memory bound of squelch, in MiB.
const MOST_MEMORY: f64 = 320.0;

/// Time series per pair of `event_namespace` and `policy`: seven dispositions, recovered, lost, dropped Warnings.
const SERIES_OF_A_PAIR: usize = 10;

/// Deadline of the last flush.
const FLUSHED_WITHIN: Duration = Duration::from_secs(60);

/// The environment of the second table.
pub(crate) struct Tenancy {
    pub(crate) test: Test,
    pub(crate) beside: Test,
    pub(crate) squelch: Squelch,
    policies: [Policy; 2],
    /// A policy for the hostile user alone.
    apart: Option<Policy>,
    pub(crate) hostile: Tenant,
    other_user: Tenant,
    neighbour: Tenant,
    rounds: Cell<usize>,
    samples: usize,
    failed_webhook_calls: i64,
    reported: Reported,
}

/// Reported occurrences by user.
#[derive(Default)]
struct Reported {
    hostile: Cell<i64>,
    other_user: Cell<i64>,
    neighbour: Cell<i64>,
}

/// The kind of final checks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// All admitted occurrences are stored: stored counts are checked.
    AddsUp,
    /// Events were deleted, or refused by the API server after squelch: what was merged into them can be lost, 5 s after
    /// they were created.
    Counted,
    /// Merged occurrences that no Event can carry, because it is too large or has the maximum count, are lost. Stored
    /// and lost ones are checked.
    Unstorable,
}

fn add(to: &Cell<i64>, occurrences: i64) {
    to.set(to.get() + occurrences);
}

impl Tenancy {
    /// With the same policy in both namespaces: the default, and Warnings are limited too.
    pub(crate) async fn begin(label: &str) -> Result<Self> {
        Self::with(label, None).await
    }

    /// With an additional policy for the hostile user.
    pub(crate) async fn with(label: &str, apart: Option<&Value>) -> Result<Self> {
        let test = Test::begin(label).await?;
        let failed_webhook_calls = test.cluster.failed_webhook_calls().await?;
        let squelch = test.squelch().await?;
        let beside = test.neighbour().await?;
        for test in [&test, &beside] {
            Tenant::admit(&test.cluster, &test.namespace, &[HOSTILE, OTHER_USER, NEIGHBOUR]).await?;
        }
        let spec = json!({ "warningPolicy": "Limit" });
        let policies = [test.policy(&spec).await?, beside.policy(&spec).await?];
        let apart = match apart {
            Some(spec) => {
                Some(Policy::apply(test.client(), &test.kubectl(), &test.namespace, "apart", spec).await?)
            }
            None => None,
        };
        let user = async |name| Tenant::named(&test.cluster, name).await;
        let (hostile, other_user, neighbour) =
            (user(HOSTILE).await?, user(OTHER_USER).await?, user(NEIGHBOUR).await?);
        let (rounds, reported) = (Cell::new(0), Reported::default());
        let mut tenancy = Self {
            test,
            beside,
            squelch,
            policies,
            apart,
            hostile,
            other_user,
            neighbour,
            rounds,
            samples: 0,
            failed_webhook_calls,
            reported,
        };
        tenancy.play().await?;
        tenancy.samples = tenancy.samples().await?;
        Ok(tenancy)
    }

    /// A namespace without a policy in which the hostile user may write.
    pub(crate) async fn elsewhere(&self) -> Result<Test> {
        let test = self.test.part().await?;
        Tenant::admit(&test.cluster, &test.namespace, &[HOSTILE]).await?;
        Ok(test)
    }

    /// The hostile namespace.
    pub(crate) fn namespace(&self) -> &str {
        &self.test.namespace
    }

    /// Number of time series in squelch's metrics.
    async fn samples(&self) -> Result<usize> {
        let page = self.squelch.get("/metrics").await?;
        Ok(page.lines().filter(|line| line.starts_with("squelch_")).count())
    }

    /// The other user and the neighbour write, and each gets the answers as without the hostile user.
    pub(crate) async fn play(&self) -> Result<()> {
        let play = self.rounds.get();
        self.rounds.set(play + 1);
        script::run(&self.neighbour, &self.beside.namespace, NEIGHBOUR, play).await?;
        script::run(&self.other_user, self.namespace(), OTHER_USER, play).await?;
        add(&self.reported.neighbour, OCCURRENCES);
        add(&self.reported.other_user, OCCURRENCES);
        Ok(())
    }

    /// The other user creates one more Event in the hostile namespace.
    pub(crate) async fn other_user_creates(&self, event: &Value) -> Result<WriteResult> {
        add(&self.reported.other_user, 1);
        self.other_user.create(self.namespace(), event).await
    }

    /// The hostile user creates an Event; it counts as reported unless the API server refuses it before squelch.
    pub(crate) async fn creates(&self, event: &Value) -> Result<WriteResult> {
        let said = self.hostile.create(self.namespace(), event).await?;
        if said != WriteResult::Shed {
            self.add_received(1);
        }
        Ok(said)
    }

    /// Allows the maximum number of time series of one namespace.
    pub(crate) fn has_many_policies(&mut self) {
        self.samples += MAX_OF_NAMESPACE * SERIES_OF_A_PAIR;
    }

    /// Adds occurrences that the hostile user reported.
    pub(crate) fn add_received(&self, occurrences: i64) {
        add(&self.reported.hostile, occurrences);
    }

    /// Adds occurrences reported in the neighbour namespace.
    pub(crate) fn add_received_by_neighbour(&self, occurrences: usize) {
        add(&self.reported.neighbour, i64::try_from(occurrences).unwrap_or(i64::MAX));
    }

    /// The final checks: others were not affected, and nothing is lost.
    pub(crate) async fn ends(self, ending: Ending) -> Result<String> {
        self.play().await?;
        let [beside, here] = self.counted().await?;
        let metrics = self.squelch.metrics().await?;
        let failed = metrics.reviews("failed_open") as i64;
        // On a starved machine the API server does not wait for every review.
        let not_awaited = self.test.cluster.failed_webhook_calls().await? - self.failed_webhook_calls;
        let allowed = not_awaited.min((here.received + beside.received) / 100);
        ensure!(
            failed <= allowed && here.failed_open + beside.failed_open <= failed,
            "{failed} writes failed open, at most {allowed} allowed; the API server did not wait for {not_awaited}"
        );
        let lost_in = |labels: &[(&str, &str)]| metrics.sum("squelch_lost_occurrences_total", labels) as i64;
        let (lost, lost_here) = (lost_in(&[]), lost_in(&[("event_namespace", &self.test.namespace)]));
        let allowed = if ending == Ending::AddsUp { 0 } else { lost_here };
        ensure!(lost == allowed, "{lost} occurrences are lost, {allowed} allowed");
        let samples = self.samples().await?;
        // Time series of earlier rows' policies are removed.
        ensure!(samples <= self.samples, "{samples} time series instead of {}", self.samples);
        let memory = metrics.sum("process_resident_memory_bytes", &[]) / 1024.0 / 1024.0;
        ensure!(memory <= MOST_MEMORY, "{memory:.0} MiB");
        ensure!(metrics.is_armed(), "disarmed");
        self.prints_nothing_raw().await?;
        self.squelch.stop_within(FLUSHED_WITHIN).await?;
        let stored = [self.beside.events(None).await?, self.test.events(None).await?];
        for play in 0..self.rounds.get() {
            script::is_stored(&stored[0], NEIGHBOUR, play, false).context("in the neighbour namespace")?;
            script::is_stored(&stored[1], OTHER_USER, play, true).context("in the same namespace")?;
        }
        for (counters, stored, lost) in [(&beside, &stored[0], 0), (&here, &stored[1], lost_here)] {
            let Counters { admitted, compacted, aggregated, failed_open, recovered, .. } = counters;
            let expected = admitted + compacted + aggregated + failed_open + recovered;
            let sum: i64 = stored.iter().map(value).sum();
            // A write that was merged, and answered too late, is stored too.
            let beyond = sum + lost - expected;
            let adds_up = (0..=not_awaited).contains(&beyond)
                || (ending == Ending::Counted && std::ptr::eq(counters, &here));
            ensure!(
                adds_up,
                "{sum} stored, {lost} lost, {expected} expected; the API server did not wait for {not_awaited} \
                 reviews, {failed} of them failed open: {counters:?}\n{}",
                events::list(stored)
            );
        }
        self.test.passed()?;
        let lost = if lost == 0 { String::new() } else { format!(", {lost} lost") };
        Ok(format!("{} reported, all counted{lost}; {memory:.0} MiB", here.received))
    }

    /// Compares reported occurrences with statuses and metrics.
    async fn counted(&self) -> Result<[Counters; 2]> {
        let Reported { hostile, other_user, neighbour } = &self.reported;
        let [here, beside] = &self.policies;
        let beside = self.received(beside, neighbour.get()).await?;
        let here = match &self.apart {
            None => self.received(here, hostile.get() + other_user.get()).await?,
            Some(apart) => {
                let (other_user, hostile) = (
                    self.received(here, other_user.get()).await?,
                    self.received(apart, hostile.get()).await?,
                );
                Counters {
                    received: other_user.received + hostile.received,
                    admitted: other_user.admitted + hostile.admitted,
                    compacted: other_user.compacted + hostile.compacted,
                    aggregated: other_user.aggregated + hostile.aggregated,
                    failed_open: other_user.failed_open + hostile.failed_open,
                    recovered: other_user.recovered + hostile.recovered,
                    ..other_user
                }
            }
        };
        Ok([beside, here])
    }

    async fn received(&self, policy: &Policy, sent: i64) -> Result<Counters> {
        let counters = policy.received(sent).await?;
        let metrics = self.squelch.metrics().await?;
        let labels = policy.labels(&policy.namespace);
        let reported = metrics.sum("squelch_occurrences_total", &labels) as i64;
        ensure!(
            reported == sent,
            "{reported} of {sent} in the metrics:\n{}",
            metrics.show("squelch_occurrences_total")
        );
        Ok(counters)
    }

    /// Checks that output for users contains no control characters.
    async fn prints_nothing_raw(&self) -> Result<()> {
        let kubectl = self.test.kubectl();
        let log = self.squelch.log()?;
        let described = kubectl.run(&["describe", "evp"]).await?;
        let listed = kubectl.run(&["get", "evp", "--output=wide"]).await?;
        let status = kubectl.run(&["get", "evp", "--output=yaml"]).await?;
        let page = self.squelch.get("/metrics").await?;
        for (what, text) in
            [("describe", described), ("get", listed), ("status", status), ("metrics", page), ("log", log)]
        {
            let raw = text.chars().find(|char| !is_plain(*char));
            ensure!(raw.is_none(), "{what} prints {raw:?} raw:\n{}", text.escape_debug());
        }
        Ok(())
    }
}
