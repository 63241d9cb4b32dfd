//! One connection as the API server uses it: HTTP/1.1 over TLS, one review at a time.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, USER_AGENT};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use squelch::tls;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The address and the TLS configuration of a server.
#[derive(Clone)]
pub struct Target {
    address: SocketAddr,
    uri: Uri,
    headers: HeaderMap,
    tls: TlsConnector,
}

impl Target {
    /// The server at `address` with a certificate of `authority` (PEM); reviews go to `path`.
    ///
    /// # Errors
    /// If the authority or the path is invalid.
    pub fn new(address: SocketAddr, authority: &str, path: &str) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in tls::certificates(authority.as_bytes())? {
            roots.add(certificate)?;
        }
        // Go's first cipher suite, and the only one offered.
        let mut provider = (*tls::provider()).clone();
        provider.cipher_suites = vec![TLS13_AES_128_GCM_SHA256];
        let config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let uri = format!("{path}?timeout=1s").parse().context("not a path")?;
        Ok(Self { address, uri, headers: headers(), tls: TlsConnector::from(Arc::new(config)) })
    }

    fn request(&self, review: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(review));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        request
    }
}

/// The headers of the API server's client, except the length, which hyper writes.
fn headers() -> HeaderMap {
    [
        (HOST, "squelch.squelch-system.svc:443"),
        (USER_AGENT, "kube-apiserver-admission"),
        (ACCEPT, "application/json, */*"),
        (CONTENT_TYPE, "application/json"),
        (ACCEPT_ENCODING, "gzip"),
    ]
    .map(|(name, value)| (name, HeaderValue::from_static(value)))
    .into_iter()
    .collect()
}

/// One connection.
pub struct Caller {
    target: Target,
    sender: SendRequest<Full<Bytes>>,
}

impl Caller {
    /// Dials. Needs a runtime, which drives the connection.
    ///
    /// # Errors
    /// If the server is unreachable or has another certificate.
    pub async fn dial(target: &Target) -> Result<Self> {
        let stream = TcpStream::connect(target.address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::from(target.address.ip());
        let stream = target.tls.connect(name, stream).await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // The caller gets the error of the connection.
        tokio::spawn(async move { drop(connection.await) });
        Ok(Self { target: target.clone(), sender })
    }

    /// Returns the answer to one review.
    ///
    /// # Errors
    /// If there is no answer, or a status other than 200.
    pub async fn ask(&mut self, review: Bytes) -> Result<Bytes> {
        self.sender.ready().await?;
        let answer = self.sender.send_request(self.target.request(review)).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        anyhow::ensure!(status == StatusCode::OK, "{status}: {}", String::from_utf8_lossy(&body));
        Ok(body)
    }
}
