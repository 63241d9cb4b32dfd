//! Reads, creates and writes the Lease. RBAC limits every call to its name.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::timeout;
use tracing::instrument::WithSubscriber as _;
use tracing::subscriber::NoSubscriber;

use super::election::{Identity, LEASE_DURATION, LeaseRecord, LeaseState, RENEW_DEADLINE};
use crate::{FIELD_MANAGER, clock};

/// The name of the Lease.
pub const NAME: &str = "squelch";

/// Timeout of a read and of a release. Three of them fit into [`RENEW_DEADLINE`].
pub(super) const TIMEOUT: Duration = Duration::from_millis(900);

/// Timeout of a renewal. A later answer would confirm a deadline that has passed.
const RENEW_TIMEOUT: Duration = RENEW_DEADLINE;

/// `leaseDurationSeconds` of a released Lease, as in client-go. A person who empties `holderIdentity` leaves the
/// duration of a held Lease.
const RELEASED_DURATION: i32 = 1;

/// The ServiceAccount that owns the Lease: garbage collection deletes both together.
#[derive(Clone, Debug)]
pub struct LeaseOwner {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// The Lease in the API server.
#[derive(Clone)]
pub struct Lease {
    leases: Api<v1::Lease>,
    namespace: String,
    identity: Identity,
    owner: Option<LeaseOwner>,
}

/// The result of a write that reached the API server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LeaseWrite {
    /// The Lease is stored like this.
    Stored(LeaseRecord),
    /// Another writer has changed, created or deleted the Lease.
    Conflict,
}

impl Lease {
    /// The Lease in `namespace`, for the process `identity`.
    pub fn new(client: Client, namespace: &str, identity: Identity, owner: Option<LeaseOwner>) -> Self {
        Self { leases: Api::namespaced(client, namespace), namespace: namespace.to_owned(), identity, owner }
    }

    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(super) fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(super) async fn read(&self) -> Result<LeaseState, CallError> {
        match called(self.leases.get(NAME), TIMEOUT).await {
            Ok(lease) => Ok(LeaseState::Present(record(lease))),
            Err(CallError::Status(404)) => Ok(LeaseState::Absent),
            Err(error) => Err(error),
        }
    }

    /// Acquires or renews the Lease with the given `renewTime` (microseconds), if it is still as `found`.
    pub(super) async fn acquire(self, found: LeaseState, renew_time: i64) -> Result<LeaseWrite, String> {
        let now = time(Timestamp::from_microsecond(renew_time).map_err(|error| error.to_string())?)?;
        let mut spec = json!({
            "holderIdentity": self.identity.name(),
            "leaseDurationSeconds": LEASE_DURATION.as_secs(),
            "renewTime": now,
        });
        let before = match &found {
            LeaseState::Absent => None,
            LeaseState::Present(before) => Some(before),
        };
        let mut metadata = json!({});
        if before.is_none_or(|before| before.holder != self.identity.name()) {
            if let Some(LeaseOwner { name, uid }) = &self.owner {
                // Also for an existing Lease: the ServiceAccount of an earlier installation may own it.
                metadata["ownerReferences"] = json!([{
                    "apiVersion": "v1", "kind": "ServiceAccount", "name": name, "uid": uid,
                    "blockOwnerDeletion": false,
                }]);
            }
            spec["acquireTime"] = now;
            spec["leaseTransitions"] = json!(before.map_or(0, |before| before.transitions.saturating_add(1)));
        }
        match before {
            None => self.create(metadata, spec).await,
            Some(before) => self.update(&before.resource_version, metadata, spec, RENEW_TIMEOUT).await,
        }
    }

    /// Releases the Lease, if it is still as `own`.
    pub(super) async fn release(&self, own: &LeaseRecord) -> Result<LeaseWrite, String> {
        let spec = json!({
            "holderIdentity": "",
            "leaseDurationSeconds": RELEASED_DURATION,
            "renewTime": time(clock::wall())?,
        });
        self.update(&own.resource_version, json!({}), spec, TIMEOUT).await
    }

    /// Creates the Lease by server-side apply, because RBAC cannot limit a create to a name. Each process has a field
    /// manager of its own and does not force, so that of two creates one is refused.
    async fn create(&self, mut metadata: Value, spec: Value) -> Result<LeaseWrite, String> {
        let random = self.identity.name().rsplit('_').next().unwrap_or_default();
        metadata["name"] = NAME.into();
        metadata["labels"] = json!({ "app.kubernetes.io/managed-by": FIELD_MANAGER });
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec,
        });
        let manager = PatchParams::apply(&format!("{FIELD_MANAGER}-{random}"));
        self.patch(&manager, &Patch::Apply(lease), RENEW_TIMEOUT).await
    }

    async fn update(
        &self,
        resource_version: &str,
        mut metadata: Value,
        spec: Value,
        deadline: Duration,
    ) -> Result<LeaseWrite, String> {
        metadata["resourceVersion"] = resource_version.into();
        let change = json!({ "metadata": metadata, "spec": spec });
        let manager = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        self.patch(&manager, &Patch::Merge(change), deadline).await
    }

    async fn patch(
        &self,
        manager: &PatchParams,
        patch: &Patch<Value>,
        deadline: Duration,
    ) -> Result<LeaseWrite, String> {
        match called(self.leases.patch(NAME, manager, patch), deadline).await {
            Ok(lease) => Ok(LeaseWrite::Stored(record(lease))),
            Err(CallError::Status(409 | 404)) => Ok(LeaseWrite::Conflict),
            Err(error) => Err(error.into()),
        }
    }
}

/// Why a call failed.
pub(super) enum CallError {
    /// 404 or 409.
    Status(u16),
    /// 401, 403 or 429: another call will not be answered better at once.
    Refused(String),
    Other(String),
}

impl From<CallError> for String {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Status(code) => format!("the API server returned {code}"),
            CallError::Refused(message) | CallError::Other(message) => message,
        }
    }
}

/// Makes a call with a timeout and without the client library's logs: it logs each failed call as an error, and these
/// calls are made each second.
async fn called<T>(call: impl Future<Output = kube::Result<T>>, deadline: Duration) -> Result<T, CallError> {
    let answered = timeout(deadline, call).with_subscriber(NoSubscriber::new()).await;
    let late = |_| CallError::Other(format!("no answer within {} ms", deadline.as_millis()));
    answered.map_err(late)?.map_err(|error| match error {
        kube::Error::Api(status) if matches!(status.code, 404 | 409) => CallError::Status(status.code),
        kube::Error::Api(status) if matches!(status.code, 401 | 403 | 429) => {
            CallError::Refused(kube::Error::Api(status).to_string())
        }
        error => CallError::Other(error.to_string()),
    })
}

fn time(at: Timestamp) -> Result<Value, String> {
    serde_json::to_value(MicroTime(at)).map_err(|error| error.to_string())
}

fn record(lease: v1::Lease) -> LeaseRecord {
    let spec = lease.spec.unwrap_or_default();
    let holder = spec.holder_identity.unwrap_or_default();
    LeaseRecord {
        released: holder.is_empty() && spec.lease_duration_seconds == Some(RELEASED_DURATION),
        holder,
        resource_version: lease.metadata.resource_version.unwrap_or_default(),
        transitions: spec.lease_transitions.unwrap_or_default(),
        renew_time: spec.renew_time.map(|MicroTime(at)| at.as_microsecond()),
    }
}
