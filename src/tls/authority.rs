//! squelch's own certificate authority: signs what the webhook serves, and is named in `caBundle`.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::time::ASN1Time;

/// Certificates begin this long before they are made, for an API server whose clock is behind.
const BACKDATED: SignedDuration = SignedDuration::from_mins(5);

/// Why a certificate could not be made or used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The certificate could not be built or signed.
    #[error("cannot make the certificate: {0}")]
    Sign(#[from] rcgen::Error),
    /// rustls refuses the certificate or its key.
    #[error("cannot use the certificate: {0}")]
    Use(#[from] rustls::Error),
    /// The lifetime ends outside of what a certificate can say.
    #[error("the certificate's lifetime ends outside of the calendar")]
    Lifetime,
    /// What was given as a certificate is none.
    #[error("not an X.509 certificate")]
    Parse,
    /// The operating system gave no randomness.
    #[error("no randomness to be had")]
    Random,
}

/// An own CA (ECDSA P-256) that can issue certificates for the webhook.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    not_after: Timestamp,
}

impl Authority {
    /// Makes a new CA that is valid for `lifetime` from `wall`.
    pub fn generate(lifetime: Duration, wall: Timestamp) -> Result<Self, TlsError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = named("squelch webhook authority");
        // It signs leaves only: no further CA below it.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let not_after = limit(&mut params, lifetime, wall)?;
        let pem = pem(params.self_signed(&key)?.der());
        Ok(Self { issuer: Issuer::new(params, key), pem, not_after })
    }

    /// The CA's certificate in PEM: what `caBundle` holds (before Kubernetes' base64).
    pub fn ca_pem(&self) -> &str {
        &self.pem
    }

    /// When the CA's certificate ends.
    pub fn not_after(&self) -> Timestamp {
        self.not_after
    }

    /// Issues a server certificate (ECDSA P-256, new key) for `names`, each a DNS name or an IP address, valid for
    /// `lifetime` from `wall`.
    pub fn issue(&self, names: &[String], lifetime: Duration, wall: Timestamp) -> Result<Leaf, TlsError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = named("squelch webhook");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        // Two CAs of the same name stand in one caBundle during a rotation: the key identifier tells which.
        params.use_authority_key_identifier_extension = true;
        limit(&mut params, lifetime, wall)?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Leaf {
            chain: vec![certificate.der().clone()],
            key: PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
        })
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("not_after", &self.not_after).finish_non_exhaustive()
    }
}

/// A server certificate with its key.
#[derive(Debug)]
pub struct Leaf {
    /// The certificate, then what is between it and the CA (here: nothing).
    pub chain: Vec<CertificateDer<'static>>,
    /// Its key; `Debug` does not print it.
    pub key: PrivateKeyDer<'static>,
}

impl Leaf {
    /// As rustls serves it. Fails if key and certificate are not of one pair.
    pub fn certified(self) -> Result<CertifiedKey, TlsError> {
        Ok(CertifiedKey::from_der(self.chain, self.key, &super::provider())?)
    }
}

fn named(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    name
}

fn pem(certificate: &CertificateDer<'_>) -> String {
    let text = STANDARD.encode(certificate);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    for (at, digit) in text.chars().enumerate() {
        if at > 0 && at % 64 == 0 {
            pem.push('\n');
        }
        pem.push(digit);
    }
    pem.push_str("\n-----END CERTIFICATE-----\n");
    pem
}

fn limit(params: &mut CertificateParams, lifetime: Duration, wall: Timestamp) -> Result<Timestamp, TlsError> {
    let lifetime = SignedDuration::try_from(lifetime).map_err(|_| TlsError::Lifetime)?;
    let not_before = wall.checked_sub(BACKDATED).map_err(|_| TlsError::Lifetime)?;
    let not_after = wall.checked_add(lifetime).map_err(|_| TlsError::Lifetime)?;
    let asn1 = |at: Timestamp| ASN1Time::from_timestamp(at.as_second()).map_err(|_| TlsError::Lifetime);
    params.not_before = asn1(not_before)?.to_datetime();
    params.not_after = asn1(not_after)?.to_datetime();
    Ok(not_after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use x509_parser::pem::Pem;
    use x509_parser::prelude::FromDer;
    use x509_parser::prelude::X509Certificate;

    const DAY: Duration = Duration::from_secs(86_400);

    fn wall() -> Timestamp {
        "2026-11-21T08:00:00Z".parse().unwrap()
    }

    #[test]
    fn a_leaf_names_what_was_asked_and_is_signed_by_the_authority() {
        let authority = Authority::generate(10 * DAY, wall()).unwrap();
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
    fn a_lifetime_outside_of_the_calendar_is_an_error() {
        assert!(matches!(Authority::generate(Duration::MAX, wall()), Err(TlsError::Lifetime)));
    }
}
