//! Policies, namespaces and a write for tests.

pub(crate) mod generated;

use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::{ApiResource, DynamicObject};
use serde_json::{Value, json};
use squelch_engine::{Api, EventView, ObjectReference, Observation, Operation, PolicyId};

use super::{Index, Labels, Policy};
use crate::api::{ClusterEventPolicy, EventPolicy};

/// The identity of a policy, with a uid derived from its name.
pub(crate) fn id(namespace: &str, name: &str) -> PolicyId {
    PolicyId {
        display: format!("{namespace}/{name}").into(),
        uid: format!("uid-of-{namespace}-{name}").into(),
    }
}

/// A policy object of generation 1. `data` contains the fields besides the metadata.
pub(crate) fn object(namespace: &str, name: &str, data: Value) -> DynamicObject {
    let mut object =
        DynamicObject::new(name, &ApiResource::erase::<EventPolicy>(&())).within(namespace).data(data);
    object.metadata.uid = Some(id(namespace, name).uid.to_string());
    object.metadata.generation = Some(1);
    object.metadata.creation_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    object
}

/// A cluster-scoped policy object of generation 1.
pub(crate) fn cluster_object(name: &str, data: Value) -> DynamicObject {
    let mut object = DynamicObject::new(name, &ApiResource::erase::<ClusterEventPolicy>(&())).data(data);
    object.metadata.uid = Some(format!("uid-of-{name}"));
    object.metadata.generation = Some(1);
    object.metadata.creation_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    object
}

/// A compiled policy, created at this second of the Unix epoch, with the status that the API server adds.
pub(crate) fn policy(namespace: &str, name: &str, spec: &Value, created: i64) -> Arc<Policy> {
    read(object(namespace, name, json!({"spec": spec, "status": pending()})), created)
}

/// The default of `status` in the CRDs.
fn pending() -> &'static Value {
    static PENDING: LazyLock<Value> = LazyLock::new(|| {
        let (_, crd) = crate::api::crds().swap_remove(0);
        let versions = serde_json::to_value(crd.spec.versions).unwrap();
        versions.pointer("/0/schema/openAPIV3Schema/properties/status/default").unwrap().clone()
    });
    &PENDING
}

/// A compiled cluster-scoped policy, created at this second of the Unix epoch.
pub(crate) fn cluster_policy(name: &str, spec: &Value, created: i64) -> Arc<Policy> {
    read(cluster_object(name, json!({"spec": spec, "status": pending()})), created)
}

/// Labels of a namespace.
pub(crate) fn labels(labels: &[(&str, &str)]) -> Labels {
    labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn read(mut object: DynamicObject, created: i64) -> Arc<Policy> {
    object.metadata.creation_timestamp = Some(Time(Timestamp::from_second(created).unwrap()));
    let mut index = Index::default();
    index.apply(&object);
    index.set().policies()[0].clone()
}

/// A write in namespace ci: kubelet, as system:node:n1, reports a Warning BackOff of Pod batch-1.
pub(crate) fn event() -> Observation<'static> {
    Observation {
        operation: Operation::Create,
        api: Api::Core,
        user: "system:node:n1",
        own: false,
        dry_run: false,
        namespace: "ci",
        name: Some("batch-1.17".into()),
        generate_name: "".into(),
        event: EventView {
            regarding: ObjectReference {
                api_version: "v1".into(),
                kind: "Pod".into(),
                namespace: "ci".into(),
                name: "batch-1".into(),
                ..Default::default()
            },
            event_type: "Warning".into(),
            reason: "BackOff".into(),
            reporting_component: "kubelet".into(),
            ..Default::default()
        },
        value: 1,
        old_value: 0,
        has_series: false,
        edited: false,
        unchanged: false,
        stale: false,
        first_seen: None,
        last_observed: None,
        occurred_at: Timestamp::UNIX_EPOCH,
    }
}
