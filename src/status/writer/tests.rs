use std::sync::Mutex;

use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use squelch_engine::{Counters, Disposition, Mode, TopDropped};
use tower_test::mock::{self, Handle};

use super::*;
use crate::announcer::AnnouncementReceiver;
use crate::policy::fixtures::{cluster_policy, id, policy};
use crate::policy::{NamespaceSelection, Set, WebhookScope};

type ApiServer = Handle<Request<Body>, Response<Body>>;

/// A writer, its API server, and the engine's count of compacted occurrences for `ci/p`.
struct Scene {
    writer: StatusWriter,
    server: ApiServer,
    compacted: Arc<Mutex<u64>>,
    armed: watch::Sender<Armed>,
    active: watch::Sender<bool>,
    announcements: AnnouncementReceiver,
    metrics: Arc<Metrics>,
}

impl Scene {
    fn new(names: &[&str]) -> Self {
        let (service, server) = mock::pair();
        let store = Arc::new(Store::default());
        store.swap(Set::new(names.iter().map(|name| policy("ci", name, &json!({}), 0))));
        let compacted = Arc::new(Mutex::new(0));
        let counted = compacted.clone();
        let read_counters = move || {
            let mut counters = Counters::default();
            counters.count(Disposition::Compacted, *counted.lock().unwrap());
            let (policy, dropped) = (id("ci", "p"), TopDropped::default());
            vec![ScopeCounters { namespace: "ci".into(), policy, mode: Mode::Enforce, counters, dropped }]
        };
        let (armed, armed_now) = watch::channel(Ok(WebhookScope::all_in(NamespaceSelection::All)));
        let (active, active_now) = watch::channel(true);
        let (metrics, note) = (Arc::new(Metrics::new()), watch::channel(None).1);
        let inputs = Inputs { armed: armed_now, note, active: active_now, metrics: metrics.clone() };
        let limits = WriteLimits { interval: Duration::from_secs(10), qps: 5 };
        let client = Client::new(service, "default");
        let (announcer, announcements) = Announcer::new();
        let mut writer = StatusWriter::new(client, store, Box::new(read_counters), inputs, announcer, limits);
        writer.has_initial_statuses = true;
        Self { writer, server, compacted, armed, active, announcements, metrics }
    }

    /// Makes a step at this millisecond. Returns its request, to which the API server responds with `code`.
    async fn step(&mut self, millisecond: u64, code: u16) -> (Duration, Option<(String, Value)>) {
        let now = Moment::from_epoch(Duration::from_millis(millisecond));
        let step = self.writer.step(now, Timestamp::from_second(1_800_000_000).unwrap());
        let mut step = std::pin::pin!(step);
        tokio::select! {
            biased;
            pause = &mut step => (pause, None),
            request = respond(&mut self.server, code) => (step.await, Some(request)),
        }
    }

    async fn request(&mut self, millisecond: u64) -> Option<String> {
        self.step(millisecond, 200).await.1.map(|(request, _)| request)
    }
}

/// Receives one request and responds to it.
async fn respond(server: &mut ApiServer, code: u16) -> (String, Value) {
    let (request, send) = server.next_request().await.expect("the client exists");
    let (head, body) = request.into_parts();
    let body: Value = serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap();
    let response = match code {
        200 => body.clone(),
        _ => {
            json!({"kind": "Status", "status": "Failure", "message": "no", "reason": "No", "code": code})
        }
    };
    let response = Body::from(serde_json::to_vec(&response).unwrap());
    send.send_response(Response::builder().status(code).body(response).unwrap());
    (format!("{} {}", head.method, head.uri), body)
}

#[tokio::test]
async fn the_whole_status_is_applied_by_the_field_manager_squelch() {
    let mut scene = Scene::new(&["p"]);
    *scene.compacted.lock().unwrap() = 3;
    let (_, request) = scene.step(0, 200).await;
    let (request, body) = request.unwrap();
    assert_eq!(
        request,
        "PATCH /apis/squelch.dev/v1alpha1/namespaces/ci/eventpolicies/p/status?&force=true&fieldManager=squelch"
    );
    assert_eq!(body["apiVersion"], "squelch.dev/v1alpha1");
    assert_eq!(body["kind"], "EventPolicy");
    assert_eq!(body["metadata"], json!({"name": "p"}));
    assert!(body.get("spec").is_none());
    assert_eq!(body["status"]["counters"]["received"], 3);
    assert_eq!(body["status"]["conditions"][1]["reason"], "Effective");
    assert_eq!(body["status"]["lastUpdated"], "2027-01-15T08:00:00Z");
}

#[tokio::test]
async fn the_status_of_a_cluster_policy_is_written_without_namespace() {
    let mut scene = Scene::new(&[]);
    scene.writer.store.swap(Set::new([cluster_policy("all", &json!({}), 0)]));
    let (_, request) = scene.step(0, 200).await;
    let (request, body) = request.unwrap();
    assert_eq!(
        request,
        "PATCH /apis/squelch.dev/v1alpha1/clustereventpolicies/all/status?&force=true&fieldManager=squelch"
    );
    assert_eq!((&body["kind"], &body["metadata"]), (&json!("ClusterEventPolicy"), &json!({"name": "all"})));
}

#[tokio::test]
async fn changed_counters_are_written_once_per_interval() {
    let mut scene = Scene::new(&["p"]);
    assert!(scene.request(0).await.is_some());
    assert!(scene.request(20_000).await.is_none(), "nothing has changed");
    *scene.compacted.lock().unwrap() = 1;
    assert!(scene.request(21_000).await.is_some());
    for millisecond in (22_000..31_000).step_by(100) {
        *scene.compacted.lock().unwrap() += 1;
        assert!(scene.request(millisecond).await.is_none(), "at {millisecond} ms");
    }
    assert!(scene.request(31_000).await.is_some());
}

#[tokio::test]
async fn writes_are_limited_to_the_rate() {
    let names = ["a", "b", "c", "d"];
    let mut scene = Scene::new(&names);
    let mut written = Vec::new();
    let mut millisecond = 0;
    while written.len() < names.len() {
        let (pause, request) = scene.step(millisecond, 200).await;
        written.extend(request.map(|_| millisecond));
        millisecond += u64::try_from(pause.as_millis()).unwrap();
    }
    assert_eq!(written, [0, 200, 400, 600]);
    assert!(scene.step(650, 200).await.0 <= Duration::from_millis(150));
}

#[tokio::test]
async fn a_failed_write_is_retried_after_the_interval_and_does_not_delay_others() {
    let mut scene = Scene::new(&["a", "b"]);
    let (_, failed) = scene.step(0, 500).await;
    assert!(failed.unwrap().0.contains("/a/"));
    assert!(scene.request(200).await.unwrap().contains("/b/"));
    assert!(scene.request(9_000).await.is_none());
    assert!(scene.request(10_000).await.unwrap().contains("/a/"));
}

#[tokio::test]
async fn a_refused_status_is_announced_once_counted_and_retried_ever_later() {
    let mut scene = Scene::new(&["p"]);
    let mut attempts = Vec::new();
    for second in 0..100 {
        if scene.step(second * 1_000, 422).await.1.is_some() {
            attempts.push(second);
        }
    }
    assert_eq!(attempts, [0, 10, 30, 70]);
    assert!(scene.metrics.text().contains("squelch_refused_status_writes_total 4\n"));
    let announced = scene.announcements.next().unwrap();
    assert_eq!((announced.reason, announced.warning), ("StatusRefused", true));
    assert!(announced.note.ends_with("Correct the spec: no"), "{}", announced.note);
    assert_eq!(scene.announcements.next(), None);
}

#[tokio::test]
async fn a_disarmed_webhook_is_reported_after_a_second() {
    let mut scene = Scene::new(&["p"]);
    assert!(scene.request(0).await.is_some());
    scene.armed.send_modify(|armed| *armed = Err("It hangs.".into()));
    let (_, request) = scene.step(1_000, 200).await;
    assert_eq!(request.unwrap().1["status"]["conditions"][1]["reason"], "WebhookNotArmed");
}

#[tokio::test]
async fn transitions_are_announced_after_the_write() {
    let mut scene = Scene::new(&[]);
    let wrong = policy("ci", "wrong", &json!({"series": {"idleTimeout": "soon"}}), 0);
    let all = cluster_policy("all", &json!({}), 0);
    scene.writer.store.swap(Set::new([wrong, all]));
    assert!(scene.step(0, 500).await.1.unwrap().0.contains("/wrong/"));
    for millisecond in [200, 10_000, 20_000] {
        scene.request(millisecond).await;
    }
    let mut announced = Vec::new();
    while let Some(announcement) = scene.announcements.next() {
        let about = announcement.regarding;
        announced.push((about.namespace, about.name, announcement.reason, announcement.warning));
    }
    let ci = Some("ci".to_owned());
    let expected = [(None, "all", "Accepted", false), (ci, "wrong", "Rejected", true)];
    let expected = expected
        .map(|(namespace, name, reason, warning)| (namespace, Some(name.to_owned()), reason, warning));
    assert_eq!(announced, expected);
}

#[tokio::test]
async fn nothing_is_written_before_the_policies_are_listed() {
    let mut scene = Scene::new(&[]);
    scene.writer.store = Arc::new(Store::default());
    assert!(scene.request(0).await.is_none());
    assert_eq!(scene.writer.write_all_now().await, 0);
}

#[tokio::test]
async fn only_the_active_replica_writes() {
    let mut scene = Scene::new(&["p"]);
    scene.active.send_replace(false);
    assert!(scene.request(0).await.is_none());
    scene.active.send_replace(true);
    assert!(scene.request(1_000).await.is_some());
}

#[tokio::test]
async fn counts_are_unwritten_if_the_statuses_were_never_read() {
    let mut scene = Scene::new(&["p"]);
    scene.writer.has_initial_statuses = false;
    *scene.compacted.lock().unwrap() = 3;
    scene.writer.write_all_now().await;
    assert_eq!(scene.writer.unwritten(), 3);
}

/// The watch may not have received the last write of the previous active replica.
#[tokio::test]
async fn counters_are_added_to_the_statuses_read_when_the_replica_becomes_active() {
    let mut scene = Scene::new(&["p"]);
    scene.writer.has_initial_statuses = false;
    *scene.compacted.lock().unwrap() = 3;
    let written = json!({"counters": {
        "received": 40, "admitted": 0, "compacted": 40, "aggregated": 0, "filtered": 0, "throttled": 0,
        "failedOpen": 0, "recovered": 0,
    }});
    let mut items = vec![json!({
        "apiVersion": "squelch.dev/v1alpha1", "kind": "EventPolicy", "spec": {}, "status": written,
        "metadata": {"name": "p", "namespace": "ci", "uid": id("ci", "p").uid.to_string()},
    })];
    let serve = async {
        for _ in 0..2 {
            let (_, send) = scene.server.next_request().await.expect("the client exists");
            let list = json!({"metadata": {}, "items": std::mem::take(&mut items)});
            send.send_response(Response::new(Body::from(serde_json::to_vec(&list).unwrap())));
        }
    };
    tokio::join!(scene.writer.start(), serve);
    assert_eq!(scene.writer.unwritten(), 3);
    let (_, request) = scene.step(0, 200).await;
    assert_eq!(request.unwrap().1["status"]["counters"]["received"], 43);
    assert_eq!(scene.writer.unwritten(), 0);
}

#[tokio::test]
async fn statuses_are_read_from_every_page_of_a_list() {
    let (service, mut server): (_, ApiServer) = mock::pair();
    let client = Client::new(service, "default");
    let page = |uid: &str, next: &str| {
        let policy = json!({"metadata": {"uid": uid}, "status": {"observedGeneration": 1}});
        json!({"metadata": {"continue": next}, "items": [policy]})
    };
    let serve = async {
        let mut requests = Vec::new();
        for response in [page("a", "b%"), page("b", ""), page("c", "")] {
            let (request, send) = server.next_request().await.expect("the client exists");
            requests.push(request.uri().path_and_query().unwrap().to_string());
            send.send_response(Response::new(Body::from(serde_json::to_vec(&response).unwrap())));
        }
        requests
    };
    let (read, requests) = tokio::join!(statuses(&client), serve);
    let read = read.unwrap();
    assert!(["a", "b", "c"].iter().all(|uid| read.contains_key(*uid)), "{read:?}");
    let own = "/apis/squelch.dev/v1alpha1/eventpolicies?&limit=10";
    let cluster = "/apis/squelch.dev/v1alpha1/clustereventpolicies?&limit=10";
    assert_eq!(requests, [own, &format!("{own}&continue=b%25"), cluster]);
}

#[tokio::test]
async fn all_changed_statuses_are_written_before_exit() {
    let mut scene = Scene::new(&["p", "q"]);
    assert!(scene.request(0).await.is_some());
    *scene.compacted.lock().unwrap() = 9;
    let Scene { mut writer, mut server, .. } = scene;
    let serve = async {
        let (p, q) = (respond(&mut server, 200).await, respond(&mut server, 500).await);
        (p.1["status"]["counters"]["received"].clone(), q.0.contains("/q/"))
    };
    let (failed, (received, q)) = tokio::join!(writer.write_all_now(), serve);
    assert_eq!((failed, received, q), (1, json!(9), true));
}

#[tokio::test]
async fn the_write_for_a_deleted_policy_is_no_failure() {
    let Scene { mut writer, mut server, .. } = Scene::new(&["p"]);
    let (failed, _) = tokio::join!(writer.write_all_now(), respond(&mut server, 404));
    assert_eq!(failed, 0);
}

#[tokio::test]
async fn the_status_of_a_former_policy_is_not_written_to_its_successor() {
    let mut scene = Scene::new(&["a", "p"]);
    // Several writes between two refreshes.
    scene.writer.pause = Duration::from_millis(10);
    *scene.compacted.lock().unwrap() = 3;
    assert!(scene.request(0).await.unwrap().contains("/a/"));
    let former = policy("ci", "p", &json!({}), 1);
    let id = squelch_engine::PolicyId { uid: "another".into(), ..former.id.clone() };
    let again = Arc::new(Policy { id, ..(*former).clone() });
    scene.writer.store.swap(Set::new([policy("ci", "a", &json!({}), 0), again]));
    scene.writer.outdated = true;
    let mut received = Vec::new();
    for millisecond in (10..400).step_by(10) {
        if let (_, Some((request, body))) = scene.step(millisecond, 200).await
            && request.contains("/p/")
        {
            received.push(body["status"]["counters"]["received"].clone());
        }
    }
    assert_eq!(received, [json!(0)]);
}
