//! The doctor's probe.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::admissionregistration::v1::MutatingWebhook;

use super::{Clients, observed};
use crate::PROBE_PATH;
use crate::arming::{Probe, addresses};
use crate::doctor::keys::path_of;
use crate::doctor::snapshot::{Installation, Observed, ProbeFound, Unreadable};
use crate::metrics::ProbeResult;
use crate::tls::rotation::Ring;
use crate::tls::{AcceptedTokens, PathToken, encoding};

/// Maximum probes: one can be lost.
const PROBES: usize = 3;

/// Sends a probe as squelch, with the tokens of the Secret and of the webhook's path.
pub(super) async fn send_probe(
    clients: &Clients,
    installation: &Installation,
    secret: Option<&BTreeMap<String, Vec<u8>>>,
    entry: Option<&MutatingWebhook>,
) -> ProbeFound {
    let tokens = tokens(secret, entry)?;
    probe(&Probe::new(clients.squelch.clone(), installation.namespace.clone(), tokens), true).await
}

/// Sends a probe through each API server, at its own address.
pub(super) async fn probe_api_servers(
    clients: &Clients,
    installation: &Installation,
    secret: Option<&BTreeMap<String, Vec<u8>>>,
    entry: Option<&MutatingWebhook>,
) -> Observed<Vec<(String, ProbeFound)>> {
    let tokens = tokens(secret, entry)?;
    let addresses = observed(addresses(&clients.squelch)).await?;
    let probed = addresses.into_iter().map(|address| {
        let tokens = tokens.clone();
        async move {
            let client = clients.api_servers.connect(&address).map_err(Unreadable::Failed);
            let result = match client {
                // A late answer may be a way to the webhook that is slow, and Event writes wait as long.
                Ok(client) => probe(&Probe::new(client, installation.namespace.clone(), tokens), false).await,
                Err(unreadable) => Err(unreadable),
            };
            (address, result)
        }
    });
    Ok(futures::future::join_all(probed).await)
}

/// Returns the tokens of the Secret and of the webhook's path.
fn tokens(
    secret: Option<&BTreeMap<String, Vec<u8>>>,
    entry: Option<&MutatingWebhook>,
) -> Observed<Arc<AcceptedTokens>> {
    let ring = secret.and_then(|data| encoding::decode(data, false).ok());
    let mut tokens: Vec<_> = ring.iter().flat_map(Ring::iter).map(|keys| keys.token.clone()).collect();
    let path = entry.and_then(path_of).map(|path| path.trim_end_matches(PROBE_PATH));
    tokens.extend(path.and_then(|path| PathToken::parse(path.rsplit_once('/')?.1)));
    if tokens.is_empty() {
        return Err(Unreadable::Missing);
    }
    Ok(Arc::new(AcceptedTokens::new(tokens)))
}

async fn probe(probe: &Probe, may_be_slow: bool) -> ProbeFound {
    let mut last = Err(Unreadable::Missing);
    for _ in 0..PROBES {
        let probed = probe.send().await;
        last = match probed.result {
            ProbeResult::Succeeded => return Ok(Ok(())),
            ProbeResult::Slow if may_be_slow => return Ok(Ok(())),
            ProbeResult::Rejected if probed.message.contains("impersonate") => {
                return Err(Unreadable::Forbidden);
            }
            ProbeResult::Slow
            | ProbeResult::Timeout
            | ProbeResult::Unsigned
            | ProbeResult::WrongSignature => Ok(Err(probed.message)),
            _ => Err(Unreadable::Failed(probed.message)),
        };
    }
    last
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;
    use kube::core::Status;
    use kube::{Client, Config};
    use tower_test::mock;

    use super::*;
    use crate::arming::ApiServerClients;
    use crate::doctor::fixtures::{healthy, keys};

    #[tokio::test]
    async fn a_missing_right_to_list_the_api_servers_is_no_failure() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let (service, mut server) = mock::pair::<Request<Body>, Response<Body>>();
        let squelch = Client::new(service, "default");
        let api_servers = ApiServerClients::new(Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        let clients = Clients { own: squelch.clone(), squelch, api_servers, inside: false };
        let (secret, _) = keys();
        let installation = healthy().installation;
        let probing = probe_api_servers(&clients, &installation, Some(&secret), None);
        let serving = async {
            let (_, send) = server.next_request().await.unwrap();
            let status = Status { code: 403, ..Status::failure("no", "Forbidden") };
            let body = Body::from(serde_json::to_vec(&status).unwrap());
            send.send_response(Response::builder().status(403).body(body).unwrap());
        };
        let (probed, ()) = tokio::join!(probing, serving);
        assert_eq!(probed, Err(Unreadable::Forbidden));
    }
}
