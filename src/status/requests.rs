//! The reads and writes of statuses through the API server.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{ListParams, Patch, PatchParams};
use kube::core::ApiResource;
use kube::{Api, Client};
use serde::Deserialize as _;
use serde_json::json;
use tracing::{debug, warn};

use super::plan::Due;
use crate::FIELD_MANAGER;
use crate::api::{ClusterEventPolicy, EventPolicy, EventPolicyStatus, PAGE, StoredPolicy};
use crate::policy::Policy;

/// Timeout of one write.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout of one page of the list of all policies.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);

/// Reads the statuses of all policies, by policy uid.
pub(super) async fn statuses(client: &Client) -> Result<HashMap<Arc<str>, EventPolicyStatus>, String> {
    let kinds = [ApiResource::erase::<EventPolicy>(&()), ApiResource::erase::<ClusterEventPolicy>(&())];
    let mut statuses = HashMap::new();
    for kind in kinds {
        // Untyped, so that policies with an invalid spec can be read.
        let policies: Api<StoredPolicy> = Api::all_with(client.clone(), &kind);
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let listed = tokio::time::timeout(LIST_TIMEOUT, policies.list(&page)).await;
            let listed = listed.map_err(|_| format!("no response within {} s", LIST_TIMEOUT.as_secs()))?;
            let listed = listed.map_err(|error| error.to_string())?;
            for StoredPolicy(policy) in listed.items {
                let status = policy.data.get("status").and_then(|it| EventPolicyStatus::deserialize(it).ok());
                if let (Some(uid), Some(status)) = (policy.metadata.uid, status) {
                    statuses.insert(uid.into(), status);
                }
            }
            page.continue_token = listed.metadata.continue_.filter(|token| !token.is_empty());
            if page.continue_token.is_none() {
                break;
            }
        }
    }
    Ok(statuses)
}

/// The outcome of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum WriteOutcome {
    /// The status was written.
    Written,
    /// The policy was deleted, and the watch has not received that yet.
    Gone,
    /// The API server refused the policy as invalid, with this message. Before Kubernetes 1.33, it refuses any write of a
    /// status if the unchanged spec breaks a CEL rule (status_strategy.go of apiextensions-apiserver).
    Refused(String),
    /// The write failed and is retried.
    Failed,
}

/// Writes the whole status with a forced server-side apply, since squelch owns all fields.
pub(super) async fn write(client: &Client, due: &Due) -> WriteOutcome {
    let policy = &due.policy;
    // Untyped, so that the response can be read if the spec is invalid.
    let client = client.clone();
    let resource = resource(policy);
    let policies: Api<StoredPolicy> = match &policy.namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &resource),
        None => Api::all_with(client, &resource),
    };
    // Without uid, since the API server does not compare it in a write of a subresource (seen on 1.35). A policy that was
    // just created again under the name has the old counts until the watch receives it: see [`Plan`](super::plan::Plan).
    let body = json!({
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": &*policy.name},
        "status": due.status,
    });
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let patch = Patch::Apply(&body);
    let write = policies.patch_status(&policy.name, &params, &patch);
    match tokio::time::timeout(WRITE_TIMEOUT, write).await {
        Ok(Ok(_)) => {
            debug!(policy = %policy.id.display, "status written");
            WriteOutcome::Written
        }
        Ok(Err(kube::Error::Api(response))) if response.code == 404 => WriteOutcome::Gone,
        Ok(Err(kube::Error::Api(response))) if response.code == 422 => {
            debug!(policy = %policy.id.display, error = response.message, "status refused");
            WriteOutcome::Refused(response.message.clone())
        }
        Ok(Err(error)) => {
            warn!(policy = %policy.id.display, %error, "writing the status failed, retrying later");
            WriteOutcome::Failed
        }
        Err(_) => {
            warn!(policy = %policy.id.display, "writing the status timed out, retrying later");
            WriteOutcome::Failed
        }
    }
}

/// The resource of the policy's kind.
pub(super) fn resource(policy: &Policy) -> ApiResource {
    match &policy.namespace {
        Some(_) => ApiResource::erase::<EventPolicy>(&()),
        None => ApiResource::erase::<ClusterEventPolicy>(&()),
    }
}
