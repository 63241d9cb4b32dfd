//! The Secret that keeps the keys: read, made and written by its name alone, and the API server's clock with each
//! answer.

use std::collections::BTreeMap;
use std::time::Duration;

use http::header::{CONTENT_TYPE, DATE};
use http::{HeaderMap, Method, Request, StatusCode};
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::client::Body;
use serde_json::{Map, Value, json};

use crate::FIELD_MANAGER;
use crate::tls::kept::{self, Keys};
use crate::tls::rotation::Ring;

/// A call without an answer after this long has failed.
const DEADLINE: Duration = Duration::from_secs(5);

/// Where the keys are kept.
pub(super) struct Store {
    client: Client,
    /// `None`: nowhere but in the process.
    secret: Option<Place>,
}

/// The Secret.
pub(super) struct Place {
    pub(super) namespace: String,
    pub(super) name: String,
    /// Name and uid of the ServiceAccount that it goes with.
    pub(super) owner: Option<(String, String)>,
    /// Whoever makes it names itself: of two that do so at the same time one is refused.
    pub(super) maker: String,
}

/// What a look finds.
pub(super) struct Look {
    /// The API server's clock, if it answered.
    pub(super) date: Option<Timestamp>,
    pub(super) found: Found,
}

pub(super) enum Found {
    /// Nothing is kept outside of the process.
    Nowhere,
    /// There is no Secret.
    Nothing,
    /// What the Secret holds, and its `resourceVersion`.
    Kept(BTreeMap<String, Vec<u8>>, String),
    /// Why nobody knows.
    Failed(String),
}

/// How a write ended that did not fail.
pub(super) enum Written {
    /// It is kept, under this `resourceVersion`.
    Kept(Option<String>),
    /// Somebody else was first.
    Conflict,
}

struct Answer {
    status: StatusCode,
    date: Option<Timestamp>,
    body: Vec<u8>,
}

impl Store {
    pub(super) fn new(client: Client, secret: Option<Place>) -> Self {
        Self { client, secret }
    }

    /// Whether other replicas have what is kept here.
    pub(super) fn is_shared(&self) -> bool {
        self.secret.is_some()
    }

    pub(super) async fn look(&self) -> Look {
        // Every account may ask for the version: it is the clock that is asked for.
        let path = self.secret.as_ref().map_or_else(|| "/version".to_owned(), Place::path);
        let answer = match self.call(Method::GET, &path, "application/json", Vec::new()).await {
            Ok(answer) => answer,
            // It is only the clock that was missed.
            Err(_) if self.secret.is_none() => return Look { date: None, found: Found::Nowhere },
            Err(error) => return Look { date: None, found: Found::Failed(error) },
        };
        let date = answer.date;
        let found = match (&self.secret, answer.status) {
            (None, _) => Found::Nowhere,
            (Some(place), _) if answer.says_not_found(place) => Found::Nothing,
            (Some(_), _) => answer.secret().map_or_else(Found::Failed, |secret| {
                let data = secret.data.unwrap_or_default().into_iter().map(|(name, bytes)| (name, bytes.0));
                Found::Kept(data.collect(), secret.metadata.resource_version.unwrap_or_default())
            }),
        };
        Look { date, found }
    }

    /// Keeps `ring`; over the state of that `resourceVersion`, or where there is no Secret.
    pub(super) async fn write(&self, ring: &Ring<Keys>, over: Option<&str>) -> Result<Written, String> {
        let Some(place) = &self.secret else { return Ok(Written::Kept(None)) };
        let (path, body, media_type) = match over {
            // A plain create cannot be limited to a name by RBAC: server-side apply can. Without force it refuses
            // where another maker has written something else.
            None => {
                let query = format!("{}?fieldManager={}&force=false", place.path(), place.maker);
                (query, place.made(ring), "application/apply-patch+yaml")
            }
            Some(revision) => {
                let query = format!("{}?fieldManager={FIELD_MANAGER}", place.path());
                (query, changed(ring, revision), "application/merge-patch+json")
            }
        };
        let answer = self.call(Method::PATCH, &path, media_type, body.to_string().into_bytes()).await?;
        match answer.status {
            StatusCode::CONFLICT => Ok(Written::Conflict),
            // It was deleted meanwhile.
            _ if over.is_some() && answer.says_not_found(place) => Ok(Written::Conflict),
            _ => Ok(Written::Kept(answer.secret()?.metadata.resource_version)),
        }
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        media_type: &str,
        body: Vec<u8>,
    ) -> Result<Answer, String> {
        let request = Request::builder().method(method).uri(path).header(CONTENT_TYPE, media_type);
        let request = request.body(Body::from(body)).map_err(|error| error.to_string())?;
        let exchange = async {
            let response = self.client.send(request).await.map_err(|error| error.to_string())?;
            let (head, body) = response.into_parts();
            let body = body.collect_bytes().await.map_err(|error| error.to_string())?;
            Ok(Answer { status: head.status, date: date(&head.headers), body: body.to_vec() })
        };
        let exchanged = tokio::time::timeout(DEADLINE, exchange).await;
        exchanged.unwrap_or_else(|_| Err(format!("no answer within {} s", DEADLINE.as_secs())))
    }
}

impl Answer {
    /// Whether the API server says that this Secret does not exist. Any other 404 (a proxy's page, say) says nothing about
    /// it.
    fn says_not_found(&self, place: &Place) -> bool {
        let status: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        let details = &status["details"];
        self.status == StatusCode::NOT_FOUND && details["kind"] == "secrets" && details["name"] == *place.name
    }

    /// The Secret, or what the API server says instead.
    fn secret(&self) -> Result<Secret, String> {
        if !self.status.is_success() {
            let told: Value = serde_json::from_slice(&self.body).unwrap_or_default();
            return Err(format!(
                "{}: {}",
                self.status,
                told["message"].as_str().unwrap_or("no reason given")
            ));
        }
        // The error of a wrong one would quote it.
        serde_json::from_slice(&self.body).map_err(|_| "the answer is no Secret".to_owned())
    }
}

impl Place {
    fn path(&self) -> String {
        format!("/api/v1/namespaces/{}/secrets/{}", self.namespace, self.name)
    }

    fn made(&self, ring: &Ring<Keys>) -> Value {
        let mut metadata = json!({
            "name": self.name,
            "namespace": self.namespace,
            "labels": { "app.kubernetes.io/managed-by": FIELD_MANAGER },
        });
        if let Some((name, uid)) = &self.owner {
            // It goes with the account, at uninstall.
            metadata["ownerReferences"] = json!([{
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "name": name,
                "uid": uid,
                "blockOwnerDeletion": false,
            }]);
        }
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": data(ring) })
    }
}

/// What makes the Secret hold `ring`, whatever it held.
fn changed(ring: &Ring<Keys>, revision: &str) -> Value {
    let mut data = data(ring);
    for name in kept::NAMES {
        data.entry(name).or_insert(Value::Null);
    }
    json!({ "metadata": { "resourceVersion": revision }, "data": data })
}

fn data(ring: &Ring<Keys>) -> Map<String, Value> {
    use base64::Engine as _;
    let encoded = |text: String| base64::engine::general_purpose::STANDARD.encode(text).into();
    kept::print(ring).into_iter().map(|(name, text)| (name, encoded(text))).collect()
}

/// When the API server answered, by its own clock.
fn date(headers: &HeaderMap) -> Option<Timestamp> {
    rfc2822::DateTimeParser::new().parse_timestamp(headers.get(DATE)?.as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use http::Response;
    use serde_json::json;
    use tower_test::mock::{self, Handle};

    use super::*;
    use crate::tls::rotation::Lifetimes;

    type ApiServer = Handle<Request<Body>, Response<Body>>;

    /// A store, and the API server that it asks.
    fn store() -> (Store, ApiServer) {
        let (service, server) = mock::pair();
        let owner = Some(("squelch".to_owned(), "u1".to_owned()));
        let (namespace, name) = ("platform".to_owned(), "keys".to_owned());
        let place = Place { namespace, name, owner, maker: "squelch-1".to_owned() };
        (Store::new(Client::new(service, "default"), Some(place)), server)
    }

    fn ring() -> Ring<Keys> {
        let lifetimes = Lifetimes::of(Duration::from_secs(3600), Duration::from_secs(3600));
        Ring::of(Keys::generate(true, lifetimes, "2026-11-21T08:00:00Z".parse().unwrap()).unwrap())
    }

    /// Answers one call; its verb, path and body.
    async fn answer(server: &mut ApiServer, status: u16, answer: Value) -> (String, String, Value) {
        let (request, send) = server.next_request().await.unwrap();
        let (head, body) = request.into_parts();
        let answer = answer.to_string().into_bytes();
        let response = Response::builder().status(status).header(DATE, "Sat, 21 Nov 2026 08:00:01 GMT");
        send.send_response(response.body(Body::from(answer)).unwrap());
        let body = body.collect_bytes().await.unwrap();
        (head.method.to_string(), head.uri.to_string(), serde_json::from_slice(&body).unwrap_or_default())
    }

    #[tokio::test]
    async fn a_secret_is_made_by_an_apply_that_takes_nothing_from_another_maker() {
        let ((store, mut server), ring) = (store(), ring());
        let made = json!({ "metadata": { "resourceVersion": "7" } });
        let (written, asked) = tokio::join!(store.write(&ring, None), answer(&mut server, 201, made));
        assert!(matches!(written.unwrap(), Written::Kept(Some(revision)) if revision == "7"));
        let path = "/api/v1/namespaces/platform/secrets/keys?fieldManager=squelch-1&force=false";
        assert_eq!((&*asked.0, &*asked.1), ("PATCH", path));
        let owner = &asked.2["metadata"]["ownerReferences"][0];
        assert_eq!((&owner["uid"], &owner["blockOwnerDeletion"]), (&json!("u1"), &json!(false)));

        let refused = json!({ "message": "conflict with squelch-2" });
        let (written, _) = tokio::join!(store.write(&ring, None), answer(&mut server, 409, refused));
        assert!(matches!(written.unwrap(), Written::Conflict));
    }

    #[tokio::test]
    async fn a_change_is_of_what_was_read_and_leaves_nothing_of_it_behind() {
        let ((store, mut server), ring) = (store(), ring());
        let gone = json!({ "kind": "Status", "details": { "kind": "secrets", "name": "keys" } });
        let (written, asked) = tokio::join!(store.write(&ring, Some("6")), answer(&mut server, 404, gone));
        assert!(matches!(written.unwrap(), Written::Conflict), "deleted meanwhile: it is read again");
        let data = &asked.2["data"];
        assert_eq!(asked.2["metadata"], json!({ "resourceVersion": "6" }));
        assert!(data["ca.key"].is_string() && data["next-ca.key"].is_null());
        assert!(data.as_object().unwrap().contains_key("next-ca.key"), "null takes it away");
    }

    #[tokio::test]
    async fn a_look_tells_what_is_there_and_the_time() {
        let ((store, mut server), ring) = (store(), ring());
        let kept = json!({ "metadata": { "resourceVersion": "7" }, "data": data(&ring) });
        let (look, _) = tokio::join!(store.look(), answer(&mut server, 200, kept));
        assert_eq!(look.date.unwrap().to_string(), "2026-11-21T08:00:01Z");
        let Found::Kept(data, revision) = look.found else { panic!("it is there") };
        assert!(kept::is_printed(&ring, &data) && revision == "7");

        let gone = json!({ "kind": "Status", "details": { "kind": "secrets", "name": "keys" } });
        let (look, _) = tokio::join!(store.look(), answer(&mut server, 404, gone));
        assert!(matches!(look.found, Found::Nothing));
        let refused = json!({ "message": "secrets \"keys\" is forbidden" });
        let (look, _) = tokio::join!(store.look(), answer(&mut server, 403, refused));
        assert!(matches!(look.found, Found::Failed(told) if told.contains("is forbidden")));
        assert!(look.date.is_some());
    }

    #[tokio::test]
    async fn another_404_says_nothing_about_the_secret() {
        let ((store, mut server), ring) = (store(), ring());
        let another = json!({ "kind": "Status", "details": { "kind": "secrets", "name": "another" } });
        for page in [json!("404 page not found"), json!({}), another] {
            let (look, _) = tokio::join!(store.look(), answer(&mut server, 404, page.clone()));
            assert!(matches!(look.found, Found::Failed(_)), "{page}");
            let writing = store.write(&ring, Some("6"));
            let (written, _) = tokio::join!(writing, answer(&mut server, 404, page.clone()));
            assert!(written.is_err(), "{page}");
        }
    }

    #[tokio::test]
    async fn where_nothing_is_kept_the_time_is_asked_for() {
        let (service, mut server) = mock::pair();
        let store = Store::new(Client::new(service, "default"), None);
        let (look, asked) = tokio::join!(store.look(), answer(&mut server, 200, json!({})));
        assert!(matches!(look.found, Found::Nowhere) && look.date.is_some());
        assert_eq!((&*asked.0, &*asked.1), ("GET", "/version"));
        assert!(matches!(store.write(&ring(), None).await.unwrap(), Written::Kept(None)));
    }

    #[test]
    fn the_clock_of_an_answer_is_read() {
        let headers = HeaderMap::from_iter([(DATE, "Sat, 21 Nov 2026 08:00:01 GMT".parse().unwrap())]);
        assert_eq!(date(&headers).unwrap().to_string(), "2026-11-21T08:00:01Z");
        assert_eq!(date(&HeaderMap::new()), None);
    }
}
