//! The source of the served certificate.

use std::sync::Arc;

use jiff::Timestamp;

use crate::tls::encoding::Keys;
use crate::tls::mounted::MountedCertificate;
use crate::tls::rotation::{Generation as _, Id, Lifetimes, renewal};
use crate::tls::{Leaf, TlsError, Validity};

/// The source of the served certificate.
pub(in crate::keys) struct Serving {
    /// The generation, or the authorities in the mounted files.
    pub(super) id: Id,
    /// The authority, PEM.
    pub(super) authority: String,
    /// When an issued certificate is renewed.
    pub(super) renewal: Timestamp,
    /// The mounted certificate, if that is served.
    pub(super) files: Option<Arc<MountedCertificate>>,
}

impl Serving {
    pub(in crate::keys) fn mounted(certificate: &Arc<MountedCertificate>) -> Self {
        let (id, authority) = (certificate.authority_id(), certificate.authority().to_owned());
        Self { id, authority, renewal: Timestamp::MAX, files: Some(certificate.clone()) }
    }

    pub(in crate::keys) fn issued(
        keys: &Keys,
        names: &[String],
        lifetimes: Lifetimes,
        wall: Timestamp,
    ) -> Result<(Leaf, Self), TlsError> {
        let authority = keys.authority.as_ref().ok_or(TlsError::NotAnAuthority)?;
        let leaf = authority.issue(names, lifetimes.leaf, wall)?;
        let ends =
            leaf.chain.first().map_or(Ok(wall), |first| Validity::of(first).map(|found| found.ends))?;
        let renewal = renewal(wall, ends.duration_since(wall));
        let (id, authority) = (keys.info().id, authority.ca_pem().to_owned());
        Ok((leaf, Self { id, authority, renewal, files: None }))
    }
}
