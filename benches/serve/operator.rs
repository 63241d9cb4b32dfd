//! squelch from its sockets to its engine, with every layer of a review, without a cluster.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use kube::core::{ApiResource, DynamicObject};
use serde_json::json;
use squelch::api::ClusterEventPolicy;
use squelch::clock;
use squelch::metrics::Metrics;
use squelch::policy::{Index, Store};
use squelch::tls::{self, PathToken};
use squelch::webhook::server::{self, ConnectionLimits, Stages};
use squelch::webhook::{Webhook, router};
use squelch_engine::{Engine, FlushPlan, FlushTask, Settings, StoredEvent};
use tokio::net::TcpListener;

/// Tick interval of `squelch run`, and its maximum number of flush tasks per tick.
const TICK: Duration = Duration::from_millis(100);
const ORDERS: usize = 512;

/// The count of every Event in the reviews, so high that no repeat doubles it. The load generator has the same
/// constant.
const STORED: i64 = 1_000_000_000;

/// squelch with a policy for these namespaces, whose series outlive a benchmark. Limits are the defaults.
pub(crate) fn start(mode: &str, token: PathToken, namespaces: usize) -> Result<Webhook> {
    let engine = Arc::new(Engine::new(Settings {
        seed: tls::random_seed()?,
        max_series: 1_000_000,
        max_pending_series: 100_000,
        // No client reports counts from before the start.
        began: Timestamp::UNIX_EPOCH,
    }));
    let metrics = Arc::new(Metrics::new());
    metrics.register_engine(Arc::clone(&engine));
    tokio::spawn(flush(Arc::clone(&engine)));
    Ok(Webhook {
        metrics,
        ..Webhook::new(
            engine,
            Arc::new(policies(mode, namespaces)),
            "system:serviceaccount:squelch-system:squelch",
            token,
        )
    })
}

/// Serves as `squelch run` does.
pub(crate) async fn serve(listener: TcpListener, tls: rustls::ServerConfig, webhook: Webhook) {
    let router = router(Arc::new(webhook));
    server::serve(listener, Arc::new(tls), router, Stages::default(), ConnectionLimits::default()).await;
}

fn policies(mode: &str, namespaces: usize) -> Store {
    let off = json!({ "mode": "Disabled" });
    // A million objects are reported within a minute: more than the buckets of a filter.
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

/// Flushes what is due, to an API server that accepts everything at once.
async fn flush(engine: Arc<Engine>) {
    let mut ticks = tokio::time::interval(TICK);
    loop {
        ticks.tick().await;
        for task in engine.tick(clock::now(), ORDERS) {
            ack(&engine, &task);
            // The real flushes wait for the API server.
            tokio::task::yield_now().await;
        }
    }
}

fn ack(engine: &Engine, task: &FlushTask) {
    let now = clock::now();
    if let FlushPlan::Write { value, .. } | FlushPlan::Create { value, .. } =
        engine.plan(task, Some(StoredEvent::with_count(STORED)), now)
    {
        engine.ack(task, value, now);
    }
}
