//! What the MutatingWebhookConfiguration should be. Pure.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Value, json};

use crate::FIELD_MANAGER;

/// The name of the MutatingWebhookConfiguration that squelch owns.
pub const NAME: &str = "squelch";

/// Beyond this many namespaces the selector names none and the webhook is asked about all: a selector of 1,000
/// names costs 66 KB in every watcher of the configuration.
pub const MAX_NAMED_NAMESPACES: usize = 1000;

/// Of which namespaces the webhook is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// None: there is no policy, or the rules are taken away. The webhook has no rules then.
    Nothing,
    /// These.
    Named(BTreeSet<String>),
    /// All.
    Everything,
}

impl Reach {
    /// The reach that covers `namespaces`, and not much more.
    pub fn of(namespaces: BTreeSet<String>) -> Self {
        match namespaces.len() {
            0 => Self::Nothing,
            1..=MAX_NAMED_NAMESPACES => Self::Named(namespaces),
            _ => Self::Everything,
        }
    }
}

/// Where the API server finds the webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Outside of the cluster: scheme, host and port, such as `https://127.0.0.1:9443`.
    Url(String),
    /// Inside of it.
    Service {
        /// The Service's namespace.
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
    /// Where it is.
    pub address: Address,
    /// The path with the token: a secret.
    pub path: String,
    /// The authorities that the API server is to trust, PEM.
    pub ca_bundle: String,
}

impl ClientConfig {
    fn object(&self) -> Value {
        use base64::Engine as _;
        let ca_bundle = base64::engine::general_purpose::STANDARD.encode(&self.ca_bundle);
        let path = &self.path;
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

/// Everything that the configuration depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    /// How the API server calls the webhook.
    pub client: ClientConfig,
    /// squelch's own user name: its writes are never asked about.
    pub own_user: String,
    /// Of which namespaces it is asked.
    pub reach: Reach,
}

impl Desired {
    /// The whole object, for server-side apply: an entry or a field left out would be deleted.
    pub(super) fn object(&self) -> Value {
        let mut events = json!({
            "name": "events.squelch.dev",
            "admissionReviewVersions": ["v1"],
            "clientConfig": self.client.object(),
            // Whatever becomes of squelch, Events are written.
            "failurePolicy": "Ignore",
            // The shortest there is: what an Event write waits for at most.
            "timeoutSeconds": 1,
            // A dry run changes nothing; other writes change what is counted and owed.
            "sideEffects": "NoneOnDryRun",
            // Writes through events.k8s.io are asked about as well, in the shape of core/v1.
            "matchPolicy": "Equivalent",
            // A second look at the same write would say nothing new.
            "reinvocationPolicy": "Never",
            "matchConditions": [{
                "name": "not-squelch-itself",
                "expression": format!("request.userInfo.username != '{}'", escaped(&self.own_user)),
            }],
            "namespaceSelector": {},
            "objectSelector": {},
            "rules": [],
        });
        if let Reach::Named(namespaces) = &self.reach {
            events["namespaceSelector"] = json!({ "matchExpressions": [{
                "key": "kubernetes.io/metadata.name",
                "operator": "In",
                "values": namespaces,
            }]});
        }
        if self.reach != Reach::Nothing {
            events["rules"] = json!([{
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE", "UPDATE"],
                "resources": ["events"],
                "scope": "Namespaced",
            }]);
        }
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": { "name": NAME, "labels": { "app.kubernetes.io/managed-by": FIELD_MANAGER } },
            "webhooks": [events],
        })
    }
}

/// A user name inside a CEL string.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\'', "\\'")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desired(reach: Reach) -> Value {
        let own_user = "system:serviceaccount:squelch:squelch".to_owned();
        let client = client(Address::Url("https://h".into()));
        let object = Desired { client, own_user, reach }.object();
        object["webhooks"][0].clone()
    }

    fn client(address: Address) -> ClientConfig {
        ClientConfig { address, path: "/secret".into(), ca_bundle: "PEM".into() }
    }

    #[test]
    fn the_webhook_is_a_url_or_a_service() {
        let url = client(Address::Url("https://h".into()));
        assert_eq!(url.object(), json!({ "url": "https://h/secret", "caBundle": "UEVN" }));
        let service = client(Address::Service { namespace: "n".into(), name: "squelch".into(), port: 443 });
        let expected = json!({ "namespace": "n", "name": "squelch", "port": 443, "path": "/secret" });
        assert_eq!(service.object(), json!({ "service": expected, "caBundle": "UEVN" }));
        assert!(!format!("{service:?}").contains("secret"));
    }

    #[test]
    fn without_a_policy_there_are_no_rules() {
        assert_eq!(desired(Reach::of(BTreeSet::new()))["rules"], json!([]));
    }

    #[test]
    fn only_namespaces_with_a_policy_are_asked_about() {
        let entry = desired(Reach::of(BTreeSet::from(["a".to_owned(), "b".to_owned()])));
        assert_eq!(entry["namespaceSelector"]["matchExpressions"][0]["values"], json!(["a", "b"]));
        assert_eq!(entry["rules"][0]["operations"], json!(["CREATE", "UPDATE"]));
        assert_eq!((&entry["failurePolicy"], &entry["timeoutSeconds"]), (&json!("Ignore"), &json!(1)));
    }

    #[test]
    fn too_many_namespaces_are_all_namespaces() {
        let many = (0..=MAX_NAMED_NAMESPACES).map(|n| format!("n{n}")).collect();
        assert_eq!(Reach::of(many), Reach::Everything);
        assert_eq!(desired(Reach::Everything)["namespaceSelector"], json!({}));
    }

    #[test]
    fn a_quote_in_a_user_name_stays_inside_the_expression() {
        assert_eq!(escaped(r"o'neill\"), r"o\'neill\\");
    }
}
