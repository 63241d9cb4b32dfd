//! Scenarios at the HTTP seam: an API server in memory that keeps pods and their labels, and one Lease.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use kube::client::Body;
use tower::service_fn;

use super::*;
use crate::leader::election::Identity;

/// Whether each pod carries the label; who holds the Lease; what was changed.
#[derive(Default)]
struct Held {
    pods: BTreeMap<String, bool>,
    holder: String,
    changes: Vec<String>,
}

impl Held {
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
    let labels = json!({ OF_RELEASE[0]: "squelch", OF_RELEASE[1]: "r", LABEL: role });
    json!({ "metadata": { "name": name, "labels": labels } })
}

struct Scene {
    held: Arc<Mutex<Held>>,
    active: watch::Sender<bool>,
}

impl Scene {
    /// The pods that carry the label, and the Lease's holder; runs pod `a` of them.
    fn new(labelled: &[&str], holder: &str) -> Self {
        let pods = ["a", "b", "c"].map(|name| (name.to_owned(), labelled.contains(&name)));
        let held = Held { pods: pods.into(), holder: holder.to_owned(), changes: Vec::new() };
        let held = Arc::new(Mutex::new(held));
        let server = held.clone();
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
        let role = Role::new(client, "squelch", "a".to_owned());
        tokio::spawn(role.keep(lease, follows, CancellationToken::new()));
        Self { held, active }
    }

    /// What has changed until nothing more does.
    async fn changes(&self) -> Vec<String> {
        tokio::time::sleep(Duration::from_secs(1)).await;
        std::mem::take(&mut self.held.lock().unwrap().changes)
    }
}

#[tokio::test(start_paused = true)]
async fn the_own_pod_first_and_then_the_others_lose_theirs() {
    let scene = Scene::new(&["b", "c"], "b_1");
    assert_eq!(scene.changes().await, ["-a"], "at the start, whatever it was");
    scene.active.send_replace(true);
    assert_eq!(scene.changes().await, ["+a", "-b", "-c"]);
}

#[tokio::test(start_paused = true)]
async fn what_a_former_process_of_the_pod_had_stays_with_the_lease() {
    assert!(Scene::new(&["a"], "a_2").changes().await.is_empty());
    assert_eq!(Scene::new(&["a"], "").changes().await, ["-a"]);
}

#[tokio::test(start_paused = true)]
async fn labels_that_somebody_changes_are_put_back() {
    let scene = Scene::new(&[], "");
    scene.active.send_replace(true);
    scene.changes().await;
    scene.held.lock().unwrap().pods.insert("c".to_owned(), true);
    tokio::time::sleep(EVERY).await;
    assert_eq!(scene.changes().await, ["+a", "-c"]);
}

/// An API server that answers so, time after time, about the own pod.
async fn addressed_by(answers: Vec<Value>) -> bool {
    let answers = Arc::new(Mutex::new(answers));
    let service = service_fn(move |request: Request<Body>| {
        assert!(request.uri().path().ends_with("/namespaces/squelch/pods/a"), "{}", request.uri());
        let mut answers = answers.lock().unwrap();
        let answer = if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() };
        async move { Ok::<_, kube::Error>(Response::new(Body::from(answer.to_string().into_bytes()))) }
    });
    let role = Role::new(Client::new(service, "default"), "squelch", "a".to_owned());
    timeout(Duration::from_secs(60), role.addressed()).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_an_address_is_waited_for() {
    let mut placed = pod("a", false);
    placed["status"]["podIP"] = json!("10.0.0.1");
    let mut without = placed.clone();
    without["status"]["podIP"] = json!("");
    assert!(!addressed_by(vec![pod("a", false)]).await);
    assert!(!addressed_by(vec![pod("a", false), without.clone()]).await);
    assert!(addressed_by(vec![pod("a", false), without, placed]).await);
    assert!(
        addressed_by(vec![pod("a", false), json!("what is no pod")]).await,
        "a doubt keeps nobody from deciding"
    );
}
