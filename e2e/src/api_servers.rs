//! Several API servers of one cluster (`cluster up --apiservers`), and the way of each to a webhook.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::Client;
use kube::config::Kubeconfig;

use crate::cluster::{checkout, script};
use crate::process::words_of;
use crate::proxy::tcp::{TcpFault, TcpRelay};
use crate::{Cluster, cluster};

/// One API server.
#[derive(Clone, Debug)]
pub struct ApiServer {
    /// Its component, such as `kube-apiserver-2`.
    pub component: String,
    /// Its URL.
    pub url: String,
    folder: PathBuf,
}

/// Environment variable of the writes per second through each API server.
const WRITES: &str = "SQUELCH_WRITES";

/// Writes per second through each API server: `SQUELCH_WRITES`, or else 40, which a busy machine keeps.
///
/// # Errors
/// If it is not a number.
pub fn writes_per_second() -> Result<u32> {
    let text = std::env::var(WRITES).unwrap_or_else(|_| "40".to_owned());
    text.parse().with_context(|| format!("{WRITES}={text}: must be a number of writes per second"))
}

/// A fault of the way from one API server to a port of this machine. Other ways are not affected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathFault {
    /// Its packets are dropped, also those of open connections.
    Drop,
    /// Its connections are reset: open ones with the next packet, new ones at once.
    Refuse,
    /// Its open connections are reset. On new ones, all that it sends arrives this much later.
    Delay(Duration),
    /// Its open connections are reset. New ones are reset when the first bytes of the TLS handshake arrive.
    ResetTls,
    /// Its open connections are reset. New ones are accepted, and nothing ever answers: half-open connections.
    Silent,
}

/// A way with a fault. It is healed on drop.
pub struct FaultyPath {
    server: ApiServer,
    /// Closed after the rules are removed.
    _relay: Option<TcpRelay>,
    healed: bool,
}

impl ApiServer {
    /// The API servers of a cluster.
    ///
    /// # Errors
    /// If the cluster was started without `--apiservers`.
    pub fn all(cluster: &Cluster) -> Result<Vec<Self>> {
        let folder = &cluster.folder;
        ensure!(folder.join("run/number").exists(), "this cluster was started without --apiservers");
        let urls = std::fs::read_to_string(folder.join("run/servers"))?;
        let server = |(index, url): (usize, &str)| {
            let suffix = if index == 0 { String::new() } else { format!("-{}", index + 1) };
            Self { component: format!("kube-apiserver{suffix}"), url: url.to_owned(), folder: folder.clone() }
        };
        Ok(urls.split_whitespace().enumerate().map(server).collect())
    }

    /// Its IP address and port, as squelch names it.
    pub fn address_and_port(&self) -> &str {
        self.url.trim_start_matches("https://")
    }

    /// Its IP address.
    pub fn address(&self) -> &str {
        let address = self.address_and_port();
        address.split_once(':').map_or(address, |(address, _)| address)
    }

    /// Writes a copy of a kubeconfig with this server into the folder of the original.
    ///
    /// # Errors
    /// If it cannot be read or written.
    pub fn kubeconfig(&self, original: &Path) -> Result<PathBuf> {
        let mut config = Kubeconfig::read_from(original)?;
        let named = config.clusters.first_mut().context("a kubeconfig without a cluster")?;
        named.cluster.as_mut().context("a kubeconfig without a cluster")?.server = Some(self.url.clone());
        let path = original.with_extension(format!("{}.kubeconfig", self.component));
        std::fs::write(&path, serde_json::to_string(&config)?)?;
        Ok(path)
    }

    /// A client for this server with the administrator's identity.
    ///
    /// # Errors
    /// If the administrator's kubeconfig is unusable.
    pub async fn client(&self, cluster: &Cluster) -> Result<Client> {
        cluster::client(&self.kubeconfig(&cluster.kubeconfig)?).await
    }

    /// Its number of probes that the webhook has answered.
    ///
    /// # Errors
    /// If its metrics cannot be read.
    pub async fn answered_probes(&self, cluster: &Cluster) -> Result<f64> {
        let metrics = cluster::metrics(&self.client(cluster).await?).await?;
        let labels = [("name", "probe.squelch.dev"), ("code", "200")];
        Ok(metrics.sum("apiserver_admission_webhook_request_total", &labels))
    }

    /// Lets its way to a port of this machine fail, until the returned value is dropped. One fault at a time.
    ///
    /// # Errors
    /// If the rules cannot be set.
    pub async fn path_fault(&self, port: u16, fault: PathFault) -> Result<FaultyPath> {
        let (verb, relay) = match fault {
            PathFault::Drop => ("drop", None),
            PathFault::Refuse => ("refuse", None),
            PathFault::Delay(by) => ("redirect", Some(TcpRelay::start(port, TcpFault::Delay(by)).await?)),
            PathFault::ResetTls => ("redirect", Some(TcpRelay::start(port, TcpFault::Reset).await?)),
            PathFault::Silent => ("redirect", Some(TcpRelay::start(port, TcpFault::Silent).await?)),
        };
        let (port, to) = (port.to_string(), relay.as_ref().map(|relay| relay.port.to_string()));
        // From here on, the drop of the value heals the way.
        let path = FaultyPath { server: self.clone(), _relay: relay, healed: false };
        let mut rule = vec![verb, &port];
        rule.extend(to.as_deref());
        self.change_path(&rule).await?;
        Ok(path)
    }

    async fn change_path(&self, arguments: &[&str]) -> Result<()> {
        let mut all = vec![self.folder.as_os_str(), OsStr::new(&self.component)];
        all.extend(arguments.iter().map(OsStr::new));
        script("path", &all).await
    }

    /// Stops it.
    ///
    /// # Errors
    /// If it does not stop.
    pub async fn stop(&self) -> Result<()> {
        script("stop", &[self.folder.as_os_str(), OsStr::new(&self.component)]).await
    }

    /// Starts it, and waits until all servers are ready.
    ///
    /// # Errors
    /// If they are not ready in time.
    pub async fn start(&self) -> Result<()> {
        script("start", &[self.folder.as_os_str(), OsStr::new(&self.component)]).await
    }
}

impl FaultyPath {
    /// Heals the way. Connections through a relay are closed.
    ///
    /// # Errors
    /// If the rules cannot be removed.
    pub async fn heal(mut self) -> Result<()> {
        self.healed = true;
        self.server.change_path(&["heal"]).await
    }
}

impl Drop for FaultyPath {
    fn drop(&mut self) {
        if self.healed {
            return;
        }
        let mut heal = Command::new(checkout("e2e/cluster/cluster"));
        heal.arg("path").arg(&self.server.folder).args([&self.server.component, "heal"]);
        let words = words_of(heal);
        if !words.is_empty() {
            eprintln!("{}: {words}", self.server.component);
        }
    }
}
