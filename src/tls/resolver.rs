//! The served certificate, which can be replaced without a restart.

use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::{Leaf, TlsError, Validity};

/// The certificate for the next handshake.
#[derive(Debug)]
pub struct ServedCertificate {
    current: ArcSwap<Current>,
}

#[derive(Debug)]
struct Current {
    key: Arc<CertifiedKey>,
    validity: Validity,
}

impl ServedCertificate {
    /// Serves `leaf`.
    pub fn new(leaf: Leaf) -> Result<Self, TlsError> {
        Ok(Self { current: ArcSwap::from_pointee(Current::of(leaf)?) })
    }

    /// Serves `leaf` from the next handshake on. Open connections are not affected.
    ///
    /// # Errors
    /// `leaf` cannot be used. The former certificate stays.
    pub fn replace(&self, leaf: Leaf) -> Result<(), TlsError> {
        self.current.store(Arc::new(Current::of(leaf)?));
        Ok(())
    }

    /// Returns the validity of the served certificate.
    pub fn validity(&self) -> Validity {
        self.current.load().validity
    }
}

impl ResolvesServerCert for ServedCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current.load().key))
    }
}

impl Current {
    fn of(leaf: Leaf) -> Result<Self, TlsError> {
        let validity = Validity::of(leaf.chain.first().ok_or(TlsError::Parse)?)?;
        Ok(Self { key: Arc::new(leaf.certified()?), validity })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::Authority;
    use jiff::Timestamp;
    use std::time::Duration;

    #[test]
    fn a_replacement_is_served() {
        let wall: Timestamp = "2026-11-21T08:00:00Z".parse().unwrap();
        let authority = Authority::generate(Duration::from_secs(1_000), wall).unwrap();
        let issue =
            |seconds| authority.issue(&["localhost".to_owned()], Duration::from_secs(seconds), wall).unwrap();
        let served = ServedCertificate::new(issue(100)).unwrap();
        assert_eq!(served.validity().ends.as_second(), wall.as_second() + 100);
        served.replace(issue(200)).unwrap();
        assert_eq!(served.validity().ends.as_second(), wall.as_second() + 200);
    }
}
