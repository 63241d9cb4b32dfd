//! The doctor's probe.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::admissionregistration::v1::MutatingWebhook;

use super::Clients;
use crate::PROBE_PATH;
use crate::arming::Probe;
use crate::doctor::keys::path_of;
use crate::doctor::snapshot::{Installation, Observed, Unreadable};
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
) -> Observed<Result<(), String>> {
    let ring = secret.and_then(|data| encoding::decode(data, false).ok());
    let mut tokens: Vec<_> = ring.iter().flat_map(Ring::iter).map(|keys| keys.token.clone()).collect();
    let path = entry.and_then(path_of).map(|path| path.trim_end_matches(PROBE_PATH));
    tokens.extend(path.and_then(|path| PathToken::parse(path.rsplit_once('/')?.1)));
    if tokens.is_empty() {
        return Err(Unreadable::Missing);
    }
    let tokens = Arc::new(AcceptedTokens::new(tokens));
    let probe = Probe::new(clients.squelch.clone(), installation.namespace.clone(), tokens);
    let mut last = Err(Unreadable::Missing);
    for _ in 0..PROBES {
        let probed = probe.send().await;
        last = match probed.result {
            ProbeResult::Succeeded | ProbeResult::Slow => return Ok(Ok(())),
            ProbeResult::Rejected if probed.message.contains("impersonate") => {
                return Err(Unreadable::Forbidden);
            }
            ProbeResult::Timeout | ProbeResult::Unsigned | ProbeResult::WrongSignature => {
                Ok(Err(probed.message))
            }
            _ => Err(Unreadable::Failed(probed.message)),
        };
    }
    last
}
