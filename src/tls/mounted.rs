//! A certificate that others make: files in a directory, which kubelet swaps by a symbolic link.

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

/// Why the files cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// One cannot be read.
    #[error("{0} cannot be read: {1}")]
    Read(&'static str, io::Error),
    /// One does not hold what it should.
    #[error("{0}: {1}")]
    Bad(&'static str, TlsError),
    /// Certificate and key are not of one pair, or no key that can be used.
    #[error("{CERTIFICATE} and {KEY}: {0}")]
    Pair(TlsError),
    /// The API server would not accept the certificate.
    #[error("the API server would refuse {CERTIFICATE} by {AUTHORITY}: {0}")]
    Chain(Error),
}

/// What the files hold.
#[derive(Debug)]
pub struct Pair {
    leaf: Leaf,
    /// The file's own text.
    authority: String,
    validity: Validity,
}

impl Pair {
    /// To be served.
    pub fn leaf(&self) -> Leaf {
        Leaf { chain: self.leaf.chain.clone(), key: self.leaf.key.clone_key() }
    }

    /// What the API server is to trust, PEM.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// When the certificate is good.
    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// Tells authorities apart.
    pub fn authority_id(&self) -> Id {
        let mut hasher = DefaultHasher::new();
        self.authority.hash(&mut hasher);
        Id(hasher.finish())
    }
}

/// Reads the files, and remembers what it found last.
#[derive(Debug)]
pub struct Mounted {
    directory: PathBuf,
    /// The name that the API server looks for.
    name: String,
    seen: Option<[Vec<u8>; 3]>,
}

impl Mounted {
    /// Files in `directory`, of a certificate for `name`.
    pub fn new(directory: PathBuf, name: String) -> Self {
        Self { directory, name, seen: None }
    }

    /// What the files hold, unless it is what was found last.
    ///
    /// # Errors
    /// That they cannot be served. Asked again the answer may be another: a certificate may not be good yet.
    pub fn look(&mut self, wall: Timestamp) -> Result<Option<Arc<Pair>>, Refusal> {
        // kubelet's link to the present state of all files, followed once.
        let directory = fs::canonicalize(self.directory.join("..data"));
        let directory = directory.as_deref().unwrap_or(&self.directory);
        let read = |name| fs::read(directory.join(name)).map_err(|error| Refusal::Read(name, error));
        let files = [read(CERTIFICATE)?, read(KEY)?, read(AUTHORITY)?];
        if self.seen.as_ref() == Some(&files) {
            return Ok(None);
        }
        let pair = pair(&files, &self.name, wall)?;
        self.seen = Some(files);
        Ok(Some(Arc::new(pair)))
    }
}

fn pair([certificate, key, authority]: &[Vec<u8>; 3], name: &str, wall: Timestamp) -> Result<Pair, Refusal> {
    let chain = certificates(certificate).map_err(|error| Refusal::Bad(CERTIFICATE, error))?;
    let validity = Validity::of(&chain[0]).map_err(|error| Refusal::Bad(CERTIFICATE, error))?;
    let authorities = certificates(authority).map_err(|error| Refusal::Bad(AUTHORITY, error))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| Refusal::Bad(KEY, TlsError::Key))?;
    let leaf = Leaf { chain, key };
    let pair = Pair { leaf, authority: String::from_utf8_lossy(authority).into_owned(), validity };
    pair.leaf().certified().map_err(Refusal::Pair)?;
    verify(&pair.leaf.chain, authorities, name, wall).map_err(Refusal::Chain)?;
    Ok(pair)
}

/// What the API server will look at.
fn verify(
    chain: &[CertificateDer<'static>],
    authorities: Vec<CertificateDer<'static>>,
    name: &str,
    wall: Timestamp,
) -> Result<(), Error> {
    // One that has signed itself: the API server trusts it where it stands in the bundle, rustls may not.
    let trusts_itself = authorities.contains(&chain[0]);
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
        Err(Error::InvalidCertificate(CertificateError::Other(_))) if trusts_itself => Ok(()),
        verified => verified.map(|_| ()),
    }
}

#[cfg(test)]
mod tests;
