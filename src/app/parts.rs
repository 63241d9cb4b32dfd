//! The parts of the running operator, started in the order of their dependencies.

use std::num::NonZeroU32;
use std::sync::Arc;

use anyhow::{Context, Result};
use kube::Client;
use squelch_engine::{Engine, Settings};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::admin::{Need, Readiness};
use crate::announcer::{self, AnnouncementReceiver, Announcer};
use crate::arming::{
    ArmingController, ConfigurationApi, ConfigurationMetadata, Desired, NOT_PROBED_YET, Prober,
};
use crate::config::{LastTimestamp, RunOptions};
use crate::descriptors::Descriptors;
use crate::export::Exporters;
use crate::leader::{Leader, LeaseDeadline, Peers};
use crate::metrics::{BackgroundTask, Metrics, WatchedResource};
use crate::policy::{Armed, Restrictions, Store, WatchSource, WebhookScope, watch as policy_watch};
use crate::reports::{ReportLimits, ReportWriter};
use crate::tls::{self, AcceptedTokens};
use crate::webhook::Webhook;
use crate::webhook::server::Stages;
use crate::{clock, flush, status};

use super::cluster::Cluster;
use super::shutdown::Ending;
use super::tasks::{Failures, Supervisor, Task};
use super::{exporting, keys, leading, serving};

/// The running operator.
pub(super) struct Parts {
    pub(super) engine: Arc<Engine>,
    pub(super) policies: Arc<Store>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) readiness: Arc<Readiness>,
    /// The desired webhook configuration.
    pub(super) desired: watch::Sender<Desired>,
    /// Whose Event writes the API server sends, or why it sends none.
    pub(super) armed: Arc<watch::Sender<Armed>>,
    pub(super) flush_writer: Arc<flush::Writer>,
    pub(super) flushing: Task<()>,
    pub(super) keeping_armed: Task<ArmingController>,
    pub(super) keeping_keys: Task<()>,
    pub(super) statuses: Task<status::StatusWriter>,
    pub(super) reports: Task<ReportWriter>,
    pub(super) leading: Task<Leader>,
    /// Cancelled once this replica has been active.
    pub(super) begun: CancellationToken,
    /// Cancelled when another replica becomes active in its place.
    pub(super) deposed: CancellationToken,
    /// The other replicas; `None` outside of pods.
    pub(super) peers: Option<Peers>,
    pub(super) ending: Ending,
}

impl Parts {
    /// Binds the ports first, so that an address in use is reported at once. Then starts everything that watches and
    /// writes. The port of the webhook refuses connections until it is served: the keys may take long, and an Event write
    /// would wait for an answer.
    pub(super) async fn start(
        options: &RunOptions,
        cluster: &Cluster,
        descriptors: Descriptors,
    ) -> Result<(Self, Failures)> {
        let client = cluster.client()?;
        let metrics = Arc::new(Metrics::new());
        let readiness = Arc::new(Readiness::default());
        let (supervisor, failures) = Supervisor::new();
        let serving_http = serving::http(&supervisor, options, &metrics, &readiness, descriptors)?;
        let port = serving::bind(options.webhook_bind_address, serving::WEBHOOK_FLAG)?;

        let engine = engine(options, &metrics)?;
        let policies = Arc::new(Store::default());
        let (announcer, announced) = Announcer::new();
        let deadline = Arc::new(LeaseDeadline::default());
        let leader = leading::leader(options, cluster, &engine, &deadline, announcer.clone(), &metrics)?;
        let active = leader.active();
        let keys = keys::start(options, cluster, metrics.clone(), active.clone()).await?;
        readiness.meet(Need::KeyLoaded);

        let probing = cluster.probing(keys.tokens())?;
        let (exporters, exporting) = exporting::start(&supervisor, options, &metrics)?;
        let webhook = webhook(cluster, &engine, &policies, &metrics, keys.tokens(), deadline, exporters);
        let stages = Stages::default();
        let tls = tls::server_config(keys.certificate(), serving::callers(options)?)?;
        let serving_webhook = serving::webhook(&supervisor, port, tls, webhook, &stages, descriptors)?;
        let (desired, wanted) = watch::channel(initial_configuration(cluster, &keys, options));
        let api = ConfigurationApi::new(&client, announcer.clone(), options.owner_cluster_role.clone());
        let armed = Arc::new(watch::Sender::new(Err(NOT_PROBED_YET.into())));
        let flush_writer = flush_writer(cluster.client()?, engine.clone(), metrics.clone(), options);
        let (acknowledged, restrictions) = (api.acknowledged(), api.restrictions());
        let (reported, disarm) = (armed.clone(), options.disarm);
        let (controller, prober) =
            ArmingController::new(api, probing, wanted, active.clone(), reported, disarm, metrics.clone());
        let state = status_inputs(&armed, &controller, &active, &metrics);
        let parts = Self {
            keeping_keys: supervisor.start(BackgroundTask::Keys, |stop| {
                keys.run(desired.clone(), acknowledged, prober.exposed(), stop)
            }),
            keeping_armed: keep_armed(&supervisor, controller, prober),
            flushing: start_flushing(&supervisor, &flush_writer, qps(options.flush_qps), active.clone()),
            statuses: write_statuses(&supervisor, options, &client, &policies, &engine, state, announcer),
            reports: write_reports(&supervisor, options, cluster, &policies, &engine, &active)?,
            ending: Ending {
                recording_events: record_events(&supervisor, client.clone(), announced),
                watching_policies: watch_policies(&supervisor, &client, &policies, restrictions, &metrics),
                serving_webhook,
                serving_http,
                exporting,
                stages,
            },
            begun: leader.was_active(),
            deposed: leader.lost(),
            leading: leading::campaign(&supervisor, leader, &policies),
            peers: leading::peers(options, cluster)?,
            engine,
            policies,
            metrics,
            readiness,
            desired,
            armed,
            flush_writer,
        };
        Ok((parts, failures))
    }
}

fn record_events(supervisor: &Supervisor, client: Client, announced: AnnouncementReceiver) -> Task<()> {
    supervisor.start(BackgroundTask::Announcer, |stop| announcer::run(client, announced, stop))
}

fn status_inputs(
    armed: &watch::Sender<Armed>,
    controller: &ArmingController,
    active: &watch::Receiver<bool>,
    metrics: &Arc<Metrics>,
) -> status::Inputs {
    status::Inputs {
        armed: armed.subscribe(),
        note: controller.note(),
        active: active.clone(),
        metrics: metrics.clone(),
    }
}

/// The options guarantee at least 1.
pub(super) fn qps(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN)
}

/// The webhook configuration before any policy is known.
fn initial_configuration(
    cluster: &Cluster,
    keys: &crate::keys::KeysController,
    options: &RunOptions,
) -> Desired {
    Desired {
        client: keys.client_config(),
        own_user: cluster.own_user.clone(),
        namespace: cluster.namespace.clone(),
        scope: WebhookScope::none(),
        metadata: ConfigurationMetadata {
            labels: options.webhook_label.iter().cloned().collect(),
            annotations: options.webhook_annotation.iter().cloned().collect(),
        },
    }
}

/// The webhook, without its server.
fn webhook(
    cluster: &Cluster,
    engine: &Arc<Engine>,
    policies: &Arc<Store>,
    metrics: &Arc<Metrics>,
    tokens: Arc<AcceptedTokens>,
    lease_deadline: Arc<LeaseDeadline>,
    exporters: Exporters,
) -> Arc<Webhook> {
    Arc::new(Webhook {
        engine: engine.clone(),
        policies: policies.clone(),
        metrics: metrics.clone(),
        own_user: cluster.own_user.clone(),
        tokens,
        clock: clock::Clock::default(),
        lease_deadline,
        exporters,
    })
}

/// The engine, whose counters are in the metrics.
fn engine(options: &RunOptions, metrics: &Metrics) -> Result<Arc<Engine>> {
    let seed = tls::random_seed().context("cannot read random numbers")?;
    let engine = Arc::new(Engine::new(Settings {
        seed,
        max_series: options.max_series as usize,
        max_pending_series: options.max_pending_series as usize,
        began: clock::wall(),
    }));
    metrics.register_engine(engine.clone());
    Ok(engine)
}

fn watch_policies(
    supervisor: &Supervisor,
    client: &Client,
    policies: &Arc<Store>,
    restrictions: watch::Receiver<Restrictions>,
    metrics: &Arc<Metrics>,
) -> Task<()> {
    let metrics = metrics.clone();
    let responded = move |source| metrics.watch_response(watched(source), clock::wall());
    let watching = policy_watch::run(client.clone(), policies.clone(), restrictions, responded);
    supervisor.start(BackgroundTask::PolicyWatch, |stop| async move {
        stop.run_until_cancelled(watching).await;
    })
}

fn watched(source: WatchSource) -> WatchedResource {
    match source {
        WatchSource::EventPolicies => WatchedResource::EventPolicies,
        WatchSource::ClusterEventPolicies => WatchedResource::ClusterEventPolicies,
        WatchSource::Namespaces => WatchedResource::Namespaces,
    }
}

fn keep_armed(
    supervisor: &Supervisor,
    mut controller: ArmingController,
    prober: Prober,
) -> Task<ArmingController> {
    supervisor.start(BackgroundTask::Arming, |stop| async move {
        tokio::join!(controller.run(stop.clone()), prober.run(stop));
        controller
    })
}

/// `client` is shared with nobody: slow flushes delay no other calls, and the other way round.
fn flush_writer(
    client: Client,
    engine: Arc<Engine>,
    metrics: Arc<Metrics>,
    options: &RunOptions,
) -> Arc<flush::Writer> {
    let last_timestamp = match options.last_timestamp {
        LastTimestamp::Occurrence => flush::StoredTime::Occurrence,
        LastTimestamp::Flush => flush::StoredTime::Flush,
    };
    Arc::new(flush::Writer::new(client, engine, metrics).storing(last_timestamp))
}

fn start_flushing(
    supervisor: &Supervisor,
    flush_writer: &Arc<flush::Writer>,
    qps: NonZeroU32,
    mut active: watch::Receiver<bool>,
) -> Task<()> {
    let flush_writer = flush_writer.clone();
    supervisor.start(BackgroundTask::Flush, |stop| async move {
        // A standby has nothing pending.
        let active_once = async { active.wait_for(|active| *active).await.is_ok() };
        if stop.run_until_cancelled(active_once).await == Some(true) {
            flush::run(flush_writer, flush::FlushLimits::usual(qps), stop).await;
        }
    })
}

fn write_statuses(
    supervisor: &Supervisor,
    options: &RunOptions,
    client: &Client,
    policies: &Arc<Store>,
    engine: &Arc<Engine>,
    state: status::Inputs,
    announcer: Announcer,
) -> Task<status::StatusWriter> {
    let engine = engine.clone();
    let limits = status::WriteLimits { interval: options.status_interval, qps: options.status_qps };
    let counters = Box::new(move || engine.all_counters());
    let writer =
        status::StatusWriter::new(client.clone(), policies.clone(), counters, state, announcer, limits);
    supervisor.start(BackgroundTask::Status, |stop| writer.run(stop))
}

/// Its client is shared with nobody, like that of the flush writer.
fn write_reports(
    supervisor: &Supervisor,
    options: &RunOptions,
    cluster: &Cluster,
    policies: &Arc<Store>,
    engine: &Arc<Engine>,
    active: &watch::Receiver<bool>,
) -> Result<Task<ReportWriter>> {
    let engine = engine.clone();
    let limits = ReportLimits {
        interval: options.report_interval,
        receipt_interval: Some(options.receipt_interval).filter(|interval| !interval.is_zero()),
        qps: options.report_qps,
    };
    let counters = Box::new(move || engine.all_counters());
    let writer = ReportWriter::new(cluster.client()?, policies.clone(), counters, active.clone(), limits);
    Ok(supervisor.start(BackgroundTask::Reports, |stop| writer.run(stop)))
}
