//! The plain HTTP port for probes and Prometheus: `/metrics`, `/livez`, `/readyz`.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::metrics::{self, Metrics};

/// Probes and scrapers are few. Beyond that, dials wait.
const MAX_CONNECTIONS: usize = 64;

/// A connection that brings no request head in this time is closed.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection ends after this, whatever it does: a reader that takes nothing must not keep a place.
const MAX_AGE: Duration = Duration::from_secs(300);

/// What keeps a connection from being accepted (descriptors, memory) may be over by then.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// What has to be true before this process is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// All policies have been listed: none would be missed.
    PoliciesListed,
    /// The serving key and the path's token are loaded.
    KeyLoaded,
}

impl Need {
    /// Every need.
    pub const ALL: [Self; 2] = [Self::PoliciesListed, Self::KeyLoaded];

    /// The name under which `/readyz` lists it.
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

/// Readiness is earned: nothing is met at the start.
#[derive(Debug, Default)]
pub struct Readiness {
    met: AtomicU8,
}

impl Readiness {
    /// `need` is met.
    pub fn meet(&self, need: Need) {
        self.met.fetch_or(need.bit(), Ordering::Relaxed);
    }

    /// `need` is not met any more.
    pub fn lose(&self, need: Need) {
        self.met.fetch_and(!need.bit(), Ordering::Relaxed);
    }

    /// What is missing; empty when ready.
    pub fn missing(&self) -> Vec<Need> {
        let met = self.met.load(Ordering::Relaxed);
        Need::ALL.into_iter().filter(|need| met & need.bit() == 0).collect()
    }
}

/// What the port tells.
#[derive(Clone)]
pub struct Admin {
    /// For `/metrics`.
    pub metrics: Arc<Metrics>,
    /// For `/readyz`.
    pub readiness: Arc<Readiness>,
}

impl Admin {
    /// Answers one request.
    pub fn route<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return answer(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET\n");
        }
        match request.uri().path() {
            "/metrics" => {
                let content_type = HeaderValue::from_static(metrics::CONTENT_TYPE);
                answer(StatusCode::OK, content_type, self.metrics.text())
            }
            "/livez" => answer(StatusCode::OK, TEXT, "ok\n"),
            "/readyz" => self.ready(),
            _ => answer(StatusCode::NOT_FOUND, TEXT, "not found; there are /metrics, /livez, /readyz\n"),
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

/// Serves `admin` on `listener` until `stop`; connections are cut then. Errors of single connections are logged.
pub async fn serve(listener: TcpListener, admin: Admin, stop: CancellationToken) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let place = Arc::clone(&places).acquire_owned().await.expect("nobody closes the semaphore");
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _peer)) => {
                let (admin, stop) = (admin.clone(), stop.clone());
                tokio::spawn(async move {
                    tokio::select! {
                        () = stop.cancelled() => {}
                        _ = timeout(MAX_AGE, attend(stream, admin)) => {}
                    }
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection to the admin port could not be accepted");
                sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

async fn attend(stream: TcpStream, admin: Admin) {
    let service = service_fn(move |request| {
        let answered = admin.route(&request);
        async move { Ok::<_, Infallible>(answered) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(16 << 10)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = served.await {
        tracing::debug!(%error, "a connection to the admin port broke off");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn admin() -> Admin {
        Admin { metrics: Arc::new(Metrics::new()), readiness: Arc::new(Readiness::default()) }
    }

    async fn get(admin: &Admin, path: &str) -> (StatusCode, String) {
        let response = admin.route(&Request::get(path).body(()).unwrap());
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn readiness_is_earned_by_every_need() {
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
    async fn it_lives_and_shows_metrics_and_nothing_else() {
        let admin = admin();
        assert_eq!(get(&admin, "/livez").await.0, StatusCode::OK);
        assert!(get(&admin, "/metrics").await.1.contains("squelch_build_info{version="));
        assert_eq!(get(&admin, "/debug").await.0, StatusCode::NOT_FOUND);
        let posted = admin.route(&Request::post("/livez").body(()).unwrap());
        assert_eq!(posted.status(), StatusCode::METHOD_NOT_ALLOWED);
    }

    #[tokio::test]
    async fn it_serves_until_it_is_stopped() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let task = tokio::spawn(serve(listener, admin(), stop.clone()));
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("ok\n"), "{answer}");
        stop.cancel();
        timeout(Duration::from_secs(20), task).await.expect("it ends").unwrap();
    }
}
