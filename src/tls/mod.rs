//! What proves squelch to the API server (a certificate of its own authority) and the API server to squelch
//! (a secret path).
//!
//! This folder knows nothing of reviews, and nothing of where secrets are kept.

mod authority;
mod clients;
pub mod kept;
pub mod mounted;
mod resolver;
pub mod rotation;
mod token;

use std::sync::Arc;

pub use authority::{Authority, Leaf, TlsError, Validity, certificates};
#[cfg(test)]
pub(crate) use clients::testing;
pub use clients::{BadAuthorities, ClientAuthorities};
pub use resolver::ServedCertificate;
pub use token::{AcceptedTokens, PathToken};

use rustls::crypto::CryptoProvider;
use rustls::server::NoServerSessionStorage;

/// The cryptography that all of squelch's own TLS uses. It is passed explicitly: a process-wide default could be
/// installed by any library that comes first.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// The server's side of TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1, with whatever certificate `served` holds at each
/// handshake. With `callers`, a handshake without a certificate that they accept is refused.
pub fn server_config(
    served: Arc<ServedCertificate>,
    callers: Option<Arc<ClientAuthorities>>,
) -> Result<rustls::ServerConfig, rustls::Error> {
    let builder = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?;
    let mut config = match callers {
        None => builder.with_no_client_auth().with_cert_resolver(served),
        Some(callers) => {
            let mut config = builder.with_client_cert_verifier(callers).with_cert_resolver(served);
            // Who resumes a session shows no certificate again.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
            config
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Random bits for hashes that nobody outside may predict.
///
/// # Errors
/// The operating system gives no randomness.
pub fn random_seed() -> Result<[u64; 2], TlsError> {
    let mut bytes = [0; 16];
    provider().secure_random.fill(&mut bytes).map_err(|_| TlsError::Random)?;
    let bits = u128::from_ne_bytes(bytes);
    Ok([bits as u64, (bits >> 64) as u64])
}
