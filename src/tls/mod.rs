//! TLS and authentication of the webhook: squelch authenticates to the API server by a certificate, and the API server
//! to squelch by a secret token in the path.
//!
//! This module depends neither on reviews nor on where the keys are stored.

mod authority;
mod clients;
pub mod encoding;
pub mod mounted;
mod resolver;
pub mod rotation;
mod token;

use std::sync::Arc;

pub use authority::{Authority, Leaf, TlsError, Validity, certificates};
#[cfg(test)]
pub(crate) use clients::testing;
pub use clients::{ClientAuthorities, ClientAuthoritiesError};
pub use resolver::ServedCertificate;
pub use token::{AcceptedTokens, PathToken};

use rustls::crypto::CryptoProvider;
use rustls::server::NoServerSessionStorage;

/// Returns the cryptography provider for all of squelch's own TLS. It is passed explicitly, because any library could
/// install another process-wide default.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// Returns the TLS configuration of the webhook server: TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1, with the certificate that
/// `served` holds at each handshake. With `callers`, a client must show a certificate that they accept.
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
            // A resumed session would skip the client certificate.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
            config
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Returns random bits that are unpredictable from outside, for seeds and names.
///
/// # Errors
/// [`TlsError::Random`].
pub fn random_seed() -> Result<[u64; 2], TlsError> {
    let mut bytes = [0; 16];
    provider().secure_random.fill(&mut bytes).map_err(|_| TlsError::Random)?;
    let bits = u128::from_ne_bytes(bytes);
    Ok([bits as u64, (bits >> 64) as u64])
}
