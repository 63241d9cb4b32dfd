//! squelch's own certificate authority. It signs the webhook's certificate and is in `caBundle`.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::time::ASN1Time;

use super::rotation::{BACKDATED, later, signed};

/// Why a certificate cannot be made or used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The certificate could not be built or signed.
    #[error("cannot make the certificate: {0}")]
    Sign(#[from] rcgen::Error),
    /// rustls refuses the certificate or its key.
    #[error("cannot use the certificate: {0}")]
    Use(#[from] rustls::Error),
    /// The lifetime ends after the last time that a certificate can have.
    #[error("the certificate's lifetime is too long, set a shorter one")]
    Lifetime,
    /// The input is not a certificate.
    #[error("not an X.509 certificate")]
    Parse,
    /// The certificate may not sign others.
    #[error("not a CA certificate")]
    NotAnAuthority,
    /// The input is not a private key.
    #[error("not a private key")]
    Key,
    /// The operating system returned no random bytes.
    #[error("cannot get random bytes from the operating system")]
    Random,
}

/// A CA (ECDSA P-256) that issues certificates for the webhook.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    validity: Validity,
}

/// The time in which a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// `notBefore`.
    pub begins: Timestamp,
    /// `notAfter`, to the second.
    pub ends: Timestamp,
}

impl Validity {
    /// Reads the validity of a certificate.
    pub fn of(certificate: &CertificateDer<'_>) -> Result<Self, TlsError> {
        Ok(Self::from_parsed(&parsed(certificate)?))
    }

    fn from_parsed(parsed: &X509Certificate<'_>) -> Self {
        let at = |time: ASN1Time, beyond| Timestamp::from_second(time.timestamp()).unwrap_or(beyond);
        let validity = parsed.validity();
        Self { begins: at(validity.not_before, Timestamp::MIN), ends: at(validity.not_after, Timestamp::MAX) }
    }
}

impl Authority {
    /// Makes a CA that is valid for `lifetime` from `wall`.
    pub fn generate(lifetime: Duration, wall: Timestamp) -> Result<Self, TlsError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = distinguished_name("squelch webhook authority");
        // No intermediate CAs.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        set_validity(&mut params, later(wall, signed(lifetime)), wall)?;
        let certificate = params.self_signed(&key)?;
        let validity = Validity::of(certificate.der())?;
        Ok(Self { issuer: Issuer::new(params, key), pem: pem("CERTIFICATE", certificate.der()), validity })
    }

    /// Loads a CA from PEM.
    ///
    /// # Errors
    /// One of both is invalid, or the key does not belong to the certificate.
    pub fn load(certificate: &str, key: &str) -> Result<Self, TlsError> {
        let certificate =
            CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(|_| TlsError::Parse)?;
        let key = PrivatePkcs8KeyDer::from_pem_slice(key.as_bytes()).map_err(|_| TlsError::Key)?;
        let parsed = parsed(&certificate)?;
        if !parsed.is_ca() {
            return Err(TlsError::NotAnAuthority);
        }
        let validity = Validity::from_parsed(&parsed);
        // rustls checks that the key belongs to the certificate.
        let pair = Leaf { chain: vec![certificate.clone()], key: PrivateKeyDer::Pkcs8(key.clone_key()) };
        pair.certified()?;
        let pem = pem("CERTIFICATE", &certificate);
        let issuer = Issuer::from_ca_cert_der(&certificate, KeyPair::try_from(&key)?)?;
        Ok(Self { issuer, pem, validity })
    }

    /// Returns the CA's certificate in PEM.
    pub fn ca_pem(&self) -> &str {
        &self.pem
    }

    /// Returns the CA's key in PEM. It belongs only into the Secret.
    pub fn reveal_key(&self) -> String {
        pem("PRIVATE KEY", &self.issuer.key().serialize_der())
    }

    /// Returns the CA's validity.
    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// Issues a server certificate (ECDSA P-256, new key) for `names`, which are DNS names or IP addresses. It is valid
    /// for `lifetime` from `wall`, at most as long as the CA.
    pub fn issue(&self, names: &[String], lifetime: Duration, wall: Timestamp) -> Result<Leaf, TlsError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = distinguished_name("squelch webhook");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        // During a rotation, caBundle has two CAs of the same name. The key identifier selects one.
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, later(wall, signed(lifetime)).min(self.validity.ends), wall)?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Leaf {
            chain: vec![certificate.der().clone()],
            key: PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
        })
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("validity", &self.validity).finish_non_exhaustive()
    }
}

/// A server certificate with its key.
#[derive(Debug)]
pub struct Leaf {
    /// The certificate, then intermediate CAs (none if squelch issued it).
    pub chain: Vec<CertificateDer<'static>>,
    /// Its key; `Debug` does not print it.
    pub key: PrivateKeyDer<'static>,
}

impl Leaf {
    /// Converts it for rustls.
    ///
    /// # Errors
    /// The key does not belong to the certificate.
    pub fn certified(self) -> Result<CertifiedKey, TlsError> {
        Ok(CertifiedKey::from_der(self.chain, self.key, &super::provider())?)
    }
}

fn distinguished_name(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    name
}

fn parsed<'a>(certificate: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, TlsError> {
    let (_rest, parsed) = X509Certificate::from_der(certificate).map_err(|_| TlsError::Parse)?;
    Ok(parsed)
}

/// Parses a PEM text with at least one certificate.
///
/// # Errors
/// [`TlsError::Parse`].
pub fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    all.ok().filter(|all| !all.is_empty()).ok_or(TlsError::Parse)
}

pub(super) fn pem(label: &str, bytes: &[u8]) -> String {
    let text = STANDARD.encode(bytes);
    let mut pem = format!("-----BEGIN {label}-----\n");
    for (at, digit) in text.chars().enumerate() {
        if at > 0 && at % 64 == 0 {
            pem.push('\n');
        }
        pem.push(digit);
    }
    pem.push_str(&format!("\n-----END {label}-----\n"));
    pem
}

fn set_validity(params: &mut CertificateParams, ends: Timestamp, wall: Timestamp) -> Result<(), TlsError> {
    let asn1 = |at: Timestamp| ASN1Time::from_timestamp(at.as_second()).map_err(|_| TlsError::Lifetime);
    if ends == Timestamp::MAX {
        return Err(TlsError::Lifetime);
    }
    params.not_before = asn1(later(wall, -BACKDATED))?.to_datetime();
    params.not_after = asn1(ends)?.to_datetime();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use x509_parser::pem::Pem;

    const DAY: Duration = Duration::from_secs(86_400);

    fn wall() -> Timestamp {
        "2026-11-21T08:00:00Z".parse().unwrap()
    }

    #[test]
    fn a_leaf_has_the_requested_names_and_is_signed_by_the_authority() {
        let authority = Authority::generate(DAY * 10, wall()).unwrap();
        let names = ["squelch.squelch-system.svc".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
        let leaf = authority.issue(&names, DAY, wall()).unwrap();

        let pems: Vec<Pem> =
            Pem::iter_from_buffer(authority.ca_pem().as_bytes()).collect::<Result<_, _>>().unwrap();
        let ca = pems[0].parse_x509().unwrap();
        let (_, parsed) = X509Certificate::from_der(&leaf.chain[0]).unwrap();
        assert!(ca.is_ca());
        assert!(!parsed.is_ca());
        assert_eq!(parsed.issuer(), ca.subject());
        assert_eq!(parsed.validity().not_after.timestamp(), wall().as_second() + 86_400);
        assert_eq!(parsed.validity().not_before.timestamp(), wall().as_second() - 300);
        let sans = parsed.subject_alternative_name().unwrap().unwrap();
        assert_eq!(sans.value.general_names.len(), 3);
        leaf.certified().unwrap();
    }

    #[test]
    fn a_lifetime_beyond_the_calendar_is_an_error() {
        assert!(matches!(Authority::generate(Duration::MAX, wall()), Err(TlsError::Lifetime)));
    }

    #[test]
    fn a_loaded_authority_equals_the_saved_one() {
        let authority = Authority::generate(DAY * 10, wall()).unwrap();
        let (certificate, key) = (authority.ca_pem().to_owned(), authority.reveal_key());
        let loaded = Authority::load(&certificate, &key).unwrap();
        assert_eq!((loaded.ca_pem(), loaded.validity()), (&*certificate, authority.validity()));
        assert_eq!(loaded.reveal_key(), key);
        let leaf = loaded.issue(&["squelch.squelch.svc".to_owned()], DAY, wall()).unwrap();
        assert_eq!(Validity::of(&leaf.chain[0]).unwrap().ends.as_second(), wall().as_second() + 86_400);
        assert!(!format!("{loaded:?}").contains("PRIVATE"));
    }

    #[test]
    fn an_invalid_authority_is_an_error() {
        let (one, other) =
            (Authority::generate(DAY, wall()).unwrap(), Authority::generate(DAY, wall()).unwrap());
        let refused = |certificate: &str, key: &str| Authority::load(certificate, key).unwrap_err();
        assert!(matches!(refused(one.ca_pem(), &other.reveal_key()), TlsError::Use(_)));
        assert!(matches!(refused("garbage", &one.reveal_key()), TlsError::Parse));
        assert!(matches!(refused(one.ca_pem(), "garbage"), TlsError::Key));
        let half = &one.ca_pem()[..200];
        assert!(matches!(refused(half, &one.reveal_key()), TlsError::Parse));
        let Leaf { chain, key: PrivateKeyDer::Pkcs8(key) } =
            one.issue(&["a".to_owned()], DAY, wall()).unwrap()
        else {
            panic!("another kind of key")
        };
        let leaf = (pem("CERTIFICATE", &chain[0]), pem("PRIVATE KEY", key.secret_pkcs8_der()));
        assert!(matches!(refused(&leaf.0, &leaf.1), TlsError::NotAnAuthority));
    }

    #[test]
    fn a_leaf_does_not_outlive_its_authority() {
        let authority = Authority::generate(DAY, wall()).unwrap();
        let leaf = authority.issue(&["a".to_owned()], DAY * 10, wall()).unwrap();
        assert_eq!(Validity::of(&leaf.chain[0]).unwrap().ends, authority.validity().ends);
    }
}
