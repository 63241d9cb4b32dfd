//! The cluster, what stands before its etcd at the moment, and one measurement on it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::accounts::{EMITTER, SQUELCH, install_emitter};
use e2e::cluster::{checkout, given};
use e2e::squelch::Way;
use e2e::test::make_namespace;
use e2e::wait::told;
use e2e::writer::patient_client;
use e2e::{Cluster, GENEROUS, Policy, Squelch, events, law, wait_for};
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::{sleep, sleep_until};

use crate::answers::{Answered, latency, statuses, within};
use crate::cell::{Cell, Load};
use crate::gauges::{Gauges, Stored};
use crate::load::{Target, blow, prepare};
use crate::peer::Peer;
use crate::setting::Setting;
use crate::work::{Work, Write};
use crate::{leases, limiter};

/// Connections are dialled and code is warm before it counts.
const WARM: Duration = Duration::from_secs(1);

/// What is owed at the end of a storm.
const PAYING: Duration = Duration::from_secs(90);

/// Events about objects of this name are written to see whether squelch is asked, and are not counted.
const SENTINEL: &str = "sentinel-";

/// What is there beyond the control plane.
enum Standing {
    Nothing,
    Limiter,
    Peer(Peer),
    Squelch(Squelch),
}

/// Everything that is up.
pub(crate) struct Stage {
    cluster: Cluster,
    folder: PathBuf,
    gauges: Gauges,
    /// Who writes Events, and who renews Leases.
    emitter: Client,
    renewer: Client,
    standing: Standing,
    started: usize,
    unsettled: Vec<Unsettled>,
}

/// A measurement under squelch, whose counts are looked at once all is paid.
struct Unsettled {
    cell: usize,
    policy: Policy,
    setting: Setting,
    work: Work,
    answered: Vec<Answered>,
    /// Sentinels that its policy has counted.
    sentinels: i64,
    /// At its end.
    stored: Stored,
}

impl Stage {
    /// Makes ready what every measurement needs.
    pub(crate) async fn set() -> Result<Self> {
        let cluster = Cluster::connect().await?;
        let folder = cluster.folder.join("bench");
        std::fs::create_dir_all(&folder)?;
        cluster.install().await?;
        install_emitter(&cluster).await?;
        leases::make(&cluster.kubectl).await?;
        let emitter = patient_client(&EMITTER.kubeconfig(&cluster, &folder).await?).await?;
        let renewer = patient_client(&cluster.kubeconfig).await?;
        let gauges = gauges(&cluster)?;
        let (standing, unsettled) = (Standing::Nothing, Vec::new());
        let stage = Self { cluster, folder, gauges, emitter, renewer, standing, started: 0, unsettled };
        stage.is_idle().await?;
        Ok(stage)
    }

    /// Brings this setting about, from whatever stands there; `fresh` if squelch is not to go on.
    pub(crate) async fn enter(&mut self, setting: Setting, fresh: bool, cells: &mut [Cell]) -> Result<()> {
        let stays = match &self.standing {
            Standing::Nothing => setting == Setting::None,
            Standing::Limiter => setting == Setting::Limiter,
            Standing::Peer(_) => setting == Setting::Go,
            Standing::Squelch(_) => setting.mode().is_some() && !fresh,
        };
        if stays {
            return Ok(());
        }
        match std::mem::replace(&mut self.standing, Standing::Nothing) {
            Standing::Nothing => {}
            Standing::Limiter => {
                self.cluster.restart_apiserver(false, &[]).await?;
                self.came_up_again().await?;
            }
            Standing::Peer(peer) => peer.stop(&self.cluster).await?,
            Standing::Squelch(squelch) => self.settle(squelch, cells).await?,
        }
        self.standing = match setting {
            Setting::None => Standing::Nothing,
            Setting::Go => Standing::Peer(Peer::start(&self.cluster, &self.folder).await?),
            Setting::Limiter => {
                limiter::switch_on(&self.cluster, &self.folder).await?;
                self.came_up_again().await?;
                Standing::Limiter
            }
            Setting::Observe | Setting::Enforce => Standing::Squelch(self.squelch().await?),
        };
        Ok(())
    }

    async fn came_up_again(&mut self) -> Result<()> {
        self.gauges = gauges(&self.cluster)?;
        self.is_idle().await
    }

    async fn squelch(&mut self) -> Result<Squelch> {
        self.started += 1;
        let kubeconfig = SQUELCH.kubeconfig(&self.cluster, &self.folder).await?;
        let way = Way { as_installed: true, ..Way::default() };
        Squelch::start(&format!("squelch-{}", self.started), &kubeconfig, &self.folder, way).await
    }

    /// Waits until nobody has anything to do: an API server that has just come up has.
    async fn is_idle(&self) -> Result<()> {
        wait_for("the API server to be idle", GENEROUS, async || {
            let before = self.gauges.read(None).await.map_err(told)?;
            sleep(Duration::from_secs(1)).await;
            let (_, spent, _) = self.gauges.read(None).await.map_err(told)?.since(&before);
            if spent.together() < 0.15 {
                Ok(())
            } else {
                Err(format!("{:.2} s in a second", spent.together()))
            }
        })
        .await
    }

    fn webhook(&self) -> Option<u32> {
        match &self.standing {
            Standing::Nothing | Standing::Limiter => None,
            Standing::Peer(peer) => Some(peer.id()),
            Standing::Squelch(squelch) => Some(squelch.id()),
        }
    }

    /// Measures this load in a namespace of its own. It becomes the cell with this number.
    pub(crate) async fn measure(
        &mut self,
        load: Load,
        setting: Setting,
        round: usize,
        cell: usize,
    ) -> Result<Cell> {
        let namespace = make_namespace(&self.cluster.client, "bench").await?;
        let policy = match setting.mode() {
            None => None,
            Some(mode) => Some(self.policy(&namespace, load.work, mode).await?),
        };
        let target = Target { client: self.emitter.clone(), namespace, through: load.through };
        let sentinels = self.is_asked(&target).await?;
        let mut answered = prepare(&target, load.work.before(), Instant::now()).await;

        let time = Duration::from_secs(load.seconds);
        let (began, hands) = (Instant::now(), load.work.hands(load.pace));
        let blowing = tokio::spawn(async move { blow(&target, hands, began, WARM + time).await });
        let renewing = tokio::spawn(leases::renew(self.renewer.clone(), began, WARM + time));
        sleep_until((began + WARM).into()).await;
        let before = self.gauges.read(self.webhook()).await?;
        sleep_until((began + WARM + time).into()).await;
        let after = self.gauges.read(self.webhook()).await?;
        let (events, leases) = (blowing.await?, renewing.await?);

        let (seconds, spent, stored) = after.since(&before);
        let [counted, renewed] = [&events, &leases].map(|all| within(all, WARM, WARM + time));
        answered.extend(events);
        if let Some(policy) = policy {
            let (work, stored) = (load.work, self.gauges.stored().await?);
            self.unsettled.push(Unsettled { cell, policy, setting, work, answered, sentinels, stored });
        }
        Ok(Cell {
            load,
            setting,
            round,
            seconds: seconds.as_secs_f64(),
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

    /// Waits until squelch, if it is there, is asked about the Events of a namespace: the API server has accepted the
    /// rule, and goes by it a moment later. How many Events it took that squelch was asked about.
    async fn is_asked(&self, target: &Target) -> Result<i64> {
        let Standing::Squelch(squelch) = &self.standing else { return Ok(0) };
        let namespace = [("event_namespace", target.namespace.as_str())];
        let mut sent = 0;
        wait_for("squelch to be asked", GENEROUS, async || {
            sent += 1;
            let sentinel = Write::Sentinel { object: format!("{SENTINEL}{sent}") };
            prepare(target, vec![sentinel], Instant::now()).await;
            let counted =
                squelch.metrics().await.map_err(told)?.sum("squelch_events_total", &namespace) as i64;
            if counted > 0 { Ok(counted) } else { Err(format!("{sent} Events, none of them asked about")) }
        })
        .await
    }

    /// The defaults, which are the quickstart's; for the storm the gallery's policy for rollouts.
    async fn policy(&self, namespace: &str, work: Work, mode: &str) -> Result<Policy> {
        let mut spec = json!({});
        if work == Work::Storm {
            let file = std::fs::read_to_string(checkout("examples/policies/rollout.yaml"))?;
            spec = serde_saphyr::from_str::<Value>(&file)?["spec"].take();
        }
        spec["mode"] = mode.into();
        let kubectl = self.cluster.kubectl.namespace(namespace);
        Policy::apply(self.cluster.client.clone(), &kubectl, namespace, "bench", &spec).await
    }

    /// Ends squelch, which pays what it owes, and looks whether everything is accounted for.
    async fn settle(&mut self, squelch: Squelch, cells: &mut [Cell]) -> Result<()> {
        squelch.stop_within(PAYING).await?;
        let now = self.gauges.stored().await?;
        let all = std::mem::take(&mut self.unsettled);
        // Whose debts were paid at the end is known where squelch has lived for one measurement.
        let alone = all.len() == 1;
        for unsettled in all {
            let cell = cells.get_mut(unsettled.cell).context("a policy without a measurement")?;
            if alone {
                cell.puts_later = now.since(&unsettled.stored).puts;
            }
            cell.counters = Some(unsettled.policy.counters().await?);
            cell.unaccounted = self.accounted(&unsettled).await.err().map(told);
            if let Some(wrong) = &cell.unaccounted {
                eprintln!("!!! {}: {wrong}", unsettled.setting.title());
            }
        }
        Ok(())
    }

    async fn accounted(&self, unsettled: &Unsettled) -> Result<()> {
        let Unsettled { policy, answered, .. } = unsettled;
        let lost: Vec<u16> =
            answered.iter().map(|it| it.status).filter(|it| ![200, 403, 409].contains(it)).collect();
        ensure!(lost.is_empty(), "answers that nobody expects: {lost:?}");
        let (governed, others): (Vec<&Answered>, Vec<&Answered>) =
            answered.iter().partition(|it| it.governed);
        let mut counters = policy.counters().await?;
        ensure!(counters.are_conserved(), "the counters do not add up: {counters:?}");
        counters.received -= unsettled.sentinels;
        counters.admitted -= unsettled.sentinels;
        ensure!(counters.received == governed.len() as i64, "told {}: {counters:?}", governed.len());
        ensure!(counters.failed_open == 0, "failed open: {counters:?}");

        let mut stored = self.stored(&policy.namespace).await?;
        stored.retain(|event| !events::object(event).starts_with(SENTINEL));
        let is_governed =
            |event: &Event| unsettled.work != Work::Storm || event.type_.as_deref() != Some("Warning");
        let (stored, of_others): (Vec<Event>, Vec<Event>) = stored.into_iter().partition(is_governed);
        let sum = |events: &[Event]| events.iter().map(events::value).sum::<i64>();
        ensure!(sum(&of_others) == others.len() as i64, "{} of {} ungoverned", sum(&of_others), others.len());
        if unsettled.setting == Setting::Observe {
            ensure!(sum(&stored) == counters.received, "{} are stored: {counters:?}", sum(&stored));
            return Ok(());
        }
        law::adds_up(&stored, &counters)
    }

    /// All Events of a namespace, but those that squelch tells about its policy.
    async fn stored(&self, namespace: &str) -> Result<Vec<Event>> {
        let api: Api<Event> = Api::namespaced(self.cluster.client.clone(), namespace);
        let mut page = ListParams::default().fields(events::OF_OTHERS).limit(2000);
        let mut stored = Vec::new();
        loop {
            let list = api.list(&page).await?;
            stored.extend(list.items);
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(stored),
            }
        }
    }
}

fn gauges(cluster: &Cluster) -> Result<Gauges> {
    let etcd = given("SQUELCH_ETCD_METRICS_URL")?.display().to_string();
    Gauges::of(cluster, &etcd)
}
