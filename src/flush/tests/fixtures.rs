//! The engine and writer of a scenario.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use squelch_engine::testing::{by, named, rules, write};
use squelch_engine::{Disposition, Engine, Observation, Rules, SeriesRules, Settings};
use tower_test::mock::{self, Handle};

use super::super::writer::{FlushOutcome, TakenTask, Writer};
use super::api_server::{ApiServer, Reply};
use crate::clock;
use crate::metrics::{FlushResult, Metrics};

/// The series rules of every scenario.
pub(super) const IDLE: Duration = Duration::from_secs(3600);
pub(super) const HEARTBEAT: Duration = Duration::from_secs(1800);

/// The uid of the namespace, as squelch's watch has shown it.
const FIRST_UID: &str = "ns-1";

/// The engine and writer of a scenario, and the API server.
pub(super) struct Scene {
    pub(super) engine: Arc<Engine>,
    pub(super) writer: Arc<Writer>,
    metrics: Arc<Metrics>,
    pub(super) calls: Handle<Request<Body>, Response<Body>>,
    pub(super) server: ApiServer,
    pub(super) rules: Rules,
    merged: AtomicUsize,
}

impl Scene {
    pub(super) fn new() -> Self {
        let (service, calls) = mock::pair();
        let client = Client::new(service, "default");
        let began = jiff::Timestamp::UNIX_EPOCH;
        let settings = Settings { seed: [3, 4], max_series: 100_000, max_pending_series: 100_000, began };
        let engine = Arc::new(Engine::new(settings));
        let metrics = Arc::new(Metrics::new());
        let writer = Arc::new(Writer::new(client, engine.clone(), metrics.clone()));
        let series = SeriesRules { idle_timeout: IDLE, heartbeat_interval: HEARTBEAT };
        let rules = Rules { series: Some(series), ..rules() };
        let server = ApiServer::with_namespace(FIRST_UID);
        engine.identify_namespaces(&Arc::new([("shop".into(), FIRST_UID.into())].into()));
        let merged = AtomicUsize::new(0);
        Self { engine, writer, metrics, calls, server, rules, merged }
    }

    /// The Event `cart.1` shows 1, and one pending occurrence is due.
    pub(super) async fn with_pending() -> Self {
        let mut scene = Self::new();
        scene.decide(&write());
        scene.server.store_count("cart.1", 1);
        scene.merge();
        tokio::time::advance(Duration::from_secs(2)).await;
        scene
    }

    /// The Event `cart.1` showed 2 and was deleted, and two pending occurrences are due.
    pub(super) async fn gone() -> Self {
        let mut scene = Self::with_pending().await;
        scene.flush_until_done().await;
        scene.server.events.clear();
        scene.merge();
        scene.merge();
        tokio::time::advance(Duration::from_secs(2)).await;
        scene
    }

    pub(super) fn decide(&self, write: &Observation<'_>) -> Option<Disposition> {
        self.engine.decide(by(&self.rules), write, clock::now()).disposition
    }

    /// Merges one more occurrence into `cart.1`, sent under a name of its own.
    pub(super) fn merge(&self) {
        let name = format!("again.{}", self.merged.fetch_add(1, Ordering::Relaxed));
        assert_eq!(self.decide(&named(&name, write())), Some(Disposition::Compacted));
    }

    /// Takes the task that is due.
    pub(super) fn task(&self) -> TakenTask {
        let mut tasks = self.engine.tick(clock::now(), 10);
        assert_eq!(tasks.len(), 1);
        self.writer.take(tasks.remove(0))
    }

    /// Attempts the due task once. `reply` is asked first, with the number of the call.
    pub(super) async fn attempt(&mut self, reply: impl FnMut(usize, &str) -> Option<Reply>) -> FlushOutcome {
        let taken = self.task();
        self.attempt_again(taken, reply).await
    }

    pub(super) async fn attempt_again(
        &mut self,
        taken: TakenTask,
        reply: impl FnMut(usize, &str) -> Option<Reply>,
    ) -> FlushOutcome {
        self.server.requests.clear();
        tokio::select! {
            outcome = self.writer.flush(taken) => outcome,
            () = self.server.serve(&mut self.calls, reply) => panic!("the client is gone"),
        }
    }

    /// Attempts the due task until it is completed, with an API server that handles every request.
    pub(super) async fn flush_until_done(&mut self) {
        let mut outcome = self.attempt(|_, _| None).await;
        while let Some(retry) = outcome.retry {
            outcome = self.attempt_again(retry, |_, _| None).await;
        }
        assert_eq!(outcome.refusal, None);
    }

    /// Returns after how long the task is due again, to a tenth of a second; `None` if not within ten minutes.
    pub(super) fn due_after(&self) -> Option<Duration> {
        (0..6000).map(|tenth| Duration::from_millis(tenth * 100)).find(|after| {
            let tasks = self.engine.tick(clock::now().plus(*after), 1);
            tasks.iter().for_each(|task| self.engine.release(task, clock::now()));
            !tasks.is_empty()
        })
    }

    pub(super) fn flushes(&self, result: FlushResult) -> u64 {
        let line = format!("squelch_flushes_total{{result=\"{}\"}} ", result.as_str());
        let text = self.metrics.text();
        text.lines().find_map(|text| text.strip_prefix(&line)).unwrap().parse().unwrap()
    }

    pub(super) fn lost(&self) -> u64 {
        self.engine.counters().iter().map(|scope| scope.counters.lost).sum()
    }
}
