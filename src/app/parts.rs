//! Every part of the running operator, started in the order in which they need each other.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use anyhow::{Context, Result};
use kube::Client;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::admin::{self, Admin, Need, Readiness};
use crate::announcer::{self, Announcer};
use crate::arming::{Arming, Desired, Keeper, NOT_YET, Probe, Proving, Reach};
use crate::config::RunOptions;
use crate::engine::{Engine, Settings};
use crate::leader::{Leader, Peers, Term};
use crate::metrics::Metrics;
use crate::policy::{Store, watch as policy_watch};
use crate::tls::{self, ClientAuthorities};
use crate::webhook::server::{self, Limits, Stages};
use crate::webhook::{Webhook, router};
use crate::{clock, flush, status};

use super::cluster::Cluster;
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
    pub(super) serving: JoinHandle<()>,
    pub(super) watching: JoinHandle<()>,
    pub(super) stages: Stages,
    pub(super) leading: Task<Leader>,
    /// Cancelled once it was that.
    pub(super) begun: CancellationToken,
    /// Cancelled when another is that was not before.
    pub(super) deposed: CancellationToken,
    /// The other replicas; `None` outside of pods.
    pub(super) peers: Option<Peers>,
    /// Ends with the process: the admin port and the watch.
    pub(super) background: CancellationToken,
}

/// A task that ends when it is told to.
pub(super) struct Task<T> {
    stop: CancellationToken,
    handle: JoinHandle<T>,
}

impl<T: Send + 'static> Task<T> {
    pub(super) fn start<F: Future<Output = T> + Send + 'static>(
        make: impl FnOnce(CancellationToken) -> F,
    ) -> Self {
        let stop = CancellationToken::new();
        Self { handle: tokio::spawn(make(stop.clone())), stop }
    }

    /// Tells it to end, and waits until it has. `None` if it panicked.
    pub(super) async fn end(self) -> Option<T> {
        self.stop.cancel();
        self.handle.await.ok()
    }
}

impl Parts {
    /// Binds the ports first, so that an address in use is told at once; then everything that watches and writes.
    pub(super) async fn start(options: &RunOptions, cluster: &Cluster) -> Result<Self> {
        let client = cluster.client()?;
        let metrics = Arc::new(Metrics::new());
        let readiness = Arc::new(Readiness::default());
        let background = CancellationToken::new();
        show(options.http_bind, &metrics, &readiness, &background).await?;
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
        let webhook = Arc::new(Webhook {
            engine: engine.clone(),
            policies: policies.clone(),
            metrics: metrics.clone(),
            own_user: cluster.own_user.clone(),
            tokens: keys.tokens(),
            clock: clock::Clock::default(),
            term,
        });
        let stages = Stages::default();
        let serving = serve(listener, &keys, callers(options)?, webhook, &stages)?;
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
        Ok(Self {
            keeping_keys: Task::start(|stop| keys.run(telling, acknowledged, stop)),
            keeping_armed: keep_armed(keeper, proving),
            flushing: pay(&payer, qps(options.flush_qps), active.clone()),
            telling: tell(options, &client, &policies, &engine, state, announcer),
            announcing: Task::start(|stop| announcer::run(client.clone(), announced, stop)),
            watching: watch_policies(&client, &policies, &background),
            begun: leader.begun(),
            deposed: leader.deposed(),
            leading: leading::lead(leader, &policies),
            peers: leading::peers(options, cluster)?,
            engine,
            policies,
            metrics,
            readiness,
            desired,
            unarmed,
            payer,
            serving,
            stages,
            background,
        })
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
async fn show(
    address: SocketAddr,
    metrics: &Arc<Metrics>,
    readiness: &Arc<Readiness>,
    background: &CancellationToken,
) -> Result<()> {
    let admin = Admin { metrics: metrics.clone(), readiness: readiness.clone() };
    let listener = bind(address, "--http-bind", TcpListener::bind(address).await)?;
    tokio::spawn(admin::serve(listener, admin, background.clone()));
    Ok(())
}

/// The webhook's port.
fn serve(
    listener: TcpListener,
    keys: &keys::Keeper,
    callers: Option<Arc<ClientAuthorities>>,
    webhook: Arc<Webhook>,
    stages: &Stages,
) -> Result<JoinHandle<()>> {
    let tls = Arc::new(tls::server_config(keys.certificate(), callers)?);
    let serving = server::serve(listener, tls, router(webhook), stages.clone(), Limits::default());
    Ok(tokio::spawn(serving))
}

fn settings(options: &RunOptions) -> Result<Settings> {
    let bits = tls::random_seed().context("no random numbers")?;
    Ok(Settings {
        seed: bits,
        max_series: options.max_series as usize,
        max_owing: options.max_owing as usize,
        began: clock::wall(),
    })
}

fn watch_policies(client: &Client, policies: &Arc<Store>, background: &CancellationToken) -> JoinHandle<()> {
    let (watching, ending) = (policy_watch::run(client.clone(), policies.clone()), background.clone());
    tokio::spawn(async move {
        ending.run_until_cancelled(watching).await;
    })
}

fn keep_armed(mut keeper: Keeper, proving: Proving) -> Task<Keeper> {
    Task::start(move |stop| async move {
        tokio::join!(keeper.run(stop.clone()), proving.run(stop));
        keeper
    })
}

fn pay(payer: &Arc<flush::Writer>, qps: NonZeroU32, mut active: watch::Receiver<bool>) -> Task<()> {
    let payer = payer.clone();
    Task::start(move |stop| async move {
        // Until then nothing is owed.
        let begins = async { active.wait_for(|active| *active).await.is_ok() };
        if stop.run_until_cancelled(begins).await == Some(true) {
            flush::run(payer, flush::Limits::usual(qps), stop).await;
        }
    })
}

fn tell(
    options: &RunOptions,
    client: &Client,
    policies: &Arc<Store>,
    engine: &Arc<Engine>,
    state: status::State,
    announcer: Announcer,
) -> Task<status::Writer> {
    let engine = engine.clone();
    let limits = status::Limits { interval: options.status_interval, qps: options.status_qps };
    let accounts = Box::new(move || engine.all_accounts());
    let writer = status::Writer::new(client.clone(), policies.clone(), accounts, state, announcer, limits);
    Task::start(move |stop| writer.run(stop))
}
