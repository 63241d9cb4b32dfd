//! Fault proxies between squelch and the API server: for all calls of squelch, and for all reviews.
//!
//! Both directions are HTTPS on loopback. squelch's kubeconfig names the proxy as the API server. `--webhook-url`
//! names the other proxy, and when squelch writes the webhook configuration, its `caBundle` is replaced with the
//! proxy's. So the proxies see each call and review completely, and count their outcomes exactly.

mod call;
mod configuration;
mod fault;
mod recording;
mod relay;
mod reviews;
pub(crate) mod server;
pub(crate) mod tcp;
#[cfg(test)]
mod tests;

use std::env;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use serde_json::Value;
use tokio::task::JoinHandle;

pub use call::{ProxiedCall, Reviewed, User};
pub use configuration::add_expression;
pub use fault::{Fault, Faults, Rule};
pub use reviews::ReviewCounts;

use crate::Cluster;
use configuration::Configuration;
use recording::Recording;
use relay::{Behind, Relay, encoded};
use reviews::Reviews;
use server::Server;

/// Environment variable of the seed. Default: a new seed per run.
const SEED: &str = "SQUELCH_SEED";

/// The proxies between one squelch and the API server.
pub struct FaultProxy {
    /// Faults of squelch's calls.
    pub to_api_server: Arc<Faults>,
    /// Faults of the API server's reviews.
    pub to_squelch: Arc<Faults>,
    /// URL of the API server for squelch.
    pub api_server_url: String,
    /// URL of squelch for the API server.
    pub webhook_url: String,
    authority: String,
    configuration: Arc<Configuration>,
    reviews: Arc<Reviews>,
    serving: [JoinHandle<()>; 2],
}

impl FaultProxy {
    /// Starts both proxies without faults, and prints the seed.
    ///
    /// # Errors
    /// If a listener cannot be opened, or if `SQUELCH_SEED` is not a number.
    pub async fn start(cluster: &Cluster) -> Result<Self> {
        let (server, authority) = cluster.server()?;
        let seed = seed()?;
        eprintln!("fault proxy seed: {seed} ({SEED}={seed} reproduces it)");
        Self::around(&server, &authority, seed).await
    }

    /// For an API server with a certificate of one of the authorities in `trusted` (PEM).
    async fn around(api_server: &str, trusted: &str, seed: u64) -> Result<Self> {
        let authority = server::authority()?;
        let (api, webhook) = (Server::bind(&authority).await?, Server::bind(&authority).await?);
        let (api_server_url, webhook_url) = (api.url.clone(), webhook.url.clone());

        let to_api_server = Arc::new(Faults::new(seed));
        let behind = Arc::<Behind>::default();
        behind.is(api_server, trusted)?;
        let squelch = Arc::<Behind>::default();
        let configuration = Arc::new(Configuration::new(authority.ca_pem(), squelch.clone()));
        let observer = configuration.clone();
        let api = api.serve(Arc::new(Relay { faults: to_api_server.clone(), behind, observer }));

        let to_squelch = Arc::new(Faults::new(seed.rotate_left(32)));
        let reviews = Arc::<Reviews>::default();
        let relay = Relay { faults: to_squelch.clone(), behind: squelch, observer: reviews.clone() };
        let webhook = webhook.serve(Arc::new(relay));
        Ok(Self {
            to_api_server,
            to_squelch,
            api_server_url,
            webhook_url,
            authority: authority.ca_pem().to_owned(),
            configuration,
            reviews,
            serving: [api, webhook],
        })
    }

    /// A copy of a kubeconfig with the address of the proxy, in `folder`.
    ///
    /// # Errors
    /// If it cannot be read or written.
    pub fn kubeconfig(&self, original: &Path, folder: &Path) -> Result<PathBuf> {
        let mut config: Value = serde_json::from_slice(&std::fs::read(original)?)?;
        let cluster = &mut config["clusters"][0]["cluster"];
        cluster["server"] = self.api_server_url.as_str().into();
        cluster["certificate-authority-data"] = encoded(&self.authority).into();
        let path = folder.join("proxy.kubeconfig");
        std::fs::write(&path, config.to_string())?;
        Ok(path)
    }

    /// Sets the address of the squelch that starts next.
    pub fn leads_to(&self, webhook: &str) {
        self.configuration.comes_from(webhook);
    }

    /// Lets the API server review squelch's own writes, from the next webhook configuration on.
    pub fn ask_about_own_writes(&self) {
        self.configuration.ask_about_own_writes();
    }

    /// Adds an expression to the `namespaceSelector` of each entry that squelch writes, as GKE Autopilot does at
    /// admission. (Kubernetes calls no webhook for webhook configurations, and exempts them from admission policies.)
    pub fn add_at_admission(&self, expression: serde_json::Value) {
        self.configuration.add_at_admission(expression);
    }

    /// The reviews of a namespace by outcome.
    pub fn reviews(&self, namespace: &str) -> ReviewCounts {
        self.reviews.counts(namespace)
    }

    /// Starts to record reviews.
    pub fn record(&self) {
        self.reviews.recording.get_or_init(Recording::default);
    }

    /// The recorded reviews of a namespace's Events, as a trace for `squelch replay`.
    pub fn trace(&self, namespace: &str) -> String {
        self.reviews.recording.get().map(|recording| recording.trace(namespace)).unwrap_or_default()
    }

    /// Removes all rules.
    pub fn end_all_faults(&self) {
        self.to_api_server.end();
        self.to_squelch.end();
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        for serving in &self.serving {
            serving.abort();
        }
    }
}

/// The seed of the environment, or a new one.
fn seed() -> Result<u64> {
    match env::var(SEED) {
        Ok(text) => text.parse().with_context(|| format!("{SEED} is not a number: {text}")),
        // Short enough to type.
        Err(_) => Ok(fastrand::u64(..1_000_000)),
    }
}
