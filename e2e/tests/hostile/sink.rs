//! A server that reads each body, validates it as JSON and discards it: the cost of a request on this machine without
//! squelch.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::de::IgnoredAny;
use squelch::tls::{Authority, ServedCertificate, server_config};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_blocking;
use tokio_rustls::TlsAcceptor;

use crate::wire::Place;

const HOUR: Duration = Duration::from_secs(3600);

const ANSWER: &str =
    "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 31\r\n\r\n{\"response\":{\"allowed\":true}}  ";

/// Starts it for the life of this process. It reads a body without a length up to `most`.
pub(crate) async fn start(most: usize) -> Result<Place> {
    let now = jiff::Timestamp::now();
    let authority = Authority::generate(HOUR, now)?;
    let leaf = authority.issue(&["127.0.0.1".to_owned()], HOUR, now)?;
    let config = server_config(Arc::new(ServedCertificate::new(leaf)?), None)?;
    let tls = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let place = Place::new(&format!("https://{}", listener.local_addr()?), authority.ca_pem())?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let tls = tls.clone();
            // Aborted connections are ignored.
            tokio::spawn(async move { read(&tls, stream, most).await.ok() });
        }
    });
    Ok(place)
}

async fn read(tls: &TlsAcceptor, stream: TcpStream, most: usize) -> Result<()> {
    let mut stream = tls.accept(stream).await?;
    let (mut head, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    let (mut body, length) = loop {
        let read = stream.read(&mut buffer).await?;
        anyhow::ensure!(read > 0, "no request");
        head.extend_from_slice(&buffer[..read]);
        if let Some(end) = head.windows(4).position(|end| end == b"\r\n\r\n") {
            let text = String::from_utf8_lossy(&head[..end]).to_ascii_lowercase();
            let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            break (head.split_off(end + 4), length.unwrap_or(most));
        }
    };
    while body.len() < length {
        let read = stream.read(&mut buffer).await?;
        if read == 0 {
            break;
        }
        body.extend_from_slice(&buffer[..read]);
    }
    // Too long bodies are not parsed, as in squelch.
    if body.len() < most {
        spawn_blocking(move || serde_json::from_slice::<IgnoredAny>(&body).is_ok()).await?;
    }
    stream.write_all(ANSWER.as_bytes()).await?;
    stream.shutdown().await.context("the client has closed")
}
