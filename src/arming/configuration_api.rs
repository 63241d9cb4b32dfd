//! Reads and applies the webhook configuration, and reports changes of its rules as Events.

use std::time::Duration;

use futures::stream::BoxStream;
use futures::{StreamExt, future};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{DynamicObject, PartialObjectMeta, Patch, PatchParams};
use kube::core::response::{Status, StatusDetails};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::warn;

use super::client_config::ClientConfig;
use super::configuration::{CONFIGURATION, OwnerRole};
use crate::FIELD_MANAGER;
use crate::announcer::{Announcement, Announcer};
use crate::policy::Restrictions;
use crate::watching::{WatchBackoff, with_deadlines};

/// Timeout of a read.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

const CONFIGURATIONS: &str = "mutatingwebhookconfigurations";
const ROLES: &str = "clusterroles";

/// What the watch shows of the configuration.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It has this resource version.
    Version(String),
    /// It does not exist.
    Missing,
    /// The watch failed, so that changes may be missing.
    Unknown,
}

/// What a write requires of the stored configuration.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Precondition<'a> {
    /// Its uid: a deleted configuration is not created again.
    pub(super) uid: Option<&'a str>,
    /// Its resource version: changes since then are not overwritten.
    pub(super) version: Option<&'a str>,
}

/// Why an apply failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ApplyError {
    /// The stored configuration is not the one that the write requires.
    Outdated,
    /// The API server returned an error or did not answer in time.
    Failed(String),
}

/// The webhook configuration in the API server.
pub struct ConfigurationApi {
    client: Client,
    configurations: Api<DynamicObject>,
    roles: Api<DynamicObject>,
    owner_role: Option<String>,
    announcer: Announcer,
    acknowledged: watch::Sender<Option<ClientConfig>>,
    restrictions: watch::Sender<Restrictions>,
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
        let (acknowledged, restrictions) = (watch::Sender::new(None), watch::Sender::default());
        let client = client.clone();
        Self { client, configurations, roles, owner_role, announcer, acknowledged, restrictions }
    }

    /// Returns what other writers have added to the entry for Event writes.
    pub fn restrictions(&self) -> watch::Receiver<Restrictions> {
        self.restrictions.subscribe()
    }

    /// Publishes what other writers have added.
    pub(super) fn restrict(&self, restrictions: Restrictions) {
        self.restrictions.send_if_modified(|sent| {
            let differs = *sent != restrictions;
            *sent = restrictions;
            differs
        });
    }

    /// Watches the configuration, and only this one. Calls `responded` for each response of the API server, including
    /// bookmarks. Retries with exponential backoff.
    pub(super) fn changes(&self, responded: impl Fn() + Send + Sync + 'static) -> BoxStream<'static, Change> {
        // The watch shows when to read. An object would have up to 66 KB of namespaces.
        let metadata: Api<PartialObjectMeta<MutatingWebhookConfiguration>> =
            Api::all(with_deadlines(&self.client, responded));
        let only = watcher::Config::default().fields(&format!("metadata.name={CONFIGURATION}"));
        let events = watcher(metadata, only).backoff(WatchBackoff::default());
        let mut listed = Change::Missing;
        events.filter_map(move |event| future::ready(change(event, &mut listed))).boxed()
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
    /// answer.
    pub(super) async fn apply(
        &self,
        object: &Value,
        required: Precondition<'_>,
        deadline: Duration,
    ) -> Result<Value, ApplyError> {
        // squelch owns these fields and overwrites changes by other writers.
        let as_owner = PatchParams { force: true, ..PatchParams::apply(FIELD_MANAGER) };
        let mut object = object.clone();
        let Precondition { uid, version } = required;
        for (field, value) in [("uid", uid), ("resourceVersion", version)] {
            if let Some(value) = value {
                object["metadata"][field] = value.into();
            }
        }
        let object = Patch::Apply(object);
        match timeout(deadline, self.configurations.patch(CONFIGURATION, &as_owner, &object)).await {
            Ok(Ok(configuration)) => value(&configuration).map_err(ApplyError::Failed),
            Ok(Err(kube::Error::Api(status)))
                if status.code == 409 && (uid.is_some() || version.is_some()) =>
            {
                Err(ApplyError::Outdated)
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
        let (reason, action) = if armed { ("Armed", "Arm") } else { ("Disarmed", "Disarm") };
        self.announce_about(uid, warning, reason, action, note);
    }

    /// Reports in an Event about the configuration `uid` that some API servers do not reach the webhook.
    pub(super) fn announce_failing(&self, uid: &str, note: String) {
        self.announce_about(uid, true, "APIServerFailing", "Probe", note);
    }

    fn announce_about(
        &self,
        uid: &str,
        warning: bool,
        reason: &'static str,
        action: &'static str,
        note: String,
    ) {
        let regarding = ObjectReference {
            api_version: Some("admissionregistration.k8s.io/v1".to_owned()),
            kind: Some("MutatingWebhookConfiguration".to_owned()),
            name: Some(CONFIGURATION.to_owned()),
            uid: Some(uid.to_owned()),
            ..ObjectReference::default()
        };
        self.announcer.announce(Announcement { regarding, warning, reason, action, note });
    }
}

/// Returns what an event of the watch shows. `listed` is what the current list has shown so far.
fn change(
    event: watcher::Result<Event<PartialObjectMeta<MutatingWebhookConfiguration>>>,
    listed: &mut Change,
) -> Option<Change> {
    let version =
        |object: PartialObjectMeta<_>| Change::Version(object.metadata.resource_version.unwrap_or_default());
    match event {
        Ok(Event::Apply(object)) => Some(version(object)),
        Ok(Event::Delete(_)) => Some(Change::Missing),
        Ok(Event::Init) => {
            *listed = Change::Missing;
            None
        }
        Ok(Event::InitApply(object)) => {
            *listed = version(object);
            None
        }
        Ok(Event::InitDone) => Some(std::mem::replace(listed, Change::Missing)),
        Err(error) => {
            let hint =
                "check that squelch can list and watch mutatingwebhookconfigurations with the name squelch";
            warn!(%error, hint, "watch of the webhook configuration failed, reading it and retrying");
            Some(Change::Unknown)
        }
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
