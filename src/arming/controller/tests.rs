//! Scenarios at the HTTP seam: an in-memory API server with one configuration, which answers probes as a test says.

mod break_glass;
mod deletion;
mod outages;
mod probes;
mod replicas;
mod writes;

use std::collections::BTreeSet;

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tokio::task::JoinHandle;
use tower_test::mock::{self, Handle};

use super::*;
use crate::announcer::{AnnouncementReceiver, Announcer};
use crate::arming::{Address, ClientConfig, ConfigurationMetadata, DISARM_ANNOTATION, NOT_PROBED_YET};
use crate::tls::{AcceptedTokens, PathToken};
use crate::{PROBE_ANNOTATION, PROBE_SIGNATURE_ANNOTATION};

/// The state and behaviour of the API server.
struct ApiServerState {
    configuration: Option<Value>,
    role: Option<String>,
    created: u32,
    applied: u32,
    /// The status for probes. 201 is signed.
    probe_status: u16,
    /// Replaces each written `objectSelector`, as another webhook may do.
    selector: Option<Value>,
    /// The number of probes.
    probes: u32,
    /// The configuration can be written but not read.
    unreadable: bool,
    /// Latency of probes.
    probe_latency: Duration,
    /// A proxy answers the next read of the configuration with 404 and a page.
    proxy_404: bool,
}

struct Scene {
    state: watch::Sender<ApiServerState>,
    desired: watch::Sender<Desired>,
    reason: watch::Receiver<Option<Arc<str>>>,
    active: watch::Sender<bool>,
    announced: AnnouncementReceiver,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
    running: JoinHandle<ArmingController>,
}

fn desired(namespaces: NamespaceSelection) -> Desired {
    Desired {
        client: ClientConfig {
            address: Address::Url("https://h".into()),
            path: "/p".into(),
            ca_bundle: "PEM".into(),
        },
        own_user: "system:serviceaccount:squelch:squelch".into(),
        namespace: "squelch".into(),
        namespaces,
        metadata: ConfigurationMetadata::default(),
    }
}

fn namespaces(names: &[&str]) -> NamespaceSelection {
    NamespaceSelection::of(names.iter().map(ToString::to_string).collect::<BTreeSet<_>>())
}

impl Scene {
    /// There is no configuration yet, and probes succeed.
    fn new() -> Self {
        Self::with(None)
    }

    fn with(configuration: Option<Value>) -> Self {
        Self::of(configuration, true)
    }

    fn of(configuration: Option<Value>, active: bool) -> Self {
        Self::started(configuration, active, false)
    }

    fn started(configuration: Option<Value>, active: bool, disarmed: bool) -> Self {
        let role = Some("role-1".to_owned());
        let state = ApiServerState {
            configuration,
            role,
            created: 0,
            applied: 0,
            probe_status: 201,
            selector: None,
            probes: 0,
            unreadable: false,
            probe_latency: Duration::ZERO,
            proxy_404: false,
        };
        let state = watch::Sender::new(state);
        let (service, server) = mock::pair();
        let token = PathToken::generate().unwrap();
        let tokens = Arc::new(AcceptedTokens::new(vec![token.clone()]));
        tokio::spawn(serve(server, state.clone(), token));
        let client = Client::new(service, "default");
        let (announcer, announced) = Announcer::new();
        let (desired, wanted) = watch::channel(desired(NamespaceSelection::None));
        let reason = Arc::new(watch::Sender::new(Some(NOT_PROBED_YET.into())));
        let metrics = Arc::new(Metrics::new());
        let api = ConfigurationApi::new(&client, announcer, Some("squelch".to_owned()));
        let probe = Probe::new(client, "squelch".to_owned(), tokens);
        let (active, follows) = watch::channel(active);
        let (mut controller, prober) =
            ArmingController::new(api, probe, wanted, follows, reason.clone(), disarmed, metrics.clone());
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let running = tokio::spawn(async move {
            tokio::join!(controller.run(stopped.clone()), prober.run(stopped));
            controller
        });
        Self { state, desired, reason: reason.subscribe(), active, announced, metrics, stop, running }
    }

    fn policies(&self, names: &[&str]) {
        self.desired.send_modify(|desired| desired.namespaces = namespaces(names));
    }

    async fn is_armed(&mut self, armed: bool) {
        let hour = Duration::from_secs(3_600);
        tokio::time::timeout(hour, self.reason.wait_for(|why| why.is_none() == armed))
            .await
            .expect("the state changes within an hour")
            .unwrap();
    }

    /// Waits for a state of the API server.
    async fn wait_for(&self, what: impl FnMut(&ApiServerState) -> bool) {
        let mut state = self.state.subscribe();
        let hour = Duration::from_secs(3_600);
        tokio::time::timeout(hour, state.wait_for(what))
            .await
            .expect("the state changes within an hour")
            .unwrap();
    }

    fn rules(&self) -> usize {
        let state = self.state.borrow();
        let rules = state.configuration.as_ref().map(|object| object["webhooks"][0]["rules"].clone());
        rules.and_then(|rules| rules.as_array().map(Vec::len)).unwrap_or_default()
    }

    /// Takes the Events so far: reason, whether it is a warning, and note.
    fn events(&mut self) -> Vec<(&'static str, bool, String)> {
        std::iter::from_fn(|| self.announced.next())
            .map(|events| (events.reason, events.warning, events.note))
            .collect()
    }

    /// The message for the policies.
    fn message(&self) -> String {
        self.reason.borrow().as_deref().unwrap_or_default().to_owned()
    }

    fn shows_break_glass(&self) -> bool {
        self.metrics.text().contains("squelch_break_glass 1\n")
    }

    async fn end(self) -> ArmingController {
        self.stop.cancel();
        self.running.await.unwrap()
    }
}

async fn serve(
    mut server: Handle<Request<Body>, Response<Body>>,
    state: watch::Sender<ApiServerState>,
    token: PathToken,
) {
    while let Some((request, send)) = server.next_request().await {
        let (head, body) = request.into_parts();
        let body: Value = serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap_or_default();
        let mut answer = (404, json!({"kind": "Status", "code": 404, "reason": "NotFound", "message": "no"}));
        state.send_modify(|state| answer = state.answer(&head.method, head.uri.path(), body, &token));
        let mut text = Body::from(answer.1.to_string().into_bytes());
        let is_read =
            head.method == Method::GET && head.uri.path().ends_with("/mutatingwebhookconfigurations/squelch");
        if is_read && state.borrow().proxy_404 {
            state.send_modify(|state| state.proxy_404 = false);
            (answer.0, text) = (404, Body::from(b"404 page not found".to_vec()));
        }
        let slow = state.borrow().probe_latency;
        if head.uri.path().ends_with("/events") && !slow.is_zero() {
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
        assert!(path.ends_with("/mutatingwebhookconfigurations/squelch"), "{path}");
        if method == Method::GET && self.unreadable {
            return status(503);
        }
        if method == Method::GET {
            let configuration = self.configuration.clone();
            return configuration
                .map_or_else(|| missing("mutatingwebhookconfigurations"), |object| (200, object));
        }
        self.apply(body).map_or_else(|| status(409), |object| (200, object))
    }

    fn apply(&mut self, mut applied: Value) -> Option<Value> {
        let there = self.configuration.as_ref().map(|object| object["metadata"].clone());
        let uid = there.as_ref().map(|metadata| metadata["uid"].clone());
        if applied["metadata"]["uid"].is_string() && uid != Some(applied["metadata"]["uid"].clone()) {
            return None;
        }
        self.created += u32::from(uid.is_none());
        self.applied += 1;
        applied["metadata"]["uid"] = uid.unwrap_or_else(|| json!(format!("made-{}", self.created)));
        if let Some(metadata) = there {
            applied["metadata"]["annotations"] = metadata["annotations"].clone();
        }
        if let Some(selector) = &self.selector {
            applied["webhooks"][0]["objectSelector"] = selector.clone();
        }
        self.configuration = Some(applied.clone());
        Some(applied)
    }

    fn change(&mut self, change: impl FnOnce(&mut Value)) {
        change(self.configuration.as_mut().expect("the configuration exists"));
    }
}

fn signed(mut event: Value, token: &PathToken) -> Value {
    let nonce = event["metadata"]["annotations"][PROBE_ANNOTATION].as_str().unwrap();
    let signature = AcceptedTokens::new(vec![token.clone()]).sign(token.reveal(), nonce).unwrap();
    event["metadata"]["annotations"][PROBE_SIGNATURE_ANNOTATION] = json!(signature);
    event
}

fn annotate(reason: Value) -> impl FnOnce(&mut ApiServerState) {
    move |state| state.change(|object| object["metadata"]["annotations"] = json!({DISARM_ANNOTATION: reason}))
}

/// The configuration of an active replica at another address.
fn of_another(namespaces: NamespaceSelection) -> Value {
    let mut written = desired(namespaces);
    written.client.address = Address::Url("https://other".into());
    let mut object =
        written.object(Some(&OwnerRole { name: "squelch".to_owned(), uid: "role-1".to_owned() }));
    object["metadata"]["uid"] = json!("theirs");
    object
}

fn rules_of(state: &ApiServerState) -> usize {
    state.configuration.as_ref().unwrap()["webhooks"][0]["rules"].as_array().map_or(0, Vec::len)
}
