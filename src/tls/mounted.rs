//! A certificate from mounted files, which kubelet replaces by swapping a symbolic link.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use jiff::Timestamp;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, Error, RootCertStore};

use super::rotation::Id;
use super::{Leaf, TlsError, Validity, certificates, provider};

const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const AUTHORITY: &str = "ca.crt";

/// Why the files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MountedError {
    /// A file cannot be read.
    #[error("cannot read {0}: {1}")]
    Read(&'static str, io::Error),
    /// A file has the wrong content.
    #[error("invalid {0}: {1}")]
    Invalid(&'static str, TlsError),
    /// The key does not belong to the certificate, or is of an unsupported kind.
    #[error("{CERTIFICATE} and {KEY} cannot be used together: {0}")]
    Pair(TlsError),
    /// The API server would not accept the certificate.
    #[error("{CERTIFICATE} cannot be verified with {AUTHORITY}: {0}")]
    Chain(Error),
}

/// The certificate in the files.
#[derive(Debug)]
pub struct MountedCertificate {
    leaf: Leaf,
    /// Content of `ca.crt`.
    authority: String,
    validity: Validity,
}

impl MountedCertificate {
    /// Returns the certificate with its key.
    pub fn leaf(&self) -> Leaf {
        Leaf { chain: self.leaf.chain.clone(), key: self.leaf.key.clone_key() }
    }

    /// Returns the authorities for `caBundle`, PEM.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Returns the certificate's validity.
    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// Returns an id of the authorities' PEM text.
    pub fn authority_id(&self) -> Id {
        let mut hasher = DefaultHasher::new();
        self.authority.hash(&mut hasher);
        Id(hasher.finish())
    }
}

/// Reads the files, and keeps their last content.
#[derive(Debug)]
pub struct MountedFiles {
    directory: PathBuf,
    /// The DNS name that the API server verifies.
    name: String,
    seen: Option<[Vec<u8>; 3]>,
}

impl MountedFiles {
    /// The files in `directory`, with a certificate for `name`.
    pub fn new(directory: PathBuf, name: String) -> Self {
        Self { directory, name, seen: None }
    }

    /// Reads the files. Returns `None` if they have not changed.
    ///
    /// # Errors
    /// The files cannot be used. A later call may succeed without a change, because a certificate may not be valid yet.
    pub fn read_changed(&mut self, wall: Timestamp) -> Result<Option<Arc<MountedCertificate>>, MountedError> {
        let files = self.read_files()?;
        if self.seen.as_ref() == Some(&files) {
            return Ok(None);
        }
        self.load(files, wall).map(Some)
    }

    /// Reads the files.
    ///
    /// # Errors
    /// The files cannot be used.
    pub fn read(&mut self, wall: Timestamp) -> Result<Arc<MountedCertificate>, MountedError> {
        let files = self.read_files()?;
        self.load(files, wall)
    }

    fn read_files(&self) -> Result<[Vec<u8>; 3], MountedError> {
        // kubelet's link to the current state of all files, resolved once for a consistent read.
        let directory = fs::canonicalize(self.directory.join("..data"));
        let directory = directory.as_deref().unwrap_or(&self.directory);
        let read = |name| fs::read(directory.join(name)).map_err(|error| MountedError::Read(name, error));
        Ok([read(CERTIFICATE)?, read(KEY)?, read(AUTHORITY)?])
    }

    fn load(
        &mut self,
        files: [Vec<u8>; 3],
        wall: Timestamp,
    ) -> Result<Arc<MountedCertificate>, MountedError> {
        let certificate = certificate(&files, &self.name, wall)?;
        self.seen = Some(files);
        Ok(Arc::new(certificate))
    }
}

fn certificate(
    [certificate, key, authority]: &[Vec<u8>; 3],
    name: &str,
    wall: Timestamp,
) -> Result<MountedCertificate, MountedError> {
    let chain = certificates(certificate).map_err(|error| MountedError::Invalid(CERTIFICATE, error))?;
    let validity = Validity::of(&chain[0]).map_err(|error| MountedError::Invalid(CERTIFICATE, error))?;
    let authorities = certificates(authority).map_err(|error| MountedError::Invalid(AUTHORITY, error))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| MountedError::Invalid(KEY, TlsError::Key))?;
    let leaf = Leaf { chain, key };
    let pair =
        MountedCertificate { leaf, authority: String::from_utf8_lossy(authority).into_owned(), validity };
    pair.leaf().certified().map_err(MountedError::Pair)?;
    verify(&pair.leaf.chain, authorities, name, wall).map_err(MountedError::Chain)?;
    Ok(pair)
}

/// Verifies the certificate as the API server does.
fn verify(
    chain: &[CertificateDer<'static>],
    authorities: Vec<CertificateDer<'static>>,
    name: &str,
    wall: Timestamp,
) -> Result<(), Error> {
    // The API server accepts a self-signed certificate that is in the bundle, rustls may not.
    let is_self_signed = authorities.contains(&chain[0]);
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority)?;
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build();
    let verifier = verifier.map_err(|error| Error::General(error.to_string()))?;
    let name = ServerName::try_from(name).map_err(|error| Error::General(error.to_string()))?;
    let now = Duration::from_secs(u64::try_from(wall.as_second()).unwrap_or_default());
    let verified =
        verifier.verify_server_cert(&chain[0], &chain[1..], &name, &[], UnixTime::since_unix_epoch(now));
    match verified {
        Err(Error::InvalidCertificate(CertificateError::Other(_))) if is_self_signed => Ok(()),
        verified => verified.map(|_| ()),
    }
}

#[cfg(test)]
mod tests;
