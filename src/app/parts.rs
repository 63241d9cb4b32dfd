//! Every part of the running operator, started in the order in which they need each other.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use anyhow::{Context, Result};
use kube::Client;
use squelch_engine::{Engine, Settings};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::admin::{self, Admin, Need, Readiness};
use crate::announcer::{self, Announcer};
use crate::arming::{Arming, Desired, Keeper, NOT_YET, Probe, Proving, Reach};
use crate::config::RunOptions;
use crate::descriptors::Descriptors;
use crate::leader::{Leader, Peers, Term};
use crate::metrics::{BackgroundTask, Metrics, WatchedResource};
use crate::policy::{Source, Store, watch as policy_watch};
use crate::tls::{self, AcceptedTokens, ClientAuthorities};
use crate::webhook::server::{self, Limits, Stages};
use crate::webhook::{Webhook, router};
use crate::{clock, flush, status};

use super::cluster::Cluster;
use super::tasks::{Failures, Supervisor, Task};
use super::{keys, leading};

/// The running operator.
pub(super) struct Parts {
    pub(super) engine: Arc<Engine>,
    pub(super) policies: Arc<Store>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) readiness: Arc<Readiness>,
    /// What the webhook configuration should be.
    pub(super) desired: watch::Sender<Desired>,
    /// Why the API server asks about no write; `None` while it asks.
    pub(super) unarmed: Arc<watch::Sender<Option<Arc<str>>>>,
    pub(super) payer: Arc<flush::Writer>,
    pub(super) flushing: Task<()>,
    pub(super) keeping_armed: Task<Keeper>,
    pub(super) keeping_keys: Task<()>,
    pub(super) telling: Task<status::Writer>,
    pub(super) announcing: Task<()>,
    pub(super) serving: Task<()>,
    pub(super) showing: Task<()>,
    pub(super) watching: Task<()>,
    pub(super) stages: Stages,
    pub(super) leading: Task<Leader>,
    /// Cancelled once it was that.
    pub(super) begun: CancellationToken,
    /// Cancelled when another is that was not before.
    pub(super) deposed: CancellationToken,
    /// The other replicas; `None` outside of pods.
    pub(super) peers: Option<Peers>,
}

impl Parts {
    /// Binds the ports first, so that an address in use is told at once; then everything that watches and writes.
    pub(super) async fn start(
        options: &RunOptions,
        cluster: &Cluster,
        descriptors: Descriptors,
    ) -> Result<(Self, Failures)> {
        let client = cluster.client()?;
        let metrics = Arc::new(Metrics::new());
        let readiness = Arc::new(Readiness::default());
        let (supervisor, failures) = Supervisor::new();
        let showing = show(&supervisor, options.http_bind, &metrics, &readiness, descriptors)?;
        let listener = bind(options.webhook_bind, "--webhook-bind", server::bind(options.webhook_bind))?;

        let engine = Arc::new(Engine::new(settings(options)?));
        metrics.show_engine(engine.clone());
        let policies = Arc::new(Store::default());
        let (announcer, announced) = Announcer::new();
        let term = Arc::new(Term::default());
        let leader = leading::leader(options, cluster, &engine, &term, announcer.clone(), &metrics)?;
        let active = leader.active();
        let keys = keys::Keeper::start(options, cluster, metrics.clone(), active.clone()).await?;
        readiness.meet(Need::KeyLoaded);

        // Connections of its own, each for one proof.
        let probe = Probe::new(cluster.client()?, cluster.namespace.clone(), keys.tokens());
        let webhook = webhook(cluster, &engine, &policies, &metrics, keys.tokens(), term);
        let stages = Stages::default();
        let tls = tls::server_config(keys.certificate(), callers(options)?)?;
        let serving = serve(&supervisor, listener, tls, webhook, &stages, descriptors);
        let (desired, wanted) = watch::channel(at_first(cluster, &keys));
        let arming = Arming::new(&client, announcer.clone(), options.owner_cluster_role.clone());
        let unarmed = Arc::new(watch::Sender::new(Some(NOT_YET.into())));
        // Connections of its own: neither do slow payments hold up anything else, nor the other way round.
        let payer = Arc::new(flush::Writer::new(cluster.client()?, engine.clone(), metrics.clone()));
        let (telling, acknowledged) = (desired.clone(), arming.acknowledged());
        let state = status::State { unarmed: unarmed.subscribe(), active: active.clone() };
        let (tells, enforce) = (unarmed.clone(), options.enforce);
        let (keeper, proving) =
            Keeper::new(arming, probe, wanted, active.clone(), tells, enforce, metrics.clone());
        let exposed = proving.exposed();
        let parts = Self {
            keeping_keys: supervisor
                .start(BackgroundTask::Keys, |stop| keys.run(telling, acknowledged, exposed, stop)),
            keeping_armed: keep_armed(&supervisor, keeper, proving),
            flushing: pay(&supervisor, &payer, qps(options.flush_qps), active.clone()),
            telling: tell(&supervisor, options, &client, &policies, &engine, state, announcer),
            announcing: supervisor
                .start(BackgroundTask::Announcer, |stop| announcer::run(client.clone(), announced, stop)),
            watching: watch_policies(&supervisor, &client, &policies, &metrics),
            begun: leader.begun(),
            deposed: leader.deposed(),
            leading: leading::lead(&supervisor, leader, &policies),
            peers: leading::peers(options, cluster)?,
            engine,
            policies,
            metrics,
            readiness,
            desired,
            unarmed,
            payer,
            serving,
            showing,
            stages,
        };
        Ok((parts, failures))
    }
}

/// The options make sure of it; one a second is what is left if they ever do not.
pub(super) fn qps(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN)
}

fn bind<T>(address: SocketAddr, flag: &str, bound: std::io::Result<T>) -> Result<T> {
    let listener =
        bound.with_context(|| format!("cannot listen on {address}; choose another with {flag}"))?;
    info!(%address, "listening for {}", flag.trim_start_matches("--").trim_end_matches("-bind"));
    Ok(listener)
}

/// Who may call, where that is asked by certificate.
fn callers(options: &RunOptions) -> Result<Option<Arc<ClientAuthorities>>> {
    let Some(file) = options.client_ca.clone() else { return Ok(None) };
    let loaded = ClientAuthorities::load(file.clone(), options.client_subject.clone());
    Ok(Some(Arc::new(loaded.with_context(|| format!("--client-ca {}", file.display()))?)))
}

/// The webhook configuration before any policy is known.
fn at_first(cluster: &Cluster, keys: &keys::Keeper) -> Desired {
    Desired {
        client: keys.client_config(),
        own_user: cluster.own_user.clone(),
        namespace: cluster.namespace.clone(),
        reach: Reach::Nothing,
    }
}

/// The plain HTTP port.
fn show(
    supervisor: &Supervisor,
    address: SocketAddr,
    metrics: &Arc<Metrics>,
    readiness: &Arc<Readiness>,
    descriptors: Descriptors,
) -> Result<Task<()>> {
    let admin = Admin::new(metrics.clone(), readiness.clone());
    let listener = bind(address, "--http-bind", server::bind(address))?;
    let places = descriptors.admin_connections();
    Ok(supervisor.start(BackgroundTask::Http, |stop| admin::serve(listener, admin, places, stop)))
}

/// The webhook, as far as it is no server.
fn webhook(
    cluster: &Cluster,
    engine: &Arc<Engine>,
    policies: &Arc<Store>,
    metrics: &Arc<Metrics>,
    tokens: Arc<AcceptedTokens>,
    term: Arc<Term>,
) -> Arc<Webhook> {
    Arc::new(Webhook {
        engine: engine.clone(),
        policies: policies.clone(),
        metrics: metrics.clone(),
        own_user: cluster.own_user.clone(),
        tokens,
        clock: clock::Clock::default(),
        term,
    })
}

/// The webhook's port.
fn serve(
    supervisor: &Supervisor,
    listener: TcpListener,
    tls: rustls::ServerConfig,
    webhook: Arc<Webhook>,
    stages: &Stages,
    descriptors: Descriptors,
) -> Task<()> {
    let limits = Limits { connections: descriptors.webhook_connections(), ..Limits::default() };
    supervisor.start_with(BackgroundTask::Webhook, stages.stop.clone(), |_stop| {
        server::serve(listener, Arc::new(tls), router(webhook), stages.clone(), limits)
    })
}

fn settings(options: &RunOptions) -> Result<Settings> {
    let bits = tls::random_seed().context("no random numbers")?;
    Ok(Settings {
        seed: bits,
        max_series: options.max_series as usize,
        max_pending_series: options.max_owing as usize,
        began: clock::wall(),
    })
}

fn watch_policies(
    supervisor: &Supervisor,
    client: &Client,
    policies: &Arc<Store>,
    metrics: &Arc<Metrics>,
) -> Task<()> {
    let metrics = metrics.clone();
    let responded = move |source| metrics.watch_response(watched(source), clock::wall());
    let watching = policy_watch::run(client.clone(), policies.clone(), responded);
    supervisor.start(BackgroundTask::PolicyWatch, |stop| async move {
        stop.run_until_cancelled(watching).await;
    })
}

fn watched(source: Source) -> WatchedResource {
    match source {
        Source::EventPolicies => WatchedResource::EventPolicies,
        Source::ClusterEventPolicies => WatchedResource::ClusterEventPolicies,
        Source::Namespaces => WatchedResource::Namespaces,
    }
}

fn keep_armed(supervisor: &Supervisor, mut keeper: Keeper, proving: Proving) -> Task<Keeper> {
    supervisor.start(BackgroundTask::Arming, |stop| async move {
        tokio::join!(keeper.run(stop.clone()), proving.run(stop));
        keeper
    })
}

fn pay(
    supervisor: &Supervisor,
    payer: &Arc<flush::Writer>,
    qps: NonZeroU32,
    mut active: watch::Receiver<bool>,
) -> Task<()> {
    let payer = payer.clone();
    supervisor.start(BackgroundTask::Flush, |stop| async move {
        // Until then nothing is owed.
        let begins = async { active.wait_for(|active| *active).await.is_ok() };
        if stop.run_until_cancelled(begins).await == Some(true) {
            flush::run(payer, flush::Limits::usual(qps), stop).await;
        }
    })
}

fn tell(
    supervisor: &Supervisor,
    options: &RunOptions,
    client: &Client,
    policies: &Arc<Store>,
    engine: &Arc<Engine>,
    state: status::State,
    announcer: Announcer,
) -> Task<status::Writer> {
    let engine = engine.clone();
    let limits = status::Limits { interval: options.status_interval, qps: options.status_qps };
    let accounts = Box::new(move || engine.all_counters());
    let writer = status::Writer::new(client.clone(), policies.clone(), accounts, state, announcer, limits);
    supervisor.start(BackgroundTask::Status, |stop| writer.run(stop))
}
