//! Starting the controller: reads the keys, or creates them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use kube::Client;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::api_server_clock::ApiServerClock;
use super::controller::{KeysController, Serving};
use super::secret::{SecretRead, SecretRef, SecretState, SecretStore, SecretWrite};
use crate::arming::Address;
use crate::metrics::Metrics;
use crate::tls::encoding::{self, Keys};
use crate::tls::mounted::{MountedCertificate, MountedError, MountedFiles};
use crate::tls::rotation::{Lifetimes, Ring, Rotation};
use crate::tls::{AcceptedTokens, ServedCertificate, TlsError};

/// How long reading or creating the Secret is retried.
const SECRET_TIMEOUT: Duration = Duration::from_secs(30);

/// What the controller needs to know.
pub struct KeySettings {
    /// A client for the API server.
    pub client: Client,
    /// The Secret. `None`: the keys exist in this process alone.
    pub secret: Option<SecretRef>,
    /// The directory with a mounted certificate, in place of squelch's own authority.
    pub cert_dir: Option<PathBuf>,
    /// How the API server reaches the webhook.
    pub address: Address,
    /// The webhook's host names, at least one. The API server verifies the first.
    pub names: Vec<String>,
    /// Lifetimes of the keys.
    pub lifetimes: Lifetimes,
    /// Added to squelch's own clock until the API server's is known.
    pub clock_offset: SignedDuration,
}

/// Why the controller cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The Secret could not be read or created in time.
    #[error(
        "cannot read or create the Secret {name} in namespace {namespace} within {} s, see the log for the reason",
        SECRET_TIMEOUT.as_secs()
    )]
    Secret {
        /// Namespace of the Secret.
        namespace: String,
        /// Name of the Secret.
        name: String,
    },
    /// The mounted certificate cannot be used.
    #[error("cannot use the certificate in --cert-dir {}", .directory.display())]
    Mounted {
        /// The directory.
        directory: PathBuf,
        /// What is wrong with it.
        source: MountedError,
    },
    /// Keys or a certificate cannot be made.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl KeysController {
    /// Reads the keys, or creates them if there are none.
    ///
    /// # Errors
    /// The Secret cannot be read or created, or the mounted certificate cannot be used.
    pub async fn start(
        settings: KeySettings,
        metrics: Arc<Metrics>,
        active: watch::Receiver<bool>,
    ) -> Result<Self, StartError> {
        let KeySettings { client, secret, cert_dir, address, names, lifetimes, clock_offset } = settings;
        let mut clock = ApiServerClock::new(clock_offset);
        let store = SecretStore::new(client, secret);
        let reading = read_or_create(&store, &mut clock, cert_dir.is_none(), lifetimes, &metrics);
        let (ring, resource_version) =
            timeout(SECRET_TIMEOUT, reading).await.map_err(|_| store.start_error())??;
        let rotation = Rotation::new(ring, lifetimes);
        let mounted = cert_dir.map(|directory| read_mounted(directory, &names, &clock)).transpose()?;
        let (leaf, serving) = match &mounted {
            Some((_, certificate)) => (certificate.leaf(), Serving::mounted(certificate)),
            None => Serving::issued(&rotation.ring().current, &names, lifetimes, clock.wall())?,
        };
        let tokens = Arc::new(AcceptedTokens::new(Vec::new()));
        let certificate = Arc::new(ServedCertificate::new(leaf)?);
        let mut controller = Self {
            store,
            clock,
            lifetimes,
            rotation,
            resource_version,
            mounted,
            address,
            names,
            serving,
            certificate,
            tokens,
            metrics,
            active,
            published: None,
            problems: BTreeMap::new(),
        };
        controller.reconcile(None).await;
        Ok(controller)
    }
}

impl SecretStore {
    fn start_error(&self) -> StartError {
        let (namespace, name) = self.reference().unzip();
        StartError::Secret { namespace: namespace.unwrap_or_default(), name: name.unwrap_or_default() }
    }
}

fn read_mounted(
    directory: PathBuf,
    names: &[String],
    clock: &ApiServerClock,
) -> Result<(MountedFiles, Arc<MountedCertificate>), StartError> {
    let name = names.first().cloned().unwrap_or_default();
    let mut files = MountedFiles::new(directory.clone(), name);
    let certificate = files.read(clock.wall()).map_err(|source| StartError::Mounted { directory, source })?;
    Ok((files, certificate))
}

/// Reads the keys, or creates them if there are none. Retries until it succeeds.
async fn read_or_create(
    store: &SecretStore,
    clock: &mut ApiServerClock,
    with_authority: bool,
    lifetimes: Lifetimes,
    metrics: &Metrics,
) -> Result<(Ring<Keys>, Option<String>), TlsError> {
    loop {
        let SecretRead { date, state } = store.read().await;
        if let Some(date) = date {
            clock.record(date);
        }
        let fresh = || Keys::generate(with_authority, lifetimes, clock.wall()).map(Ring::of);
        let resource_version = match state {
            SecretState::NotShared => return Ok((fresh()?, None)),
            SecretState::Absent => Ok(None),
            SecretState::Present(data, resource_version) => match encoding::decode(&data, with_authority) {
                Ok(ring) => return Ok((ring, Some(resource_version))),
                Err(error) => {
                    warn!(%error, "keys Secret is damaged, overwriting it with new keys");
                    metrics.keys_rejected();
                    Ok(Some(resource_version))
                }
            },
            SecretState::Unknown(error) => Err(error),
        };
        let written = match resource_version {
            Ok(resource_version) => {
                let ring = fresh()?;
                store.write(&ring, resource_version.as_deref()).await.map(|written| (ring, written))
            }
            Err(error) => Err(error),
        };
        match written {
            Ok((ring, SecretWrite::Stored(resource_version))) => return Ok((ring, resource_version)),
            Ok((_, SecretWrite::Conflict)) => {
                info!("keys Secret written by another replica, reading it again");
            }
            Err(error) => warn!(%error, "cannot read or create the keys Secret, retrying"),
        }
        sleep(lifetimes.poll_interval.min(Duration::from_secs(1))).await;
    }
}
