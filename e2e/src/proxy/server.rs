//! An HTTPS server on loopback that can cut connections instead of answering.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use squelch::tls::{Authority, ServedCertificate};
use squelch::{clock, tls};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// The reason for a missing answer: a fault, or an error of the target.
pub(crate) type Broken = Box<dyn std::error::Error + Send + Sync>;

/// A body that arrives in chunks, as that of a watch, and may break off.
pub(crate) type Body = UnsyncBoxBody<Bytes, Broken>;

/// A service; an error resets the connection instead of answering.
pub(crate) trait Answer: Send + Sync + 'static {
    /// Returns the answer to one request.
    fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<Body>, Broken>> + Send;
}

/// Lifetime of the certificate, longer than any test cluster.
const LIFETIME: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

/// A listener with its certificate.
pub(crate) struct Server {
    /// `https://127.0.0.1:PORT`
    pub(crate) url: String,
    listener: TcpListener,
    tls: TlsAcceptor,
}

impl Server {
    /// Listens on a free port with a certificate of `authority`.
    pub(crate) async fn bind(authority: &Authority) -> Result<Self> {
        let leaf = authority.issue(&["127.0.0.1".to_owned()], LIFETIME, clock::wall())?;
        let mut config = tls::server_config(Arc::new(ServedCertificate::new(leaf)?), None)?;
        // HTTP/1.1 only: a cut then affects one call.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        let url = format!("https://{}", listener.local_addr()?);
        Ok(Self { url, listener, tls: TlsAcceptor::from(Arc::new(config)) })
    }

    /// Serves until the task is aborted.
    pub(crate) fn serve(self, answering: Arc<impl Answer>) -> JoinHandle<()> {
        tokio::spawn(async move {
            // Connections end with the task.
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = self.listener.accept().await {
                connections.spawn(attend(self.tls.clone(), stream, answering.clone()));
                while connections.try_join_next().is_some() {}
            }
        })
    }
}

pub(crate) fn authority() -> Result<Authority> {
    Ok(Authority::generate(LIFETIME, clock::wall())?)
}

async fn attend(tls: TlsAcceptor, stream: TcpStream, answering: Arc<impl Answer>) {
    // A client that fails the handshake reports that itself.
    let Ok(()) = stream.set_nodelay(true) else { return };
    let Ok(stream) = tls.accept(stream).await else { return };
    let service = service_fn(|request| answering.clone().answer(request));
    let mut connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    if (&mut connection).await.is_err() {
        let stream = connection.into_parts().io.into_inner();
        // Resets the connection. It fails only if the peer has already closed it.
        let _ = stream.get_ref().0.set_zero_linger();
    }
}
