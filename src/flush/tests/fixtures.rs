//! Fixtures of the scenarios: an API server that stores Events, and that a scenario can make fail.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use squelch_engine::testing::{by, named, rules, write};
use squelch_engine::{Content, Disposition, Engine, Moment, Observation, Rules, SeriesRules, Settings};
use tower_test::mock::{self, Handle, SendResponse};

use super::super::checks::objections;
use super::super::event::recreate;
use super::super::writer::{FlushOutcome, TakenTask, Writer};
use crate::clock;
use crate::metrics::{FlushResult, Metrics};

/// The answer of the API server where it does not handle the request.
#[derive(Clone, Debug)]
pub(super) enum Reply {
    /// A status code, with a `Status` or other text, and `Retry-After`.
    Status(u16, Value, Option<u64>),
    /// No answer.
    Nothing,
    /// No answer, but the request is handled.
    NothingButDidIt,
    /// The connection breaks.
    Breaks,
    /// 200 with a body that is no Event.
    Nonsense,
}

pub(super) fn status(code: u16) -> Reply {
    Reply::Status(code, json!({}), None)
}

pub(super) fn details(code: u16, details: &Value) -> Reply {
    Reply::Status(code, json!({"kind": "Status", "code": code, "details": details}), None)
}

/// An API server with the Events of one namespace.
#[derive(Default)]
pub(super) struct ApiServer {
    pub(super) events: BTreeMap<String, Value>,
    /// The uid of the namespace, if it exists.
    pub(super) namespace_uid: Option<&'static str>,
    /// The requests in order, with their times.
    pub(super) requests: Vec<(Moment, String)>,
    version: u64,
    /// If set, answers have a `Date`, and Events have a creation time. The clock of the API server that squelch calls
    /// is this far ahead of the clock of the one that its client calls.
    pub(super) ahead: Option<Duration>,
    /// Answers that never come. Their senders are kept, or the connection would break.
    silent: Vec<SendResponse<Response<Body>>>,
}

impl ApiServer {
    /// Another client writes an Event.
    pub(super) fn store(&mut self, name: &str, mut event: Value) {
        self.version += 1;
        event["metadata"]["name"] = json!(name);
        event["metadata"]["resourceVersion"] = json!(self.version.to_string());
        if self.ahead.is_some() && event["metadata"]["creationTimestamp"].is_null() {
            event["metadata"]["creationTimestamp"] =
                json!(api_time(Duration::ZERO).strftime("%FT%TZ").to_string());
        }
        self.events.insert(name.to_owned(), event);
    }

    /// Stores the legacy Event of a scenario with this count.
    pub(super) fn store_count(&mut self, name: &str, count: i64) {
        let event = Content::of(&write().event);
        let mut event = recreate("shop", name, &event, count, jiff::Timestamp::UNIX_EPOCH);
        if let Some(before) = self.events.get(name) {
            event["message"] = before["message"].clone();
        }
        self.store(name, event);
    }

    pub(super) fn count(&self, name: &str) -> Option<i64> {
        let event = self.events.get(name)?;
        event["series"]["count"].as_i64().or(event["count"].as_i64()).or(Some(1))
    }

    /// The verbs of the requests.
    pub(super) fn verbs(&self) -> Vec<&str> {
        self.requests.iter().filter_map(|(_, request)| request.split(' ').next()).collect()
    }

    /// Answers every call. `reply` is asked first, with the number of the call and its verb and path.
    pub(super) async fn serve(
        &mut self,
        calls: &mut Handle<Request<Body>, Response<Body>>,
        mut reply: impl FnMut(usize, &str) -> Option<Reply>,
    ) {
        while let Some((request, send)) = calls.next_request().await {
            let (head, body) = request.into_parts();
            let asked = format!("{} {}", head.method, head.uri);
            let body = body.collect_bytes().await.unwrap();
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            self.requests.push((clock::now(), asked.clone()));
            match reply(self.requests.len(), &asked) {
                None => {
                    let answer = self.handle(&asked, body);
                    respond_at(send, answer, None, self.ahead);
                }
                Some(Reply::Status(code, answer, retry_after)) => respond(send, (code, answer), retry_after),
                Some(Reply::Nothing) => self.silent.push(send),
                Some(Reply::NothingButDidIt) => {
                    self.handle(&asked, body);
                    self.silent.push(send);
                }
                Some(Reply::Breaks) => send.send_error("connection reset by peer"),
                Some(Reply::Nonsense) => respond(send, (200, json!("OK")), None),
            }
        }
    }

    fn handle(&mut self, asked: &str, body: Value) -> (u16, Value) {
        let (verb, path) = asked.split_once(' ').unwrap();
        if path.starts_with("/api/v1/namespaces?") {
            assert!(verb == "GET" && path.contains("fieldSelector=metadata.name%3Dshop"), "{asked}");
            let namespaces = self.namespace_uid.iter().map(|uid| json!({"metadata": {"uid": uid}}));
            return (200, json!({"kind": "NamespaceList", "items": namespaces.collect::<Vec<_>>()}));
        }
        let path = path.split('?').next().unwrap().trim_start_matches("/api/v1/namespaces/shop/events");
        let name = percent_encoding::percent_decode_str(path.trim_start_matches('/')).decode_utf8().unwrap();
        let gone = (404, json!({"kind": "Status", "details": {"kind": "events"}}));
        match verb {
            "GET" => self.events.get(&*name).map_or(gone, |event| (200, event.clone())),
            "PATCH" => match self.events.get(&*name).cloned() {
                None => gone,
                Some(event)
                    if event["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"] =>
                {
                    (409, json!({}))
                }
                Some(mut event) => {
                    json_patch::merge(&mut event, &body);
                    self.admit(&name, event)
                }
            },
            _ => {
                let name = body["metadata"]["name"].as_str().unwrap().to_owned();
                if self.events.contains_key(&name) {
                    return (409, json!({"reason": "AlreadyExists"}));
                }
                self.admit(&name, body)
            }
        }
    }

    fn admit(&mut self, name: &str, event: Value) -> (u16, Value) {
        let objections = objections(&event, "shop");
        if !objections.is_empty() {
            return (422, json!({"message": objections}));
        }
        self.store(name, event);
        (200, self.events[name].clone())
    }
}

/// The time of an API server whose clock is this far ahead.
fn api_time(ahead: Duration) -> jiff::Timestamp {
    let now = clock::now().since(Moment::default()) + ahead;
    jiff::Timestamp::from_second(1_800_000_000).unwrap().checked_add(now).unwrap()
}

fn respond(send: SendResponse<Response<Body>>, answer: (u16, Value), retry_after: Option<u64>) {
    respond_at(send, answer, retry_after, None);
}

fn respond_at(
    send: SendResponse<Response<Body>>,
    (code, answer): (u16, Value),
    retry_after: Option<u64>,
    ahead: Option<Duration>,
) {
    let mut response = Response::builder().status(code);
    if let Some(ahead) = ahead {
        let date = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&api_time(ahead));
        response = response.header("Date", date.unwrap());
    }
    if let Some(seconds) = retry_after {
        response = response.header("Retry-After", seconds);
    }
    send.send_response(response.body(Body::from(answer.to_string().into_bytes())).unwrap());
}

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
        let server = ApiServer { namespace_uid: Some(FIRST_UID), ..ApiServer::default() };
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
