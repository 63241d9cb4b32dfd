//! File descriptors: a process with a low limit serves both ports while callers keep connections open. Each server is
//! its own process, because the limit is per process.

#![expect(clippy::unwrap_used, reason = "a test, also in the functions around it")]

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
use squelch::arming::Probe;
use squelch::clock;
use squelch::descriptors::Descriptors;
use squelch::metrics::Metrics;
use squelch::policy::Store;
use squelch::tls::{self, AcceptedTokens, Authority, PathToken, ServedCertificate};
use squelch::webhook::server::{self, ConnectionLimits, Stages};
use squelch::webhook::{Webhook, path, router};
use squelch_engine::{Engine, Settings};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

const REVIEW: &str = include_str!("../src/webhook/testdata/core_create.json");

/// Environment variable with the [`Limit`] of a server.
const SERVER: &str = "SQUELCH_TEST_DESCRIPTORS";

/// Timeout of a caller. The API server waits for one second.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Timeout of operations without a deadline.
const DEADLINE: Duration = Duration::from_secs(60);

#[test]
fn reviews_are_answered_despite_1100_silent_webhook_connections() {
    let server = Server::start(Limit::hard(1_024));
    server.is_reviewed_beside(server.webhook, 1_100);
}

#[test]
fn both_ports_answer_despite_1100_silent_plain_connections() {
    let server = Server::start(Limit::hard(1_024));
    server.is_reviewed_beside(server.admin, 1_100);
}

/// Other parts of the process may use descriptors too: then they run out before the connection limit.
#[test]
fn a_review_is_answered_when_descriptors_run_out_before_the_connection_limit() {
    let server = Server::start(Limit { places: Some(100_000), ..Limit::hard(512) });
    server.is_reviewed_beside(server.webhook, 600);
}

#[test]
fn the_soft_limit_is_raised_to_the_hard_one() {
    let server = Server::start(Limit { soft: 1_024, ..Limit::hard(4_096) });
    assert_eq!(server.limit, 4_096);
    server.is_reviewed_beside(server.webhook, 1_100);
}

/// With the real client, whose errors wrap that of the operating system.
#[test]
fn a_probe_without_descriptors_fails() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_probe", "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.contains("probe: no_descriptors"), "{output}");
}

/// The limits of a server.
#[derive(Clone, Copy)]
struct Limit {
    soft: u64,
    hard: u64,
    /// Connection limit of the webhook. Default: derived from the descriptor limit.
    places: Option<usize>,
}

impl Limit {
    /// A soft limit that cannot be raised.
    fn hard(limit: u64) -> Self {
        Self { soft: limit, hard: limit, places: None }
    }
}

/// A server in its own process.
struct Server {
    child: Child,
    /// Kept open, because the test harness of the child writes to it after a minute.
    _output: BufReader<ChildStdout>,
    webhook: SocketAddr,
    admin: SocketAddr,
    path: String,
    /// The effective limit.
    limit: u64,
    tls: TlsConnector,
}

impl Server {
    fn start(Limit { soft, hard, places }: Limit) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "the_server", "--ignored", "--nocapture"])
            .env(SERVER, json!([soft, hard, places]).to_string());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let line = output.by_ref().lines().map(Result::unwrap).find(|line| line.starts_with('{')).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap();
        let address = |name: &str| said[name].as_str().unwrap().parse().unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots
            .add(tls::certificates(said["authority"].as_str().unwrap().as_bytes()).unwrap().remove(0))
            .unwrap();
        let config = rustls::ClientConfig::builder_with_provider(tls::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self {
            child,
            _output: output,
            webhook: address("webhook"),
            admin: address("admin"),
            path: said["path"].as_str().unwrap().to_owned(),
            limit: said["limit"].as_u64().unwrap(),
            tls: TlsConnector::from(Arc::new(config)),
        }
    }

    /// Asserts that both ports answer at once with `number` silent connections to `port`.
    fn is_reviewed_beside(&self, port: SocketAddr, number: usize) {
        raise_own_limit();
        runtime().block_on(async {
            let mut silent = Vec::new();
            for _ in 0..number {
                let dialled = timeout(DEADLINE, TcpStream::connect(port)).await;
                silent.push(dialled.expect("the connection is accepted").unwrap());
            }
            for round in 0..3 {
                let began = clock::now();
                let answer = timeout(AT_ONCE, self.review()).await.expect("the review is answered at once");
                assert!(answer.contains(r#""allowed":true"#), "{answer}");
                let answer = timeout(AT_ONCE, self.live()).await.expect("liveness is answered at once");
                assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
                eprintln!("round {round}: both within {:?}", clock::now().since(began));
            }
            drop(silent);
        });
    }

    async fn review(&self) -> String {
        let stream = TcpStream::connect(self.webhook).await.unwrap();
        let mut stream = self.tls.connect(ServerName::try_from("127.0.0.1").unwrap(), stream).await.unwrap();
        let (path, length) = (&self.path, REVIEW.len());
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: squelch\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(REVIEW.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"}}") {
            assert_ne!(
                stream.read_buf(&mut answer).await.unwrap(),
                0,
                "{}",
                String::from_utf8_lossy(&answer)
            );
        }
        String::from_utf8(answer).unwrap()
    }

    async fn live(&self) -> String {
        let mut stream = TcpStream::connect(self.admin).await.unwrap();
        stream.write_all(b"GET /livez HTTP/1.1\r\nHost: squelch\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// This process holds the other ends.
fn raise_own_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
}

#[test]
#[ignore = "the process that the others start"]
fn the_server() {
    let (soft, hard, places): (u64, u64, Option<usize>) =
        serde_json::from_str(&std::env::var(SERVER).unwrap()).unwrap();
    setrlimit(Resource::Nofile, Rlimit { current: Some(soft), maximum: Some(hard) }).unwrap();
    runtime().block_on(serve(places));
}

#[test]
#[ignore = "the process that another starts"]
fn the_probe() {
    runtime().block_on(async {
        let client =
            kube::Client::try_from(kube::Config::new("https://127.0.0.1:1".parse().unwrap())).unwrap();
        let tokens = Arc::new(AcceptedTokens::new(vec![PathToken::generate().unwrap()]));
        let probe = Probe::new(client, "squelch".to_owned(), tokens);
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        // Connections stay open.
        setrlimit(Resource::Nofile, Rlimit { current: Some(0), maximum }).unwrap();
        let probed = probe.send().await;
        println!("probe: {} ({})", probed.result.as_str(), probed.message);
    });
}

#[expect(clippy::print_stdout, reason = "what the process that started this one reads")]
async fn serve(places: Option<usize>) {
    let descriptors = Descriptors::raise();
    let metrics = Arc::new(Metrics::new());
    let token = PathToken::generate().unwrap();
    let settings =
        Settings { seed: [1, 2], max_series: 1_000, max_pending_series: 1_000, began: Timestamp::UNIX_EPOCH };
    let webhook = Webhook {
        metrics: metrics.clone(),
        ..Webhook::new(Arc::new(Engine::new(settings)), Arc::new(Store::default()), "squelch", token.clone())
    };
    let hour = Duration::from_secs(3_600);
    let authority = Authority::generate(hour, clock::wall()).unwrap();
    let leaf = authority.issue(&["127.0.0.1".to_owned()], hour, clock::wall()).unwrap();
    let config = tls::server_config(Arc::new(ServedCertificate::new(leaf).unwrap()), None).unwrap();

    let [plain, secure] =
        ["127.0.0.1:0"; 2].map(|address| server::bind(address.parse().unwrap()).unwrap().listen().unwrap());
    let said = json!({
        "webhook": secure.local_addr().unwrap(),
        "admin": plain.local_addr().unwrap(),
        "path": path(&token),
        "limit": getrlimit(Resource::Nofile).current,
        "authority": authority.ca_pem(),
    });
    println!("{said}");
    let shown = Admin::new(metrics, Arc::new(Readiness::default()));
    tokio::spawn(admin::serve(plain, shown, descriptors.admin_connections(), CancellationToken::new()));
    let connections = places.unwrap_or_else(|| descriptors.webhook_connections());
    let limits = ConnectionLimits { connections, ..ConnectionLimits::default() };
    server::serve(secure, Arc::new(config), router(Arc::new(webhook)), Stages::default(), limits).await;
}
