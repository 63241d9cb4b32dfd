//! What `collect` reads of an installation. The checks judge it.

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

/// Why something could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// It does not exist.
    Missing,
    /// The account has no permission to read it.
    Forbidden,
    /// The call failed, with its error.
    Failed(String),
}

/// The result of a read.
pub type Observed<T> = Result<T, Unreadable>;

/// Whether a probe succeeded. An inner `Err` says how it failed.
pub type ProbeFound = Observed<Result<(), String>>;

/// How squelch is installed, by its Deployment if that can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    /// Its namespace.
    pub namespace: String,
    /// Its Deployment.
    pub deployment: String,
    /// The user of its writes.
    pub own_user: String,
    /// The Secret of its keys.
    pub secret: String,
    /// The ClusterRole that owns the webhook configuration.
    pub owner_role: Option<String>,
    /// Whether `--disarm` is set.
    pub disarmed: bool,
    /// Whether its certificate is mounted, not issued by squelch.
    pub mounted: bool,
}

/// Everything that was read.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The time, by the clock of this process.
    pub at: Timestamp,
    /// How squelch is installed.
    pub installation: Installation,
    /// The version of the API server: major, minor, and the whole.
    pub version: (String, String, String),
    /// The CustomResourceDefinitions by their expected names.
    pub definitions: Vec<(String, Observed<CustomResourceDefinition>)>,
    /// The permissions that squelch needs, and whether it has each.
    pub rights: Observed<Vec<(Right, bool)>>,
    /// Its Deployment.
    pub deployment: Observed<Deployment>,
    /// The pods of the Deployment.
    pub pods: Observed<Vec<Pod>>,
    /// The metrics of each pod, by its name.
    pub scraped: Observed<Vec<(String, Observed<String>)>>,
    /// The Lease of the active replica.
    pub lease: Observed<Lease>,
    /// The endpoints of the webhook's Service; `None` if the webhook has a URL.
    pub endpoints: Option<Observed<Vec<EndpointSlice>>>,
    /// The Secret of the keys.
    pub secret: Observed<BTreeMap<String, Vec<u8>>>,
    /// The webhook configuration.
    pub configuration: Observed<MutatingWebhookConfiguration>,
    /// The uid of the ClusterRole that owns the configuration.
    pub owner_uid: Observed<String>,
    /// The validity of the certificate that the webhook serves; `None` if the webhook cannot be reached from here.
    pub served: Option<Result<crate::tls::Validity, String>>,
    /// The probe.
    pub probe: ProbeFound,
    /// Whether the probe through each API server succeeded, by its address.
    pub api_servers: Observed<Vec<(String, ProbeFound)>>,
    /// All EventPolicies.
    pub policies: Observed<Vec<Value>>,
    /// All ClusterEventPolicies.
    pub cluster_policies: Observed<Vec<Value>>,
    /// The metrics of the API server.
    pub metrics: Observed<String>,
}
