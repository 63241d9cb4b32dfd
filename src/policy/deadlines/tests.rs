//! An API server that stops answering, at the HTTP seam.

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
use crate::policy::{Source, Store, watch};

/// How an API server answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answers {
    /// As it should: each watch has a bookmark a minute.
    Well,
    /// No list.
    NoList,
    /// No list, and no watch.
    Nothing,
    /// Each list breaks off in the middle, and the connection stays open.
    HalfAList,
    /// Watches begin and stay silent, bookmarks included.
    SilentWatches,
    Forbidden,
}

struct ApiServer {
    answers: Answers,
    /// The EventPolicies that there are.
    policies: Vec<Value>,
    asked: Vec<(Moment, String)>,
}

type Shared = Arc<Mutex<ApiServer>>;

fn api_server(answers: Answers) -> Shared {
    Arc::new(Mutex::new(ApiServer { answers, policies: Vec::new(), asked: Vec::new() }))
}

type Answer = UnsyncBoxBody<Bytes, std::convert::Infallible>;

fn whole(value: &Value) -> Answer {
    Full::new(Bytes::from(value.to_string())).boxed_unsync()
}

/// `first`, and then nothing for ever but what `each_minute` says.
fn open(first: String, each_minute: Option<String>) -> Answer {
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
            let (answers, policies) = {
                let mut server = server.lock().unwrap();
                server.asked.push((clock::now(), uri.clone()));
                (server.answers, server.policies.clone())
            };
            let watches = uri.contains("watch=");
            let resource = uri.split('?').next().unwrap().rsplit('/').next().unwrap().to_owned();
            let items = if resource == "eventpolicies" { policies } else { Vec::new() };
            let list = json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items});
            let bookmark = json!({"type": "BOOKMARK", "object": {
                "kind": "X", "apiVersion": "v1", "metadata": {"resourceVersion": "2"}, "spec": {},
            }});
            let (code, body) = match (answers, watches) {
                (Answers::Nothing, _) | (Answers::NoList, false) => std::future::pending().await,
                (Answers::Forbidden, _) => (
                    403,
                    whole(&json!({"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no"})),
                ),
                (Answers::HalfAList, false) => (200, open(list.to_string()[..20].to_owned(), None)),
                (_, false) => (200, whole(&list)),
                (Answers::Well, true) => (200, open(String::new(), Some(format!("{bookmark}\n")))),
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
    responses: Arc<Mutex<BTreeMap<Source, Moment>>>,
    running: tokio::task::JoinHandle<()>,
}

impl Scene {
    fn new(answers: Answers) -> Self {
        let server = api_server(answers);
        let store = Arc::new(Store::default());
        let responses: Arc<Mutex<BTreeMap<Source, Moment>>> = Arc::default();
        let note = responses.clone();
        let running = tokio::spawn(watch::run(client(&server), store.clone(), move |source| {
            note.lock().unwrap().insert(source, clock::now());
        }));
        Self { server, store, responses, running }
    }

    fn asked(&self) -> usize {
        self.server.lock().unwrap().asked.len()
    }

    /// The longest time since the last response for a source.
    fn silence(&self) -> Duration {
        let responses = self.responses.lock().unwrap();
        assert_eq!(responses.len(), Source::ALL.len(), "{responses:?}");
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
async fn a_request_that_is_never_answered_is_sent_again() {
    let mut found = Vec::new();
    for answers in [Answers::Nothing, Answers::NoList, Answers::HalfAList] {
        let scene = Scene::new(answers);
        sleep(HOUR).await;
        found.push(scene.asked());
        assert!(!scene.store.listed());
    }
    // Each of three sources, at least once in two and a half minutes.
    assert!(found.iter().all(|asked| (3 * 24..3 * 240).contains(asked)), "{found:?} requests in an hour");
}

#[tokio::test(start_paused = true)]
async fn policies_are_followed_two_minutes_after_a_list_that_is_never_answered() {
    for answers in [Answers::Nothing, Answers::NoList, Answers::HalfAList] {
        let scene = Scene::new(answers);
        // The list is sent, and lost; all others are answered.
        sleep(Duration::from_secs(1)).await;
        scene.server.lock().unwrap().answers = Answers::Well;
        let mut revision = scene.store.subscribe();
        let listed = timeout(HOUR, revision.wait_for(|revision| revision.listed));
        let began = clock::now();
        listed.await.expect("they are listed within an hour").unwrap();
        let took = clock::now().since(began);
        assert!(took < Duration::from_secs(120), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_healthy_watch_is_left_alone() {
    let scene = Scene::new(Answers::Well);
    sleep(HOUR).await;
    assert_eq!(scene.asked(), 6, "each source is listed and watched once");
    assert!(scene.silence() < Duration::from_secs(120), "{:?}", scene.silence());
}

#[tokio::test(start_paused = true)]
async fn policies_are_followed_where_watches_stay_silent() {
    let scene = Scene::new(Answers::SilentWatches);
    sleep(HOUR).await;
    let policy = json!({
        "apiVersion": "squelch.dev/v1alpha1", "kind": "EventPolicy",
        "metadata": {"name": "p", "namespace": "ci", "uid": "1", "generation": 1}, "spec": {},
    });
    scene.server.lock().unwrap().policies.push(policy);
    sleep(Duration::from_secs(120)).await;
    assert_eq!(scene.store.load().policies().len(), 1);
    assert!(scene.silence() < Duration::from_secs(120), "{:?}", scene.silence());
    assert!(scene.asked() < 3 * 2 * 60, "{} requests in an hour", scene.asked());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_no_response() {
    let scene = Scene::new(Answers::Forbidden);
    sleep(HOUR).await;
    assert!(scene.responses.lock().unwrap().is_empty() && scene.asked() > 100);
}
