//! The cluster, the current setting, and one measurement on it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::accounts::{EMITTER, SQUELCH, install_emitter};
use e2e::bench::gauges::{Gauges, Stored, Usage};
use e2e::bench::limiter;
use e2e::collector::{Collector, Exports, Received};
use e2e::policy;
use e2e::squelch::StartOptions;
use e2e::test::make_namespace;
use e2e::wait::not_yet;
use e2e::writer::client_without_retries;
use e2e::{Cluster, GENEROUS, Policy, Squelch, conservation, events, wait_for};
use k8s_openapi::api::core::v1::Event;
use kube::Client;
use serde_json::json;
use tokio::time::{sleep, sleep_until};

use crate::answers::{Answered, latency, statuses, within};
use crate::cell::{Cell, Load};
use crate::leases;
use crate::load::{Target, prepare, run_workers};
use crate::peer::Peer;
use crate::setting::Setting;
use crate::work::{Work, Write};

/// Warm-up time, not measured.
const WARM: Duration = Duration::from_secs(1);

/// Deadline for the flushes at the end of a storm.
const FLUSHING: Duration = Duration::from_secs(90);

/// Events about objects of this name check that squelch is called; they are not counted.
const SENTINEL: &str = "sentinel-";

/// Component installed beyond the control plane.
enum Installed {
    Nothing,
    Limiter,
    Peer(Peer),
    Squelch(Squelch),
}

/// The running environment.
pub(crate) struct Stage {
    cluster: Cluster,
    folder: PathBuf,
    gauges: Gauges,
    /// The clients that write Events and renew Leases.
    emitter: Client,
    renewer: Client,
    installed: Installed,
    /// What the installed squelch exports to, if it exports.
    collector: Option<Collector>,
    started: usize,
    pending_checks: Vec<PendingCheck>,
}

/// A measurement under squelch whose counts are checked after the final flush.
struct PendingCheck {
    cell: usize,
    policy: Policy,
    setting: Setting,
    work: Work,
    answered: Vec<Answered>,
    /// Probe Events that its policy has counted.
    sentinels: i64,
    /// State at its end.
    stored: Stored,
}

impl Stage {
    /// Prepares the environment of all measurements.
    pub(crate) async fn set() -> Result<Self> {
        let cluster = Cluster::connect().await?;
        let folder = cluster.folder.join("bench");
        std::fs::create_dir_all(&folder)?;
        cluster.install().await?;
        install_emitter(&cluster).await?;
        leases::make(&cluster.kubectl).await?;
        let emitter = client_without_retries(&EMITTER.kubeconfig(&cluster, &folder).await?).await?;
        let renewer = client_without_retries(&cluster.kubeconfig).await?;
        let gauges = Gauges::of(&cluster)?;
        let stage = Self {
            cluster,
            folder,
            gauges,
            emitter,
            renewer,
            installed: Installed::Nothing,
            collector: None,
            started: 0,
            pending_checks: Vec::new(),
        };
        stage.wait_until_idle().await?;
        Ok(stage)
    }

    /// Switches to this setting; `fresh` restarts squelch.
    pub(crate) async fn enter(&mut self, setting: Setting, fresh: bool, cells: &mut [Cell]) -> Result<()> {
        let stays = match &self.installed {
            Installed::Nothing => setting == Setting::None,
            Installed::Limiter => setting == Setting::Limiter,
            Installed::Peer(_) => setting == Setting::Go,
            Installed::Squelch(_) => {
                setting.mode().is_some() && setting.exports() == self.collector.is_some() && !fresh
            }
        };
        if stays {
            return self.switch_collector(setting).await;
        }
        match std::mem::replace(&mut self.installed, Installed::Nothing) {
            Installed::Nothing => {}
            Installed::Limiter => {
                self.cluster.restart_apiserver(false, &[]).await?;
                self.wait_until_restarted().await?;
            }
            Installed::Peer(peer) => peer.stop(&self.cluster).await?,
            Installed::Squelch(squelch) => self.stop_and_check(squelch, cells).await?,
        }
        self.installed = match setting {
            Setting::None => Installed::Nothing,
            Setting::Go => Installed::Peer(Peer::start(&self.cluster, &self.folder).await?),
            Setting::Limiter => {
                limiter::switch_on(&self.cluster, &self.folder).await?;
                self.wait_until_restarted().await?;
                Installed::Limiter
            }
            Setting::Observe | Setting::Enforce => Installed::Squelch(self.squelch(&[]).await?),
            Setting::Export | Setting::ExportAway => {
                let mut collector = Collector::new(&self.folder)?;
                collector.start().await?;
                let url = self.collector.insert(collector).url();
                Installed::Squelch(self.squelch(&["--export-otlp", &url]).await?)
            }
        };
        self.switch_collector(setting).await
    }

    /// Stops the collector if it is to be away, and starts it again otherwise.
    async fn switch_collector(&mut self, setting: Setting) -> Result<()> {
        let (Installed::Squelch(squelch), Some(collector)) = (&self.installed, &mut self.collector) else {
            return Ok(());
        };
        match (collector.is_running(), setting == Setting::ExportAway) {
            (true, true) => collector.stop().await,
            (false, false) => {
                let exports = Exports::of(squelch).await?;
                ensure!(exports.pending > 0, "nothing was pending while the collector was away: {exports:?}");
                eprintln!("==> the collector comes back: {exports:?}");
                collector.start().await?;
                Exports::finished(squelch).await.map(drop)
            }
            (true, false) | (false, true) => Ok(()),
        }
    }

    async fn wait_until_restarted(&mut self) -> Result<()> {
        self.gauges = Gauges::of(&self.cluster)?;
        self.wait_until_idle().await
    }

    async fn squelch(&mut self, flags: &[&str]) -> Result<Squelch> {
        self.started += 1;
        let kubeconfig = SQUELCH.kubeconfig(&self.cluster, &self.folder).await?;
        let options = StartOptions { as_installed: true, flags, ..StartOptions::default() };
        Squelch::start(&format!("squelch-{}", self.started), &kubeconfig, &self.folder, options).await
    }

    /// Waits until the control plane is idle: an API server that has just started is busy.
    async fn wait_until_idle(&self) -> Result<()> {
        wait_for("the API server to be idle", GENEROUS, async || {
            let before = self.gauges.read(None).await.map_err(not_yet)?;
            sleep(Duration::from_secs(1)).await;
            let spent = self.gauges.read(None).await.map_err(not_yet)?.since(&before).spent;
            if spent.together() < 0.15 {
                Ok(())
            } else {
                Err(format!("{:.2} s of processor time per second", spent.together()))
            }
        })
        .await
    }

    fn webhook(&self) -> Option<u32> {
        match &self.installed {
            Installed::Nothing | Installed::Limiter => None,
            Installed::Peer(peer) => Some(peer.id()),
            Installed::Squelch(squelch) => Some(squelch.id()),
        }
    }

    /// Measures this load in a new namespace. The cell has this number.
    pub(crate) async fn measure(
        &mut self,
        load: Load,
        setting: Setting,
        round: usize,
        cell: usize,
    ) -> Result<Cell> {
        let namespace = make_namespace(&self.cluster.client, "bench").await?;
        let policy = if setting.mode().is_some() {
            Some(self.policy(&namespace, load.work, setting).await?)
        } else {
            None
        };
        let target = Target { client: self.emitter.clone(), namespace, api: load.api };
        let sentinels = self.wait_until_called(&target).await?;
        let mut answered = prepare(&target, load.work.before(), Instant::now()).await;

        let time = Duration::from_secs(load.seconds);
        let (began, workers) = (Instant::now(), load.work.workers(load.pace));
        let blowing = tokio::spawn(async move { run_workers(&target, workers, began, WARM + time).await });
        let renewing = tokio::spawn(leases::renew(self.renewer.clone(), began, WARM + time));
        sleep_until((began + WARM).into()).await;
        let before = self.gauges.read(self.webhook()).await?;
        sleep_until((began + WARM + time).into()).await;
        let after = self.gauges.read(self.webhook()).await?;
        let (events, leases) = (blowing.await?, renewing.await?);

        let Usage { seconds, spent, stored } = after.since(&before);
        let [counted, renewed] = [&events, &leases].map(|all| within(all, WARM, WARM + time));
        answered.extend(events);
        if let Some(policy) = policy {
            let (work, stored) = (load.work, self.gauges.stored().await?);
            self.pending_checks.push(PendingCheck {
                cell,
                policy,
                setting,
                work,
                answered,
                sentinels,
                stored,
            });
        }
        Ok(Cell {
            load,
            setting,
            round,
            seconds,
            writes: counted.len(),
            statuses: statuses(&counted),
            event_ms: [0.5, 0.99].map(|part| latency(&counted, part)),
            lease_ms: [0.5, 0.99].map(|part| latency(&renewed, part)),
            lease_writes: renewed.iter().filter(|it| it.status == 200).count(),
            spent,
            stored,
            puts_later: 0.0,
            counters: None,
            unaccounted: None,
        })
    }

    /// Waits until the API server calls squelch for Events of a namespace: it applies an accepted rule with a delay.
    /// Returns the number of Events that squelch counted.
    async fn wait_until_called(&self, target: &Target) -> Result<i64> {
        let Installed::Squelch(squelch) = &self.installed else { return Ok(0) };
        let namespace = [("event_namespace", target.namespace.as_str())];
        let mut sent = 0;
        wait_for("the API server to call squelch", GENEROUS, async || {
            sent += 1;
            let sentinel = Write::Sentinel { object: format!("{SENTINEL}{sent}") };
            prepare(target, vec![sentinel], Instant::now()).await;
            let metrics = squelch.metrics().await.map_err(not_yet)?;
            // By a policy in Enforce, or in Observe.
            let counted = ["squelch_occurrences_total", "squelch_observed_occurrences_total"]
                .map(|name| metrics.sum(name, &namespace) as i64);
            let counted = counted.iter().sum();
            if counted > 0 { Ok(counted) } else { Err(format!("{sent} Events, none of them reviewed")) }
        })
        .await
    }

    /// The defaults, as in the quickstart; for unmatched Events a policy for Normal ones; for the storm, the example policy
    /// for rollouts.
    async fn policy(&self, namespace: &str, work: Work, setting: Setting) -> Result<Policy> {
        let mut spec = json!({});
        if setting.exports() {
            spec["export"] = json!({ "include": "All" });
        }
        if work == Work::Unmatched {
            spec = json!({ "match": [{ "types": ["Normal"] }] });
        }
        if work == Work::Storm {
            spec = policy::in_file("examples/policies/rollout.yaml")?["spec"].take();
        }
        spec["mode"] = json!(setting.mode());
        let kubectl = self.cluster.kubectl.namespace(namespace);
        Policy::apply(self.cluster.client.clone(), &kubectl, namespace, "bench", &spec).await
    }

    /// Stops squelch, which flushes pending occurrences, and checks that every occurrence is accounted for.
    async fn stop_and_check(&mut self, squelch: Squelch, cells: &mut [Cell]) -> Result<()> {
        if self.collector.is_some() {
            let exports = Exports::finished(&squelch).await?;
            ensure!(exports.lost == 0, "{exports:?}");
        }
        squelch.stop_within(FLUSHING).await?;
        let received = match self.collector.take() {
            None => None,
            Some(mut collector) => {
                collector.stop().await?;
                Some(collector.received()?)
            }
        };
        let now = self.gauges.stored().await?;
        let all = std::mem::take(&mut self.pending_checks);
        // The flushes at the end belong to one measurement only if squelch ran for it alone.
        let alone = all.len() == 1;
        for pending_checks in all {
            let cell = cells.get_mut(pending_checks.cell).context("a policy without a measurement")?;
            if alone {
                cell.puts_later = now.since(&pending_checks.stored).puts;
            }
            cell.counters = Some(pending_checks.policy.counters().await?);
            cell.unaccounted = self.accounted(&pending_checks, received.as_ref()).await.err().map(not_yet);
            if let Some(wrong) = &cell.unaccounted {
                eprintln!("!!! {}: {wrong}", pending_checks.setting.title());
            }
        }
        Ok(())
    }

    /// `received`: what a collector has received, by namespace.
    async fn accounted(
        &self,
        pending_checks: &PendingCheck,
        received: Option<&BTreeMap<String, Received>>,
    ) -> Result<()> {
        let PendingCheck { policy, answered, .. } = pending_checks;
        let lost: Vec<u16> =
            answered.iter().map(|it| it.status).filter(|it| ![200, 403, 409].contains(it)).collect();
        ensure!(lost.is_empty(), "unexpected answers: {lost:?}");
        let (governed, others): (Vec<&Answered>, Vec<&Answered>) =
            answered.iter().partition(|it| it.governed);
        let mut counters = policy.counters().await?;
        ensure!(counters.are_conserved(), "the counters do not add up: {counters:?}");
        if let Some(received) = received {
            let received = received.get(&policy.namespace).context("no record")?;
            let counted = counters.included(|_| true);
            ensure!(received.occurrences == counted, "the collector has {received:?} of {counted:?}");
        }
        counters.received -= pending_checks.sentinels;
        counters.admitted -= pending_checks.sentinels;
        let reported: i64 = governed.iter().map(|it| it.occurrences).sum();
        ensure!(counters.received == reported, "received differs from {reported} reported: {counters:?}");
        ensure!(counters.failed_open == 0, "failed open: {counters:?}");

        let mut stored = events::of_others(&self.cluster.client, &policy.namespace).await?;
        stored.retain(|event| !events::object(event).starts_with(SENTINEL));
        let normal_only = matches!(pending_checks.work, Work::Storm | Work::Unmatched);
        let is_governed = |event: &Event| !normal_only || event.type_.as_deref() != Some("Warning");
        let (stored, of_others): (Vec<Event>, Vec<Event>) = stored.into_iter().partition(is_governed);
        let sum = |events: &[Event]| events.iter().map(events::value).sum::<i64>();
        ensure!(sum(&of_others) == others.len() as i64, "{} of {} ungoverned", sum(&of_others), others.len());
        if pending_checks.setting == Setting::Observe {
            ensure!(sum(&stored) == counters.received, "{} stored: {counters:?}", sum(&stored));
            return Ok(());
        }
        conservation::stored_matches(&stored, &counters)
    }
}
