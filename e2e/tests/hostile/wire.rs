//! squelch's port at a low level: sockets, TLS, and HTTP/1.1 as bytes, valid or not.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Timeout, longer than any deadline of squelch.
const PATIENCE: Duration = Duration::from_secs(30);

/// The address of squelch, and the authority of its certificate.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) address: SocketAddr,
    roots: Arc<RootCertStore>,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// A response.
    Http {
        /// Its status.
        status: u16,
        /// Whether the connection is closed after it.
        last: bool,
        /// Its body.
        body: String,
    },
    /// The connection is closed.
    Closed,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http { status, .. } if self.is_allowed() => write!(f, "{status} allowed"),
            Self::Http { status, .. } => write!(f, "{status}"),
            Self::Closed => f.write_str("closed"),
        }
    }
}

impl Answer {
    /// Whether the write is allowed unchanged.
    pub(crate) fn is_allowed(&self) -> bool {
        matches!(self, Self::Http { status: 200, body, .. }
            if body.contains(r#""allowed":true"#) && !body.contains("patch"))
    }

    /// Whether it has this status.
    pub(crate) fn is(&self, expected: u16) -> bool {
        matches!(self, Self::Http { status, .. } if *status == expected)
    }
}

impl Place {
    /// At `https://address`, with a certificate of this authority (PEM).
    pub(crate) fn new(url: &str, authority: &str) -> Result<Self> {
        let address = url.strip_prefix("https://").context("no https URL")?.parse()?;
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.as_bytes())?)?;
        Ok(Self { address, roots: Arc::new(roots) })
    }

    /// A TLS client configuration with this protocol.
    pub(crate) fn config(&self, protocol: &[u8]) -> Arc<ClientConfig> {
        let mut config =
            ClientConfig::builder().with_root_certificates(self.roots.clone()).with_no_client_auth();
        config.alpn_protocols = vec![protocol.to_vec()];
        Arc::new(config)
    }

    pub(crate) fn name(&self) -> ServerName<'static> {
        self.address.ip().into()
    }

    /// A TCP connection. Closing it leaves no TIME_WAIT on this machine.
    pub(crate) async fn connect(&self) -> Result<TcpStream> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// A connection for HTTP/1.1.
    pub(crate) async fn dial(&self) -> Result<TlsStream<TcpStream>> {
        self.dial_for(b"http/1.1").await
    }

    /// A connection for this protocol.
    pub(crate) async fn dial_for(&self, protocol: &[u8]) -> Result<TlsStream<TcpStream>> {
        let stream = self.connect().await?;
        Ok(TlsConnector::from(self.config(protocol)).connect(self.name(), stream).await?)
    }

    /// Sends a request over a new connection; returns the answer, and the latency after the last byte of the request.
    pub(crate) async fn ask(&self, request: &[u8]) -> Result<(Answer, Duration)> {
        let mut stream = self.dial().await?;
        stream.write_all(request).await?;
        stream.flush().await?;
        let asked = Instant::now();
        let answer = answer(&mut stream).await?;
        Ok((answer, asked.elapsed()))
    }
}

/// A POST with a JSON body.
pub(crate) fn post(path: &str, body: &[u8]) -> Vec<u8> {
    request("POST", path, body)
}

/// A request with another method.
pub(crate) fn request(method: &str, path: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: squelch\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

/// The next answer of a connection.
pub(crate) async fn answer(stream: &mut (impl AsyncRead + Unpin)) -> Result<Answer> {
    let mut read = Vec::new();
    loop {
        if let Some(answer) = parse(&read)? {
            return Ok(answer);
        }
        let more =
            timeout(PATIENCE, stream.read_buf(&mut read)).await.context("neither an answer nor a close")?;
        // A reset counts as an end.
        if !more.is_ok_and(|more| more > 0) {
            ensure!(read.is_empty(), "cut short: {}", String::from_utf8_lossy(&read));
            return Ok(Answer::Closed);
        }
    }
}

/// Parses a response, once it is complete.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<Answer>> {
    let text = String::from_utf8_lossy(bytes);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return Ok(None) };
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).context("no status")?;
    let head = head.to_ascii_lowercase();
    let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let length: usize = field("content-length:").unwrap_or("0").parse()?;
    let last = field("connection:") == Some("close");
    Ok((body.len() >= length).then(|| Answer::Http { status, last, body: body[..length].to_owned() }))
}

/// Waits until squelch closes the connection; returns what it sent before.
pub(crate) async fn end_of(stream: &mut (impl AsyncRead + Unpin)) -> Result<Vec<u8>> {
    let mut rest = Vec::new();
    let ended = timeout(PATIENCE, stream.read_to_end(&mut rest)).await;
    let _ = ended.context("the connection stays open")?;
    Ok(rest)
}
