//! The handshake with the webhook, as the API server makes it.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::tls::{Validity, certificates, provider};

/// How long the API server would wait for a whole review.
const DEADLINE: Duration = Duration::from_secs(1);

/// Dials `host:port` and asks for `name`, trusting what `ca_bundle` holds; when the certificate is good that is
/// answered with.
pub(super) async fn served(address: &str, name: &str, ca_bundle: &[u8]) -> Result<Validity, String> {
    let shaken = timeout(DEADLINE, shake(address, name, ca_bundle)).await;
    shaken.map_err(|_| format!("no handshake within {} s", DEADLINE.as_secs()))?
}

async fn shake(address: &str, name: &str, ca_bundle: &[u8]) -> Result<Validity, String> {
    let said = |error: &dyn std::error::Error| error.to_string();
    let mut roots = RootCertStore::empty();
    for trusted in certificates(ca_bundle).map_err(|error| said(&error))? {
        roots.add(trusted).map_err(|error| said(&error))?;
    }
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| said(&error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).map_err(|error| said(&error))?;
    let stream = TcpStream::connect(address).await.map_err(|error| said(&error))?;
    let stream =
        TlsConnector::from(Arc::new(config)).connect(name, stream).await.map_err(|error| said(&error))?;
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let leaf = chain.first().ok_or("no certificate")?;
    Validity::of(leaf).map_err(|error| said(&error))
}
