//! The plain HTTP port for probes and Prometheus: `/metrics`, `/livez`, `/readyz`.
//!
//! Every pod of the cluster can reach it unless a NetworkPolicy denies that. Requests must therefore be cheap and must not
//! block the kubelet: [`server`] limits connections, [`scrape`] limits the processor time of scrapes.

mod scrape;
mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};

pub use server::serve;

use crate::metrics::{self, Metrics};
use scrape::Scrapes;

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// A condition of readiness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// All policies have been listed.
    PoliciesListed,
    /// The serving key and the token of the path are loaded.
    KeyLoaded,
}

impl Need {
    /// Every need.
    pub const ALL: [Self; 2] = [Self::PoliciesListed, Self::KeyLoaded];

    /// The name in the response of `/readyz`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PoliciesListed => "policies-listed",
            Self::KeyLoaded => "key-loaded",
        }
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// The needs that are met. None is met at the start.
#[derive(Debug, Default)]
pub struct Readiness {
    met: AtomicU8,
}

impl Readiness {
    /// Records that `need` is met.
    pub fn meet(&self, need: Need) {
        self.met.fetch_or(need.bit(), Ordering::Relaxed);
    }

    /// Records that `need` is no longer met.
    pub fn lose(&self, need: Need) {
        self.met.fetch_and(!need.bit(), Ordering::Relaxed);
    }

    /// Returns the unmet needs; empty when ready.
    pub fn missing(&self) -> Vec<Need> {
        let met = self.met.load(Ordering::Relaxed);
        Need::ALL.into_iter().filter(|need| met & need.bit() == 0).collect()
    }
}

/// The request handler of the port.
#[derive(Clone)]
pub struct Admin {
    scrapes: Arc<Scrapes>,
    readiness: Arc<Readiness>,
}

impl Admin {
    /// Serves `metrics` at `/metrics` and the unmet needs of `readiness` at `/readyz`.
    pub fn new(metrics: Arc<Metrics>, readiness: Arc<Readiness>) -> Self {
        Self { scrapes: Arc::new(Scrapes::new(metrics)), readiness }
    }

    /// Answers one request. Only `/metrics` waits.
    pub async fn route<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return answer(StatusCode::METHOD_NOT_ALLOWED, TEXT, "method not allowed, use GET\n");
        }
        match request.uri().path() {
            "/metrics" => match self.scrapes.text().await {
                Some(text) => answer(StatusCode::OK, HeaderValue::from_static(metrics::CONTENT_TYPE), text),
                None => {
                    answer(StatusCode::INTERNAL_SERVER_ERROR, TEXT, "internal error: metrics not gathered\n")
                }
            },
            "/livez" => answer(StatusCode::OK, TEXT, "ok\n"),
            "/readyz" => self.ready(),
            _ => answer(StatusCode::NOT_FOUND, TEXT, "not found, use /metrics, /livez or /readyz\n"),
        }
    }

    fn ready(&self) -> Response<Full<Bytes>> {
        let missing = self.readiness.missing();
        if missing.is_empty() {
            return answer(StatusCode::OK, TEXT, "ok\n");
        }
        let names: Vec<_> = missing.into_iter().map(Need::as_str).collect();
        let body = format!("not ready, missing: {}\n", names.join(", "));
        answer(StatusCode::SERVICE_UNAVAILABLE, TEXT, body)
    }
}

fn answer(status: StatusCode, content_type: HeaderValue, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    pub(super) fn admin() -> Admin {
        Admin::new(Arc::new(Metrics::new()), Arc::new(Readiness::default()))
    }

    async fn get(admin: &Admin, path: &str) -> (StatusCode, String) {
        let response = admin.route(&Request::get(path).body(()).unwrap()).await;
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn the_process_is_ready_once_every_need_is_met() {
        let admin = admin();
        let (status, body) = get(&admin, "/readyz").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(body, "not ready, missing: policies-listed, key-loaded\n");
        admin.readiness.meet(Need::PoliciesListed);
        assert_eq!(get(&admin, "/readyz").await.1, "not ready, missing: key-loaded\n");
        admin.readiness.meet(Need::KeyLoaded);
        assert_eq!(get(&admin, "/readyz").await, (StatusCode::OK, "ok\n".to_owned()));
        admin.readiness.lose(Need::PoliciesListed);
        assert_eq!(get(&admin, "/readyz").await.0, StatusCode::SERVICE_UNAVAILABLE);
    }

    #[tokio::test]
    async fn liveness_and_metrics_are_served_and_other_paths_are_not_found() {
        let admin = admin();
        assert_eq!(get(&admin, "/livez").await.0, StatusCode::OK);
        assert!(get(&admin, "/metrics").await.1.contains("squelch_build_info{version="));
        assert_eq!(get(&admin, "/debug").await.0, StatusCode::NOT_FOUND);
        let posted = admin.route(&Request::post("/livez").body(()).unwrap()).await;
        assert_eq!(posted.status(), StatusCode::METHOD_NOT_ALLOWED);
    }
}
