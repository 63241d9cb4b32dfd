//! Scenarios with an in-memory API server that has the Secret and acknowledges each client configuration.

use http::header::DATE;
use http::{Method, Request, Response};
use jiff::fmt::rfc2822;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::client::Body;
use serde_json::{Map, Value, json};
use tower_test::mock::{self, Handle};

use super::*;
use crate::keys::secret::SecretRef;
use crate::tls::rotation::Ring;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// An active replica and its API server.
struct Scene {
    controller: KeysController,
    api_server: ApiServer,
    acknowledged: Option<ClientConfig>,
}

struct ApiServer {
    calls: Handle<Request<Body>, Response<Body>>,
    /// `data` of the Secret.
    secret: Option<Map<String, Value>>,
    version: u64,
}

fn wall() -> Timestamp {
    let begin: Timestamp = "2026-11-21T08:00:00Z".parse().unwrap();
    begin.checked_add(SignedDuration::try_from(now()).unwrap()).unwrap()
}

impl ApiServer {
    async fn serve(&mut self) {
        while let Some((request, send)) = self.calls.next_request().await {
            let (head, body) = request.into_parts();
            let body: Value =
                serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap_or_default();
            let status = if head.method == Method::GET { self.get() } else { self.patch(&body) };
            let revision = json!({ "resourceVersion": self.version.to_string() });
            let mut answer = json!({ "metadata": revision, "data": self.secret });
            if status == 404 {
                let name = head.uri.path().rsplit('/').next();
                answer = json!({ "kind": "Status", "details": { "kind": "secrets", "name": name } });
            }
            let date = rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&wall()).unwrap();
            let response = Response::builder().status(status).header(DATE, date);
            send.send_response(response.body(Body::from(answer.to_string().into_bytes())).unwrap());
        }
    }

    fn get(&self) -> u16 {
        if self.secret.is_some() { 200 } else { 404 }
    }

    fn patch(&mut self, body: &Value) -> u16 {
        match body["metadata"]["resourceVersion"].as_str() {
            Some(_) if self.secret.is_none() => return 404,
            Some(revision) if revision != self.version.to_string() => return 409,
            _ => {}
        }
        let secret = self.secret.get_or_insert_default();
        for (name, value) in body["data"].as_object().unwrap() {
            match value {
                Value::Null => secret.remove(name),
                value => secret.insert(name.clone(), value.clone()),
            };
        }
        self.version += 1;
        200
    }
}

impl Scene {
    async fn begin() -> Self {
        let lifetimes = Lifetimes::of(MINUTE * 60 * 24 * 90, MINUTE * 60);
        let keys = Keys::generate(true, lifetimes, wall()).unwrap();
        let names = vec!["squelch.squelch.svc".to_owned()];
        let (leaf, serving) = Serving::issued(&keys, &names, lifetimes, wall()).unwrap();
        let (service, calls) = mock::pair();
        let (namespace, name, field_manager) =
            ("squelch".to_owned(), "keys".to_owned(), "squelch-1".to_owned());
        let secret = SecretRef { namespace, name, owner: None, field_manager };
        let controller = KeysController {
            store: SecretStore::new(Client::new(service, "default"), Some(secret)),
            clock: ApiServerClock::new(SignedDuration::ZERO),
            lifetimes,
            rotation: Rotation::new(Ring::of(keys), lifetimes),
            resource_version: None,
            mounted: None,
            address: Address::Url("https://127.0.0.1:9443".to_owned()),
            names,
            serving,
            certificate: Arc::new(ServedCertificate::new(leaf).unwrap()),
            tokens: Arc::new(AcceptedTokens::new(Vec::new())),
            metrics: Arc::new(Metrics::new()),
            active: watch::channel(true).1,
            published: None,
            problems: BTreeMap::new(),
        };
        let api_server = ApiServer { calls, secret: None, version: 1 };
        let mut scene = Self { controller, api_server, acknowledged: None };
        let ring = scene.controller.rotation.ring().clone();
        let Scene { controller, api_server, .. } = &mut scene;
        tokio::select! {
            written = controller.write(ring) => assert!(written),
            () = api_server.serve() => unreachable!("the client exists"),
        }
        scene.pass(MINUTE).await;
        scene
    }

    /// The controller polls each five seconds, and each client configuration is acknowledged.
    async fn pass(&mut self, time: Duration) {
        let until = now() + time;
        while now() < until {
            tokio::time::advance(self.controller.lifetimes.poll_interval).await;
            let Scene { controller, api_server, acknowledged } = self;
            let work = async {
                controller.poll().await;
                controller.reconcile(acknowledged.as_ref()).await;
            };
            tokio::select! {
                () = work => {}
                () = api_server.serve() => unreachable!("the client exists"),
            }
            *acknowledged = Some(self.controller.client_config());
        }
    }

    fn token(&self) -> String {
        self.controller.rotation.ring().current.token.reveal().to_owned()
    }

    fn accepts(&self, token: &str) -> bool {
        self.controller.tokens.accept(token)
    }

    fn names(&self) -> Vec<&str> {
        self.api_server.secret.iter().flat_map(Map::keys).map(String::as_str).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_is_replaced_within_an_hour_and_the_certificate_is_not() {
    let mut scene = Scene::begin().await;
    let (token, bundle) = (scene.token(), scene.controller.client_config().ca_bundle);
    let renewal = scene.controller.serving.renewal;
    scene.pass(38 * MINUTE).await;
    assert_eq!(scene.token(), token);
    scene.pass(4 * MINUTE).await;
    assert!(scene.token() != token && !scene.accepts(&token) && scene.accepts(&scene.token()));
    assert!(scene.controller.client_config().path.ends_with(&scene.token()));
    assert_eq!(scene.controller.client_config().ca_bundle, bundle);
    assert_eq!(scene.controller.serving.renewal, renewal);
    assert_eq!(scene.names(), ["ca.crt", "ca.key", "since", "token", "version"]);
}

#[tokio::test(start_paused = true)]
async fn the_keys_of_a_deleted_or_damaged_secret_are_replaced() {
    let mut scene = Scene::begin().await;
    for damage in [None, Some("token"), Some("ca.key")] {
        let (token, bundle) = (scene.token(), scene.controller.client_config().ca_bundle);
        match damage {
            None => scene.api_server.secret = None,
            Some(name) => drop(scene.api_server.secret.as_mut().unwrap().remove(name)),
        }
        scene.pass(5 * SECOND).await;
        assert!(scene.names().contains(&"next-token"), "{:?}", scene.names());
        assert!(
            scene.controller.client_config().path.ends_with(&token),
            "the API server uses it until it has the next one"
        );
        scene.pass(45 * SECOND).await;
        assert!(!scene.accepts(&token) && scene.accepts(&scene.token()), "{damage:?}");
        let config = scene.controller.client_config();
        assert!(config.path.ends_with(&scene.token()) && config.ca_bundle != bundle);
        assert_eq!(scene.controller.serving.authority.trim(), config.ca_bundle.trim());
        assert_eq!(scene.names(), ["ca.crt", "ca.key", "since", "token", "version"]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_exposed_token_is_replaced() {
    let mut scene = Scene::begin().await;
    scene.pass(10 * MINUTE).await;
    let token = scene.token();
    scene.controller.expose(clock::now());
    scene.pass(45 * SECOND).await;
    assert!(!scene.accepts(&token) && scene.accepts(&scene.token()));
    let token = scene.token();
    scene.controller.expose(clock::now());
    scene.pass(3 * MINUTE).await;
    assert_eq!(scene.token(), token, "five minutes have to pass");
    scene.pass(3 * MINUTE).await;
    assert!(!scene.accepts(&token));
}
