//! Forwards calls, and injects faults.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::StreamExt as _;
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, RETRY_AFTER, TRANSFER_ENCODING};
use http::request::Parts;
use http::{Request, Response, StatusCode, Uri};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::json;

use super::call::ProxiedCall;
use super::fault::{Fault, Faults};
use super::server::{Answer, Body, Broken};

/// An observer of the calls.
pub(super) trait Observer: Send + Sync + 'static {
    /// A call arrives; returns the body to forward.
    fn asked(&self, asked: &ProxiedCall, body: Bytes) -> Bytes;
    /// The target has answered.
    fn decided(&self, asked: &ProxiedCall, answer: &[u8]);
    /// The caller has received the answer.
    fn delivered(&self, asked: &ProxiedCall);
}

/// One direction.
pub(super) struct Relay<L> {
    pub(super) faults: Arc<Faults>,
    pub(super) behind: Arc<Behind>,
    pub(super) observer: L,
}

/// The target of the calls.
#[derive(Default)]
pub(super) struct Behind(Mutex<Option<Destination>>);

#[derive(Clone)]
struct Destination {
    url: String,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl Behind {
    /// Sets the target: `url`, with a certificate of one of the authorities in `pem`.
    pub(super) fn is(&self, url: &str, pem: &str) -> Result<()> {
        let mut trusted = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            trusted.add(certificate.context("no certificate authority")?)?;
        }
        let tls = rustls::ClientConfig::builder_with_provider(squelch::tls::provider())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(trusted)
            .with_no_client_auth();
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_http1().build();
        let client = Client::builder(TokioExecutor::new()).build(connector);
        let destination = Destination { url: url.trim_end_matches('/').to_owned(), client };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(destination);
        Ok(())
    }

    /// Forwards the call.
    pub(super) async fn call(&self, mut parts: Parts, body: Bytes) -> Result<Response<Incoming>, Broken> {
        let destination = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let destination = destination.ok_or("the proxy has no target yet")?;
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        parts.uri = format!("{}{path}", destination.url).parse::<Uri>()?;
        // Hop-by-hop headers, and headers that depend on body and address.
        for header in [CONNECTION, TRANSFER_ENCODING, CONTENT_LENGTH, HOST] {
            parts.headers.remove(header);
        }
        Ok(destination.client.request(Request::from_parts(parts, Full::new(body))).await?)
    }
}

impl<L: Observer> Answer for Relay<L> {
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Body>, Broken> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let asked = Arc::new(ProxiedCall::of(&parts, &body));
        let body = self.observer.asked(&asked, body);
        // In its own task: a forwarded call is counted to its end, even if the caller disconnects.
        let passing = tokio::spawn(self.clone().pass(asked.clone(), parts, body));
        let answer = passing.await??;
        self.observer.delivered(&asked);
        Ok(answer)
    }
}

impl<L: Observer> Relay<L> {
    async fn pass(
        self: Arc<Self>,
        asked: Arc<ProxiedCall>,
        parts: Parts,
        body: Bytes,
    ) -> Result<Response<Body>, Broken> {
        let fault = self.faults.next(&asked);
        match fault {
            Some(Fault::CutBefore) => return Err("cut before the call".into()),
            Some(Fault::Refuse(code)) => return refusal(code, None),
            Some(Fault::RefuseFor(code, seconds)) => return refusal(code, Some(seconds)),
            Some(Fault::Delay(time)) => tokio::time::sleep(time).await,
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::CutAfter | Fault::DelayAnswer(_) | Fault::Expire(_) | Fault::BreakOff(_)) | None => {}
        }
        let (mut head, answer) = self.behind.call(parts, body).await?.into_parts();
        head.headers.remove(CONNECTION);
        head.headers.remove(TRANSFER_ENCODING);
        let answer = if asked.watch {
            // A hang has no end.
            head.headers.remove(CONTENT_LENGTH);
            match fault {
                Some(Fault::Expire(after)) => until(answer, after, Ok(gone())),
                Some(Fault::BreakOff(after)) => until(answer, after, Err("cut within the answer".into())),
                _ => answer.map_err(Into::into).boxed_unsync(),
            }
        } else {
            let answer = answer.collect().await?.to_bytes();
            self.observer.decided(&asked, &answer);
            whole(answer)
        };
        match fault {
            Some(Fault::CutAfter) => return Err("cut after the call".into()),
            Some(Fault::DelayAnswer(time)) => tokio::time::sleep(time).await,
            _ => {}
        }
        Ok(Response::from_parts(head, answer))
    }
}

pub(super) fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// The chunks within `time`, then `last`.
fn until(answer: Incoming, time: Duration, last: Result<Bytes, Broken>) -> Body {
    let pieces = answer.into_data_stream().map(|piece| piece.map_err(Broken::from));
    let pieces = pieces.take_until(tokio::time::sleep(time)).chain(futures::stream::iter([last]));
    StreamBody::new(pieces.map(|piece| piece.map(Frame::data))).boxed_unsync()
}

/// The end of a watch whose `resourceVersion` etcd has compacted.
fn gone() -> Bytes {
    let status = status(410, "Expired", "too old resource version", None);
    format!("{}\n", json!({ "type": "ERROR", "object": status })).into()
}

fn refusal(code: u16, seconds: Option<u32>) -> Result<Response<Body>, Broken> {
    let reason = match code {
        409 => "Conflict",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        _ => "InternalError",
    };
    let mut answer = Response::builder().status(StatusCode::from_u16(code)?);
    answer = answer.header("content-type", "application/json");
    if let Some(seconds) = seconds {
        answer = answer.header(RETRY_AFTER, seconds);
    }
    Ok(answer.body(whole(status(code, reason, "the fault proxy refuses", seconds).to_string()))?)
}

fn status(code: u16, reason: &str, message: &str, seconds: Option<u32>) -> serde_json::Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "reason": reason, "code": code, "message": message,
        "details": { "retryAfterSeconds": seconds.unwrap_or_default() },
    })
}

/// Encodes text as in `caBundle` and kubeconfigs.
pub(super) fn encoded(pem: &str) -> String {
    STANDARD.encode(pem)
}

/// Decodes a `caBundle`.
pub(super) fn decoded(ca_bundle: &str) -> Option<String> {
    String::from_utf8(STANDARD.decode(ca_bundle).ok()?).ok()
}
