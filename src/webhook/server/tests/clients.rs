//! Client certificates.

use super::*;

/// A client with this certificate.
fn client_with(
    authority: &Authority,
    version: &'static rustls::SupportedProtocolVersion,
    (chain, key): tls::testing::ClientCertificate,
) -> rustls::ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(tls::certificates(authority.ca_pem().as_bytes()).unwrap().remove(0)).unwrap();
    rustls::ClientConfig::builder_with_provider(tls::provider())
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .unwrap()
}

/// With TLS 1.3 a client receives the rejection only when it reads.
async fn is_rejected(dialled: io::Result<TlsStream<TcpStream>>) -> bool {
    match dialled {
        Err(_) => true,
        Ok(mut stream) => {
            let mut rest = Vec::new();
            let read = timeout(Duration::from_secs(20), stream.read_to_end(&mut rest)).await;
            read.expect("the server ends the connection").is_err()
        }
    }
}

#[tokio::test]
async fn only_clients_with_an_accepted_certificate_are_served() {
    use tls::testing::{Signer, TempFile};
    let (signer, other) = (Signer::new(), Signer::new());
    let file = TempFile::new(&signer.pem);
    let client_authorities =
        tls::ClientAuthorities::load(file.0.clone(), vec!["kube-apiserver".to_owned()]).unwrap();
    let served = serving(ConnectionLimits::default(), LeaseDeadline::unlimited(), Some(client_authorities));
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let own = client_with(&served.authority, version, signer.sign("kube-apiserver", None));
        // TLS sessions are not resumed.
        for _ in 0..2 {
            let mut stream = served.dial(own.clone()).await.unwrap();
            assert!(is_allowed(&served.send_review(&mut stream).await));
            assert_eq!(stream.get_ref().1.handshake_kind(), Some(rustls::HandshakeKind::Full));
        }
        for shown in [signer.sign("admin", None), other.sign("kube-apiserver", None)] {
            let config = client_with(&served.authority, version, shown);
            assert!(is_rejected(served.dial(config).await).await);
        }
        assert!(is_rejected(served.dial(client(&served.authority, version)).await).await);
    }
    assert!(served.metrics.text().contains("squelch_tls_handshake_failures_total 6"));
}
