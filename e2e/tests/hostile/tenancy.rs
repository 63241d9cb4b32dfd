//! A namespace with somebody hostile and a bystander in it, one beside it, and what has to hold at the end of every row.

use std::cell::Cell;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::events::value;
use e2e::policy::Counters;
use e2e::{Policy, Squelch, Test, events};
use serde_json::{Value, json};
use squelch::metrics::table::MAX_OF_NAMESPACE;

use crate::script::{self, OCCURRENCES};
use crate::tenant::{Said, Tenant};
use crate::texts::is_plain;

/// Whoever wishes harm, whoever shares a namespace with him, and whoever has one beside it.
pub(crate) const HOSTILE: &str = "mallory";
const BYSTANDER: &str = "bystander";
const NEIGHBOUR: &str = "neighbour";

/// The design's bound of squelch's memory, in MiB.
const MOST_MEMORY: f64 = 320.0;

/// Time series of a pair of `event_namespace` and `policy`: six dispositions, recovered, lost, dropped Warnings.
const SERIES_OF_A_PAIR: usize = 9;

/// All that is owed is paid within this.
const PAID: Duration = Duration::from_secs(60);

/// The stage of the second table.
pub(crate) struct Tenancy {
    pub(crate) test: Test,
    pub(crate) beside: Test,
    pub(crate) squelch: Squelch,
    policies: [Policy; 2],
    /// One for the hostile user alone.
    apart: Option<Policy>,
    pub(crate) hostile: Tenant,
    bystander: Tenant,
    neighbour: Tenant,
    plays: Cell<usize>,
    samples: usize,
    told: Told,
}

/// Occurrences that squelch was told of, by whom.
#[derive(Default)]
struct Told {
    hostile: Cell<i64>,
    bystander: Cell<i64>,
    neighbour: Cell<i64>,
}

/// How a row ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Everything admitted is stored: what is stored adds up too.
    AddsUp,
    /// Events were deleted, refused by the API server behind squelch, or are at the largest number.
    Counted,
}

fn add(to: &Cell<i64>, occurrences: i64) {
    to.set(to.get() + occurrences);
}

impl Tenancy {
    /// With the same policy in both namespaces, all defaults.
    pub(crate) async fn begin(label: &str) -> Result<Self> {
        Self::with(label, None).await
    }

    /// And one for the hostile user alone, with this spec.
    pub(crate) async fn with(label: &str, apart: Option<&Value>) -> Result<Self> {
        let test = Test::begin(label).await?;
        let squelch = test.squelch().await?;
        let beside = test.neighbour().await?;
        for test in [&test, &beside] {
            Tenant::admit(&test.cluster, &test.namespace, &[HOSTILE, BYSTANDER, NEIGHBOUR]).await?;
        }
        let policies = [test.policy(&json!({})).await?, beside.policy(&json!({})).await?];
        let apart = match apart {
            Some(spec) => {
                Some(Policy::apply(test.client(), &test.kubectl(), &test.namespace, "apart", spec).await?)
            }
            None => None,
        };
        let user = async |name| Tenant::named(&test.cluster, name).await;
        let (hostile, bystander, neighbour) =
            (user(HOSTILE).await?, user(BYSTANDER).await?, user(NEIGHBOUR).await?);
        let (plays, told) = (Cell::new(0), Told::default());
        let mut tenancy = Self {
            test,
            beside,
            squelch,
            policies,
            apart,
            hostile,
            bystander,
            neighbour,
            plays,
            samples: 0,
            told,
        };
        tenancy.play().await?;
        tenancy.samples = tenancy.samples().await?;
        Ok(tenancy)
    }

    /// One more namespace, without a policy, which the hostile user may write into.
    pub(crate) async fn elsewhere(&self) -> Result<Test> {
        let test = self.test.neighbour().await?;
        Tenant::admit(&test.cluster, &test.namespace, &[HOSTILE]).await?;
        Ok(test)
    }

    /// The hostile namespace.
    pub(crate) fn namespace(&self) -> &str {
        &self.test.namespace
    }

    /// How many time series squelch's metrics have.
    async fn samples(&self) -> Result<usize> {
        let page = self.squelch.get("/metrics").await?;
        Ok(page.lines().filter(|line| line.starts_with("squelch_")).count())
    }

    /// The bystander and the neighbour write, and each answer is as if nobody else were there.
    pub(crate) async fn play(&self) -> Result<()> {
        let play = self.plays.get();
        self.plays.set(play + 1);
        script::play(&self.neighbour, &self.beside.namespace, NEIGHBOUR, play).await?;
        script::play(&self.bystander, self.namespace(), BYSTANDER, play).await?;
        add(&self.told.neighbour, OCCURRENCES);
        add(&self.told.bystander, OCCURRENCES);
        Ok(())
    }

    /// The bystander creates one more Event in the hostile namespace.
    pub(crate) async fn bystander_creates(&self, event: &Value) -> Result<Said> {
        add(&self.told.bystander, 1);
        self.bystander.create(self.namespace(), event).await
    }

    /// The hostile user creates an Event that happened once; what the API server does not shed squelch is told of.
    pub(crate) async fn creates(&self, event: &Value) -> Result<Said> {
        let said = self.hostile.create(self.namespace(), event).await?;
        if said != Said::Shed {
            self.was_told(1);
        }
        Ok(said)
    }

    /// The hostile namespace has more policies than metrics show: as many time series are added as one namespace may have.
    pub(crate) fn has_many_policies(&mut self) {
        self.samples += MAX_OF_NAMESPACE * SERIES_OF_A_PAIR;
    }

    /// squelch was told of so many occurrences more by the hostile user.
    pub(crate) fn was_told(&self, occurrences: i64) {
        add(&self.told.hostile, occurrences);
    }

    /// squelch was told of so many occurrences more in the namespace beside.
    pub(crate) fn was_told_beside(&self, occurrences: usize) {
        add(&self.told.neighbour, i64::try_from(occurrences).unwrap_or(i64::MAX));
    }

    /// Nobody else has noticed, and nothing is missing: the row's last word.
    pub(crate) async fn ends(self, ending: Ending) -> Result<String> {
        self.play().await?;
        let [beside, here] = self.counted().await?;
        let metrics = self.squelch.metrics().await?;
        let failed = metrics.sum("squelch_writes_total", &[("outcome", "failed_open")]);
        ensure!(failed == 0.0 && here.failed_open + beside.failed_open == 0, "{failed} writes failed open");
        let lost = metrics.sum("squelch_lost_occurrences_total", &[]);
        ensure!(lost == 0.0, "{lost} occurrences are lost");
        let samples = self.samples().await?;
        // Those of earlier rows' policies go.
        ensure!(samples <= self.samples, "{samples} time series in place of {}", self.samples);
        let memory = metrics.sum("process_resident_memory_bytes", &[]) / 1024.0 / 1024.0;
        ensure!(memory <= MOST_MEMORY, "{memory:.0} MiB");
        ensure!(metrics.sum("squelch_armed", &[]) > 0.0, "disarmed");
        self.prints_nothing_raw().await?;
        self.squelch.stop_within(PAID).await?;
        let stored = [self.beside.events(None).await?, self.test.events(None).await?];
        for play in 0..self.plays.get() {
            script::is_stored(&stored[0], NEIGHBOUR, play, false).context("beside")?;
            script::is_stored(&stored[1], BYSTANDER, play, true).context("in the same namespace")?;
        }
        for (counters, stored) in [(&beside, &stored[0]), (&here, &stored[1])] {
            let law = counters.admitted + counters.compacted + counters.aggregated + counters.recovered;
            let sum: i64 = stored.iter().map(value).sum();
            let adds_up = sum == law || (ending == Ending::Counted && std::ptr::eq(counters, &here));
            ensure!(
                adds_up,
                "{sum} are stored, and {law} by the law: {counters:?}\n{}",
                events::list(stored)
            );
        }
        self.test.passed()?;
        Ok(format!("{} told, all counted; {memory:.0} MiB", here.received))
    }

    /// What was told beside and here is what statuses and metrics tell.
    async fn counted(&self) -> Result<[Counters; 2]> {
        let Told { hostile, bystander, neighbour } = &self.told;
        let [here, beside] = &self.policies;
        let beside = self.received(beside, neighbour.get()).await?;
        let here = match &self.apart {
            None => self.received(here, hostile.get() + bystander.get()).await?,
            Some(apart) => {
                let (bystander, hostile) =
                    (self.received(here, bystander.get()).await?, self.received(apart, hostile.get()).await?);
                Counters {
                    received: bystander.received + hostile.received,
                    admitted: bystander.admitted + hostile.admitted,
                    compacted: bystander.compacted + hostile.compacted,
                    aggregated: bystander.aggregated + hostile.aggregated,
                    failed_open: bystander.failed_open + hostile.failed_open,
                    recovered: bystander.recovered + hostile.recovered,
                    ..bystander
                }
            }
        };
        Ok([beside, here])
    }

    async fn received(&self, policy: &Policy, sent: i64) -> Result<Counters> {
        let counters = policy.received(sent).await?;
        let metrics = self.squelch.metrics().await?;
        let labels = [("event_namespace", &*policy.namespace), ("policy", &*policy.label)];
        let told = metrics.sum("squelch_events_total", &labels) as i64;
        ensure!(told == sent, "{told} in the metrics of {sent}:\n{}", metrics.show("squelch_events_total"));
        Ok(counters)
    }

    /// What people look at holds no text that does something to a terminal.
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
