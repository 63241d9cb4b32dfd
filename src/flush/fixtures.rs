//! What the scenarios share: an API server that keeps Events, and says what a scenario wants it to say.

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

use super::checks::objections;
use super::event::recreate;
use super::writer::{Looked, Unanswered, Writer};
use crate::clock;
use crate::metrics::{FlushResult, Metrics};

/// What the API server says in place of doing what it is asked.
#[derive(Clone, Debug)]
pub(super) enum Says {
    /// This status, with this `Status` or other text, and `Retry-After`.
    Status(u16, Value, Option<u64>),
    /// Nothing at all.
    Nothing,
    /// Nothing, but it has done what it was asked.
    NothingButDidIt,
    /// The connection breaks.
    Breaks,
    /// 200, and not an Event.
    Nonsense,
}

pub(super) fn status(code: u16) -> Says {
    Says::Status(code, json!({}), None)
}

pub(super) fn details(code: u16, details: &Value) -> Says {
    Says::Status(code, json!({"kind": "Status", "code": code, "details": details}), None)
}

/// An API server with the Events of one namespace.
#[derive(Default)]
pub(super) struct ApiServer {
    pub(super) events: BTreeMap<String, Value>,
    /// What it was asked, in order, and when.
    pub(super) asked: Vec<(Moment, String)>,
    version: u64,
    /// Its answers carry a `Date`, and Events a time of creation; the clock of the API server that squelch asks is so far
    /// ahead of that of the one that its client asks.
    pub(super) ahead: Option<Duration>,
    /// Answers that never come; their senders are kept, or the connection would break.
    silent: Vec<SendResponse<Response<Body>>>,
}

impl ApiServer {
    /// Somebody writes an Event.
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

    /// The legacy Event of a scenario with this count.
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

    /// The verbs that it was asked for.
    pub(super) fn verbs(&self) -> Vec<&str> {
        self.asked.iter().filter_map(|(_, request)| request.split(' ').next()).collect()
    }

    /// Answers every call; `says` is asked first, and told the number of the call and what it asks for.
    pub(super) async fn serve(
        &mut self,
        calls: &mut Handle<Request<Body>, Response<Body>>,
        mut says: impl FnMut(usize, &str) -> Option<Says>,
    ) {
        while let Some((request, send)) = calls.next_request().await {
            let (head, body) = request.into_parts();
            let asked = format!("{} {}", head.method, head.uri);
            let body = body.collect_bytes().await.unwrap();
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            self.asked.push((clock::now(), asked.clone()));
            match says(self.asked.len(), &asked) {
                None => {
                    let answer = self.does(&asked, body);
                    respond_at(send, answer, None, self.ahead);
                }
                Some(Says::Status(code, answer, retry_after)) => respond(send, (code, answer), retry_after),
                Some(Says::Nothing) => self.silent.push(send),
                Some(Says::NothingButDidIt) => {
                    self.does(&asked, body);
                    self.silent.push(send);
                }
                Some(Says::Breaks) => send.send_error("connection reset by peer"),
                Some(Says::Nonsense) => respond(send, (200, json!("OK")), None),
            }
        }
    }

    fn does(&mut self, asked: &str, body: Value) -> (u16, Value) {
        let (verb, path) = asked.split_once(' ').unwrap();
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

/// The time of an API server whose clock is so far ahead.
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

/// The pace of the policy of every scenario.
pub(super) const IDLE: Duration = Duration::from_secs(3600);
pub(super) const HEARTBEAT: Duration = Duration::from_secs(1800);

/// squelch's side of a scenario, and the API server.
pub(super) struct Scene {
    pub(super) engine: Arc<Engine>,
    pub(super) writer: Arc<Writer>,
    metrics: Arc<Metrics>,
    pub(super) calls: Handle<Request<Body>, Response<Body>>,
    pub(super) server: ApiServer,
    pub(super) rules: Rules,
    made: AtomicUsize,
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
        let (server, made) = (ApiServer::default(), AtomicUsize::new(0));
        Self { engine, writer, metrics, calls, server, rules, made }
    }

    /// The Event `cart.1` shows 1, and is owed one occurrence, which is due.
    pub(super) async fn owing() -> Self {
        let mut scene = Self::new();
        scene.decide(&write());
        scene.server.store_count("cart.1", 1);
        scene.fold();
        tokio::time::advance(Duration::from_secs(2)).await;
        scene
    }

    /// The Event `cart.1` showed 2 and is gone, and is owed two occurrences, which are due.
    pub(super) async fn gone() -> Self {
        let mut scene = Self::owing().await;
        scene.pays().await;
        scene.server.events.clear();
        scene.fold();
        scene.fold();
        tokio::time::advance(Duration::from_secs(2)).await;
        scene
    }

    pub(super) fn decide(&self, write: &Observation<'_>) -> Option<Disposition> {
        self.engine.decide(by(&self.rules), write, clock::now()).disposition
    }

    /// One more occurrence of `cart.1`'s story, under a name of its own.
    pub(super) fn fold(&self) {
        let name = format!("again.{}", self.made.fetch_add(1, Ordering::Relaxed));
        assert_eq!(self.decide(&named(&name, write())), Some(Disposition::Compacted));
    }

    /// The order that is due.
    pub(super) fn order(&self) -> Unanswered {
        let mut orders = self.engine.tick(clock::now(), 10);
        assert_eq!(orders.len(), 1);
        self.writer.take(orders.remove(0))
    }

    /// Looks once at what is due. `says` is asked first, with the number of the call.
    pub(super) async fn look(&mut self, says: impl FnMut(usize, &str) -> Option<Says>) -> Looked {
        let unanswered = self.order();
        self.look_for(unanswered, says).await
    }

    pub(super) async fn look_for(
        &mut self,
        unanswered: Unanswered,
        says: impl FnMut(usize, &str) -> Option<Says>,
    ) -> Looked {
        self.server.asked.clear();
        tokio::select! {
            looked = self.writer.look(unanswered) => looked,
            () = self.server.serve(&mut self.calls, says) => panic!("the client is gone"),
        }
    }

    /// Looks at the one order until it is answered, the API server doing what it is asked.
    pub(super) async fn pays(&mut self) {
        let mut looked = self.look(|_, _| None).await;
        while let Some(again) = looked.again {
            looked = self.look_for(again, |_, _| None).await;
        }
        assert_eq!(looked.refusal, None);
    }

    /// After how long it is due again, to a tenth of a second; `None`: not within ten minutes.
    pub(super) fn due_after(&self) -> Option<Duration> {
        (0..6000).map(|tenth| Duration::from_millis(tenth * 100)).find(|after| {
            let orders = self.engine.tick(clock::now().plus(*after), 1);
            orders.iter().for_each(|order| self.engine.release(order, clock::now()));
            !orders.is_empty()
        })
    }

    pub(super) fn flushes(&self, result: FlushResult) -> u64 {
        let line = format!("squelch_flushes_total{{result=\"{}\"}} ", result.as_str());
        let text = self.metrics.text();
        text.lines().find_map(|text| text.strip_prefix(&line)).unwrap().parse().unwrap()
    }

    pub(super) fn lost(&self) -> u64 {
        self.engine.counters().iter().map(|account| account.counters.lost).sum()
    }
}
