//! HTTPS on loopback that can cut a connection where an answer is due.

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

/// Why there is no answer: a fault, or whoever is behind the proxy.
pub(crate) type Broken = Box<dyn std::error::Error + Send + Sync>;

/// A body that comes piece by piece, as those of watches do, and may break off.
pub(crate) type Body = UnsyncBoxBody<Bytes, Broken>;

/// Who is asked; an error resets the connection in place of the answer.
pub(crate) trait Answer: Send + Sync + 'static {
    /// The answer to one request.
    fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<Body>, Broken>> + Send;
}

/// As long as any cluster of a test.
const LIFETIME: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

/// A listener with its certificate.
pub(crate) struct Server {
    /// `https://127.0.0.1:PORT`
    pub(crate) url: String,
    listener: TcpListener,
    tls: TlsAcceptor,
}

impl Server {
    /// Listens on a free port, with a certificate that `authority` signs.
    pub(crate) async fn bind(authority: &Authority) -> Result<Self> {
        let leaf = authority.issue(&["127.0.0.1".to_owned()], LIFETIME, clock::wall())?;
        let mut config = tls::server_config(Arc::new(ServedCertificate::new(leaf)?), None)?;
        // One request at a time on each connection: a cut is of one call, and the others do not notice.
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
    // A peer that ends in mid-handshake, or does not like the certificate, says so itself.
    let Ok(()) = stream.set_nodelay(true) else { return };
    let Ok(stream) = tls.accept(stream).await else { return };
    let service = service_fn(|request| answering.clone().answer(request));
    let mut connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    if (&mut connection).await.is_err() {
        let stream = connection.into_parts().io.into_inner();
        // A reset in place of a goodbye. It fails only if the peer was faster.
        let _ = stream.get_ref().0.set_zero_linger();
    }
}
