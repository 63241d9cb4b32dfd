//! A test server in a process of its own.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use squelch::admin::{self, Admin, Readiness};
use squelch::clock;
use squelch::descriptors::Descriptors;
use squelch::metrics::InForce;
use squelch::policy::Store;
use squelch::tls::{self, Authority, PathToken, ServedCertificate};
use squelch::webhook::server::{self, ConnectionLimits, Stages};
use squelch::webhook::{Webhook, path, router};
use squelch_engine::{Engine, Mode, Settings};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

pub(crate) const REVIEW: &str = include_str!("../../src/webhook/testdata/core_create.json");

/// The environment variable with the parameters of a server.
const SERVER: &str = "SQUELCH_TEST_NETWORK";

/// Timeout of conditions.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// A server process, and the data that its clients need.
pub(crate) struct Server {
    child: Child,
    /// Kept open, because the test harness of the child writes to it after a minute.
    _output: BufReader<ChildStdout>,
    pub(crate) webhook: SocketAddr,
    pub(crate) admin: SocketAddr,
    /// The path with the token.
    pub(crate) path: String,
    roots: rustls::RootCertStore,
}

impl Server {
    /// Starts a server with at most `connections` to the webhook (default: those of the binary). `/metrics` shows `pairs`
    /// pairs of namespace and policy.
    pub(crate) fn start(connections: Option<usize>, pairs: usize) -> Self {
        let maximum = getrlimit(Resource::Nofile).maximum;
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "server::server_process", "--ignored", "--nocapture"])
            .env(SERVER, json!([connections, pairs]).to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let line = output.by_ref().lines().map(Result::unwrap).find(|line| line.starts_with('{')).unwrap();
        let started: Value = serde_json::from_str(&line).unwrap();
        let address = |name: &str| started[name].as_str().unwrap().parse().unwrap();
        let mut roots = rustls::RootCertStore::empty();
        let authority =
            tls::certificates(started["authority"].as_str().unwrap().as_bytes()).unwrap().remove(0);
        roots.add(authority).unwrap();
        Self {
            child,
            _output: output,
            webhook: address("webhook"),
            admin: address("admin"),
            path: started["path"].as_str().unwrap().to_owned(),
            roots,
        }
    }

    pub(crate) fn config(&self, protocol: &[u8]) -> Arc<rustls::ClientConfig> {
        let mut config = rustls::ClientConfig::builder_with_provider(tls::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.to_vec()];
        Arc::new(config)
    }

    /// The peak resident memory since the start, in MiB.
    pub(crate) fn peak(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10
    }

    /// Waits until the server has read all bytes that clients have sent to `port`.
    pub(crate) async fn wait_until_read(&self, port: SocketAddr) {
        let all_read = async {
            while unread(port) > 0 {
                sleep(Duration::from_millis(20)).await;
            }
            // Two further responses: both worker threads have continued.
            self.is_alive().await;
            self.is_alive().await;
        };
        timeout(DEADLINE, all_read).await.expect("the server reads all bytes");
    }

    pub(crate) async fn dial(
        &self,
        config: &Arc<rustls::ClientConfig>,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.webhook).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from("127.0.0.1").unwrap();
        TlsConnector::from(Arc::clone(config)).connect(name, stream).await
    }

    /// Sends a review with the token on a new connection and reads the response.
    pub(crate) async fn send_review(&self) -> TlsStream<TcpStream> {
        let mut stream = self.dial(&self.config(b"http/1.1")).await.unwrap();
        stream.write_all(format!("{}{REVIEW}", self.head(REVIEW.len())).as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"}}") {
            assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0, "connection ended early");
        }
        stream
    }

    /// The head of a request with the token.
    pub(crate) fn head(&self, length: usize) -> String {
        let path = &self.path;
        format!(
            "POST {path} HTTP/1.1\r\nHost: squelch\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        )
    }

    pub(crate) async fn is_alive(&self) {
        let mut stream = TcpStream::connect(self.admin).await.unwrap();
        stream.write_all(b"GET /livez HTTP/1.1\r\nHost: squelch\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the bytes to `port` in kernel buffers, on both sides.
fn unread(port: SocketAddr) -> u64 {
    let port = format!(":{:04X}", port.port());
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let buffered = table.lines().skip(1).map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let (sent, received) = fields[4].split_once(':').unwrap();
        let bytes = |queue| u64::from_str_radix(queue, 16).unwrap();
        let established = fields[3] == "01";
        match () {
            () if !established => 0,
            () if fields[1].ends_with(&port) => bytes(received),
            () if fields[2].ends_with(&port) => bytes(sent),
            () => 0,
        }
    });
    buffered.sum()
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

#[test]
#[ignore = "the server process that other tests start"]
fn server_process() {
    let (connections, pairs): (Option<usize>, usize) =
        serde_json::from_str(&std::env::var(SERVER).unwrap()).unwrap();
    runtime().block_on(serve(connections, pairs));
}

pub(crate) fn webhook(token: &PathToken) -> Webhook {
    let settings =
        Settings { seed: [1, 2], max_series: 1_000, max_pending_series: 1_000, began: Timestamp::UNIX_EPOCH };
    Webhook::new(Arc::new(Engine::new(settings)), Arc::new(Store::default()), "squelch", token.clone())
}

async fn serve(connections: Option<usize>, pairs: usize) {
    let descriptors = Descriptors::raise();
    let token = PathToken::generate().unwrap();
    let webhook = webhook(&token);
    let metrics = Arc::clone(&webhook.metrics);
    metrics.register_engine(Arc::clone(&webhook.engine));
    metrics.in_force(in_force(pairs));
    let hour = Duration::from_secs(3_600);
    let authority = Authority::generate(hour, clock::wall()).unwrap();
    let leaf = authority.issue(&["127.0.0.1".to_owned()], hour, clock::wall()).unwrap();
    let config = tls::server_config(Arc::new(ServedCertificate::new(leaf).unwrap()), None).unwrap();

    let [plain, secure] =
        ["127.0.0.1:0"; 2].map(|address| server::bind(address.parse().unwrap()).unwrap().listen().unwrap());
    let started = json!({
        "webhook": secure.local_addr().unwrap(),
        "admin": plain.local_addr().unwrap(),
        "path": path(&token),
        "authority": authority.ca_pem(),
    });
    println!("{started}");
    let shown = Admin::new(metrics, Arc::new(Readiness::default()));
    tokio::spawn(admin::serve(plain, shown, descriptors.admin_connections(), CancellationToken::new()));
    let connections = connections.unwrap_or_else(|| descriptors.webhook_connections());
    let limits = ConnectionLimits { connections, ..ConnectionLimits::default() };
    server::serve(secure, Arc::new(config), router(Arc::new(webhook)), Stages::default(), limits).await;
}

fn in_force(pairs: usize) -> InForce {
    let names = (0..pairs).map(|number| -> (Arc<str>, Arc<str>) {
        (format!("a-namespace-of-some-length-{number:04}").into(), "a-cluster-event-policy".into())
    });
    InForce {
        policies: vec![("a-cluster-event-policy".into(), Mode::Enforce)],
        pairs: names.map(|(namespace, policy)| (namespace, policy, Mode::Enforce)).collect(),
        complete: true,
    }
}
