//! The addresses of the API servers.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ListParams;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

/// The namespace of the Service that leads to the API servers.
const NAMESPACE: &str = "default";
/// Selects its EndpointSlices.
const SLICES: &str = "kubernetes.io/service-name=kubernetes";
/// Maximum API servers that are probed.
const MAX_API_SERVERS: usize = 16;
/// How often the addresses are read.
const INTERVAL: Duration = Duration::from_secs(10);
/// Timeout of a read.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The addresses of the API servers as `host:port`. `None` before the first read. Empty if none are known.
pub(super) type Addresses = Option<BTreeSet<String>>;

/// Reads the addresses of the API servers.
///
/// # Errors
/// The EndpointSlices cannot be read.
pub async fn addresses(client: &Client) -> kube::Result<BTreeSet<String>> {
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), NAMESPACE);
    let listed = slices.list(&ListParams::default().labels(SLICES)).await?;
    Ok(of(&listed.items))
}

/// Returns the addresses of EndpointSlices. The API server writes one for all API servers, a controller several.
fn of(slices: &[EndpointSlice]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for slice in slices.iter().filter(|slice| slice.address_type != "FQDN") {
        let ports = slice.ports.iter().flatten().filter_map(|port| port.port);
        let Some(port) = ports.min() else { continue };
        for endpoint in &slice.endpoints {
            if endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) == Some(false) {
                continue;
            }
            found.extend(endpoint.addresses.iter().map(|address| match address.contains(':') {
                true => format!("[{address}]:{port}"),
                false => format!("{address}:{port}"),
            }));
        }
    }
    found.into_iter().take(MAX_API_SERVERS).collect()
}

/// Reads the addresses again and again, and keeps the last ones while that fails. Never returns.
pub(super) async fn follow(client: Client, addresses_read: watch::Sender<Addresses>) {
    let mut failure = None;
    loop {
        let read = match timeout(TIMEOUT, addresses(&client)).await {
            Ok(read) => read.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {} s", TIMEOUT.as_secs())),
        };
        match read {
            Ok(addresses) => {
                failure = None;
                addresses_read.send_if_modified(|known| {
                    let changed = known.as_ref() != Some(&addresses);
                    if changed {
                        info!(?addresses, "API servers to probe");
                        *known = Some(addresses);
                    }
                    changed
                });
            }
            Err(error) => {
                if failure.as_ref() != Some(&error) {
                    warn!(
                        %error,
                        "cannot read the addresses of the API servers, probing the known ones (missing right to list \
                         endpointslices in the namespace default?)"
                    );
                    failure = Some(error);
                }
                addresses_read.send_if_modified(|known| {
                    let first = known.is_none();
                    known.get_or_insert_default();
                    first
                });
            }
        }
        sleep(INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn slice(kind: &str, endpoints: &Value, ports: &Value) -> EndpointSlice {
        serde_json::from_value(
            json!({ "addressType": kind, "endpoints": endpoints, "ports": ports, "metadata": {} }),
        )
        .unwrap()
    }

    #[test]
    fn ready_addresses_are_read_with_their_port() {
        let https = || json!([{ "name": "https", "port": 6443 }]);
        let endpoints = json!([
            { "addresses": ["10.0.0.2"], "conditions": { "ready": true } },
            { "addresses": ["10.0.0.1"] },
            { "addresses": ["10.0.0.3"], "conditions": { "ready": false } },
        ]);
        let slices = [
            slice("IPv4", &endpoints, &https()),
            slice("IPv6", &json!([{ "addresses": ["fd00::1"] }]), &https()),
            slice("FQDN", &json!([{ "addresses": ["example.com"] }]), &https()),
            slice("IPv4", &json!([{ "addresses": ["10.0.0.4"] }]), &json!([])),
        ];
        let found: Vec<_> = of(&slices).into_iter().collect();
        assert_eq!(found, ["10.0.0.1:6443", "10.0.0.2:6443", "[fd00::1]:6443"]);
        let many: Vec<_> =
            (0..100).map(|number| json!({ "addresses": [format!("10.0.1.{number}")] })).collect();
        assert_eq!(of(&[slice("IPv4", &json!(many), &https())]).len(), MAX_API_SERVERS);
        assert!(of(&[]).is_empty());
    }
}
