//! The in-memory API server: one configuration, its list and watch, and probes.

use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash, Hasher};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use kube::client::Body;
use tower_test::mock::Handle;

use super::*;

pub(super) async fn serve(
    mut server: Handle<Request<Body>, Response<ResponseBody>>,
    state: watch::Sender<ApiServerState>,
    token: PathToken,
) {
    while let Some((request, send)) = server.next_request().await {
        let (head, body) = request.into_parts();
        let body: Value = serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap_or_default();
        if head.method == Method::PATCH && state.borrow().stores_late {
            let (state, token, slow) = (state.clone(), token.clone(), state.borrow().apply_latency);
            tokio::spawn(async move {
                sleep(slow).await;
                let mut answer = (0, Value::Null);
                state.send_modify(|state| answer = state.answer(&head.method, head.uri.path(), body, &token));
                let text = complete(answer.1.to_string());
                send.send_response(Response::builder().status(answer.0).body(text).unwrap());
            });
            continue;
        }
        let mut answer = (404, json!({"kind": "Status", "code": 404, "reason": "NotFound", "message": "no"}));
        state.send_modify(|state| answer = state.answer(&head.method, head.uri.path(), body, &token));
        let mut text = complete(answer.1.to_string());
        if answer.0 == 200 && head.uri.query().is_some_and(|query| query.contains("watch=")) {
            text = watch_body(state.subscribe());
        }
        let is_read =
            head.method == Method::GET && head.uri.path().ends_with("/mutatingwebhookconfigurations/squelch");
        if is_read && state.borrow().proxy_404 {
            state.send_modify(|state| state.proxy_404 = false);
            (answer.0, text) = (404, complete("404 page not found".to_owned()));
        }
        let slow = match head.method {
            _ if head.uri.path().ends_with("/events") => state.borrow().probe_latency,
            Method::PATCH => state.borrow().apply_latency,
            _ => Duration::ZERO,
        };
        if !slow.is_zero() {
            tokio::spawn(async move {
                sleep(slow).await;
                send.send_response(Response::builder().status(answer.0).body(text).unwrap());
            });
            continue;
        }
        send.send_response(Response::builder().status(answer.0).body(text).unwrap());
    }
}

impl ApiServerState {
    fn answer(&mut self, method: &Method, path: &str, body: Value, token: &PathToken) -> (u16, Value) {
        let status =
            |code: u16| (code, json!({"kind": "Status", "code": code, "reason": "R", "message": "in words"}));
        let missing = |resource: &str| {
            let details = json!({"kind": resource, "name": "squelch"});
            (
                404,
                json!({"kind": "Status", "code": 404, "reason": "NotFound", "message": "no", "details": details}),
            )
        };
        if path.ends_with("/events") {
            self.probes += 1;
            return if self.probe_status == 201 {
                (201, signed(body, token))
            } else {
                status(self.probe_status)
            };
        }
        if path == "/readyz" {
            return (200, Value::Null);
        }
        let kind = |kind: &str, group: &str| json!({"kind": kind, "apiVersion": format!("{group}/v1")});
        if path.ends_with("/clusterroles/squelch") {
            let Some(uid) = &self.role else { return missing("clusterroles") };
            let mut role = kind("ClusterRole", "rbac.authorization.k8s.io");
            role["metadata"] = json!({"name": "squelch", "uid": uid});
            return (200, role);
        }
        if path.ends_with("/mutatingwebhookconfigurations") {
            self.watches += 1;
            if self.unwatchable {
                return status(403);
            }
            let items: Vec<_> = self.configuration.iter().cloned().map(with_version).collect();
            return (
                200,
                json!({ "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                "metadata": { "resourceVersion": "1" }, "items": items }),
            );
        }
        assert!(path.ends_with("/mutatingwebhookconfigurations/squelch"), "{path}");
        if method == Method::GET && self.unreadable {
            return status(503);
        }
        if method == Method::GET {
            let configuration = self.configuration.clone();
            self.reads += 1;
            if let Some(next) = self.replaced_after_read.take() {
                self.configuration = Some(next);
            }
            return configuration.map_or_else(
                || missing("mutatingwebhookconfigurations"),
                |object| (200, with_version(object)),
            );
        }
        if self.unwritable {
            self.refused += 1;
            return status(403);
        }
        self.apply(body).map_or_else(|| status(409), |object| (200, with_version(object)))
    }

    fn apply(&mut self, mut applied: Value) -> Option<Value> {
        let there = self.configuration.as_ref().map(|object| object["metadata"].clone());
        let uid = there.as_ref().map(|metadata| metadata["uid"].clone());
        if applied["metadata"]["uid"].is_string() && uid != Some(applied["metadata"]["uid"].clone()) {
            return None;
        }
        let required = applied["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        if required.is_some_and(|version| {
            self.configuration.as_ref().map(|object| json!(version_of(object))) != Some(version)
        }) {
            return None;
        }
        self.created += u32::from(uid.is_none());
        self.applied += 1;
        // As in server-side apply, entries, conditions and annotations of other writers stay.
        if let (Some(live), Some(entries)) = (&self.configuration, applied["webhooks"].as_array_mut()) {
            let missing = |list: &[Value], item: &Value| !list.iter().any(|own| own["name"] == item["name"]);
            let conditions = |entry: &Value| entry["matchConditions"].as_array().cloned().unwrap_or_default();
            for live in live["webhooks"].as_array().into_iter().flatten() {
                let Some(entry) = entries.iter_mut().find(|entry| entry["name"] == live["name"]) else {
                    continue;
                };
                let own = conditions(entry);
                let foreign = conditions(live).into_iter().filter(|condition| missing(&own, condition));
                entry["matchConditions"] = own.iter().cloned().chain(foreign).collect();
            }
        }
        applied["metadata"]["uid"] = uid.unwrap_or_else(|| json!(format!("made-{}", self.created)));
        if let Some(metadata) = there {
            applied["metadata"]["annotations"] = metadata["annotations"].clone();
        }
        if let Some(expression) = &self.added_at_admission {
            for entry in applied["webhooks"].as_array_mut().unwrap() {
                add_expression(entry, expression);
            }
        }
        if let Some(selector) = &self.selector {
            applied["webhooks"][0]["objectSelector"] = selector.clone();
        }
        self.configuration = Some(applied.clone());
        Some(applied)
    }

    pub(super) fn change(&mut self, change: impl FnOnce(&mut Value)) {
        change(self.configuration.as_mut().expect("the configuration exists"));
    }
}

fn signed(mut event: Value, token: &PathToken) -> Value {
    let nonce = event["metadata"]["annotations"][PROBE_ANNOTATION].as_str().unwrap();
    let signature = AcceptedTokens::new(vec![token.clone()]).sign(token.reveal(), nonce).unwrap();
    event["metadata"]["annotations"][PROBE_SIGNATURE_ANNOTATION] = json!(signature);
    event
}

type ResponseBody = UnsyncBoxBody<Bytes, Infallible>;

fn complete(text: String) -> ResponseBody {
    Full::new(Bytes::from(text)).boxed_unsync()
}

/// The body of a watch: an event for each change.
fn watch_body(state: watch::Receiver<ApiServerState>) -> ResponseBody {
    // The list has shown this one. Changes before the watch begins are not simulated.
    let seen = state.borrow().configuration.clone();
    let frames = futures::stream::unfold((state, seen), |(mut state, seen)| async move {
        let is_other = |state: &ApiServerState| state.configuration != seen;
        let now = state.wait_for(is_other).await.ok()?.configuration.clone();
        let (kind, object) = match (&seen, &now) {
            (None, Some(now)) => ("ADDED", now),
            (_, Some(now)) => ("MODIFIED", now),
            (Some(seen), None) => ("DELETED", seen),
            (None, None) => return None,
        };
        let event = json!({ "type": kind, "object": with_version(object.clone()) });
        let frame = Frame::data(Bytes::from(format!("{event}\n")));
        Some((Ok::<_, Infallible>(frame), (state, now)))
    });
    StreamBody::new(frames).boxed_unsync()
}

/// A resource version for each content.
fn version_of(object: &Value) -> String {
    let mut hasher = DefaultHasher::new();
    object.to_string().hash(&mut hasher);
    hasher.finish().to_string()
}

fn with_version(mut object: Value) -> Value {
    object["metadata"]["resourceVersion"] = json!(version_of(&object));
    object
}

/// Adds an expression to the `namespaceSelector` of an entry, unless it has it.
pub(super) fn add_expression(entry: &mut Value, expression: &Value) {
    let selector = &mut entry["namespaceSelector"];
    if !selector["matchExpressions"].is_array() {
        selector["matchExpressions"] = json!([]);
    }
    let expressions = selector["matchExpressions"].as_array_mut().unwrap();
    if !expressions.contains(expression) {
        expressions.push(expression.clone());
    }
}
