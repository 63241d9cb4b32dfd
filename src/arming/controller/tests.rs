//! Scenarios at the HTTP seam: an in-memory API server with one configuration, which answers probes as a test says.

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

#[tokio::test(start_paused = true)]
async fn the_webhook_is_armed_after_probes_succeed_and_not_before() {
    let mut scene = Scene::new();
    scene.state.send_modify(|state| state.probe_status = 403);
    scene.policies(&["shop"]);
    scene.wait_for(|state| state.applied == 1).await;
    assert_eq!(scene.rules(), 0);
    let owner =
        scene.state.borrow().configuration.as_ref().unwrap()["metadata"]["ownerReferences"][0]["uid"].clone();
    assert_eq!(owner, "role-1");
    let began = clock::now();
    scene.state.send_modify(|state| state.probe_status = 201);
    scene.is_armed(true).await;
    assert!(clock::now().since(began) < Duration::from_secs(1), "the first probes are quick");
    assert_eq!(scene.rules(), 1);
    let events = scene.events();
    assert_eq!((events.len(), events[0].0, events[0].1), (1, "Armed", false), "{events:?}");

    // Reachability stays confirmed: another policy is in force with its write.
    scene.policies(&[]);
    scene.is_armed(false).await;
    let began = clock::now();
    scene.policies(&["ci"]);
    scene.is_armed(true).await;
    assert_eq!(clock::now().since(began), Duration::ZERO);
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn two_failed_probes_disarm_and_three_successful_ones_arm_again() {
    let mut scene = Scene::new();
    scene.policies(&["shop"]);
    scene.is_armed(true).await;
    scene.events();
    // Probes are inconclusive while the API server fails.
    scene.state.send_modify(|state| state.probe_status = 503);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(scene.reason.borrow().is_none() && scene.events().is_empty());

    let began = clock::now();
    scene.state.send_modify(|state| state.probe_status = 403);
    scene.is_armed(false).await;
    let took = clock::now().since(began);
    assert!((Duration::from_secs(1)..Duration::from_secs(3)).contains(&took), "{took:?}");
    assert_eq!(scene.rules(), 0);
    let events = scene.events();
    assert_eq!((events.len(), events[0].0, events[0].1), (1, "Disarmed", true), "{events:?}");
    assert!(events[0].2.contains("in words"), "the API server's message: {events:?}");
    assert!(!scene.shows_break_glass());

    let began = clock::now();
    scene.state.send_modify(|state| state.probe_status = 201);
    scene.is_armed(true).await;
    assert!(clock::now().since(began) > Duration::from_secs(2), "one probe each second");
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn changes_by_other_writers_are_reverted() {
    let mut scene = Scene::new();
    scene.policies(&["shop"]);
    scene.is_armed(true).await;
    let applied = scene.state.borrow().applied;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.state.borrow().applied, applied, "nothing is written without a change");
    scene
        .state
        .send_modify(|state| state.change(|object| object["webhooks"][0]["timeoutSeconds"] = json!(30)));
    scene.wait_for(|state| state.applied == applied + 1).await;
    let timeout =
        scene.state.borrow().configuration.as_ref().unwrap()["webhooks"][0]["timeoutSeconds"].clone();
    assert_eq!(timeout, 1);
    scene.end().await;
}

/// Some cloud providers change every webhook configuration.
#[tokio::test(start_paused = true)]
async fn a_change_by_another_webhook_is_not_reverted() {
    let mut scene = Scene::new();
    scene.state.send_modify(|state| state.selector = Some(json!({"matchLabels": {"theirs": "x"}})));
    scene.policies(&["shop"]);
    scene.is_armed(true).await;
    let applied = scene.state.borrow().applied;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.state.borrow().applied, applied);
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_annotation_disarms_until_it_is_removed() {
    let mut scene = Scene::new();
    scene.policies(&["shop"]);
    scene.is_armed(true).await;
    scene.events();
    scene.state.send_modify(annotate(json!("INC-7")));
    scene.is_armed(false).await;
    assert!(scene.shows_break_glass() && scene.rules() == 0);
    let events = scene.events();
    assert!(events.len() == 1 && !events[0].1 && events[0].2.contains("INC-7"), "{events:?}");
    assert!(scene.message().contains("INC-7"), "{}", scene.message());
    // Neither time nor another policy arms it.
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    scene.policies(&["shop", "ci"]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(scene.reason.borrow().is_some() && scene.rules() == 0 && scene.events().is_empty());

    scene.state.send_modify(|state| state.change(|object| object["metadata"]["annotations"] = json!({})));
    scene.is_armed(true).await;
    assert!(!scene.shows_break_glass());
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn another_value_of_the_annotation_is_reported() {
    let mut scene = Scene::new();
    scene.policies(&["shop"]);
    scene.is_armed(true).await;
    scene.events();
    for reason in ["INC-7", "INC-8"] {
        scene.state.send_modify(annotate(json!(reason)));
        tokio::time::sleep(Duration::from_secs(10)).await;
        let events = scene.events();
        assert!(
            events.len() == 1 && events[0].2.contains(reason) && scene.message().contains(reason),
            "{events:?}"
        );
    }
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_flag_disarms_and_is_reported_once() {
    for existing in [None, Some(of_another(namespaces(&["shop"])))] {
        let mut scene = Scene::started(existing, true, true);
        scene.policies(&["shop"]);
        scene.wait_for(|state| state.applied == 1).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        scene.policies(&["shop", "ci"]);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(scene.shows_break_glass() && scene.rules() == 0);
        let events = scene.events();
        assert!(events.len() == 1 && events[0].0 == "Disarmed" && !events[0].1, "{events:?}");
        for words in [&events[0].2, &scene.message()] {
            assert!(words.contains("--disarm"), "{words}");
        }
        scene.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_standby_with_the_flag_shows_break_glass_once_there_are_no_rules() {
    let scene = Scene::started(Some(of_another(namespaces(&["shop"]))), false, true);
    scene.policies(&["shop"]);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(!scene.shows_break_glass() && scene.rules() == 1, "the active replica has no such flag yet");
    scene.state.send_modify(|state| state.change(|object| object["webhooks"][0]["rules"] = json!([])));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(scene.shows_break_glass() && scene.state.borrow().applied == 0);
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_annotation_from_before_the_start_disarms() {
    let there = json!({
        "kind": "MutatingWebhookConfiguration", "apiVersion": "admissionregistration.k8s.io/v1",
        "metadata": {"name": "squelch", "uid": "made-0", "annotations": {DISARM_ANNOTATION: ""}},
    });
    let mut scene = Scene::with(Some(there));
    scene.policies(&["shop"]);
    scene.wait_for(|state| state.applied == 1).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(scene.reason.borrow().is_some() && scene.shows_break_glass());
    assert_eq!(scene.state.borrow().applied, 1);
    assert!(scene.events().is_empty(), "it was never armed");
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn deleting_the_configuration_disarms_for_ten_minutes() {
    let mut scene = Scene::new();
    scene.policies(&["shop"]);
    scene.is_armed(true).await;
    scene.events();
    scene.state.send_modify(|state| state.configuration = None);
    let began = clock::now();
    scene.is_armed(false).await;
    assert!(clock::now().since(began) <= POLL_INTERVAL && scene.shows_break_glass());
    assert_eq!(scene.events()[0].0, "Disarmed");
    // A policy change does not create it again.
    scene.policies(&["shop", "ci"]);
    scene.is_armed(true).await;
    let after = clock::now().since(began);
    assert!((Duration::from_secs(600)..Duration::from_secs(605)).contains(&after), "{after:?}");
    assert_eq!(scene.state.borrow().created, 2);
    assert!(!scene.shows_break_glass());
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_policy_change_does_not_undo_a_deletion() {
    let mut scene = Scene::new();
    scene.policies(&["shop"]);
    scene.is_armed(true).await;
    scene.state.send_modify(|state| state.configuration = None);
    scene.policies(&["ci"]);
    scene.is_armed(false).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(scene.state.borrow().created, 1);
    // A person creates it again from a copy.
    let mut copy = desired(namespaces(&["shop"])).object(None);
    copy["metadata"]["uid"] = json!("theirs");
    scene.state.send_modify(|state| state.configuration = Some(copy));
    scene.is_armed(true).await;
    assert_eq!((scene.state.borrow().created, scene.shows_break_glass()), (1, false));
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_configuration_deleted_with_its_owner_is_created_again_at_once() {
    let mut scene = Scene::new();
    scene.policies(&["shop"]);
    scene.is_armed(true).await;
    // A reinstallation: the ClusterRole has another uid, and garbage collection deletes what the old one owned.
    scene.state.send_modify(|state| {
        state.role = Some("role-2".to_owned());
        state.configuration = None;
    });
    scene.wait_for(|state| state.created == 2).await;
    scene.is_armed(true).await;
    let state = scene.state.borrow().configuration.clone().unwrap();
    assert_eq!(state["metadata"]["ownerReferences"][0]["uid"], "role-2");
    assert!(!scene.shows_break_glass());
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_removes_the_rules_and_creates_nothing() {
    let mut scene = Scene::new();
    scene.policies(&["shop"]);
    scene.is_armed(true).await;
    let state = scene.state.clone();
    let mut controller = scene.end().await;
    controller.disarm().await;
    let object = state.borrow().configuration.clone().unwrap();
    assert_eq!(object["webhooks"][0]["rules"], json!([]));
    assert_eq!(object["webhooks"][1]["rules"].as_array().unwrap().len(), 1);

    state.send_modify(|state| state.configuration = None);
    controller.disarm().await;
    assert!(state.borrow().configuration.is_none());
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

#[tokio::test(start_paused = true)]
async fn a_standby_writes_nothing_while_probes_succeed() {
    let scene = Scene::of(Some(of_another(namespaces(&["shop"]))), false);
    scene.policies(&["ci"]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((scene.state.borrow().applied, scene.rules()), (0, 1));
    assert!(scene.metrics.text().contains("squelch_armed 1\n"));
    assert!(
        scene.metrics.text().contains("squelch_probes_total{result=\"succeeded\"} 6"),
        "one probe each second"
    );
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_standby_disarms_if_probes_fail_and_never_arms() {
    for before in [0, 30] {
        let mut scene = Scene::of(Some(of_another(namespaces(&["shop"]))), false);
        scene.policies(&["shop"]);
        if before == 0 {
            scene.state.send_modify(|state| state.probe_status = 403);
        }
        tokio::time::sleep(Duration::from_secs(before)).await;
        let began = clock::now();
        scene.state.send_modify(|state| state.probe_status = 403);
        scene.wait_for(|state| state.applied == 1).await;
        assert!(clock::now().since(began) < Duration::from_secs(3));
        assert_eq!(scene.rules(), 0);
        let state = scene.state.borrow().configuration.clone().unwrap();
        assert_eq!(state["webhooks"][1]["rules"].as_array().unwrap().len(), 1);
        assert!(state["webhooks"][0]["clientConfig"]["url"].as_str().unwrap().starts_with("https://other"));
        let events = scene.events();
        assert_eq!((events.len(), events[0].0, events[0].1), (1, "Disarmed", true), "{events:?}");
        scene.state.send_modify(|state| state.probe_status = 201);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!((scene.rules(), scene.state.borrow().applied), (0, 1));
        assert!(scene.metrics.text().contains("squelch_armed 0\n"));
        scene.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_standby_does_not_disarm_while_the_api_server_fails() {
    let scene = Scene::of(Some(of_another(NamespaceSelection::All)), false);
    scene.policies(&["shop"]);
    scene.state.send_modify(|state| state.probe_status = 503);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((scene.rules(), scene.state.borrow().applied), (1, 0));
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_takeover_keeps_the_rules_if_probes_succeed() {
    let mut scene = Scene::of(Some(of_another(namespaces(&["shop"]))), false);
    scene.policies(&["shop"]);
    tokio::time::sleep(Duration::from_secs(30)).await;
    scene.active.send_replace(true);
    scene.is_armed(true).await;
    assert_eq!((scene.rules(), scene.state.borrow().applied), (1, 1));
    let state = scene.state.borrow().configuration.clone().unwrap();
    assert!(state["webhooks"][0]["clientConfig"]["url"].as_str().unwrap().starts_with("https://h/"));
    assert!(scene.events().is_empty(), "it stayed armed");
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_takeover_without_rules_arms_only_after_probes_succeed() {
    let mut scene = Scene::of(Some(of_another(namespaces(&["shop"]))), false);
    scene.state.send_modify(|state| state.probe_status = 403);
    scene.policies(&["shop"]);
    scene.wait_for(|state| state.applied == 1).await;
    scene.active.send_replace(true);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(scene.rules(), 0);
    scene.state.send_modify(|state| state.probe_status = 201);
    scene.is_armed(true).await;
    assert_eq!(scene.rules(), 1);
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_takeover_respects_a_deletion() {
    let mut scene = Scene::of(Some(of_another(namespaces(&["shop"]))), false);
    scene.policies(&["shop"]);
    tokio::time::sleep(Duration::from_secs(10)).await;
    scene.state.send_modify(|state| state.configuration = None);
    tokio::time::sleep(Duration::from_secs(10)).await;
    scene.active.send_replace(true);
    tokio::time::sleep(Duration::from_secs(500)).await;
    assert!(scene.state.borrow().configuration.is_none() && scene.shows_break_glass());
    scene.is_armed(true).await;
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_after_a_takeover_does_not_create_a_deleted_configuration() {
    let scene = Scene::of(Some(of_another(namespaces(&["shop"]))), false);
    scene.policies(&["shop"]);
    tokio::time::sleep(Duration::from_secs(10)).await;
    scene.state.send_modify(|state| state.configuration = None);
    tokio::time::sleep(Duration::from_secs(10)).await;
    scene.active.send_replace(true);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let state = scene.state.clone();
    let mut controller = scene.end().await;
    controller.disarm().await;
    assert!(state.borrow().configuration.is_none());
    // A configuration that was created again is disarmed.
    state.send_modify(|state| state.configuration = Some(of_another(namespaces(&["shop"]))));
    controller.disarm().await;
    assert_eq!(state.borrow().configuration.as_ref().unwrap()["webhooks"][0]["rules"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn a_former_active_replica_writes_nothing() {
    let mut scene = Scene::new();
    scene.policies(&["shop"]);
    scene.is_armed(true).await;
    let applied = scene.state.borrow().applied;
    scene.active.send_replace(false);
    scene.policies(&["ci"]);
    scene
        .state
        .send_modify(|state| state.change(|object| object["webhooks"][0]["timeoutSeconds"] = json!(30)));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.state.borrow().applied, applied);
    scene.active.send_replace(true);
    scene.wait_for(|state| state.applied > applied).await;
    scene.end().await;
}

fn remove_rules(state: &mut ApiServerState) {
    state.change(|object| object["webhooks"][0]["rules"] = json!([]));
}

fn rules_of(state: &ApiServerState) -> usize {
    state.configuration.as_ref().unwrap()["webhooks"][0]["rules"].as_array().map_or(0, Vec::len)
}

#[tokio::test(start_paused = true)]
async fn rules_that_a_standby_removed_come_back_only_after_three_new_probes() {
    let mut scene = Scene::new();
    scene.policies(&["shop"]);
    scene.is_armed(true).await;
    let mut found = Vec::new();
    for policy_comes_meanwhile in [false, true] {
        tokio::time::sleep(Duration::from_secs(30)).await;
        scene.events();
        let (began, probes_before) = (clock::now(), scene.state.borrow().probes);
        scene.state.send_modify(remove_rules);
        if policy_comes_meanwhile {
            scene.policies(&["shop", "ci"]);
        }
        scene.wait_for(|state| rules_of(state) == 1).await;
        scene.is_armed(true).await;
        let events: Vec<_> = scene.events().into_iter().map(|events| (events.0, events.1)).collect();
        found.push((scene.state.borrow().probes - probes_before, clock::now().since(began), events));
    }
    let events = [("Disarmed", true), ("Armed", false)];
    assert!(
        found.iter().all(|(probes, took, said)| {
            *probes >= 3 && (Duration::from_secs(2)..Duration::from_secs(6)).contains(took) && *said == events
        }),
        "{found:?}"
    );
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_webhook_is_not_armed_before_the_configuration_is_read() {
    let mut scene = Scene::new();
    scene.policies(&["shop"]);
    scene.is_armed(true).await;
    scene.policies(&[]);
    scene.is_armed(false).await;
    // A person sets the annotation, and squelch cannot read it.
    scene.state.send_modify(|state| state.unreadable = true);
    scene.state.send_modify(annotate(json!("maintenance")));
    scene.policies(&["shop"]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.rules(), 0);
    scene.state.send_modify(|state| state.unreadable = false);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((scene.rules(), scene.shows_break_glass()), (0, true));
    scene.state.send_modify(|state| state.change(|object| object["metadata"]["annotations"] = Value::Null));
    scene.is_armed(true).await;
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_takeover_without_rules_needs_new_probes() {
    let mut existing = of_another(namespaces(&["shop"]));
    existing["webhooks"][0]["rules"] = json!([]);
    let mut scene = Scene::of(Some(existing), false);
    scene.policies(&["shop"]);
    tokio::time::sleep(Duration::from_secs(30)).await;
    let (began, probes_before) = (clock::now(), scene.state.borrow().probes);
    scene.active.send_replace(true);
    scene.is_armed(true).await;
    assert!(scene.state.borrow().probes - probes_before >= 3);
    assert!(clock::now().since(began) < Duration::from_secs(1), "{:?}", clock::now().since(began));
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn policies_that_change_often_cause_few_writes_and_the_last_state_is_written() {
    // Each pair alternates ten times a second for a minute.
    let pairs: [[&[&str]; 2]; 3] = [[&["shop", "ci"], &["shop"]], [&["shop"], &[]], [&["ci"], &["bank"]]];
    let mut found = Vec::new();
    for pair in pairs {
        let mut scene = Scene::new();
        scene.policies(pair[0]);
        scene.is_armed(true).await;
        let applied = scene.state.borrow().applied;
        for round in 1..=600 {
            scene.policies(pair[round % 2]);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        found.push(scene.state.borrow().applied - applied);
        // The narrower one is the last.
        scene.policies(pair[1]);
        tokio::time::sleep(Duration::from_secs(10)).await;
        let state = scene.state.borrow().configuration.clone().unwrap();
        let selected = &state["webhooks"][0]["namespaceSelector"]["matchExpressions"][0]["values"];
        assert_eq!(*selected, if pair[1].is_empty() { Value::Null } else { json!(pair[1]) });
        assert_eq!(scene.rules(), usize::from(!pair[1].is_empty()));
        scene.end().await;
    }
    assert!(found[0] <= 1 && found[1] <= 1 && found[2] <= 81, "{found:?} writes");
}

#[tokio::test(start_paused = true)]
async fn the_configuration_is_widened_at_once_and_narrowed_after_five_seconds() {
    let mut scene = Scene::new();
    scene.policies(&["shop"]);
    scene.is_armed(true).await;
    let names = |state: &ApiServerState| {
        let object = state.configuration.as_ref().unwrap();
        object["webhooks"][0]["namespaceSelector"]["matchExpressions"][0]["values"].clone()
    };
    for (wanted, after) in [(vec!["ci", "shop"], 0), (vec!["ci"], 5), (vec!["bank", "ci"], 0)] {
        let began = clock::now();
        scene.policies(&wanted);
        scene.wait_for(|state| names(state) == json!(wanted)).await;
        assert_eq!(clock::now().since(began), Duration::from_secs(after), "{wanted:?}");
    }
    let writes = format!("squelch_webhook_configuration_writes_total {}\n", scene.state.borrow().applied);
    assert!(scene.metrics.text().contains(&writes), "{writes}");
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_write_limit_does_not_delay_disarming() {
    let spend = async |scene: &Scene| {
        for round in 0..100 {
            scene.policies(&[["shop", "ci"][round % 2]]);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let mut scene = Scene::new();
    scene.policies(&["shop"]);
    scene.is_armed(true).await;
    spend(&scene).await;
    let began = clock::now();
    scene.state.send_modify(|state| state.probe_status = 403);
    scene.wait_for(|state| rules_of(state) == 0).await;
    assert!(clock::now().since(began) < Duration::from_secs(3));
    scene.state.send_modify(|state| state.probe_status = 201);
    scene.is_armed(true).await;
    spend(&scene).await;
    let began = clock::now();
    scene.state.send_modify(annotate(json!("INC-7")));
    scene.wait_for(|state| rules_of(state) == 0).await;
    assert!(clock::now().since(began) <= POLL_INTERVAL);
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_foreign_entry_is_reported_and_not_removed() {
    for active in [true, false] {
        let scene = Scene::of(Some(of_another(namespaces(&["shop"]))), active);
        scene.policies(&["shop"]);
        tokio::time::sleep(Duration::from_secs(30)).await;
        let shows = |number: u32| {
            scene.metrics.text().contains(&format!("squelch_webhook_foreign_entries {number}\n"))
        };
        let applied = scene.state.borrow().applied;
        assert!(shows(0));
        let add = |object: &mut Value| {
            let entry = json!({"name": "all.example.com", "clientConfig": {"url": "https://example.com"}});
            object["webhooks"].as_array_mut().unwrap().push(entry);
        };
        scene.state.send_modify(|state| state.change(add));
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(shows(1));
        assert_eq!(scene.state.borrow().applied, applied, "squelch does not remove it");
        let remove = |object: &mut Value| drop(object["webhooks"].as_array_mut().unwrap().pop());
        scene.state.send_modify(|state| state.change(remove));
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(shows(0));
        scene.end().await;
    }
}

/// For how long of the next minute the configuration has no rules.
async fn time_without_rules(scene: &Scene) -> Duration {
    let mut without = Duration::ZERO;
    for _ in 0..600 {
        sleep(Duration::from_millis(100)).await;
        if scene.rules() == 0 {
            without += Duration::from_millis(100);
        }
    }
    without
}

/// The webhook answers at once, and the API server takes 600 ms for each probe.
#[tokio::test(start_paused = true)]
async fn a_slow_api_server_does_not_disarm_a_webhook_that_answers() {
    let mut scene = Scene::new();
    scene.policies(&["shop"]);
    scene.is_armed(true).await;
    scene.events();
    scene.state.send_modify(|state| state.probe_latency = Duration::from_millis(600));
    let without = time_without_rules(&scene).await;
    let events = scene.events();
    assert!(without.is_zero(), "without rules for {without:?} of a minute: {events:?}");
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_hangs_is_disarmed_within_three_and_a_half_seconds() {
    let mut scene = Scene::new();
    scene.policies(&["shop"]);
    scene.is_armed(true).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let probes_before = scene.state.borrow().probes;
    scene.wait_for(|state| state.probes > probes_before).await;
    // The next probe begins a second later.
    tokio::time::sleep(Duration::from_millis(1)).await;
    let began = clock::now();
    scene.state.send_modify(|state| state.probe_latency = Duration::from_secs(60));
    scene.is_armed(false).await;
    let took = clock::now().since(began);
    assert!((Duration::from_secs(2)..=Duration::from_millis(3_510)).contains(&took), "{took:?}");
    assert_eq!(scene.rules(), 0);
    scene.end().await;
}

/// A proxy answers one read with 404 and a page.
#[tokio::test(start_paused = true)]
async fn a_404_page_of_a_proxy_is_no_deletion() {
    let mut scene = Scene::new();
    scene.policies(&["shop"]);
    scene.is_armed(true).await;
    sleep(Duration::from_secs(5)).await;
    scene.events();
    scene.state.send_modify(|state| state.proxy_404 = true);
    let without = time_without_rules(&scene).await;
    let events = scene.events();
    assert!(without.is_zero() && events.is_empty(), "without rules for {without:?}: {events:?}");
    scene.end().await;
}

/// The API server restarts. The Lease is renewed before the configuration can be read.
#[tokio::test(start_paused = true)]
async fn a_restart_of_the_api_server_does_not_remove_the_rules() {
    let mut scene = Scene::new();
    scene.policies(&["shop"]);
    scene.is_armed(true).await;
    sleep(Duration::from_secs(60)).await;
    scene.events();
    scene.state.send_modify(|state| (state.unreadable, state.probe_status) = (true, 503));
    sleep(Duration::from_secs(3)).await;
    scene.active.send_replace(false);
    sleep(Duration::from_secs(20)).await;
    scene.active.send_replace(true);
    sleep(Duration::from_millis(100)).await;
    scene.state.send_modify(|state| (state.unreadable, state.probe_status) = (false, 201));
    let without = time_without_rules(&scene).await;
    let events = scene.events();
    assert!(without.is_zero(), "without rules for {without:?}: {events:?}");
    scene.end().await;
}
