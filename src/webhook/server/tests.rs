mod cancelled;
mod clients;
mod ending;
mod unauthenticated;

use squelch_engine::Engine;

use super::*;
use crate::leader::LeaseDeadline;
use crate::metrics::Metrics;
use crate::policy;
use crate::tls::{self, Authority, PathToken, ServedCertificate};
use crate::webhook::{Webhook, path, router};
use http_body_util::BodyExt;
use hyper_util::rt::TokioExecutor;
use jiff::Timestamp;
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const CREATE: &str = include_str!("../testdata/core_create.json");
const HOUR: Duration = Duration::from_secs(3_600);

struct Served {
    address: SocketAddr,
    authority: Authority,
    certificate: Arc<ServedCertificate>,
    token: PathToken,
    lease_deadline: Arc<LeaseDeadline>,
    stages: Stages,
    metrics: Arc<Metrics>,
    engine: Arc<Engine>,
    policies: Arc<policy::Store>,
    task: JoinHandle<()>,
}

fn authority() -> Authority {
    Authority::generate(HOUR, crate::clock::wall()).unwrap()
}

fn leaf(authority: &Authority, wall: Timestamp) -> tls::Leaf {
    authority.issue(&["127.0.0.1".to_owned()], HOUR, wall).unwrap()
}

fn start(limits: ConnectionLimits) -> Served {
    serving(limits, LeaseDeadline::unlimited(), None)
}

fn serving(
    limits: ConnectionLimits,
    lease_deadline: LeaseDeadline,
    client_authorities: Option<tls::ClientAuthorities>,
) -> Served {
    let lease_deadline = Arc::new(lease_deadline);
    let authority = authority();
    let certificate = Arc::new(ServedCertificate::new(leaf(&authority, crate::clock::wall())).unwrap());
    let token = PathToken::generate().unwrap();
    let metrics = Arc::new(Metrics::new());
    let engine = Arc::new(squelch_engine::testing::engine());
    let policies = Arc::new(policy::Store::default());
    let webhook = Webhook {
        metrics: metrics.clone(),
        lease_deadline: Arc::clone(&lease_deadline),
        ..Webhook::new(Arc::clone(&engine), Arc::clone(&policies), "squelch", token.clone())
    };
    let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap().listen().unwrap();
    let address = listener.local_addr().unwrap();
    let config =
        Arc::new(tls::server_config(Arc::clone(&certificate), client_authorities.map(Arc::new)).unwrap());
    let stages = Stages::default();
    let task = tokio::spawn(serve(listener, config, router(Arc::new(webhook)), stages.clone(), limits));
    Served { address, authority, certificate, token, lease_deadline, stages, metrics, engine, policies, task }
}

fn client(authority: &Authority, version: &'static rustls::SupportedProtocolVersion) -> rustls::ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    let ca = rustls::pki_types::CertificateDer::from_pem_slice(authority.ca_pem().as_bytes()).unwrap();
    roots.add(ca).unwrap();
    rustls::ClientConfig::builder_with_provider(tls::provider())
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

impl Served {
    async fn connect(&self) -> io::Result<TlsStream<TcpStream>> {
        self.dial(client(&self.authority, &rustls::version::TLS13)).await
    }

    async fn connect_offering(&self, protocol: &[u8]) -> io::Result<TlsStream<TcpStream>> {
        let mut config = client(&self.authority, &rustls::version::TLS13);
        config.alpn_protocols = vec![protocol.to_vec()];
        self.dial(config).await
    }

    async fn dial(&self, config: rustls::ClientConfig) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let stream = TcpStream::connect(self.address).await?;
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    async fn send_review_to(&self, stream: &mut TlsStream<TcpStream>, path: &str) -> String {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: squelch\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            CREATE.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(CREATE.as_bytes()).await.unwrap();
        let mut response = Vec::new();
        // Every response in these tests ends with two braces.
        while !response.ends_with(b"}}") {
            let read = stream.read_buf(&mut response).await.unwrap();
            assert_ne!(read, 0, "cut short: {}", String::from_utf8_lossy(&response));
        }
        String::from_utf8(response).unwrap()
    }

    async fn send_review(&self, stream: &mut TlsStream<TcpStream>) -> String {
        self.send_review_to(stream, &path(&self.token)).await
    }
}

/// Waits for the server to end the connection.
async fn ends(stream: &mut (impl AsyncReadExt + Unpin)) {
    let mut rest = Vec::new();
    let ended = timeout(Duration::from_secs(20), stream.read_to_end(&mut rest)).await;
    // An end without close_notify is an end too.
    let _ = ended.expect("the server ends the connection");
}

fn is_allowed(response: &str) -> bool {
    response.starts_with("HTTP/1.1 200 OK\r\n") && response.ends_with(r#""allowed":true}}"#)
}

#[tokio::test]
async fn a_connection_serves_many_reviews_in_both_versions_of_tls() {
    let served = start(ConnectionLimits::default());
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let mut stream = served.dial(client(&served.authority, version)).await.unwrap();
        for _ in 0..3 {
            let response = served.send_review(&mut stream).await;
            assert!(is_allowed(&response) && !response.contains("connection: close"), "{response}");
        }
    }
}

#[tokio::test]
async fn a_new_certificate_is_served_to_the_next_dial() {
    let served = start(ConnectionLimits::default());
    let next = authority();
    served.certificate.replace(leaf(&next, crate::clock::wall())).unwrap();
    assert!(served.connect().await.is_err());
    let mut stream = served.dial(client(&next, &rustls::version::TLS13)).await.unwrap();
    assert!(is_allowed(&served.send_review(&mut stream).await));
}

/// There may be thousands, and an allocator rarely releases the memory of many small objects.
#[tokio::test]
async fn a_silent_connection_takes_little_memory() {
    let served = start(ConnectionLimits::default());
    let config = tls::server_config(Arc::clone(&served.certificate), None).unwrap();
    let (router, _) = crate::webhook::router::tests::active_router();
    let server = Arc::new(Server {
        tls: TlsAcceptor::from(Arc::new(config)),
        router,
        stages: Stages::default(),
        limits: ConnectionLimits::default(),
        has_logged_rejection: AtomicBool::new(false),
    });
    let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap().listen().unwrap();
    let address = listener.local_addr().unwrap();
    let mut acceptor = Acceptor::new(listener, 1, Eviction::Unprotected);
    let _dialled = TcpStream::connect(address).await.unwrap();
    let (stream, slot) = acceptor.accept().await;
    let handling = server.handle_connection(stream, ClientConnection::new(slot.connection()));
    assert!(size_of_val(&handling) <= 1_024, "{} bytes", size_of_val(&handling));
}

#[tokio::test]
async fn plain_http_on_the_tls_port_does_not_affect_other_connections() {
    let served = start(ConnectionLimits::default());
    let mut plain = TcpStream::connect(served.address).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    ends(&mut plain).await;
    let mut stream = served.connect().await.unwrap();
    assert!(is_allowed(&served.send_review(&mut stream).await));
}

#[tokio::test]
async fn a_body_above_the_maximum_is_answered_before_its_end() {
    let served = start(ConnectionLimits::default());
    let stream = served.connect().await.unwrap();
    let (mut reader, mut writer) = tokio::io::split(stream);
    let head = format!(
        "POST {} HTTP/1.1\r\nHost: squelch\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
        path(&served.token)
    );
    let writing = tokio::spawn(async move {
        let chunk = format!("{:x}\r\n{}\r\n", 1 << 20, " ".repeat(1 << 20));
        writer.write_all(head.as_bytes()).await?;
        writer.write_all(format!("{:x}\r\n{}\r\n", CREATE.len() - 1, CREATE.trim_end()).as_bytes()).await?;
        for _ in 0..64 {
            writer.write_all(chunk.as_bytes()).await?;
        }
        writer.write_all(b"0\r\n\r\n").await
    });
    let mut response = Vec::new();
    while !response.ends_with(b"}}") {
        assert_ne!(reader.read_buf(&mut response).await.unwrap(), 0, "no response");
    }
    assert!(is_allowed(&String::from_utf8(response).unwrap()));
    ends(&mut reader).await;
    assert!(writing.await.unwrap().is_err(), "the rest is not read");
}

/// The keys may take 30 s to load. A connection that is refused costs an Event write nothing, and one without an answer a
/// second.
#[tokio::test]
async fn a_bound_port_refuses_connections_until_it_listens() {
    let port = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = port.0.local_addr().unwrap();
    assert!(TcpStream::connect(address).await.is_err(), "the kernel accepts");
    let listener = port.listen().unwrap();
    TcpStream::connect(address).await.unwrap();
    drop(listener);
}
