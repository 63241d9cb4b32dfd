//! Client certificates: accepted if an authority in `--client-ca-file` has signed them for a name in
//! `--client-subject`.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::{TlsError, certificates, provider};
use crate::clock;
use crate::log_limit::LogLimit;

/// The rate limit of the warning about an unreadable file.
static UNREADABLE: LogLimit = LogLimit::new();

/// Why a file of authorities cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClientAuthoritiesError {
    /// The file cannot be read.
    #[error("cannot read the file: {0}")]
    Read(#[from] io::Error),
    /// The file has no certificate.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A certificate is not that of an authority.
    #[error("cannot trust a certificate in the file: {0}")]
    Trust(String),
}

/// The authorities in a file, which is checked for changes at each handshake, and the accepted subjects.
#[derive(Debug)]
pub struct ClientAuthorities {
    file: PathBuf,
    /// Accepted subjects. Empty: any.
    subjects: Vec<String>,
    current: ArcSwap<Loaded>,
}

#[derive(Clone, Debug)]
struct Loaded {
    stamp: FileStamp,
    verifier: Arc<dyn ClientCertVerifier>,
}

/// Identifies the state of a file. kubelet swaps a link, so that the inode changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    inode: u64,
    length: u64,
    modified: Option<SystemTime>,
}

impl FileStamp {
    fn of(metadata: &Metadata) -> Self {
        let modified = metadata.modified().ok();
        Self { inode: metadata.ino(), length: metadata.len(), modified }
    }
}

impl ClientAuthorities {
    /// Loads the authorities in `file`. A certificate's subjects are its common name and its alternative names.
    ///
    /// # Errors
    /// The file cannot be read, or has no usable authority.
    pub fn load(file: PathBuf, subjects: Vec<String>) -> Result<Self, ClientAuthoritiesError> {
        let stamp = FileStamp::of(&fs::metadata(&file)?);
        let verifier = verifier(&fs::read(&file)?)?;
        Ok(Self { file, subjects, current: ArcSwap::from_pointee(Loaded { stamp, verifier }) })
    }

    /// Returns the authorities that are in the file now. If they cannot be used, logs it and keeps the former
    /// ones.
    fn current(&self) -> Arc<Loaded> {
        let current = self.current.load_full();
        let Ok(stamp) = fs::metadata(&self.file).map(|metadata| FileStamp::of(&metadata)) else {
            return current;
        };
        if stamp == current.stamp {
            return current;
        }
        let pem = match fs::read(&self.file) {
            Ok(pem) => pem,
            // It may be readable again without a change.
            Err(error) => {
                if let Some(suppressed) = UNREADABLE.permit(clock::now()) {
                    tracing::warn!(%error, suppressed, "cannot read --client-ca-file, keeping the former authorities");
                }
                return current;
            }
        };
        let verifier = match verifier(&pem) {
            Ok(verifier) => verifier,
            Err(error) => {
                tracing::warn!(%error, "cannot load the changed --client-ca-file, keeping the former authorities");
                current.verifier.clone()
            }
        };
        let loaded = Arc::new(Loaded { stamp, verifier });
        self.current.store(loaded.clone());
        loaded
    }

    fn has_accepted_subject(&self, certificate: &CertificateDer<'_>) -> bool {
        self.subjects.is_empty() || subjects(certificate).iter().any(|name| self.subjects.contains(name))
    }
}

fn verifier(pem: &[u8]) -> Result<Arc<dyn ClientCertVerifier>, ClientAuthoritiesError> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(pem)? {
        roots.add(authority).map_err(|error| ClientAuthoritiesError::Trust(error.to_string()))?;
    }
    let built = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build();
    built.map_err(|error| ClientAuthoritiesError::Trust(error.to_string()))
}

/// Returns the common names and the alternative names.
fn subjects(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok((_rest, parsed)) = X509Certificate::from_der(certificate) else { return Vec::new() };
    let common = parsed.subject().iter_common_name().filter_map(|name| name.as_str().ok());
    let mut names: Vec<String> = common.map(str::to_owned).collect();
    let alternative = parsed.subject_alternative_name().ok().flatten();
    for name in alternative.iter().flat_map(|names| &names.value.general_names) {
        if let GeneralName::DNSName(name) | GeneralName::URI(name) | GeneralName::RFC822Name(name) = name {
            names.push((*name).to_owned());
        }
    }
    names
}

impl ClientCertVerifier for ClientAuthorities {
    /// Empty: the list may change, and a client with one certificate sends it without a hint.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.current().verifier.verify_client_cert(end_entity, intermediates, now)?;
        if self.has_accepted_subject(end_entity) {
            return Ok(verified);
        }
        Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.current.load().verifier.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.current.load().verifier.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.current.load().verifier.supported_verify_schemes()
    }
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
