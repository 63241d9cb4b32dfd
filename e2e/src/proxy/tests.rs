//! The proxies between a client and a server in this process.

use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use serde_json::json;
use squelch::tls::Authority;

use super::relay::{decoded, whole};
use super::server::{Answer, Body, Broken};
use super::*;

/// Records its requests, and answers with a constant text.
struct Upstream {
    answer: String,
    asked: Mutex<Vec<(String, String)>>,
}

impl Answer for Upstream {
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Body>, Broken> {
        let (parts, body) = request.into_parts();
        let body = String::from_utf8(body.collect().await?.to_bytes().to_vec())?;
        self.asked.lock().unwrap().push((parts.uri.to_string(), body));
        Ok(Response::new(whole(self.answer.clone())))
    }
}

impl Upstream {
    fn asked(&self) -> Vec<(String, String)> {
        self.asked.lock().unwrap().clone()
    }
}

/// A server and its URL.
async fn upstream(authority: &Authority, answer: &str) -> (Arc<Upstream>, String, JoinHandle<()>) {
    let upstream = Arc::new(Upstream { answer: answer.to_owned(), asked: Mutex::default() });
    let server = Server::bind(authority).await.unwrap();
    let url = server.url.clone();
    (upstream.clone(), url, server.serve(upstream))
}

/// The status and body that a client gets, or the error.
async fn call(proxy: &FaultProxy, url: &str, request: Request<Full<Bytes>>) -> Result<(StatusCode, String)> {
    let behind = Behind::default();
    behind.is(url, &proxy.authority)?;
    let (parts, body) = request.into_parts();
    let answer =
        behind.call(parts, body.collect().await?.to_bytes()).await.map_err(anyhow::Error::from_boxed)?;
    let status = answer.status();
    Ok((status, String::from_utf8(answer.collect().await?.to_bytes().to_vec())?))
}

async fn get(proxy: &FaultProxy, path: &str) -> Result<(StatusCode, String)> {
    call(proxy, &proxy.api_server_url, Request::get(path).body(Full::default())?).await
}

/// Proxies for an API server that answers "stored".
async fn fault_proxy() -> (FaultProxy, Arc<Upstream>) {
    let authority = server::authority().unwrap();
    let (api, url, _) = upstream(&authority, "stored").await;
    (FaultProxy::around(&url, authority.ca_pem(), 1).await.unwrap(), api)
}

fn everything(fault: Fault) -> [Rule; 1] {
    [Rule::new(|_| true, 100, [fault])]
}

const EVENT: &str = "/api/v1/namespaces/a/events/e";

#[tokio::test]
async fn without_rules_a_call_passes_unchanged() {
    let (proxy, api) = fault_proxy().await;
    assert_eq!(get(&proxy, EVENT).await.unwrap(), (StatusCode::OK, "stored".to_owned()));
    assert_eq!(api.asked(), [(EVENT.to_owned(), String::new())]);
}

#[tokio::test]
async fn a_call_is_cut_before_or_after_it_is_made() {
    let (proxy, api) = fault_proxy().await;
    proxy.to_api_server.follow(everything(Fault::CutBefore));
    assert!(get(&proxy, EVENT).await.is_err());
    assert_eq!(api.asked().len(), 0);
    proxy.to_api_server.follow(everything(Fault::CutAfter));
    assert!(get(&proxy, EVENT).await.is_err());
    assert_eq!(api.asked().len(), 1);
    proxy.end_all_faults();
    get(&proxy, EVENT).await.unwrap();
}

#[tokio::test]
async fn a_refusal_has_the_format_of_the_api_server() {
    let (proxy, api) = fault_proxy().await;
    proxy.to_api_server.follow(everything(Fault::RefuseFor(429, 3)));
    let (status, body) = get(&proxy, EVENT).await.unwrap();
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status.as_u16(), api.asked().len()), (429, 0));
    assert_eq!((&body["kind"], &body["code"]), (&json!("Status"), &json!(429)));
    assert_eq!(body["details"]["retryAfterSeconds"], 3);
}

#[tokio::test]
async fn a_watch_ends_with_410_or_is_cut() {
    let (proxy, _) = fault_proxy().await;
    let watch = "/apis/squelch.dev/v1alpha1/eventpolicies?watch=true";
    proxy.to_api_server.follow(everything(Fault::Expire(Duration::ZERO)));
    let (_, answer) = get(&proxy, watch).await.unwrap();
    let last: Value = serde_json::from_str(answer.trim_start_matches("stored")).unwrap();
    assert_eq!((&last["type"], &last["object"]["code"]), (&json!("ERROR"), &json!(410)));
    proxy.to_api_server.follow(everything(Fault::BreakOff(Duration::ZERO)));
    assert!(get(&proxy, watch).await.is_err());
}

/// squelch writes its configuration; from then on reviews go through the proxy.
async fn configured() -> (FaultProxy, Arc<Upstream>, Arc<Upstream>) {
    let (proxy, api) = fault_proxy().await;
    let authority = server::authority().unwrap();
    let (squelch, url, _) = upstream(&authority, r#"{"response":{"uid":"u","allowed":false}}"#).await;
    proxy.leads_to(&url);
    let webhook = json!({
        "clientConfig": { "url": "https://elsewhere/token", "caBundle": encoded(authority.ca_pem()) },
        "matchConditions": [{ "name": "not-squelch-itself" }],
    });
    let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/squelch";
    let body = Full::from(json!({ "webhooks": [webhook] }).to_string());
    let request = Request::builder().method(Method::PATCH).uri(path).body(body).unwrap();
    call(&proxy, &proxy.api_server_url, request).await.unwrap();
    (proxy, api, squelch)
}

#[tokio::test]
async fn only_the_ca_bundle_is_replaced() {
    let (proxy, api, _) = configured().await;
    let stored: Value = serde_json::from_str(&api.asked()[0].1).unwrap();
    let webhook = &stored["webhooks"][0];
    assert_eq!(decoded(webhook["clientConfig"]["caBundle"].as_str().unwrap()).unwrap(), proxy.authority);
    assert_eq!(webhook["clientConfig"]["url"], "https://elsewhere/token");
    assert_eq!(webhook["matchConditions"][0]["name"], "not-squelch-itself");
}

#[tokio::test]
async fn reviews_are_counted_by_outcome() {
    let (proxy, _, squelch) = configured().await;
    let review = async |uid: &str| {
        let user = json!({ "username": "jane" });
        let request = json!({ "uid": uid, "namespace": "a", "operation": "CREATE", "userInfo": user });
        let request = json!({ "request": request });
        let request = Request::post("/token").body(Full::from(request.to_string())).unwrap();
        call(&proxy, &proxy.webhook_url, request).await
    };
    review("1").await.unwrap();
    proxy.to_squelch.follow(everything(Fault::CutBefore));
    review("2").await.unwrap_err();
    proxy.to_squelch.follow(everything(Fault::Refuse(500)));
    assert_eq!(review("3").await.unwrap().0, 500);
    proxy.to_squelch.follow(everything(Fault::CutAfter));
    review("4").await.unwrap_err();
    let expected = ReviewCounts { asked: 4, cut_before: 2, cut_after: 1, suppressed_in_vain: 1, own: 0 };
    assert_eq!(proxy.reviews("a"), expected);
    assert_eq!(squelch.asked().len(), 2);
}
