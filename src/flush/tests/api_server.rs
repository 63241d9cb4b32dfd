//! An API server that stores Events, and that a scenario can make fail.

use std::collections::BTreeMap;
use std::time::Duration;

use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use squelch_engine::testing::write;
use squelch_engine::{Content, Moment};
use tower_test::mock::{Handle, SendResponse};

use super::super::checks::objections;
use super::super::event::recreate;
use crate::clock;

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
    pub(super) fn with_namespace(uid: &'static str) -> Self {
        Self { namespace_uid: Some(uid), ..Self::default() }
    }

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
