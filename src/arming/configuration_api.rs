//! Reads and applies the webhook configuration, and reports changes of its rules as Events.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::response::{Status, StatusDetails};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::timeout;

use super::client_config::ClientConfig;
use super::configuration::{CONFIGURATION, OwnerRole};
use crate::FIELD_MANAGER;
use crate::announcer::{Announcement, Announcer};

/// Timeout of a read.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

const CONFIGURATIONS: &str = "mutatingwebhookconfigurations";
const ROLES: &str = "clusterroles";

/// Why an apply failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ApplyError {
    /// The configuration was deleted, or deleted and created again.
    Replaced,
    /// The API server returned an error or did not answer in time.
    Failed(String),
}

/// The webhook configuration in the API server.
pub struct ConfigurationApi {
    configurations: Api<DynamicObject>,
    roles: Api<DynamicObject>,
    owner_role: Option<String>,
    announcer: Announcer,
    acknowledged: watch::Sender<Option<ClientConfig>>,
}

impl ConfigurationApi {
    /// Uses `client`, and reports armed and disarmed through `announcer`. The ClusterRole `owner_role` owns the
    /// configuration, if one is named.
    pub fn new(client: &Client, announcer: Announcer, owner_role: Option<String>) -> Self {
        let all = |group, kind, plural| {
            let kind = GroupVersionKind::gvk(group, "v1", kind);
            Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&kind, plural))
        };
        let configurations =
            all("admissionregistration.k8s.io", "MutatingWebhookConfiguration", CONFIGURATIONS);
        let roles = all("rbac.authorization.k8s.io", "ClusterRole", ROLES);
        let acknowledged = watch::Sender::new(None);
        Self { configurations, roles, owner_role, announcer, acknowledged }
    }

    /// Returns the client configuration that the API server has last acknowledged. `None` before the first write.
    pub fn acknowledged(&self) -> watch::Receiver<Option<ClientConfig>> {
        self.acknowledged.subscribe()
    }

    /// Records an acknowledged client configuration.
    pub(super) fn acknowledge(&self, client: ClientConfig) {
        self.acknowledged.send_replace(Some(client));
    }

    /// Applies `object` within `deadline`. Returns the stored object. It is in force about a millisecond after the
    /// answer. With the uid `known`, a deleted configuration is not created again.
    pub(super) async fn apply(
        &self,
        object: &Value,
        known: Option<&str>,
        deadline: Duration,
    ) -> Result<Value, ApplyError> {
        // squelch owns these fields and overwrites changes by other writers.
        let as_owner = PatchParams { force: true, ..PatchParams::apply(FIELD_MANAGER) };
        let mut object = object.clone();
        if let Some(uid) = known {
            object["metadata"]["uid"] = uid.into();
        }
        let object = Patch::Apply(object);
        match timeout(deadline, self.configurations.patch(CONFIGURATION, &as_owner, &object)).await {
            Ok(Ok(configuration)) => value(&configuration).map_err(ApplyError::Failed),
            Ok(Err(kube::Error::Api(status))) if status.code == 409 && known.is_some() => {
                Err(ApplyError::Replaced)
            }
            Ok(Err(error)) => Err(ApplyError::Failed(error.to_string())),
            Err(_) => Err(ApplyError::Failed(format!("no answer within {} s", deadline.as_secs()))),
        }
    }

    /// Reads the configuration. `None` if there is none.
    pub(super) async fn read(&self) -> Result<Option<Value>, String> {
        read(&self.configurations, CONFIGURATIONS, CONFIGURATION)
            .await?
            .map(|found| value(&found))
            .transpose()
    }

    /// Reads the ClusterRole that owns the configuration. `None` if none is named or it does not exist.
    pub(super) async fn read_owner(&self) -> Result<Option<OwnerRole>, String> {
        let Some(name) = &self.owner_role else { return Ok(None) };
        let found = read(&self.roles, ROLES, name).await?;
        let uid = found.and_then(|role| role.metadata.uid);
        Ok(uid.map(|uid| OwnerRole { name: name.clone(), uid }))
    }

    /// Reports in an Event about the configuration `uid` that the webhook was armed or disarmed.
    pub(super) fn announce(&self, uid: &str, armed: bool, warning: bool, note: String) {
        let regarding = ObjectReference {
            api_version: Some("admissionregistration.k8s.io/v1".to_owned()),
            kind: Some("MutatingWebhookConfiguration".to_owned()),
            name: Some(CONFIGURATION.to_owned()),
            uid: Some(uid.to_owned()),
            ..ObjectReference::default()
        };
        let (reason, action) = if armed { ("Armed", "Arm") } else { ("Disarmed", "Disarm") };
        self.announcer.announce(Announcement { regarding, warning, reason, action, note });
    }
}

fn value(object: &DynamicObject) -> Result<Value, String> {
    serde_json::to_value(object).map_err(|error| error.to_string())
}

/// Whether the API server says that this object does not exist. Any other 404 does not count, such as a proxy's page,
/// or that of an API server that does not serve the resource yet.
fn says_not_found(status: &Status, resource: &str, name: &str) -> bool {
    let is_about_object = |details: &StatusDetails| details.kind == resource && details.name == name;
    status.code == 404 && status.details.as_ref().is_some_and(is_about_object)
}

async fn read(api: &Api<DynamicObject>, resource: &str, name: &str) -> Result<Option<DynamicObject>, String> {
    match timeout(READ_TIMEOUT, api.get(name)).await {
        Ok(Ok(found)) => Ok(Some(found)),
        Ok(Err(kube::Error::Api(status))) if says_not_found(&status, resource, name) => Ok(None),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", READ_TIMEOUT.as_secs())),
    }
}
