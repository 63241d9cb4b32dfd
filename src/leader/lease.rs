//! The Lease in the API server: read, made and written by its name alone.

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

use super::election::{Found, Identity, LEASE, Record, TERM};
use crate::{FIELD_MANAGER, clock};

/// The name of the Lease.
pub const NAME: &str = "squelch";

/// A read without an answer after this long has failed: three of them fit into the term of one who decides.
pub(super) const DEADLINE: Duration = Duration::from_millis(900);

/// A write without an answer after this long has failed: an answer after that proves a deadline that has passed.
const LONGEST: Duration = TERM;

/// `leaseDurationSeconds` of a Lease that its holder has released, as in client-go. A person who empties
/// `holderIdentity` leaves the length of a Lease that is held.
const RELEASED: i32 = 1;

/// The ServiceAccount that the Lease goes with.
#[derive(Clone, Debug)]
pub struct Owner {
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
    me: Identity,
    owner: Option<Owner>,
}

/// How a write ended that did not fail.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// It stands there so.
    Done(Record),
    /// Somebody else was first.
    Conflict,
}

impl Lease {
    /// The Lease in `namespace`, for `me`.
    pub fn new(client: Client, namespace: &str, me: Identity, owner: Option<Owner>) -> Self {
        Self { leases: Api::namespaced(client, namespace), namespace: namespace.to_owned(), me, owner }
    }

    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(super) fn me(&self) -> &Identity {
        &self.me
    }

    pub(super) async fn read(&self) -> Result<Found, String> {
        match called(self.leases.get(NAME), DEADLINE).await? {
            Ok(lease) => Ok(Found::Lease(record(lease))),
            Err(CallError::Answered(404)) => Ok(Found::Absent),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes it this replica's, or renews it, with the `renewTime` `renewed`; only over what was `found`.
    pub(super) async fn take(self, found: Found, renewed: i64) -> Result<Written, String> {
        let now = time(Timestamp::from_microsecond(renewed).map_err(|error| error.to_string())?)?;
        let mut spec = json!({
            "holderIdentity": self.me.name(),
            "leaseDurationSeconds": LEASE.as_secs(),
            "renewTime": now,
        });
        let before = match &found {
            Found::Absent => None,
            Found::Lease(before) => Some(before),
        };
        let mut metadata = json!({});
        if before.is_none_or(|before| before.holder != self.me.name()) {
            if let Some(Owner { name, uid }) = &self.owner {
                // Also of one that is there: the account of a former installation takes it along.
                metadata["ownerReferences"] = json!([{
                    "apiVersion": "v1", "kind": "ServiceAccount", "name": name, "uid": uid,
                    "blockOwnerDeletion": false,
                }]);
            }
            spec["acquireTime"] = now;
            spec["leaseTransitions"] = json!(before.map_or(0, |before| before.transitions.saturating_add(1)));
        }
        match before {
            None => self.make(metadata, spec).await,
            Some(before) => self.change(&before.revision, metadata, spec, LONGEST).await,
        }
    }

    /// Gives it back, if it is still as `mine`.
    pub(super) async fn release(&self, mine: &Record) -> Result<Written, String> {
        let spec = json!({
            "holderIdentity": "",
            "leaseDurationSeconds": RELEASED,
            "renewTime": time(clock::wall())?,
        });
        self.change(&mine.revision, json!({}), spec, DEADLINE).await
    }

    /// A plain create cannot be limited to a name by RBAC: server-side apply can. Without force, and under a name of
    /// its own, it is refused where another has made one.
    async fn make(&self, mut metadata: Value, spec: Value) -> Result<Written, String> {
        let maker = self.me.name().rsplit('_').next().unwrap_or_default();
        metadata["name"] = NAME.into();
        metadata["labels"] = json!({ "app.kubernetes.io/managed-by": FIELD_MANAGER });
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec,
        });
        let manager = PatchParams::apply(&format!("{FIELD_MANAGER}-{maker}"));
        self.write(&manager, &Patch::Apply(lease), LONGEST).await
    }

    async fn change(
        &self,
        revision: &str,
        mut metadata: Value,
        spec: Value,
        deadline: Duration,
    ) -> Result<Written, String> {
        metadata["resourceVersion"] = revision.into();
        let change = json!({ "metadata": metadata, "spec": spec });
        let manager = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        self.write(&manager, &Patch::Merge(change), deadline).await
    }

    async fn write(
        &self,
        manager: &PatchParams,
        patch: &Patch<Value>,
        deadline: Duration,
    ) -> Result<Written, String> {
        match called(self.leases.patch(NAME, manager, patch), deadline).await? {
            Ok(lease) => Ok(Written::Done(record(lease))),
            Err(CallError::Answered(409 | 404)) => Ok(Written::Conflict),
            Err(error) => Err(error.into()),
        }
    }
}

/// Why a call has failed.
enum CallError {
    Answered(u16),
    Other(String),
}

impl From<CallError> for String {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Answered(code) => format!("the API server answers {code}"),
            CallError::Other(words) => words,
        }
    }
}

/// Within the deadline, and unheard: the client library calls each failed call an error, and whoever calls each second
/// tells changes only.
async fn called<T>(
    call: impl Future<Output = kube::Result<T>>,
    deadline: Duration,
) -> Result<Result<T, CallError>, String> {
    let answered = timeout(deadline, call).with_subscriber(NoSubscriber::new()).await;
    let answer = answered.map_err(|_| format!("no answer within {} ms", deadline.as_millis()))?;
    Ok(answer.map_err(|error| match error {
        kube::Error::Api(status) if matches!(status.code, 404 | 409) => CallError::Answered(status.code),
        error => CallError::Other(error.to_string()),
    }))
}

fn time(at: Timestamp) -> Result<Value, String> {
    serde_json::to_value(MicroTime(at)).map_err(|error| error.to_string())
}

fn record(lease: v1::Lease) -> Record {
    let spec = lease.spec.unwrap_or_default();
    let holder = spec.holder_identity.unwrap_or_default();
    Record {
        released: holder.is_empty() && spec.lease_duration_seconds == Some(RELEASED),
        holder,
        revision: lease.metadata.resource_version.unwrap_or_default(),
        transitions: spec.lease_transitions.unwrap_or_default(),
        renewed: spec.renew_time.map(|MicroTime(at)| at.as_microsecond()),
    }
}
