//! Scenarios at the HTTP seam: an in-memory API server with pods, their labels and one Lease.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use kube::client::Body;
use tower::service_fn;

use super::*;
use crate::leader::election::Identity;

/// The pods with the label, the holder of the Lease, and the label changes.
#[derive(Default)]
struct ApiServerState {
    pods: BTreeMap<String, bool>,
    holder: String,
    changes: Vec<String>,
}

impl ApiServerState {
    fn answer(&mut self, method: &Method, path: &str, query: &str, body: &Value) -> Value {
        if path.ends_with("/leases/squelch") {
            return json!({
                "metadata": { "name": "squelch", "resourceVersion": "1" }, "spec": { "holderIdentity": self.holder },
            });
        }
        if *method == Method::GET {
            assert!(
                query.contains("app.kubernetes.io%2Finstance%3Dr")
                    && query.contains("squelch.dev%2Frole%3Dactive"),
                "{query}"
            );
            let labelled = self.pods.iter().filter(|(_, active)| **active);
            let items: Vec<_> = labelled.map(|(name, active)| pod(name, *active)).collect();
            return json!({ "metadata": {}, "items": items });
        }
        let name = path.rsplit('/').next().unwrap();
        let active = body["metadata"]["labels"][LABEL] == ACTIVE;
        self.changes.push(format!("{}{name}", if active { '+' } else { '-' }));
        self.pods.insert(name.to_owned(), active);
        pod(name, active)
    }
}

fn pod(name: &str, active: bool) -> Value {
    let role = if active { json!(ACTIVE) } else { json!("none") };
    let labels = json!({ RELEASE_LABELS[0]: "squelch", RELEASE_LABELS[1]: "r", LABEL: role });
    json!({ "metadata": { "name": name, "labels": labels } })
}

struct Scene {
    state: Arc<Mutex<ApiServerState>>,
    active: watch::Sender<bool>,
}

impl Scene {
    /// Runs pod `a`. `labelled` pods carry the label, `holder` holds the Lease.
    fn new(labelled: &[&str], holder: &str) -> Self {
        let pods = ["a", "b", "c"].map(|name| (name.to_owned(), labelled.contains(&name)));
        let state = ApiServerState { pods: pods.into(), holder: holder.to_owned(), changes: Vec::new() };
        let state = Arc::new(Mutex::new(state));
        let server = state.clone();
        let service = service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = serde_json::from_slice(&body.collect_bytes().await?).unwrap_or_default();
                let query = head.uri.query().unwrap_or_default();
                let answer = server.lock().unwrap().answer(&head.method, head.uri.path(), query, &body);
                Ok::<_, kube::Error>(Response::new(Body::from(answer.to_string().into_bytes())))
            }
        });
        let client = Client::new(service, "default");
        let lease = Lease::new(client.clone(), "squelch", Identity::new(Some("a"), 1), None);
        let (active, follows) = watch::channel(false);
        let label = PodLabel::new(client, "squelch", "a".to_owned());
        tokio::spawn(label.run(lease, follows, CancellationToken::new()));
        Self { state, active }
    }

    /// Returns the changes of the next second.
    async fn changes(&self) -> Vec<String> {
        tokio::time::sleep(Duration::from_secs(1)).await;
        std::mem::take(&mut self.state.lock().unwrap().changes)
    }
}

#[tokio::test(start_paused = true)]
async fn the_own_pod_is_labelled_before_the_label_is_removed_from_others() {
    let scene = Scene::new(&["b", "c"], "b_1");
    assert_eq!(scene.changes().await, ["-a"], "a stale label is removed at the start");
    scene.active.send_replace(true);
    assert_eq!(scene.changes().await, ["+a", "-b", "-c"]);
}

#[tokio::test(start_paused = true)]
async fn a_label_stays_if_an_earlier_process_of_the_pod_holds_the_lease() {
    assert!(Scene::new(&["a"], "a_2").changes().await.is_empty());
    assert_eq!(Scene::new(&["a"], "").changes().await, ["-a"]);
}

#[tokio::test(start_paused = true)]
async fn changed_labels_are_restored() {
    let scene = Scene::new(&[], "");
    scene.active.send_replace(true);
    scene.changes().await;
    scene.state.lock().unwrap().pods.insert("c".to_owned(), true);
    tokio::time::sleep(INTERVAL).await;
    assert_eq!(scene.changes().await, ["+a", "-c"]);
}

/// Whether the address is found by these successive reads of the own pod.
async fn finds_address(answers: Vec<Value>) -> bool {
    let answers = Arc::new(Mutex::new(answers));
    let service = service_fn(move |request: Request<Body>| {
        assert!(request.uri().path().ends_with("/namespaces/squelch/pods/a"), "{}", request.uri());
        let mut answers = answers.lock().unwrap();
        let answer = if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() };
        async move { Ok::<_, kube::Error>(Response::new(Body::from(answer.to_string().into_bytes()))) }
    });
    let label = PodLabel::new(Client::new(service, "default"), "squelch", "a".to_owned());
    timeout(Duration::from_secs(60), label.wait_for_address()).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn a_replica_waits_until_its_pod_has_an_address() {
    let mut placed = pod("a", false);
    placed["status"]["podIP"] = json!("10.0.0.1");
    let mut without = placed.clone();
    without["status"]["podIP"] = json!("");
    assert!(!finds_address(vec![pod("a", false)]).await);
    assert!(!finds_address(vec![pod("a", false), without.clone()]).await);
    assert!(finds_address(vec![pod("a", false), without, placed]).await);
    assert!(
        finds_address(vec![pod("a", false), json!("not a pod")]).await,
        "an unreadable pod does not keep a replica from campaigning"
    );
}
