//! A TLS handshake with the webhook, as the API server makes it.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::tls::{Validity, certificates, provider};

/// The time that the API server allows for a review.
const DEADLINE: Duration = Duration::from_secs(1);

/// Connects to `host:port` with the server name `name`, trusting `ca_bundle`. Returns the validity of the served
/// certificate.
pub(super) async fn served(address: &str, name: &str, ca_bundle: &[u8]) -> Result<Validity, String> {
    let handshake = timeout(DEADLINE, handshake(address, name, ca_bundle)).await;
    handshake.map_err(|_| format!("handshake not completed within {} s", DEADLINE.as_secs()))?
}

async fn handshake(address: &str, name: &str, ca_bundle: &[u8]) -> Result<Validity, String> {
    let text = |error: &dyn std::error::Error| error.to_string();
    let mut roots = RootCertStore::empty();
    for trusted in certificates(ca_bundle).map_err(|error| text(&error))? {
        roots.add(trusted).map_err(|error| text(&error))?;
    }
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| text(&error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).map_err(|error| text(&error))?;
    let stream = TcpStream::connect(address).await.map_err(|error| text(&error))?;
    let stream =
        TlsConnector::from(Arc::new(config)).connect(name, stream).await.map_err(|error| text(&error))?;
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let leaf = chain.first().ok_or("the server sent no certificate")?;
    Validity::of(leaf).map_err(|error| text(&error))
}
