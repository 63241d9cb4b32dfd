//! Tests with a mock API server that stops responding.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use futures::{StreamExt, stream};
use http_body_util::Full;
use http_body_util::combinators::UnsyncBoxBody;
use serde_json::{Value, json};
use squelch_engine::Moment;
use tokio::time::sleep;

use super::*;
use crate::clock;
use crate::policy::{Restrictions, Store, WatchSource, watch};

/// How the API server responds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Behavior {
    /// To all requests, with one bookmark per minute on each watch.
    Healthy,
    /// Not to lists.
    NoLists,
    /// To no request.
    NoResponses,
    /// With the first half of each list, and keeps the connection open.
    HalfLists,
    /// Without events and bookmarks on watches.
    SilentWatches,
    /// With the end of each watch at once.
    EndedWatches,
    /// 410 to watch requests, as the status of the response.
    GoneWatches,
    /// An expired resource version as the first event of each watch.
    ExpiredWatches,
    /// 403 to all requests.
    Forbidden,
}

struct ApiServer {
    behavior: Behavior,
    /// The stored EventPolicies.
    policies: Vec<Value>,
    requests: Vec<(Moment, String)>,
}

type Shared = Arc<Mutex<ApiServer>>;

fn api_server(behavior: Behavior) -> Shared {
    Arc::new(Mutex::new(ApiServer { behavior, policies: Vec::new(), requests: Vec::new() }))
}

type ResponseBody = UnsyncBoxBody<Bytes, std::convert::Infallible>;

fn complete(value: &Value) -> ResponseBody {
    Full::new(Bytes::from(value.to_string())).boxed_unsync()
}

/// A body that stays open after `first`, with `each_minute` once a minute.
fn open(first: String, each_minute: Option<String>) -> ResponseBody {
    let frame = |text: String| Ok(Frame::data(Bytes::from(text)));
    let later = stream::unfold(each_minute, move |each_minute| async move {
        sleep(Duration::from_secs(60)).await;
        let Some(text) = each_minute else { return std::future::pending().await };
        Some((frame(text.clone()), Some(text)))
    });
    let first = (!first.is_empty()).then(|| frame(first));
    StreamBody::new(stream::iter(first).chain(later)).boxed_unsync()
}

fn client(server: &Shared) -> Client {
    let server = server.clone();
    let service = service_fn(move |request: Request<Body>| {
        let server = server.clone();
        async move {
            let uri = request.uri().to_string();
            let (behavior, policies) = {
                let mut server = server.lock().unwrap();
                server.requests.push((clock::now(), uri.clone()));
                (server.behavior, server.policies.clone())
            };
            let watches = uri.contains("watch=");
            let resource = uri.split('?').next().unwrap().rsplit('/').next().unwrap().to_owned();
            let items = if resource == "eventpolicies" { policies } else { Vec::new() };
            let list = json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items});
            let bookmark = json!({"type": "BOOKMARK", "object": {
                "kind": "X", "apiVersion": "v1", "metadata": {"resourceVersion": "2"}, "spec": {},
            }});
            if behavior == Behavior::EndedWatches {
                sleep(Duration::from_millis(1)).await;
            }
            let (code, body) = match (behavior, watches) {
                (Behavior::NoResponses, _) | (Behavior::NoLists, false) => std::future::pending().await,
                (Behavior::Forbidden, _) => (
                    403,
                    complete(&json!({"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no"})),
                ),
                (Behavior::HalfLists, false) => (200, open(list.to_string()[..20].to_owned(), None)),
                (_, false) => (200, complete(&list)),
                (Behavior::GoneWatches, true) => (
                    410,
                    complete(
                        &json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}),
                    ),
                ),
                (Behavior::ExpiredWatches, true) => (
                    200,
                    complete(&json!({"type": "ERROR", "object": {
                        "kind": "Status", "code": 410, "status": "Failure", "reason": "Expired", "message": "too old",
                    }})),
                ),
                (Behavior::EndedWatches, true) => (200, Full::new(Bytes::new()).boxed_unsync()),
                (Behavior::Healthy, true) => (200, open(String::new(), Some(format!("{bookmark}\n")))),
                (_, true) => (200, open(String::new(), None)),
            };
            Ok::<_, kube::Error>(Response::builder().status(code).body(body).unwrap())
        }
    });
    Client::new(service, "default")
}

struct Scene {
    server: Shared,
    store: Arc<Store>,
    /// The time of the last response for each source.
    responses: Arc<Mutex<BTreeMap<WatchSource, Moment>>>,
    running: tokio::task::JoinHandle<()>,
}

impl Scene {
    fn new(behavior: Behavior) -> Self {
        let server = api_server(behavior);
        let store = Arc::new(Store::default());
        let responses: Arc<Mutex<BTreeMap<WatchSource, Moment>>> = Arc::default();
        let recorded = responses.clone();
        let running =
            tokio::spawn(watch::run(client(&server), store.clone(), restrictions(), move |source| {
                recorded.lock().unwrap().insert(source, clock::now());
            }));
        Self { server, store, responses, running }
    }

    fn requests(&self) -> usize {
        self.server.lock().unwrap().requests.len()
    }

    /// The maximum time since the last response for a source.
    fn time_since_response(&self) -> Duration {
        let responses = self.responses.lock().unwrap();
        assert_eq!(responses.len(), WatchSource::ALL.len(), "{responses:?}");
        responses.values().map(|at| clock::now().since(*at)).max().unwrap()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.running.abort();
    }
}

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test(start_paused = true)]
async fn a_request_without_response_is_repeated() {
    let mut found = Vec::new();
    for behavior in [Behavior::NoResponses, Behavior::NoLists, Behavior::HalfLists] {
        let scene = Scene::new(behavior);
        sleep(HOUR).await;
        found.push(scene.requests());
        assert!(!scene.store.listed());
    }
    // Each of three sources, at least once in two and a half minutes.
    assert!(
        found.iter().all(|requests| (3 * 24..3 * 240).contains(requests)),
        "{found:?} requests in an hour"
    );
}

#[tokio::test(start_paused = true)]
async fn policies_are_listed_within_two_minutes_after_a_list_without_response() {
    for behavior in [Behavior::NoResponses, Behavior::NoLists, Behavior::HalfLists] {
        let scene = Scene::new(behavior);
        // The first list gets no response. All later requests do.
        sleep(Duration::from_secs(1)).await;
        scene.server.lock().unwrap().behavior = Behavior::Healthy;
        let mut revision = scene.store.subscribe();
        let listed = timeout(HOUR, revision.wait_for(|revision| revision.listed));
        let began = clock::now();
        listed.await.expect("policies are listed within an hour").unwrap();
        let took = clock::now().since(began);
        assert!(took < Duration::from_secs(120), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_healthy_watch_is_not_restarted() {
    let scene = Scene::new(Behavior::Healthy);
    sleep(HOUR).await;
    assert_eq!(scene.requests(), 6, "each source is listed and watched once");
    let time = scene.time_since_response();
    assert!(time < Duration::from_secs(120), "{time:?}");
}

/// An EventPolicy as it is stored.
/// No restrictions, for as long as the sender is not missed.
fn restrictions() -> tokio::sync::watch::Receiver<Restrictions> {
    tokio::sync::watch::channel(Restrictions::default()).1
}

fn stored_policy() -> Value {
    json!({
        "apiVersion": "squelch.dev/v1alpha1", "kind": "EventPolicy",
        "metadata": {"name": "p", "namespace": "ci", "uid": "1", "generation": 1}, "spec": {},
    })
}

#[tokio::test(start_paused = true)]
async fn policies_are_updated_while_watches_are_silent() {
    let scene = Scene::new(Behavior::SilentWatches);
    sleep(HOUR).await;
    scene.server.lock().unwrap().policies.push(stored_policy());
    sleep(Duration::from_secs(120)).await;
    assert_eq!(scene.store.load().policies().len(), 1);
    let time = scene.time_since_response();
    assert!(time < Duration::from_secs(120), "{time:?}");
    assert!(scene.requests() < 3 * 2 * 60, "{} requests in an hour", scene.requests());
}

/// The API server has discarded the resource version of the watch. A list is the only way to a newer one.
#[tokio::test(start_paused = true)]
async fn expired_watches_list_again_with_backoff() {
    for behavior in [Behavior::GoneWatches, Behavior::ExpiredWatches] {
        let scene = Scene::new(behavior);
        sleep(HOUR).await;
        scene.server.lock().unwrap().policies.push(stored_policy());
        sleep(Duration::from_secs(30)).await;
        assert_eq!(scene.store.load().policies().len(), 1);
        let requests = std::mem::take(&mut scene.server.lock().unwrap().requests);
        // Of each source: a list and a watch, at least every 15 s and on average at most every 8 s.
        let bounds = 3 * 2 * 240..3 * 2 * 450;
        assert!(bounds.contains(&requests.len()), "{} requests in an hour", requests.len());
        let is_list = |uri: &str| uri.contains("/namespaces?") && !uri.contains("watch=");
        let lists: Vec<Moment> = requests.iter().filter(|(_, uri)| is_list(uri)).map(|(at, _)| *at).collect();
        let shortest = lists.windows(2).map(|pair| pair[1].since(pair[0])).min().unwrap();
        assert!(shortest >= Duration::from_millis(800), "{shortest:?}");

        scene.server.lock().unwrap().behavior = Behavior::Healthy;
        sleep(HOUR).await;
        let healthy = scene.requests();
        assert!(healthy <= 3 * 2, "{healthy} requests in an hour after the watches recovered");
    }
}

/// A proxy in front of the API server closes each watch.
#[tokio::test(start_paused = true)]
async fn watches_that_end_at_once_are_repeated_with_backoff() {
    let scene = Scene::new(Behavior::EndedWatches);
    sleep(HOUR).await;
    assert!(scene.requests() < 3 * 2 * 450, "{} requests in an hour", scene.requests());
}

#[tokio::test(start_paused = true)]
async fn error_responses_are_not_recorded() {
    let scene = Scene::new(Behavior::Forbidden);
    sleep(HOUR).await;
    assert!(scene.responses.lock().unwrap().is_empty() && scene.requests() > 100);
}
