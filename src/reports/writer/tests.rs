use std::sync::Mutex;

use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use squelch_engine::{Counters, Disposition, Mode, ScopeCounters, TopDropped};
use tower_test::mock::{self, Handle};

use super::*;
use crate::policy::Set;
use crate::policy::fixtures::{id, policy};
use crate::reports::MAX_REPORT_BYTES;

mod many_namespaces;

/// A writer, its API server, and the engine's counts of muted and admitted occurrences of `ci/p`.
struct Scene {
    writer: ReportWriter,
    server: Handle<Request<Body>, Response<Body>>,
    muted: Arc<Mutex<u64>>,
    admitted: Arc<Mutex<u64>>,
    active: watch::Sender<bool>,
}

impl Scene {
    fn new() -> Self {
        Self::of(0, None)
    }

    fn with_receipts() -> Self {
        Self::of(0, Some(Duration::from_secs(600)))
    }

    /// Something was suppressed in this number of other namespaces too.
    fn among(others: usize) -> Self {
        Self::of(others, None)
    }

    fn of(others: usize, receipt_interval: Option<Duration>) -> Self {
        let (service, server) = mock::pair();
        let store = Arc::new(Store::default());
        store.swap(Set::new([policy("ci", "p", &json!({}), 0)]));
        let muted = Arc::new(Mutex::new(1));
        let admitted: Arc<Mutex<u64>> = Arc::default();
        let counted = [(Disposition::Muted, muted.clone()), (Disposition::Admitted, admitted.clone())];
        let read_counters = move || {
            let mut counters = Counters::default();
            for (disposition, occurrences) in &counted {
                counters.count(*disposition, *occurrences.lock().unwrap());
            }
            let (policy, dropped) = (id("ci", "p"), TopDropped::default());
            let first =
                ScopeCounters { namespace: "ci".into(), policy, mode: Mode::Enforce, counters, dropped };
            let others = (0..others)
                .map(|at| ScopeCounters { namespace: format!("other-{at}").into(), ..first.clone() });
            let others: Vec<_> = others.collect();
            [vec![first], others].concat()
        };
        let (active, active_now) = watch::channel(true);
        let limits = ReportLimits { interval: Duration::from_secs(30), receipt_interval, qps: 5 };
        let client = Client::new(service, "default");
        let writer = ReportWriter::new(client, store, Box::new(read_counters), active_now, limits);
        Self { writer, server, muted, admitted, active }
    }

    /// Makes a step in this second. The API server gives these responses. Returns the requests.
    async fn step(&mut self, second: u64, responses: &[(u16, Value)]) -> Vec<(String, Value)> {
        let step = self.writer.step(Moment::from_epoch(Duration::from_secs(second)));
        responding(step, &mut self.server, responses).await
    }

    /// Writes everything before exit. The API server gives these responses. Returns the requests.
    async fn write_all_now(&mut self, responses: &[(u16, Value)]) -> Vec<(String, Value)> {
        responding(self.writer.write_all_now(), &mut self.server, responses).await
    }
}

/// Waits for a future while the API server gives these responses. Returns the requests.
async fn responding<T>(
    work: impl Future<Output = T>,
    server: &mut Handle<Request<Body>, Response<Body>>,
    responses: &[(u16, Value)],
) -> Vec<(String, Value)> {
    let mut requests = Vec::new();
    let mut work = std::pin::pin!(work);
    let mut responses = responses.iter();
    loop {
        tokio::select! {
            biased;
            _ = &mut work => break,
            request = server.next_request() => {
                let (request, send) = request.expect("the client exists");
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
                let (code, response) = responses.next().expect("no further request");
                let response = Body::from(serde_json::to_vec(response).unwrap());
                send.send_response(Response::builder().status(*code).body(response).unwrap());
                requests.push((format!("{} {}", head.method, head.uri), body));
            }
        }
    }
    assert_eq!(responses.len(), 0, "responses that no request received");
    requests
}

const PATH: &str = "/apis/squelch.dev/v1alpha1/namespaces/ci/eventdropreports/squelch?";

fn absent(kind: &str) -> (u16, Value) {
    let details = json!({ "kind": kind, "name": "squelch" });
    let status = json!({
        "kind": "Status", "status": "Failure", "message": "not found", "reason": "NotFound", "code": 404,
        "details": details,
    });
    (404, status)
}

fn refused(code: u16, causes: &Value) -> (u16, Value) {
    let status = json!({
        "kind": "Status", "status": "Failure", "message": "no", "reason": "No", "code": code,
        "details": { "causes": causes },
    });
    (code, status)
}

fn written(uid: &str) -> (u16, Value) {
    (200, json!({ "metadata": { "name": "squelch", "uid": uid } }))
}

#[tokio::test]
async fn a_report_continues_the_one_in_the_cluster_and_keeps_its_uid() {
    let mut scene = Scene::new();
    let counters = json!({ "received": 7, "muted": 7 });
    let listed = json!([{ "policyKind": "EventPolicy", "policyName": "p", "policyUid": &*id("ci", "p").uid, "counters": counters }]);
    let found = json!({ "metadata": { "name": "squelch", "uid": "u1" }, "policies": listed });
    let requests = scene.step(0, &[(200, found), written("u1")]).await;
    assert_eq!(requests[0].0, format!("GET {}", PATH.trim_end_matches('?')));
    assert_eq!(requests[1].0, format!("PATCH {PATH}&force=true&fieldManager=squelch"));
    let body = &requests[1].1;
    assert_eq!((&body["metadata"]["uid"], &body["suppressed"]), (&json!("u1"), &json!(8)));
    assert!(scene.step(60, &[]).await.is_empty(), "nothing has changed");
    *scene.muted.lock().unwrap() = 5;
    let requests = scene.step(120, &[written("u1")]).await;
    assert_eq!((requests.len(), &requests[0].1["suppressed"]), (1, &json!(12)));
}

#[tokio::test]
async fn the_last_write_adds_admitted_occurrences_to_a_report_and_creates_none() {
    let mut scene = Scene::new();
    (*scene.muted.lock().unwrap(), *scene.admitted.lock().unwrap()) = (0, 3);
    let requests = scene.write_all_now(&[absent("eventdropreports")]).await;
    assert_eq!(requests.len(), 1, "it is read");
    let counters = json!({ "received": 7, "muted": 7 });
    let listed = json!([{ "policyKind": "EventPolicy", "policyName": "p", "policyUid": &*id("ci", "p").uid, "counters": counters }]);
    let found = json!({ "metadata": { "name": "squelch", "uid": "u1" }, "policies": listed });
    let requests = scene.write_all_now(&[(200, found), written("u1")]).await;
    assert_eq!(requests[1].1["policies"][0]["counters"]["received"], 10);
}

#[tokio::test]
async fn a_report_that_others_have_restored_counts_nothing_twice() {
    let mut scene = Scene::new();
    let mut restored = scene.step(0, &[absent("eventdropreports"), written("u1")]).await.remove(1).1;
    restored["metadata"]["uid"] = "u2".into();
    *scene.muted.lock().unwrap() = 2;
    scene.step(60, &[refused(409, &json!([]))]).await;
    let requests = scene.step(120, &[(200, restored), written("u2")]).await;
    let body = &requests[1].1;
    assert_eq!((&body["metadata"]["uid"], &body["suppressed"]), (&json!("u2"), &json!(2)));
}

#[tokio::test]
async fn a_deleted_report_is_created_again_without_what_it_had() {
    let mut scene = Scene::new();
    let requests = scene.step(0, &[absent("eventdropreports"), written("u1")]).await;
    assert!(requests[1].1["metadata"].get("uid").is_none(), "it is created");
    *scene.muted.lock().unwrap() = 2;
    let requests = scene.step(60, &[refused(409, &json!([]))]).await;
    assert_eq!(requests[0].1["metadata"]["uid"], "u1");
    let requests = scene.step(120, &[absent("eventdropreports"), written("u2")]).await;
    assert_eq!(requests[1].1["suppressed"], 2);
}

#[tokio::test]
async fn a_deleted_namespace_gets_no_second_attempt() {
    for gone in [absent("namespaces"), refused(403, &json!([{ "reason": "NamespaceTerminating" }]))] {
        let mut scene = Scene::new();
        scene.step(0, &[absent("eventdropreports"), gone]).await;
        assert!(scene.step(60, &[]).await.is_empty());
    }
}

#[tokio::test]
async fn a_failed_write_is_repeated_after_the_interval() {
    let mut scene = Scene::new();
    let forbidden = refused(403, &json!([]));
    scene.step(0, &[absent("eventdropreports"), forbidden]).await;
    assert!(scene.step(29, &[]).await.is_empty());
    assert_eq!(scene.step(35, &[written("u1")]).await.len(), 1);
}

#[tokio::test]
async fn without_the_definition_attempts_pause() {
    let mut scene = Scene::new();
    let missing = (
        404,
        json!({ "kind": "Status", "status": "Failure", "message": "m", "reason": "NotFound", "code": 404 }),
    );
    scene.step(0, &[absent("eventdropreports"), missing.clone()]).await;
    assert!(scene.step(59, &[]).await.is_empty());
    assert_eq!(scene.step(61, &[written("u1")]).await.len(), 1);
}

#[tokio::test]
async fn a_standby_writes_nothing() {
    let mut scene = Scene::new();
    scene.active.send(false).unwrap();
    assert!(scene.step(0, &[]).await.is_empty());
}

#[tokio::test]
async fn reports_are_not_queued_longer_than_until_the_next_refresh() {
    let mut scene = Scene::among(1_000);
    scene.step(0, &[absent("eventdropreports"), written("u1")]).await;
    assert_eq!(scene.writer.queue.len(), 24, "25 in 5 s, and one of them is written");
}

const EVENTS: &str = "/api/v1/namespaces/ci/events";

#[tokio::test]
async fn a_receipt_is_created_and_then_updated_in_place() {
    let mut scene = Scene::with_receipts();
    let found = json!({ "metadata": { "name": "squelch", "uid": "u1" } });
    scene.step(0, &[(200, found), written("u1")]).await;
    let name = format!("squelch.{}", id("ci", "p").uid);
    let requests = scene.step(6, &[absent("events"), (201, json!({ "metadata": { "name": name } }))]).await;
    assert_eq!(requests[0].0, format!("PATCH {EVENTS}/{name}?&fieldManager=squelch"));
    assert_eq!(requests[1].0, format!("POST {EVENTS}?&fieldManager=squelch"));
    let created = &requests[1].1;
    assert_eq!((&created["count"], &created["involvedObject"]["uid"]), (&json!(1), &json!("u1")));
    assert_eq!((&created["reason"], &created["related"]["name"]), (&json!("EventsDropped"), &json!("p")));
    *scene.muted.lock().unwrap() = 5;
    assert_eq!(scene.step(60, &[written("u1")]).await.len(), 1, "the report only");
    let requests = scene.step(607, &[(200, json!({ "metadata": { "name": name } }))]).await;
    assert_eq!((requests.len(), &requests[0].1["count"]), (1, &json!(5)));
    assert!(requests[0].1.get("firstTimestamp").is_none(), "that of the first one stays");
    assert!(scene.step(2_000, &[]).await.is_empty());
}

#[tokio::test]
async fn a_refused_receipt_is_repeated_after_its_interval() {
    let mut scene = Scene::with_receipts();
    scene.step(0, &[absent("eventdropreports"), written("u1")]).await;
    scene.step(6, &[refused(403, &json!([]))]).await;
    assert!(scene.step(500, &[]).await.is_empty());
    assert_eq!(scene.step(607, &[(200, json!({ "metadata": { "name": "x" } }))]).await.len(), 1);
}
