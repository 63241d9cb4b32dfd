//! squelch from its sockets to its engine, with everything that a review meets on the way, and without a cluster.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use kube::core::{ApiResource, DynamicObject};
use serde_json::json;
use squelch::api::ClusterEventPolicy;
use squelch::clock::{self, Clock};
use squelch::leader::Term;
use squelch::metrics::Metrics;
use squelch::policy::{Index, Store};
use squelch::tls::{self, AcceptedTokens, PathToken};
use squelch::webhook::server::{self, Limits, Stages};
use squelch::webhook::{Webhook, router};
use squelch_engine::{Engine, FlushPlan, FlushTask, Settings, StoredEvent};
use tokio::net::TcpListener;

/// How often the running squelch asks what is due, and how many orders it takes at a time at most.
const TICK: Duration = Duration::from_millis(100);
const ORDERS: usize = 512;

/// What every Event shows that is asked for: so much that no repeat doubles it. (What sends the reviews says the same.)
const STORED: i64 = 1_000_000_000;

/// squelch with a policy for all of these namespaces, whose series outlive a benchmark. Bounds are the defaults.
pub(crate) fn start(mode: &str, token: PathToken, namespaces: usize) -> Result<Webhook> {
    let engine = Arc::new(Engine::new(Settings {
        seed: tls::random_seed()?,
        max_series: 1_000_000,
        max_pending_series: 100_000,
        // What was before is told again by nobody here.
        began: Timestamp::UNIX_EPOCH,
    }));
    let metrics = Arc::new(Metrics::new());
    metrics.show_engine(Arc::clone(&engine));
    tokio::spawn(pay(Arc::clone(&engine)));
    Ok(Webhook {
        engine,
        policies: Arc::new(policies(mode, namespaces)),
        metrics,
        own_user: "system:serviceaccount:squelch-system:squelch".to_owned(),
        tokens: Arc::new(AcceptedTokens::new(vec![token])),
        clock: Clock::default(),
        term: Arc::new(Term::endless()),
    })
}

/// As `squelch run` does.
pub(crate) async fn serve(listener: TcpListener, tls: rustls::ServerConfig, webhook: Webhook) {
    let router = router(Arc::new(webhook));
    server::serve(listener, Arc::new(tls), router, Stages::default(), Limits::default()).await;
}

fn policies(mode: &str, namespaces: usize) -> Store {
    let off = json!({"disabled": true});
    // A million objects are told of within a minute: the buckets of a filter would have to be too many.
    let spec = json!({"mode": mode, "series": {"idleTimeout": "24h"}, "aggregation": off, "spamFilter": off});
    let policy = DynamicObject::new("quiet", &ApiResource::erase::<ClusterEventPolicy>(&()));
    let mut policy = policy.data(json!({"spec": spec}));
    policy.metadata.uid = Some("p1".to_owned());
    let mut index = Index::default();
    for number in 0..namespaces {
        index.apply_namespace(&format!("team-{number:05}"), "1", Default::default());
    }
    index.apply(&policy);
    let store = Store::default();
    store.swap(index.set());
    store
}

/// Pays what is due, to an API server that takes everything at once.
async fn pay(engine: Arc<Engine>) {
    let mut ticks = tokio::time::interval(TICK);
    loop {
        ticks.tick().await;
        for order in engine.tick(clock::now(), ORDERS) {
            settle(&engine, &order);
            // Each waits for the API server.
            tokio::task::yield_now().await;
        }
    }
}

fn settle(engine: &Engine, order: &FlushTask) {
    let now = clock::now();
    if let FlushPlan::Write { value, .. } | FlushPlan::Create { value, .. } =
        engine.plan(order, Some(StoredEvent::with_count(STORED)), now)
    {
        engine.ack(order, value, now);
    }
}
