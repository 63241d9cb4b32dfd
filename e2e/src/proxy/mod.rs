//! A way through a fault proxy: all that squelch says to the API server, and all that the API server asks squelch.
//!
//! Both directions are HTTPS on loopback. To squelch the proxy is the API server: a kubeconfig names it and its
//! authority. To the API server it is squelch: `--webhook-url` names it, and when squelch writes the webhook
//! configuration, its `caBundle` is replaced by the proxy's on the way. So each call and each review is seen whole,
//! and what becomes of it is counted exactly.

mod asked;
mod configuration;
mod fault;
mod recording;
mod relay;
mod reviews;
pub(crate) mod server;
#[cfg(test)]
mod tests;

use std::env;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use serde_json::Value;
use tokio::task::JoinHandle;

pub use asked::{Asked, Reviewed, User};
pub use fault::{Fault, Faults, Rule};
pub use reviews::Tally;

use crate::Cluster;
use configuration::Configuration;
use recording::Recording;
use relay::{Behind, Relay, encoded};
use reviews::Reviews;
use server::Server;

/// Chooses the seed; without it each run has its own.
const SEED: &str = "SQUELCH_SEED";

/// The proxies between one squelch and the API server.
pub struct Detour {
    /// What goes wrong with squelch's calls of the API server.
    pub to_api_server: Arc<Faults>,
    /// What goes wrong with the API server's reviews.
    pub to_squelch: Arc<Faults>,
    /// Where squelch finds the API server.
    pub api_server_url: String,
    /// Where the API server finds squelch.
    pub webhook_url: String,
    authority: String,
    configuration: Arc<Configuration>,
    reviews: Arc<Reviews>,
    serving: [JoinHandle<()>; 2],
}

impl Detour {
    /// Starts both proxies, in which nothing goes wrong yet, and prints the seed.
    ///
    /// # Errors
    /// What the system says; or that `SQUELCH_SEED` is no number.
    pub async fn start(cluster: &Cluster) -> Result<Self> {
        let (server, authority) = cluster.server()?;
        let seed = seed()?;
        eprintln!("the fault proxy's seed is {seed}: {SEED}={seed} repeats it");
        Self::around(&server, &authority, seed).await
    }

    /// Around an API server whose certificate one of the authorities in `trusted` (PEM) has signed.
    async fn around(api_server: &str, trusted: &str, seed: u64) -> Result<Self> {
        let authority = server::authority()?;
        let (api, webhook) = (Server::bind(&authority).await?, Server::bind(&authority).await?);
        let (api_server_url, webhook_url) = (api.url.clone(), webhook.url.clone());

        let to_api_server = Arc::new(Faults::new(seed));
        let behind = Arc::<Behind>::default();
        behind.is(api_server, trusted)?;
        let squelch = Arc::<Behind>::default();
        let configuration = Arc::new(Configuration::new(authority.ca_pem(), squelch.clone()));
        let look = configuration.clone();
        let api = api.serve(Arc::new(Relay { faults: to_api_server.clone(), behind, look }));

        let to_squelch = Arc::new(Faults::new(seed.rotate_left(32)));
        let reviews = Arc::<Reviews>::default();
        let relay = Relay { faults: to_squelch.clone(), behind: squelch, look: reviews.clone() };
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

    /// A copy of a kubeconfig that leads here, in `folder`.
    ///
    /// # Errors
    /// That it cannot be read or written.
    pub fn kubeconfig(&self, original: &Path, folder: &Path) -> Result<PathBuf> {
        let mut config: Value = serde_json::from_slice(&std::fs::read(original)?)?;
        let cluster = &mut config["clusters"][0]["cluster"];
        cluster["server"] = self.api_server_url.as_str().into();
        cluster["certificate-authority-data"] = encoded(&self.authority).into();
        let path = folder.join("detour.kubeconfig");
        std::fs::write(&path, config.to_string())?;
        Ok(path)
    }

    /// The squelch that is started next listens there.
    pub fn leads_to(&self, webhook: &str) {
        self.configuration.comes_from(webhook);
    }

    /// From the next time on that squelch writes its webhook configuration, it is asked about its own writes, too.
    pub fn ask_about_own_writes(&self) {
        self.configuration.ask_about_own_writes();
    }

    /// What has become of the reviews of a namespace.
    pub fn reviews(&self, namespace: &str) -> Tally {
        self.reviews.tally(namespace)
    }

    /// Keeps what squelch is asked about from now on.
    pub fn record(&self) {
        self.reviews.recording.get_or_init(Recording::default);
    }

    /// What was recorded of a namespace's Events, as a trace for `squelch replay`.
    pub fn trace(&self, namespace: &str) -> String {
        self.reviews.recording.get().map(|recording| recording.trace(namespace)).unwrap_or_default()
    }

    /// From now on nothing goes wrong.
    pub fn end_all_faults(&self) {
        self.to_api_server.end();
        self.to_squelch.end();
    }
}

impl Drop for Detour {
    fn drop(&mut self) {
        for serving in &self.serving {
            serving.abort();
        }
    }
}

/// The seed that the environment names, or one of the day.
fn seed() -> Result<u64> {
    match env::var(SEED) {
        Ok(text) => text.parse().with_context(|| format!("{SEED} is not a number: {text}")),
        // Readable, and easily typed again.
        Err(_) => Ok(fastrand::u64(..1_000_000)),
    }
}
