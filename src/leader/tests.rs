//! Scenarios at the HTTP seam: an in-memory API server with one Lease, which other writers change too.

mod renewals;
mod two_replicas;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tower::service_fn;

use super::*;
use crate::announcer::AnnouncementReceiver;

/// The state and behaviour of the API server.
#[derive(Default)]
struct ApiServerState {
    lease: Option<Value>,
    revision: u64,
    /// Answers each call with this status instead.
    refuses: Option<u16>,
    /// The same for writes alone.
    refuses_writes: Option<u16>,
    slow: Slow,
    asked: Vec<String>,
}

/// How slow the API server is.
#[derive(Clone, Copy, Default)]
struct Slow {
    /// The time from a read to its answer.
    reads: Duration,
    /// The time from a write to its answer.
    writes: Duration,
    /// A write is committed at the end of that time, not at its beginning.
    commits_late: bool,
    /// A write is committed, and its client is disconnected in place of an answer.
    disconnects: bool,
}

type ApiServer = Arc<Mutex<ApiServerState>>;

impl ApiServerState {
    fn answer(&mut self, method: &Method, body: &Value) -> (u16, Value) {
        if let Some(code) = self.refuses {
            return status(code);
        }
        if let Some(code) = self.refuses_writes.filter(|_| *method != Method::GET) {
            return status(code);
        }
        let Some(state) = &mut self.lease else {
            if *method == Method::GET || body["kind"].is_null() {
                return status(404);
            }
            return self.write(body.clone(), 201);
        };
        if *method == Method::GET {
            return (200, state.clone());
        }
        if body["metadata"]["resourceVersion"] != state["metadata"]["resourceVersion"] {
            return status(409);
        }
        let mut changed = state.clone();
        for (field, value) in body["spec"].as_object().into_iter().flatten() {
            changed["spec"][field] = value.clone();
        }
        self.write(changed, 200)
    }

    fn write(&mut self, mut lease: Value, code: u16) -> (u16, Value) {
        self.revision += 1;
        lease["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        self.lease = Some(lease.clone());
        (code, lease)
    }

    fn give_to(&mut self, holder: &str) {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": LEASE_NAME }, "spec": { "holderIdentity": holder },
        });
        self.write(lease, 200);
    }

    fn holder(&self) -> String {
        let lease = self.lease.clone().unwrap_or_default();
        lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
    }
}

fn status(code: u16) -> (u16, Value) {
    (code, json!({"kind": "Status", "status": "Failure", "code": code, "reason": "R", "message": "in words"}))
}

fn client(server: &ApiServer) -> Client {
    let server = server.clone();
    let service = service_fn(move |request: Request<Body>| {
        let server = server.clone();
        async move {
            let (head, body) = request.into_parts();
            let body = serde_json::from_slice(&body.collect_bytes().await?).unwrap_or_default();
            let slow = server.lock().unwrap().slow;
            let reads = head.method == Method::GET;
            let pause = if reads { slow.reads } else { slow.writes };
            if slow.commits_late {
                tokio::time::sleep(pause).await;
            }
            let (code, answer) = {
                let mut state = server.lock().unwrap();
                state.asked.push(format!("{} {}", head.method, head.uri));
                state.answer(&head.method, &body)
            };
            if !slow.commits_late {
                tokio::time::sleep(pause).await;
            }
            if slow.disconnects && !reads {
                return Err(kube::Error::Service("connection reset".into()));
            }
            let answer = Body::from(answer.to_string().into_bytes());
            Ok::<_, kube::Error>(Response::builder().status(code).body(answer).unwrap())
        }
    });
    Client::new(service, "default")
}

struct Scene {
    deadline: Arc<LeaseDeadline>,
    active: watch::Receiver<bool>,
    lost: CancellationToken,
    activations: Arc<AtomicU32>,
    announced: AnnouncementReceiver,
    stop: CancellationToken,
    leading: JoinHandle<Leader>,
}

impl Scene {
    fn new(server: &ApiServer, pod: &str) -> Self {
        let me = Identity::new(Some(pod), 7);
        let owner = LeaseOwner { name: "squelch".to_owned(), uid: "u".to_owned() };
        let lease = Lease::new(client(server), "squelch", me, Some(owner));
        let (deadline, activations, stop) =
            (Arc::new(LeaseDeadline::default()), Arc::new(AtomicU32::new(0)), CancellationToken::new());
        let (announcer, announced) = Announcer::new();
        let counted = activations.clone();
        let begin = Box::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let leader = Leader::new(lease, None, deadline.clone(), begin, announcer, Arc::default());
        let (active, lost) = (leader.active(), leader.lost());
        let leading = tokio::spawn(leader.run(std::future::ready(()), stop.clone()));
        Self { deadline, active, lost, activations, announced, stop, leading }
    }

    async fn is_active(&mut self, active: bool) {
        let hour = Duration::from_secs(3_600);
        tokio::time::timeout(hour, self.active.wait_for(|is| *is == active))
            .await
            .expect("the state changes within an hour")
            .unwrap();
    }

    async fn end(self) -> Leader {
        self.stop.cancel();
        self.leading.await.unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_replica_creates_the_lease_and_releases_it() {
    let server = ApiServer::default();
    let began = clock::now();
    let mut scene = Scene::new(&server, "a");
    scene.is_active(true).await;
    // Another replica may be active although the Lease was just deleted.
    let took = clock::now().since(began);
    assert!((LEASE_DURATION..LEASE_DURATION + Duration::from_millis(100)).contains(&took), "{took:?}");
    assert!(scene.deadline.is_active(clock::now()));
    let spec = server.lock().unwrap().lease.clone().unwrap();
    assert_eq!(spec["spec"]["holderIdentity"], "a_0000000000000007");
    assert_eq!(spec["spec"]["leaseDurationSeconds"], 4);
    assert_eq!(spec["metadata"]["ownerReferences"][0]["uid"], "u");
    let deadline = scene.deadline.clone();
    assert_eq!(scene.announced.next().unwrap().reason, "Active");
    scene.end().await.release().await;
    let spec = server.lock().unwrap().lease.clone().unwrap();
    assert_eq!(spec["spec"]["holderIdentity"], "");
    assert_eq!(spec["spec"]["leaseDurationSeconds"], 1, "marked as released");
    assert!(!deadline.is_active(clock::now()));
    let asked = server.lock().unwrap().asked.clone();
    let made = asked.iter().find(|asked| asked.starts_with("PATCH")).unwrap();
    assert!(made.contains("fieldManager=squelch-0000000000000007"), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_standby_acquires_a_released_lease() {
    let server = ApiServer::default();
    let mut one = Scene::new(&server, "a");
    one.is_active(true).await;
    let mut other = Scene::new(&server, "b");
    let began = clock::now();
    one.is_active(true).await;
    assert_eq!(other.activations.load(Ordering::Relaxed), 0);
    one.end().await.release().await;
    other.is_active(true).await;
    assert!(clock::now().since(began) <= Duration::from_secs(2));
    assert_eq!(other.activations.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_replica_is_inactive_during_an_outage_and_keeps_its_engine_after_it() {
    let server = ApiServer::default();
    let mut scene = Scene::new(&server, "a");
    scene.is_active(true).await;
    let began = clock::now();
    server.lock().unwrap().refuses = Some(500);
    scene.is_active(false).await;
    let took = clock::now().since(began);
    assert!((Duration::from_secs(2)..Duration::from_secs(5)).contains(&took), "{took:?}");
    assert!(!scene.deadline.is_active(clock::now()));
    server.lock().unwrap().refuses = None;
    scene.is_active(true).await;
    assert!(scene.deadline.is_active(clock::now()));
    assert_eq!(scene.activations.load(Ordering::Relaxed), 1, "the engine is not started again");
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_reads_another_holder_steps_down() {
    let server = ApiServer::default();
    let mut scene = Scene::new(&server, "a");
    scene.is_active(true).await;
    server.lock().unwrap().give_to("b_1");
    scene.is_active(false).await;
    scene.lost.cancelled().await;
    assert!(!scene.deadline.is_active(clock::now()));
    scene.end().await.release().await;
    assert_eq!(server.lock().unwrap().holder(), "b_1", "the other replica's Lease is not released");
}

#[tokio::test(start_paused = true)]
async fn the_active_replica_creates_a_deleted_lease_again() {
    let server = ApiServer::default();
    let mut scene = Scene::new(&server, "a");
    scene.is_active(true).await;
    server.lock().unwrap().lease = None;
    let began = clock::now();
    while server.lock().unwrap().lease.is_none() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(clock::now().since(began) < Duration::from_secs(2));
    assert!(*scene.active.borrow() && scene.deadline.is_active(clock::now()));
}

#[tokio::test(start_paused = true)]
async fn no_replica_campaigns_before_it_is_ready() {
    let server = ApiServer::default();
    let lease = Lease::new(client(&server), "squelch", Identity::new(None, 1), None);
    let (announcer, _announced) = Announcer::new();
    let leader = Leader::new(lease, None, Arc::default(), Box::new(|| {}), announcer, Arc::default());
    let stop = CancellationToken::new();
    let leading = tokio::spawn(leader.run(std::future::pending(), stop.clone()));
    tokio::time::sleep(Duration::from_secs(60)).await;
    stop.cancel();
    leading.await.unwrap().release().await;
    assert!(server.lock().unwrap().asked.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_replica_whose_leader_task_panics_is_not_active() {
    let mut scene = Scene::new(&ApiServer::default(), "a");
    scene.is_active(true).await;
    // Drops the leader, as a panic does.
    scene.leading.abort();
    scene.is_active(false).await;
    assert!(!scene.deadline.is_active(clock::now()));
}
