use http::Response;
use serde_json::json;
use tower_test::mock::{self, Handle};

use super::*;
use crate::tls::rotation::Lifetimes;

type ApiServer = Handle<Request<Body>, Response<Body>>;

fn store() -> (SecretStore, ApiServer) {
    let (service, server) = mock::pair();
    let owner = Some(("squelch".to_owned(), "u1".to_owned()));
    let (namespace, name) = ("platform".to_owned(), "keys".to_owned());
    let secret = SecretRef { namespace, name, owner, field_manager: "squelch-1".to_owned() };
    (SecretStore::new(Client::new(service, "default"), Some(secret)), server)
}

fn ring() -> Ring<Keys> {
    let lifetimes = Lifetimes::of(Duration::from_secs(3600), Duration::from_secs(3600));
    Ring::of(Keys::generate(true, lifetimes, "2026-11-21T08:00:00Z".parse().unwrap()).unwrap())
}

/// Answers one call. Returns its verb, path and body.
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
async fn a_secret_is_created_by_an_apply_without_force() {
    let ((store, mut server), ring) = (store(), ring());
    let made = json!({ "metadata": { "resourceVersion": "7" } });
    let (written, asked) = tokio::join!(store.write(&ring, None), answer(&mut server, 201, made));
    assert!(matches!(written.unwrap(), SecretWrite::Stored(Some(revision)) if revision == "7"));
    let path = "/api/v1/namespaces/platform/secrets/keys?fieldManager=squelch-1&force=false";
    assert_eq!((&*asked.0, &*asked.1), ("PATCH", path));
    let owner = &asked.2["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["uid"], &owner["blockOwnerDeletion"]), (&json!("u1"), &json!(false)));

    let refused = json!({ "message": "conflict with squelch-2" });
    let (written, _) = tokio::join!(store.write(&ring, None), answer(&mut server, 409, refused));
    assert!(matches!(written.unwrap(), SecretWrite::Conflict));
}

#[tokio::test]
async fn an_update_needs_the_read_resource_version_and_removes_other_fields() {
    let ((store, mut server), ring) = (store(), ring());
    let gone = json!({ "kind": "Status", "details": { "kind": "secrets", "name": "keys" } });
    let (written, asked) = tokio::join!(store.write(&ring, Some("6")), answer(&mut server, 404, gone));
    assert!(matches!(written.unwrap(), SecretWrite::Conflict), "deleted meanwhile");
    let data = &asked.2["data"];
    assert_eq!(asked.2["metadata"], json!({ "resourceVersion": "6" }));
    assert!(data["ca.key"].is_string() && data["next-ca.key"].is_null());
    assert!(data.as_object().unwrap().contains_key("next-ca.key"), "null removes it");
}

#[tokio::test]
async fn a_read_returns_the_secret_and_the_time() {
    let ((store, mut server), ring) = (store(), ring());
    let secret = json!({ "metadata": { "resourceVersion": "7" }, "data": data(&ring) });
    let (read, _) = tokio::join!(store.read(), answer(&mut server, 200, secret));
    assert_eq!(read.date.unwrap().to_string(), "2026-11-21T08:00:01Z");
    let SecretState::Present(data, revision) = read.state else { panic!("the Secret exists") };
    assert!(encoding::is_encoding_of(&ring, &data) && revision == "7");

    let gone = json!({ "kind": "Status", "details": { "kind": "secrets", "name": "keys" } });
    let (read, _) = tokio::join!(store.read(), answer(&mut server, 404, gone));
    assert!(matches!(read.state, SecretState::Absent));
    let refused = json!({ "message": "secrets \"keys\" is forbidden" });
    let (read, _) = tokio::join!(store.read(), answer(&mut server, 403, refused));
    assert!(matches!(read.state, SecretState::Unknown(error) if error.contains("is forbidden")));
    assert!(read.date.is_some());
}

#[tokio::test]
async fn another_404_does_not_mean_that_the_secret_is_absent() {
    let ((store, mut server), ring) = (store(), ring());
    let another = json!({ "kind": "Status", "details": { "kind": "secrets", "name": "another" } });
    for page in [json!("404 page not found"), json!({}), another] {
        let (read, _) = tokio::join!(store.read(), answer(&mut server, 404, page.clone()));
        assert!(matches!(read.state, SecretState::Unknown(_)), "{page}");
        let writing = store.write(&ring, Some("6"));
        let (written, _) = tokio::join!(writing, answer(&mut server, 404, page.clone()));
        assert!(written.is_err(), "{page}");
    }
}

#[tokio::test]
async fn without_a_secret_only_the_time_is_read() {
    let (service, mut server) = mock::pair();
    let store = SecretStore::new(Client::new(service, "default"), None);
    let (read, asked) = tokio::join!(store.read(), answer(&mut server, 200, json!({})));
    assert!(matches!(read.state, SecretState::NotShared) && read.date.is_some());
    assert_eq!((&*asked.0, &*asked.1), ("GET", "/version"));
    assert!(matches!(store.write(&ring(), None).await.unwrap(), SecretWrite::Stored(None)));
}

#[test]
fn the_date_header_is_parsed() {
    let headers = HeaderMap::from_iter([(DATE, "Sat, 21 Nov 2026 08:00:01 GMT".parse().unwrap())]);
    assert_eq!(date(&headers).unwrap().to_string(), "2026-11-21T08:00:01Z");
    assert_eq!(date(&HeaderMap::new()), None);
}
