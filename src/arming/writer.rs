//! The configuration in the API server: written, looked at, and spoken of.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::response::{Status, StatusDetails};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::timeout;

use super::client::ClientConfig;
use super::configuration::{NAME, Owner};
use crate::FIELD_MANAGER;
use crate::announcer::{Announcement, Announcer};

/// A look that has no answer after this long is given up.
const LOOK_DEADLINE: Duration = Duration::from_secs(2);

const CONFIGURATIONS: &str = "mutatingwebhookconfigurations";
const ROLES: &str = "clusterroles";

/// Why it was not written.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unwritten {
    /// It is gone, or another stands in its place.
    NotThatOne,
    /// What the API server answers, or that it did not in time.
    Failed(String),
}

/// The configuration in the API server.
pub struct Arming {
    configurations: Api<DynamicObject>,
    roles: Api<DynamicObject>,
    owner_role: Option<String>,
    announcer: Announcer,
    acknowledged: watch::Sender<Option<ClientConfig>>,
}

impl Arming {
    /// Writes through `client`; `announcer` hears when the rules come and go. The configuration belongs to the
    /// ClusterRole `owner_role`, if one is named.
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

    /// How the API server calls the webhook by what it has acknowledged last; `None` before it has anything.
    pub fn acknowledged(&self) -> watch::Receiver<Option<ClientConfig>> {
        self.acknowledged.subscribe()
    }

    /// The API server calls the webhook so from now on.
    pub(super) fn acknowledge(&self, client: ClientConfig) {
        self.acknowledged.send_replace(Some(client));
    }

    /// Makes the configuration what `object` says, within `deadline`; as it is stored then. In force about a
    /// millisecond after the answer. With the uid of `known` none is made in place of one that somebody has deleted.
    pub(super) async fn apply(
        &self,
        object: &Value,
        known: Option<&str>,
        deadline: Duration,
    ) -> Result<Value, Unwritten> {
        // Nobody else has a say in these fields: what a person changed by hand is taken back.
        let as_owner = PatchParams { force: true, ..PatchParams::apply(FIELD_MANAGER) };
        let mut object = object.clone();
        if let Some(uid) = known {
            object["metadata"]["uid"] = uid.into();
        }
        let object = Patch::Apply(object);
        match timeout(deadline, self.configurations.patch(NAME, &as_owner, &object)).await {
            Ok(Ok(configuration)) => value(&configuration).map_err(Unwritten::Failed),
            Ok(Err(kube::Error::Api(status))) if status.code == 409 && known.is_some() => {
                Err(Unwritten::NotThatOne)
            }
            Ok(Err(error)) => Err(Unwritten::Failed(error.to_string())),
            Err(_) => Err(Unwritten::Failed(format!("no answer within {} s", deadline.as_secs()))),
        }
    }

    /// The configuration as it stands there; `None` if it does not.
    pub(super) async fn look(&self) -> Result<Option<Value>, String> {
        read(&self.configurations, CONFIGURATIONS, NAME).await?.map(|found| value(&found)).transpose()
    }

    /// The ClusterRole that the configuration belongs to; `None` if none is named or it does not exist.
    pub(super) async fn owner(&self) -> Result<Option<Owner>, String> {
        let Some(name) = &self.owner_role else { return Ok(None) };
        let found = read(&self.roles, ROLES, name).await?;
        let uid = found.and_then(|role| role.metadata.uid);
        Ok(uid.map(|uid| Owner { name: name.clone(), uid }))
    }

    /// Tells in an Event about the configuration of this uid that the rules came or went.
    pub(super) fn announce(&self, uid: &str, armed: bool, trouble: bool, note: String) {
        let regarding = ObjectReference {
            api_version: Some("admissionregistration.k8s.io/v1".to_owned()),
            kind: Some("MutatingWebhookConfiguration".to_owned()),
            name: Some(NAME.to_owned()),
            uid: Some(uid.to_owned()),
            ..ObjectReference::default()
        };
        let reason = if armed { "Armed" } else { "Disarmed" };
        self.announcer.tell(Announcement { regarding, warning: trouble, reason, action: "Arm", note });
    }
}

fn value(object: &DynamicObject) -> Result<Value, String> {
    serde_json::to_value(object).map_err(|error| error.to_string())
}

/// Whether the API server says that this object does not exist. Any other 404 (a proxy's page, an API server that does
/// not serve the resource yet) says nothing about it.
fn says_not_found(status: &Status, resource: &str, name: &str) -> bool {
    let is_about_it = |details: &StatusDetails| details.kind == resource && details.name == name;
    status.code == 404 && status.details.as_ref().is_some_and(is_about_it)
}

async fn read(api: &Api<DynamicObject>, resource: &str, name: &str) -> Result<Option<DynamicObject>, String> {
    match timeout(LOOK_DEADLINE, api.get(name)).await {
        Ok(Ok(found)) => Ok(Some(found)),
        Ok(Err(kube::Error::Api(status))) if says_not_found(&status, resource, name) => Ok(None),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", LOOK_DEADLINE.as_secs())),
    }
}
