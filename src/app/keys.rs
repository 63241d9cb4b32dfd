//! Settings of the keys controller.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use tokio::sync::watch;

use super::cluster::Cluster;
use crate::arming::Address;
use crate::config::{RunOptions, WebhookService};
use crate::keys::{KeySettings, KeysController, SecretRef};
use crate::metrics::Metrics;
use crate::tls;
use crate::tls::rotation::Lifetimes;

/// Starts the controller by the options.
pub(super) async fn start(
    options: &RunOptions,
    cluster: &Cluster,
    metrics: Arc<Metrics>,
    active: watch::Receiver<bool>,
) -> Result<KeysController> {
    let (address, names) = address(options, cluster)?;
    let settings = KeySettings {
        client: cluster.client()?,
        secret: secret(options, cluster)?,
        cert_dir: options.cert_dir.clone(),
        address,
        names,
        lifetimes: Lifetimes::of(options.certificate_lifetime, options.token_lifetime),
        clock_offset: options.clock_offset,
    };
    Ok(KeysController::start(settings, metrics, active).await?)
}

/// Returns how the API server reaches the webhook, and the host names for its certificate.
fn address(options: &RunOptions, cluster: &Cluster) -> Result<(Address, Vec<String>)> {
    match (&options.webhook_service, &options.webhook_url) {
        (Some(WebhookService { name, port }), _) => {
            let (namespace, name, port) = (cluster.namespace.clone(), name.clone(), *port);
            let host = format!("{name}.{namespace}.svc");
            let names = vec![host.clone(), format!("{host}.cluster.local")];
            Ok((Address::Service { namespace, name, port }, names))
        }
        (None, Some(url)) => Ok((Address::Url(url.to_string()), vec![url.host().to_owned()])),
        (None, None) => bail!(
            "neither --webhook-service nor --webhook-url is given, set one to the address at which the API server \
             reaches this process, such as --webhook-url https://127.0.0.1:9443"
        ),
    }
}

fn secret(options: &RunOptions, cluster: &Cluster) -> Result<Option<SecretRef>> {
    let Some(name) = options.secret.clone() else { return Ok(None) };
    let owner = cluster.own_account().map(|(name, uid)| (name.to_owned(), uid.to_owned()));
    let [bits, _] = tls::random_seed().context("cannot name the field manager of the keys Secret")?;
    let field_manager = format!("{}-{bits:016x}", crate::FIELD_MANAGER);
    Ok(Some(SecretRef { namespace: cluster.namespace.clone(), name, owner, field_manager }))
}
