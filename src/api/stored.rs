//! Policies as the API server stores them, reduced to the fields that squelch reads.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Resource;
use kube::core::{ApiResource, DynamicObject, ObjectMeta};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// Maximum number of objects in one page of a list of policies or namespaces.
///
/// A user chooses the size of an object, and etcd stores up to 1.5 MiB (`--max-request-bytes`). A namespace is stored as
/// protobuf. As JSON it can take 2.75 MiB, since control characters in its annotations (256 KiB) are escaped. kube keeps
/// three copies of a page while it reads it: the received chunks, one buffer of them, and its text. So a page of policies
/// takes up to 45 MiB, a page of namespaces up to 83 MiB, and the three lists that start together up to 173 MiB. The chart's
/// memory limit of 640Mi leaves 192 MiB for them, after the series (320 MiB) and the bodies of reviews (128 MiB).
pub const PAGE: u32 = 10;

/// A policy of either kind: name, namespace, uid, generation, creation time and resource version, and `spec` and
/// `status` untyped, so that a policy that cannot be parsed is still an object. Other fields are skipped and cost no
/// memory: labels, annotations and managedFields can take up to 1.5 MiB, and many times that as parsed values.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "PolicyFields")]
pub struct StoredPolicy(pub DynamicObject);

#[derive(Deserialize)]
struct PolicyFields {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default, deserialize_with = "present")]
    spec: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    status: Option<Value>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
}

/// Deserializes a field that is present, including one that is `null`.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl From<PolicyFields> for StoredPolicy {
    fn from(PolicyFields { metadata, spec, status }: PolicyFields) -> Self {
        let Metadata { name, namespace, uid, resource_version, generation, creation_timestamp } = metadata;
        let metadata = ObjectMeta {
            name,
            namespace,
            uid,
            resource_version,
            generation,
            creation_timestamp,
            ..ObjectMeta::default()
        };
        let fields = [("spec", spec), ("status", status)].into_iter();
        let data: Map<_, _> = fields.filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
        Self(DynamicObject { types: None, metadata, data: Value::Object(data) })
    }
}

impl Resource for StoredPolicy {
    type DynamicType = ApiResource;
    type Scope = <DynamicObject as Resource>::Scope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        DynamicObject::kind(resource)
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        DynamicObject::group(resource)
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        DynamicObject::version(resource)
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        DynamicObject::plural(resource)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.0.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.0.metadata
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn stored(value: Value) -> DynamicObject {
        let StoredPolicy(policy) = serde_json::from_value(value).unwrap();
        policy
    }

    #[test]
    fn a_stored_policy_keeps_only_the_fields_that_squelch_reads() {
        let metadata = json!({
            "name": "p", "namespace": "ci", "uid": "u", "resourceVersion": "7", "generation": 3,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        });
        let data = json!({"spec": {"mode": "Observe"}, "status": {"observedGeneration": 2}});
        let mut whole = json!({
            "apiVersion": "squelch.dev/v1alpha1", "kind": "EventPolicy", "metadata": metadata,
            "spec": data["spec"], "status": data["status"], "other": [1, {"a": null}],
        });
        for skipped in ["labels", "annotations", "managedFields", "ownerReferences", "finalizers"] {
            whole["metadata"][skipped] = json!([{"a": "b"}]);
        }
        let policy = stored(whole);
        assert_eq!(serde_json::to_value(policy.metadata).unwrap(), metadata);
        assert_eq!(policy.data, data);
    }

    #[test]
    fn a_spec_of_null_differs_from_a_missing_spec() {
        assert_eq!(stored(json!({"spec": null})).data, json!({"spec": null}));
        assert_eq!(stored(json!({"metadata": {}})).data, json!({}));
    }
}
