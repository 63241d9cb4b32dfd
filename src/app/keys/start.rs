//! How the keys are had at the start.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::secret::{Found, Look, Place, Store, Written};
use super::time::Time;
use super::{Keeper, Serving};
use crate::app::cluster::Cluster;
use crate::arming::Address;
use crate::config::{RunOptions, WebhookService};
use crate::metrics::Metrics;
use crate::tls::kept::{self, Keys};
use crate::tls::mounted::Mounted;
use crate::tls::rotation::{Lifetimes, Ring, Rotation};
use crate::tls::{self, AcceptedTokens, ServedCertificate};

/// How long it is tried to read or make the Secret.
const PATIENCE: Duration = Duration::from_secs(30);

impl Keeper {
    /// Reads the keys, or makes them.
    ///
    /// # Errors
    /// That it is not said where the webhook is, that the Secret cannot be had, or that the mounted files cannot be
    /// served.
    pub(in crate::app) async fn start(
        options: &RunOptions,
        cluster: &Cluster,
        metrics: Arc<Metrics>,
        active: watch::Receiver<bool>,
    ) -> Result<Self> {
        let (address, names) = reached(options, cluster)?;
        let lifetimes = Lifetimes::of(options.certificate_lifetime, options.token_lifetime);
        let mut time = Time::new(options.clock_offset);
        let store = Store::new(cluster.client()?, place(options, cluster)?);
        let own = options.certificate_dir.is_none();
        let first = timeout(PATIENCE, first(&store, &mut time, own, lifetimes, &metrics)).await;
        let (ring, revision) = first.with_context(|| {
            let (namespace, name) = (&cluster.namespace, options.secret.as_deref().unwrap_or_default());
            format!("cannot read or make the Secret {name} in namespace {namespace}: the log says why")
        })??;
        let rotation = Rotation::new(ring, lifetimes);
        let mounted = match &options.certificate_dir {
            Some(directory) => {
                let mut mounted = Mounted::new(directory.clone(), names[0].clone());
                let looked = mounted.look(time.wall());
                let pair = looked.with_context(|| format!("--certificate-dir {}", directory.display()))?;
                Some((mounted, pair.context("a first look finds something")?))
            }
            None => None,
        };
        let (leaf, serving) = match &mounted {
            Some((_, pair)) => (pair.leaf(), Serving::mounted(pair)),
            None => Serving::issued(&rotation.ring().current, &names, lifetimes, time.wall())?,
        };
        let tokens = Arc::new(AcceptedTokens::new(Vec::new()));
        let certificate = Arc::new(ServedCertificate::new(leaf)?);
        let mut keeper = Self {
            store,
            time,
            lifetimes,
            rotation,
            revision,
            mounted,
            address,
            names,
            serving,
            certificate,
            tokens,
            metrics,
            active,
            told: None,
            troubles: BTreeMap::new(),
        };
        keeper.turn(None).await;
        Ok(keeper)
    }
}

/// The keys that are kept, made where there are none; tried until it succeeds.
async fn first(
    store: &Store,
    time: &mut Time,
    with_authority: bool,
    lifetimes: Lifetimes,
    metrics: &Metrics,
) -> Result<(Ring<Keys>, Option<String>)> {
    loop {
        let Look { date, found } = store.look().await;
        if let Some(date) = date {
            time.hear(date);
        }
        let fresh = || Keys::generate(with_authority, lifetimes, time.wall()).map(Ring::of);
        let revision = match found {
            Found::Nowhere => return Ok((fresh()?, None)),
            Found::Nothing => Ok(None),
            Found::Kept(data, revision) => match kept::parse(&data, with_authority) {
                Ok(ring) => return Ok((ring, Some(revision))),
                Err(damage) => {
                    warn!(%damage, "the Secret with the webhook's keys is damaged: new keys are written over it");
                    metrics.keys_refused();
                    Ok(Some(revision))
                }
            },
            Found::Failed(error) => Err(error),
        };
        let written = match revision {
            Ok(revision) => {
                let ring = fresh()?;
                store.write(&ring, revision.as_deref()).await.map(|written| (ring, written))
            }
            Err(error) => Err(error),
        };
        match written {
            Ok((ring, Written::Kept(revision))) => return Ok((ring, revision)),
            Ok((_, Written::Conflict)) => info!("somebody else has made the Secret: it is read again"),
            Err(error) => warn!(%error, "the Secret with the webhook's keys cannot be had; trying again"),
        }
        sleep(lifetimes.look.min(Duration::from_secs(1))).await;
    }
}

/// Where the API server finds the webhook, and the names that the certificate is for.
fn reached(options: &RunOptions, cluster: &Cluster) -> Result<(Address, Vec<String>)> {
    match (&options.webhook_service, &options.webhook_url) {
        (Some(WebhookService { name, port }), _) => {
            let (namespace, name, port) = (cluster.namespace.clone(), name.clone(), *port);
            let asked = format!("{name}.{namespace}.svc");
            let names = vec![asked.clone(), format!("{asked}.cluster.local")];
            Ok((Address::Service { namespace, name, port }, names))
        }
        (None, Some(url)) => Ok((Address::Url(url.to_string()), vec![url.host().to_owned()])),
        (None, None) => bail!(
            "neither --webhook-service nor --webhook-url is given: say where the API server reaches this process, \
             such as https://127.0.0.1:9443"
        ),
    }
}

fn place(options: &RunOptions, cluster: &Cluster) -> Result<Option<Place>> {
    let Some(name) = options.secret.clone() else { return Ok(None) };
    let owner = cluster.own_account().map(|(name, uid)| (name.to_owned(), uid.to_owned()));
    let [bits, _] = tls::random_seed().context("no random numbers")?;
    let maker = format!("{}-{bits:016x}", crate::FIELD_MANAGER);
    Ok(Some(Place { namespace: cluster.namespace.clone(), name, owner, maker }))
}
