//! Client authorities and certificates for tests.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::tls::authority::pem;

/// Signs client certificates.
pub(crate) struct Signer {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

/// A client certificate with its key.
pub(crate) type ClientCertificate = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl Signer {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        Self { pem: pem("CERTIFICATE", certificate.der()), issuer: Issuer::new(params, key) }
    }

    pub(crate) fn sign(&self, common_name: &str, uri: Option<&str>) -> ClientCertificate {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.subject_alt_names = uri.map(|uri| SanType::URI(uri.try_into().unwrap())).into_iter().collect();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (vec![certificate.der().clone()], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
    }
}

/// A file that is removed on drop.
pub(crate) struct TempFile(pub(crate) PathBuf);

impl TempFile {
    pub(crate) fn new(text: &str) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("squelch-clients-{}-{number}.pem", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    /// Replaces the file by another, as kubelet does.
    pub(crate) fn swap(&self, text: &str) {
        let next = self.0.with_extension("next");
        std::fs::write(&next, text).unwrap();
        std::fs::rename(next, &self.0).unwrap();
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
