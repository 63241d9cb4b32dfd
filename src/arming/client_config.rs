//! How the API server calls the webhook. Pure.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// The address of the webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A URL with scheme, host and port, such as `https://127.0.0.1:9443`.
    Url(String),
    /// A Service in the cluster.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its port.
        port: u16,
    },
}

/// How the API server calls the webhook.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientConfig {
    /// The address.
    pub address: Address,
    /// The path. It contains the token and is secret.
    pub path: String,
    /// The authorities that the API server trusts, PEM.
    pub ca_bundle: String,
}

impl ClientConfig {
    /// Returns the `clientConfig` of an entry whose path ends with `suffix`. Entries must not share connections (see
    /// `webhook::probe`). The API server shares them by path for a Service and by `caBundle` for a URL, so an entry
    /// with a suffix also has an empty line in its `caBundle`.
    pub(super) fn object(&self, suffix: &str) -> Value {
        let line = if suffix.is_empty() { "" } else { "\n" };
        let ca_bundle = STANDARD.encode(format!("{}{line}", self.ca_bundle));
        let path = format!("{}{suffix}", self.path);
        match &self.address {
            Address::Url(url) => json!({ "url": format!("{url}{path}"), "caBundle": ca_bundle }),
            Address::Service { namespace, name, port } => {
                let service = json!({ "namespace": namespace, "name": name, "port": port, "path": path });
                json!({ "service": service, "caBundle": ca_bundle })
            }
        }
    }
}

impl fmt::Debug for ClientConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientConfig").field("address", &self.address).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(address: Address) -> ClientConfig {
        ClientConfig { address, path: "/secret".into(), ca_bundle: "PEM".into() }
    }

    #[test]
    fn an_address_is_a_url_or_a_service() {
        let url = client(Address::Url("https://h".into()));
        assert_eq!(url.object(""), json!({ "url": "https://h/secret", "caBundle": "UEVN" }));
        let service = client(Address::Service { namespace: "n".into(), name: "squelch".into(), port: 443 });
        let expected = json!({ "namespace": "n", "name": "squelch", "port": 443, "path": "/secret" });
        assert_eq!(service.object(""), json!({ "service": expected, "caBundle": "UEVN" }));
        assert!(!format!("{service:?}").contains("secret"));
    }
}
