//! What was read of an installation, before anybody judges it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

use super::rights::Right;

/// Why something was not seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unseen {
    /// It is not there.
    Missing,
    /// Who asks may not see it.
    Forbidden,
    /// In words.
    Failed(String),
}

/// What a look brought.
pub type Look<T> = Result<T, Unseen>;

/// How squelch is installed, by its Deployment where there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    /// Its namespace.
    pub namespace: String,
    /// Its Deployment.
    pub deployment: String,
    /// The user under which it writes.
    pub own_user: String,
    /// The Secret of its keys.
    pub secret: String,
    /// The ClusterRole that its configuration belongs to.
    pub owner_role: Option<String>,
    /// False: the break glass `--enforce=false`.
    pub enforce: bool,
    /// Its certificate is made by others.
    pub mounted: bool,
}

/// Everything that was read.
#[derive(Clone, Debug)]
pub struct Seen {
    /// When, by the clock of who looks.
    pub at: Timestamp,
    /// How squelch is installed.
    pub installation: Installation,
    /// The API server's version: major, minor, and the whole.
    pub version: (String, String, String),
    /// The definitions by the names that they should have.
    pub definitions: Vec<(String, Look<CustomResourceDefinition>)>,
    /// The rights that squelch needs, and which of them it has.
    pub rights: Look<Vec<(Right, bool)>>,
    /// Its Deployment.
    pub deployment: Look<Deployment>,
    /// The pods of that.
    pub pods: Look<Vec<Pod>>,
    /// The metrics of each of them, by name.
    pub scraped: Look<Vec<(String, Look<String>)>>,
    /// The Lease of the replica that decides.
    pub lease: Look<Lease>,
    /// Where the webhook's Service leads to; `None` where the webhook is no Service.
    pub endpoints: Option<Look<Vec<EndpointSlice>>>,
    /// The Secret of the keys.
    pub secret: Look<BTreeMap<String, Vec<u8>>>,
    /// The webhook configuration.
    pub configuration: Look<MutatingWebhookConfiguration>,
    /// The uid of the ClusterRole that it belongs to.
    pub owner_uid: Look<String>,
    /// Until when the certificate is good that the webhook answers with, and how long it was made for; `None` where it
    /// cannot be dialled from here.
    pub served: Option<Result<crate::tls::Validity, String>>,
    /// Whether the API server reaches the webhook; `Err` says what the proof became instead.
    pub proof: Look<Result<(), String>>,
    /// All EventPolicies.
    pub policies: Look<Vec<Value>>,
    /// All ClusterEventPolicies.
    pub cluster_policies: Look<Vec<Value>>,
    /// The API server's metrics.
    pub metrics: Look<String>,
}
