//! Scenarios at the HTTP seam: an API server in memory that keeps one configuration, and answers each proof as told.

use std::collections::BTreeSet;

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tokio::task::JoinHandle;
use tower_test::mock::{self, Handle};

use super::*;
use crate::announcer::{Announced, Announcer};
use crate::arming::{Address, ClientConfig, DISARM_ANNOTATION, NOT_YET};
use crate::tls::{AcceptedTokens, PathToken};
use crate::{PROBE_ANNOTATION, PROOF_ANNOTATION};

/// What the API server holds, and how it behaves.
struct Held {
    configuration: Option<Value>,
    role: Option<String>,
    made: u32,
    applied: u32,
    /// 201 with a mark, or another status.
    proofs: u16,
    /// In place of each `objectSelector` that is written.
    selector: Option<Value>,
    /// How often it was probed.
    probed: u32,
    /// The configuration can be written, and not read.
    unreadable: bool,
    /// Proofs are answered after this long.
    slow: Duration,
    /// The next look at the configuration is answered by something before the API server: 404, a page.
    stray: bool,
}

struct Scene {
    held: watch::Sender<Held>,
    desired: watch::Sender<Desired>,
    unarmed: watch::Receiver<Option<Arc<str>>>,
    active: watch::Sender<bool>,
    announced: Announced,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
    keeping: JoinHandle<Keeper>,
}

fn desired(reach: Reach) -> Desired {
    Desired {
        client: ClientConfig {
            address: Address::Url("https://h".into()),
            path: "/p".into(),
            ca_bundle: "PEM".into(),
        },
        own_user: "system:serviceaccount:squelch:squelch".into(),
        namespace: "squelch".into(),
        reach,
    }
}

fn namespaces(names: &[&str]) -> Reach {
    Reach::of(names.iter().map(ToString::to_string).collect::<BTreeSet<_>>())
}

impl Scene {
    /// Nothing is there yet but the ClusterRole `squelch`, and proofs succeed.
    fn new() -> Self {
        Self::with(None)
    }

    fn with(configuration: Option<Value>) -> Self {
        Self::of(configuration, true)
    }

    fn of(configuration: Option<Value>, active: bool) -> Self {
        Self::started(configuration, active, true)
    }

    fn started(configuration: Option<Value>, active: bool, enforce: bool) -> Self {
        let role = Some("role-1".to_owned());
        let held = Held {
            configuration,
            role,
            made: 0,
            applied: 0,
            proofs: 201,
            selector: None,
            probed: 0,
            unreadable: false,
            slow: Duration::ZERO,
            stray: false,
        };
        let held = watch::Sender::new(held);
        let (service, server) = mock::pair();
        let token = PathToken::generate().unwrap();
        let tokens = Arc::new(AcceptedTokens::new(vec![token.clone()]));
        tokio::spawn(serve(server, held.clone(), token));
        let client = Client::new(service, "default");
        let (announcer, announced) = Announcer::new();
        let (desired, wanted) = watch::channel(desired(Reach::Nothing));
        let unarmed = Arc::new(watch::Sender::new(Some(NOT_YET.into())));
        let metrics = Arc::new(Metrics::new());
        let arming = Arming::new(&client, announcer, Some("squelch".to_owned()));
        let probe = Probe::new(client, "squelch".to_owned(), tokens);
        let (active, follows) = watch::channel(active);
        let (mut keeper, proving) =
            Keeper::new(arming, probe, wanted, follows, unarmed.clone(), enforce, metrics.clone());
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let keeping = tokio::spawn(async move {
            tokio::join!(keeper.run(stopped.clone()), proving.run(stopped));
            keeper
        });
        Self { held, desired, unarmed: unarmed.subscribe(), active, announced, metrics, stop, keeping }
    }

    fn policies(&self, names: &[&str]) {
        self.desired.send_modify(|desired| desired.reach = namespaces(names));
    }

    async fn is_armed(&mut self, armed: bool) {
        let hour = Duration::from_secs(3_600);
        tokio::time::timeout(hour, self.unarmed.wait_for(|why| why.is_none() == armed))
            .await
            .expect("it comes")
            .unwrap();
    }

    /// Waits until the API server holds this.
    async fn holds(&self, what: impl FnMut(&Held) -> bool) {
        let mut held = self.held.subscribe();
        let hour = Duration::from_secs(3_600);
        tokio::time::timeout(hour, held.wait_for(what)).await.expect("it comes").unwrap();
    }

    fn rules(&self) -> usize {
        let held = self.held.borrow();
        let rules = held.configuration.as_ref().map(|object| object["webhooks"][0]["rules"].clone());
        rules.and_then(|rules| rules.as_array().map(Vec::len)).unwrap_or_default()
    }

    /// The reasons of the Events so far, and whether they are warnings.
    fn told(&mut self) -> Vec<(&'static str, bool, String)> {
        std::iter::from_fn(|| self.announced.next())
            .map(|told| (told.reason, told.warning, told.note))
            .collect()
    }

    /// What the policies are told.
    fn why(&self) -> String {
        self.unarmed.borrow().as_deref().unwrap_or_default().to_owned()
    }

    fn breaks_glass(&self) -> bool {
        self.metrics.text().contains("squelch_break_glass 1\n")
    }

    async fn end(self) -> Keeper {
        self.stop.cancel();
        self.keeping.await.unwrap()
    }
}

async fn serve(
    mut server: Handle<Request<Body>, Response<Body>>,
    held: watch::Sender<Held>,
    token: PathToken,
) {
    while let Some((request, send)) = server.next_request().await {
        let (head, body) = request.into_parts();
        let body: Value = serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap_or_default();
        let mut answer = (404, json!({"kind": "Status", "code": 404, "reason": "NotFound", "message": "no"}));
        held.send_modify(|held| answer = held.answer(&head.method, head.uri.path(), body, &token));
        let mut text = Body::from(answer.1.to_string().into_bytes());
        let look =
            head.method == Method::GET && head.uri.path().ends_with("/mutatingwebhookconfigurations/squelch");
        if look && held.borrow().stray {
            held.send_modify(|held| held.stray = false);
            (answer.0, text) = (404, Body::from(b"404 page not found".to_vec()));
        }
        let slow = held.borrow().slow;
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

impl Held {
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
            self.probed += 1;
            return if self.proofs == 201 { (201, marked(body, token)) } else { status(self.proofs) };
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
        self.made += u32::from(uid.is_none());
        self.applied += 1;
        applied["metadata"]["uid"] = uid.unwrap_or_else(|| json!(format!("made-{}", self.made)));
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
        change(self.configuration.as_mut().expect("it is there"));
    }
}

fn marked(mut event: Value, token: &PathToken) -> Value {
    let nonce = event["metadata"]["annotations"][PROBE_ANNOTATION].as_str().unwrap();
    let mark = AcceptedTokens::new(vec![token.clone()]).mark(token.reveal(), nonce).unwrap();
    event["metadata"]["annotations"][PROOF_ANNOTATION] = json!(mark);
    event
}

fn annotate(reason: Value) -> impl FnOnce(&mut Held) {
    move |held| held.change(|object| object["metadata"]["annotations"] = json!({DISARM_ANNOTATION: reason}))
}

#[tokio::test(start_paused = true)]
async fn it_is_armed_once_it_is_proven_and_not_before() {
    let mut scene = Scene::new();
    scene.held.send_modify(|held| held.proofs = 403);
    scene.policies(&["shop"]);
    scene.holds(|held| held.applied == 1).await;
    assert_eq!(scene.rules(), 0);
    let owner =
        scene.held.borrow().configuration.as_ref().unwrap()["metadata"]["ownerReferences"][0]["uid"].clone();
    assert_eq!(owner, "role-1");
    let began = clock::now();
    scene.held.send_modify(|held| held.proofs = 201);
    scene.is_armed(true).await;
    assert!(clock::now().since(began) < Duration::from_secs(1), "the first proofs are quick");
    assert_eq!(scene.rules(), 1);
    let told = scene.told();
    assert_eq!((told.len(), told[0].0, told[0].1), (1, "Armed", false), "{told:?}");

    // Proven is proven: another policy is in force with its own write.
    scene.policies(&[]);
    scene.is_armed(false).await;
    let began = clock::now();
    scene.policies(&["ci"]);
    scene.is_armed(true).await;
    assert_eq!(clock::now().since(began), Duration::ZERO);
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn two_misses_disarm_and_three_proofs_arm_again() {
    let mut scene = Scene::new();
    scene.policies(&["shop"]);
    scene.is_armed(true).await;
    scene.told();
    // The API server fails: no word, nothing changes.
    scene.held.send_modify(|held| held.proofs = 503);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(scene.unarmed.borrow().is_none() && scene.told().is_empty());

    let began = clock::now();
    scene.held.send_modify(|held| held.proofs = 403);
    scene.is_armed(false).await;
    let took = clock::now().since(began);
    assert!((Duration::from_secs(1)..Duration::from_secs(3)).contains(&took), "{took:?}");
    assert_eq!(scene.rules(), 0);
    let told = scene.told();
    assert_eq!((told.len(), told[0].0, told[0].1), (1, "Disarmed", true), "{told:?}");
    assert!(told[0].2.contains("in words"), "the API server's own: {told:?}");
    assert!(!scene.breaks_glass());

    let began = clock::now();
    scene.held.send_modify(|held| held.proofs = 201);
    scene.is_armed(true).await;
    assert!(clock::now().since(began) > Duration::from_secs(2), "each second one");
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_somebody_changed_is_put_back_and_what_is_theirs_stays() {
    let mut scene = Scene::new();
    scene.policies(&["shop"]);
    scene.is_armed(true).await;
    let applied = scene.held.borrow().applied;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.held.borrow().applied, applied, "nothing is written where nothing changed");
    scene.held.send_modify(|held| held.change(|object| object["webhooks"][0]["timeoutSeconds"] = json!(30)));
    scene.holds(|held| held.applied == applied + 1).await;
    let timeout =
        scene.held.borrow().configuration.as_ref().unwrap()["webhooks"][0]["timeoutSeconds"].clone();
    assert_eq!(timeout, 1);
    scene.end().await;
}

/// Some clouds write something of their own into every webhook configuration.
#[tokio::test(start_paused = true)]
async fn what_others_change_on_the_way_is_not_fought() {
    let mut scene = Scene::new();
    scene.held.send_modify(|held| held.selector = Some(json!({"matchLabels": {"theirs": "x"}})));
    scene.policies(&["shop"]);
    scene.is_armed(true).await;
    let applied = scene.held.borrow().applied;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.held.borrow().applied, applied);
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_annotation_disarms_until_it_is_gone() {
    let mut scene = Scene::new();
    scene.policies(&["shop"]);
    scene.is_armed(true).await;
    scene.told();
    scene.held.send_modify(annotate(json!("INC-7")));
    scene.is_armed(false).await;
    assert!(scene.breaks_glass() && scene.rules() == 0);
    let told = scene.told();
    assert!(told.len() == 1 && !told[0].1 && told[0].2.contains("INC-7"), "{told:?}");
    assert!(scene.why().contains("INC-7"), "{}", scene.why());
    // Neither time nor another policy arms it.
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    scene.policies(&["shop", "ci"]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(scene.unarmed.borrow().is_some() && scene.rules() == 0 && scene.told().is_empty());

    scene.held.send_modify(|held| held.change(|object| object["metadata"]["annotations"] = json!({})));
    scene.is_armed(true).await;
    assert!(!scene.breaks_glass());
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn another_reason_on_the_annotation_is_told_as_well() {
    let mut scene = Scene::new();
    scene.policies(&["shop"]);
    scene.is_armed(true).await;
    scene.told();
    for reason in ["INC-7", "INC-8"] {
        scene.held.send_modify(annotate(json!(reason)));
        tokio::time::sleep(Duration::from_secs(10)).await;
        let told = scene.told();
        assert!(told.len() == 1 && told[0].2.contains(reason) && scene.why().contains(reason), "{told:?}");
    }
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_flag_takes_the_rules_away_and_is_told_as_the_reason_once() {
    for there in [None, Some(of_another(namespaces(&["shop"])))] {
        let mut scene = Scene::started(there, true, false);
        scene.policies(&["shop"]);
        scene.holds(|held| held.applied == 1).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        scene.policies(&["shop", "ci"]);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(scene.breaks_glass() && scene.rules() == 0);
        let told = scene.told();
        assert!(told.len() == 1 && told[0].0 == "Disarmed" && !told[0].1, "{told:?}");
        for words in [&told[0].2, &scene.why()] {
            assert!(words.contains("--enforce=false"), "{words}");
        }
        scene.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_standby_with_the_flag_shows_it_once_the_rules_are_away() {
    let scene = Scene::started(Some(of_another(namespaces(&["shop"]))), false, false);
    scene.policies(&["shop"]);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(!scene.breaks_glass() && scene.rules() == 1, "the active one has no such flag yet");
    scene.held.send_modify(|held| held.change(|object| object["webhooks"][0]["rules"] = json!([])));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(scene.breaks_glass() && scene.held.borrow().applied == 0);
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_annotation_from_before_the_start_is_heeded_from_the_start() {
    let there = json!({
        "kind": "MutatingWebhookConfiguration", "apiVersion": "admissionregistration.k8s.io/v1",
        "metadata": {"name": "squelch", "uid": "made-0", "annotations": {DISARM_ANNOTATION: ""}},
    });
    let mut scene = Scene::with(Some(there));
    scene.policies(&["shop"]);
    scene.holds(|held| held.applied == 1).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(scene.unarmed.borrow().is_some() && scene.breaks_glass());
    assert_eq!(scene.held.borrow().applied, 1);
    assert!(scene.told().is_empty(), "it never was armed");
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn who_deletes_it_has_disarmed_for_ten_minutes() {
    let mut scene = Scene::new();
    scene.policies(&["shop"]);
    scene.is_armed(true).await;
    scene.told();
    scene.held.send_modify(|held| held.configuration = None);
    let began = clock::now();
    scene.is_armed(false).await;
    assert!(clock::now().since(began) <= LOOK && scene.breaks_glass());
    assert_eq!(scene.told()[0].0, "Disarmed");
    // No change of a policy makes it again.
    scene.policies(&["shop", "ci"]);
    scene.is_armed(true).await;
    let after = clock::now().since(began);
    assert!((Duration::from_secs(600)..Duration::from_secs(605)).contains(&after), "{after:?}");
    assert_eq!(scene.held.borrow().made, 2);
    assert!(!scene.breaks_glass());
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_changes_at_once_does_not_undo_the_deletion() {
    let mut scene = Scene::new();
    scene.policies(&["shop"]);
    scene.is_armed(true).await;
    scene.held.send_modify(|held| held.configuration = None);
    scene.policies(&["ci"]);
    scene.is_armed(false).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(scene.held.borrow().made, 1);
    // Somebody thinks better of it, with a copy of before.
    let mut copy = desired(namespaces(&["shop"])).object(None);
    copy["metadata"]["uid"] = json!("theirs");
    scene.held.send_modify(|held| held.configuration = Some(copy));
    scene.is_armed(true).await;
    assert_eq!((scene.held.borrow().made, scene.breaks_glass()), (1, false));
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn with_a_new_owner_it_is_made_again_at_once() {
    let mut scene = Scene::new();
    scene.policies(&["shop"]);
    scene.is_armed(true).await;
    // Installed anew: the role has another uid, and what belonged to the old one is collected.
    scene.held.send_modify(|held| {
        held.role = Some("role-2".to_owned());
        held.configuration = None;
    });
    scene.holds(|held| held.made == 2).await;
    scene.is_armed(true).await;
    let held = scene.held.borrow().configuration.clone().unwrap();
    assert_eq!(held["metadata"]["ownerReferences"][0]["uid"], "role-2");
    assert!(!scene.breaks_glass());
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn at_the_end_the_rules_go_and_what_is_gone_stays_gone() {
    let mut scene = Scene::new();
    scene.policies(&["shop"]);
    scene.is_armed(true).await;
    let held = scene.held.clone();
    let mut keeper = scene.end().await;
    keeper.disarm().await;
    let object = held.borrow().configuration.clone().unwrap();
    assert_eq!(object["webhooks"][0]["rules"], json!([]));
    assert_eq!(object["webhooks"][1]["rules"].as_array().unwrap().len(), 1);

    held.send_modify(|held| held.configuration = None);
    keeper.disarm().await;
    assert!(held.borrow().configuration.is_none());
}

/// What an active replica elsewhere has written.
fn of_another(reach: Reach) -> Value {
    let mut written = desired(reach);
    written.client.address = Address::Url("https://other".into());
    let mut object = written.object(Some(&Owner { name: "squelch".to_owned(), uid: "role-1".to_owned() }));
    object["metadata"]["uid"] = json!("theirs");
    object
}

#[tokio::test(start_paused = true)]
async fn a_standby_writes_nothing_while_the_active_one_is_proven() {
    let scene = Scene::of(Some(of_another(namespaces(&["shop"]))), false);
    scene.policies(&["ci"]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((scene.held.borrow().applied, scene.rules()), (0, 1));
    assert!(scene.metrics.text().contains("squelch_armed 1\n"));
    assert!(scene.metrics.text().contains("squelch_proofs_total{result=\"proven\"} 6"), "each second one");
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_standby_disarms_for_an_active_one_that_cannot_and_never_arms() {
    for before in [0, 30] {
        let mut scene = Scene::of(Some(of_another(namespaces(&["shop"]))), false);
        scene.policies(&["shop"]);
        if before == 0 {
            scene.held.send_modify(|held| held.proofs = 403);
        }
        tokio::time::sleep(Duration::from_secs(before)).await;
        let began = clock::now();
        scene.held.send_modify(|held| held.proofs = 403);
        scene.holds(|held| held.applied == 1).await;
        assert!(clock::now().since(began) < Duration::from_secs(3));
        assert_eq!(scene.rules(), 0);
        let held = scene.held.borrow().configuration.clone().unwrap();
        assert_eq!(held["webhooks"][1]["rules"].as_array().unwrap().len(), 1);
        assert!(held["webhooks"][0]["clientConfig"]["url"].as_str().unwrap().starts_with("https://other"));
        let told = scene.told();
        assert_eq!((told.len(), told[0].0, told[0].1), (1, "Disarmed", true), "{told:?}");
        scene.held.send_modify(|held| held.proofs = 201);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!((scene.rules(), scene.held.borrow().applied), (0, 1));
        assert!(scene.metrics.text().contains("squelch_armed 0\n"));
        scene.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_standby_takes_no_failing_api_server_for_a_miss() {
    let scene = Scene::of(Some(of_another(Reach::Everything)), false);
    scene.policies(&["shop"]);
    scene.held.send_modify(|held| held.proofs = 503);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((scene.rules(), scene.held.borrow().applied), (1, 0));
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn who_takes_over_what_is_proven_keeps_the_rules_in_force() {
    let mut scene = Scene::of(Some(of_another(namespaces(&["shop"]))), false);
    scene.policies(&["shop"]);
    tokio::time::sleep(Duration::from_secs(30)).await;
    scene.active.send_replace(true);
    scene.is_armed(true).await;
    assert_eq!((scene.rules(), scene.held.borrow().applied), (1, 1));
    let held = scene.held.borrow().configuration.clone().unwrap();
    assert!(held["webhooks"][0]["clientConfig"]["url"].as_str().unwrap().starts_with("https://h/"));
    assert!(scene.told().is_empty(), "it was armed all the time");
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn who_takes_over_what_is_not_proven_proves_it_first() {
    let mut scene = Scene::of(Some(of_another(namespaces(&["shop"]))), false);
    scene.held.send_modify(|held| held.proofs = 403);
    scene.policies(&["shop"]);
    scene.holds(|held| held.applied == 1).await;
    scene.active.send_replace(true);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(scene.rules(), 0);
    scene.held.send_modify(|held| held.proofs = 201);
    scene.is_armed(true).await;
    assert_eq!(scene.rules(), 1);
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn who_takes_over_honours_what_a_person_did_before() {
    let mut scene = Scene::of(Some(of_another(namespaces(&["shop"]))), false);
    scene.policies(&["shop"]);
    tokio::time::sleep(Duration::from_secs(10)).await;
    scene.held.send_modify(|held| held.configuration = None);
    tokio::time::sleep(Duration::from_secs(10)).await;
    scene.active.send_replace(true);
    tokio::time::sleep(Duration::from_secs(500)).await;
    assert!(scene.held.borrow().configuration.is_none() && scene.breaks_glass());
    scene.is_armed(true).await;
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn who_took_over_after_a_deletion_does_not_make_it_to_take_its_rules_away() {
    let scene = Scene::of(Some(of_another(namespaces(&["shop"]))), false);
    scene.policies(&["shop"]);
    tokio::time::sleep(Duration::from_secs(10)).await;
    scene.held.send_modify(|held| held.configuration = None);
    tokio::time::sleep(Duration::from_secs(10)).await;
    scene.active.send_replace(true);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let held = scene.held.clone();
    let mut keeper = scene.end().await;
    keeper.disarm().await;
    assert!(held.borrow().configuration.is_none());
    // Put back meanwhile, its rules go.
    held.send_modify(|held| held.configuration = Some(of_another(namespaces(&["shop"]))));
    keeper.disarm().await;
    assert_eq!(held.borrow().configuration.as_ref().unwrap()["webhooks"][0]["rules"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn who_is_active_no_more_writes_no_more() {
    let mut scene = Scene::new();
    scene.policies(&["shop"]);
    scene.is_armed(true).await;
    let applied = scene.held.borrow().applied;
    scene.active.send_replace(false);
    scene.policies(&["ci"]);
    scene.held.send_modify(|held| held.change(|object| object["webhooks"][0]["timeoutSeconds"] = json!(30)));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.held.borrow().applied, applied);
    scene.active.send_replace(true);
    scene.holds(|held| held.applied > applied).await;
    scene.end().await;
}

fn take_rules_away(held: &mut Held) {
    held.change(|object| object["webhooks"][0]["rules"] = json!([]));
}

fn rules_of(held: &Held) -> usize {
    held.configuration.as_ref().unwrap()["webhooks"][0]["rules"].as_array().map_or(0, Vec::len)
}

#[tokio::test(start_paused = true)]
async fn rules_that_a_standby_took_away_come_back_only_after_three_new_probes() {
    let mut scene = Scene::new();
    scene.policies(&["shop"]);
    scene.is_armed(true).await;
    let mut found = Vec::new();
    for policy_comes_meanwhile in [false, true] {
        tokio::time::sleep(Duration::from_secs(30)).await;
        scene.told();
        let (began, probed) = (clock::now(), scene.held.borrow().probed);
        scene.held.send_modify(take_rules_away);
        if policy_comes_meanwhile {
            scene.policies(&["shop", "ci"]);
        }
        scene.holds(|held| rules_of(held) == 1).await;
        scene.is_armed(true).await;
        let told: Vec<_> = scene.told().into_iter().map(|told| (told.0, told.1)).collect();
        found.push((scene.held.borrow().probed - probed, clock::now().since(began), told));
    }
    let told = [("Disarmed", true), ("Armed", false)];
    assert!(
        found.iter().all(|(probes, took, said)| {
            *probes >= 3 && (Duration::from_secs(2)..Duration::from_secs(6)).contains(took) && *said == told
        }),
        "{found:?}"
    );
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_armed_until_the_configuration_was_read() {
    let mut scene = Scene::new();
    scene.policies(&["shop"]);
    scene.is_armed(true).await;
    scene.policies(&[]);
    scene.is_armed(false).await;
    // A person wants no rules, and squelch cannot know it.
    scene.held.send_modify(|held| held.unreadable = true);
    scene.held.send_modify(annotate(json!("maintenance")));
    scene.policies(&["shop"]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.rules(), 0);
    scene.held.send_modify(|held| held.unreadable = false);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((scene.rules(), scene.breaks_glass()), (0, true));
    scene.held.send_modify(|held| held.change(|object| object["metadata"]["annotations"] = Value::Null));
    scene.is_armed(true).await;
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_takes_over_without_rules_probes_anew() {
    let mut there = of_another(namespaces(&["shop"]));
    there["webhooks"][0]["rules"] = json!([]);
    let mut scene = Scene::of(Some(there), false);
    scene.policies(&["shop"]);
    tokio::time::sleep(Duration::from_secs(30)).await;
    let (began, probed) = (clock::now(), scene.held.borrow().probed);
    scene.active.send_replace(true);
    scene.is_armed(true).await;
    assert!(scene.held.borrow().probed - probed >= 3);
    assert!(clock::now().since(began) < Duration::from_secs(1), "{:?}", clock::now().since(began));
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn policies_that_come_and_go_cause_few_writes_and_the_last_state_is_written() {
    // Each pair takes turns ten times a second for a minute.
    let pairs: [[&[&str]; 2]; 3] = [[&["shop", "ci"], &["shop"]], [&["shop"], &[]], [&["ci"], &["bank"]]];
    let mut found = Vec::new();
    for pair in pairs {
        let mut scene = Scene::new();
        scene.policies(pair[0]);
        scene.is_armed(true).await;
        let applied = scene.held.borrow().applied;
        for round in 1..=600 {
            scene.policies(pair[round % 2]);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        found.push(scene.held.borrow().applied - applied);
        // The narrower of both is the last.
        scene.policies(pair[1]);
        tokio::time::sleep(Duration::from_secs(10)).await;
        let held = scene.held.borrow().configuration.clone().unwrap();
        let selected = &held["webhooks"][0]["namespaceSelector"]["matchExpressions"][0]["values"];
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
    let names = |held: &Held| {
        let object = held.configuration.as_ref().unwrap();
        object["webhooks"][0]["namespaceSelector"]["matchExpressions"][0]["values"].clone()
    };
    for (wanted, after) in [(vec!["ci", "shop"], 0), (vec!["ci"], 5), (vec!["bank", "ci"], 0)] {
        let began = clock::now();
        scene.policies(&wanted);
        scene.holds(|held| names(held) == json!(wanted)).await;
        assert_eq!(clock::now().since(began), Duration::from_secs(after), "{wanted:?}");
    }
    let writes = format!("squelch_webhook_configuration_writes_total {}\n", scene.held.borrow().applied);
    assert!(scene.metrics.text().contains(&writes), "{writes}");
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn no_limit_delays_a_disarming() {
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
    scene.held.send_modify(|held| held.proofs = 403);
    scene.holds(|held| rules_of(held) == 0).await;
    assert!(clock::now().since(began) < Duration::from_secs(3));
    scene.held.send_modify(|held| held.proofs = 201);
    scene.is_armed(true).await;
    spend(&scene).await;
    let began = clock::now();
    scene.held.send_modify(annotate(json!("INC-7")));
    scene.holds(|held| rules_of(held) == 0).await;
    assert!(clock::now().since(began) <= LOOK);
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_entry_that_squelch_has_not_written_is_shown_and_left_alone() {
    for active in [true, false] {
        let scene = Scene::of(Some(of_another(namespaces(&["shop"]))), active);
        scene.policies(&["shop"]);
        tokio::time::sleep(Duration::from_secs(30)).await;
        let shows = |number: u32| {
            scene.metrics.text().contains(&format!("squelch_webhook_foreign_entries {number}\n"))
        };
        let applied = scene.held.borrow().applied;
        assert!(shows(0));
        let add = |object: &mut Value| {
            let entry = json!({"name": "all.example.com", "clientConfig": {"url": "https://example.com"}});
            object["webhooks"].as_array_mut().unwrap().push(entry);
        };
        scene.held.send_modify(|held| held.change(add));
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(shows(1));
        assert_eq!(scene.held.borrow().applied, applied, "it is for a person to remove");
        let remove = |object: &mut Value| drop(object["webhooks"].as_array_mut().unwrap().pop());
        scene.held.send_modify(|held| held.change(remove));
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(shows(0));
        scene.end().await;
    }
}

/// How long of the next minute the configuration has no rules.
async fn without_rules(scene: &Scene) -> Duration {
    let mut away = Duration::ZERO;
    for _ in 0..600 {
        sleep(Duration::from_millis(100)).await;
        if scene.rules() == 0 {
            away += Duration::from_millis(100);
        }
    }
    away
}

/// The webhook answers each probe at once, and the API server takes 600 ms for everything that it queues.
#[tokio::test(start_paused = true)]
async fn a_slow_api_server_does_not_disarm_a_webhook_that_answers() {
    let mut scene = Scene::new();
    scene.policies(&["shop"]);
    scene.is_armed(true).await;
    scene.told();
    scene.held.send_modify(|held| held.slow = Duration::from_millis(600));
    let away = without_rules(&scene).await;
    let told = scene.told();
    assert!(away.is_zero(), "without rules for {away:?} of a minute: {told:?}");
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_hangs_is_disarmed_within_three_and_a_half_seconds() {
    let mut scene = Scene::new();
    scene.policies(&["shop"]);
    scene.is_armed(true).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let probed = scene.held.borrow().probed;
    scene.holds(|held| held.probed > probed).await;
    // The next probe begins a second later.
    tokio::time::sleep(Duration::from_millis(1)).await;
    let began = clock::now();
    scene.held.send_modify(|held| held.slow = Duration::from_secs(60));
    scene.is_armed(false).await;
    let took = clock::now().since(began);
    assert!((Duration::from_secs(2)..=Duration::from_millis(3_510)).contains(&took), "{took:?}");
    assert_eq!(scene.rules(), 0);
    scene.end().await;
}

/// Something before the API server answers one read with 404 and a page.
#[tokio::test(start_paused = true)]
async fn one_page_of_a_proxy_is_no_deletion() {
    let mut scene = Scene::new();
    scene.policies(&["shop"]);
    scene.is_armed(true).await;
    sleep(Duration::from_secs(5)).await;
    scene.told();
    scene.held.send_modify(|held| held.stray = true);
    let away = without_rules(&scene).await;
    let told = scene.told();
    assert!(away.is_zero() && told.is_empty(), "without rules for {away:?}: {told:?}");
    scene.end().await;
}

/// The API server restarts. The Lease is renewed, and the first read of the configuration fails.
#[tokio::test(start_paused = true)]
async fn an_api_server_that_comes_back_does_not_cost_the_rules() {
    let mut scene = Scene::new();
    scene.policies(&["shop"]);
    scene.is_armed(true).await;
    sleep(Duration::from_secs(60)).await;
    scene.told();
    scene.held.send_modify(|held| (held.unreadable, held.proofs) = (true, 503));
    sleep(Duration::from_secs(3)).await;
    scene.active.send_replace(false);
    sleep(Duration::from_secs(20)).await;
    scene.active.send_replace(true);
    sleep(Duration::from_millis(100)).await;
    scene.held.send_modify(|held| (held.unreadable, held.proofs) = (false, 201));
    let away = without_rules(&scene).await;
    let told = scene.told();
    assert!(away.is_zero(), "without rules for {away:?}: {told:?}");
    scene.end().await;
}
