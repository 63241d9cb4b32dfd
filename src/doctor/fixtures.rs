//! A healthy installation, for tests that break one thing of it.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

use super::rights::needed;
use super::snapshot::{Installation, Snapshot};
use crate::arming::{Address, ClientConfig, ConfigurationMetadata, Desired};
use crate::metrics::WatchedResource;
use crate::policy::{NamespaceSelection, WebhookScope};
use crate::tls::Validity;
use crate::tls::encoding::{self, Keys};
use crate::tls::rotation::{Lifetimes, Ring};
use crate::webhook::path;

const OWNER: &str = "uid-of-the-role";

fn at() -> Timestamp {
    "2026-11-21T08:00:00Z".parse().unwrap()
}

/// New keys, and the data of their Secret.
pub(super) fn keys() -> (BTreeMap<String, Vec<u8>>, Ring<Keys>) {
    let lifetimes = Lifetimes::of(Duration::from_secs(2160 * 3600), Duration::from_secs(3600));
    let ring = Ring::of(Keys::generate(true, lifetimes, at()).unwrap());
    let kept = encoding::encode(&ring).into_iter().map(|(name, text)| (name, text.into_bytes())).collect();
    (kept, ring)
}

/// The configuration that squelch writes when it is armed for two namespaces.
pub(super) fn configuration_of(ring: &Ring<Keys>) -> MutatingWebhookConfiguration {
    let address = Address::Service { namespace: "squelch".into(), name: "squelch".into(), port: 443 };
    let ca_bundle = ring.current.authority.as_ref().unwrap().ca_pem().to_owned();
    let desired = Desired {
        client: ClientConfig { address, path: path(&ring.current.token), ca_bundle },
        own_user: "system:serviceaccount:squelch:squelch".to_owned(),
        namespace: "squelch".to_owned(),
        scope: WebhookScope::all_in(NamespaceSelection::of(["a", "b"].map(str::to_owned).into())),
        metadata: ConfigurationMetadata::default(),
    };
    serde_json::from_value(desired.owned_by("squelch", OWNER)).unwrap()
}

/// The definition of this version, established.
pub(super) fn definition(name: &str) -> CustomResourceDefinition {
    let all = crate::api::crds().into_iter().map(|(_, definition)| definition);
    let mut all = all.filter(|definition| definition.metadata.name.as_deref() == Some(name));
    let mut definition = serde_json::to_value(all.next().unwrap()).unwrap();
    let established = json!({ "type": "Established", "status": "True", "lastTransitionTime": at(), "reason": "x", "message": "" });
    definition["status"] = json!({ "conditions": [established] });
    serde_json::from_value(definition).unwrap()
}

pub(super) fn pod(name: &str, active: bool) -> Pod {
    let labels = if active { json!({ "squelch.dev/role": "active" }) } else { json!({}) };
    serde_json::from_value(json!({ "metadata": { "name": name, "labels": labels } })).unwrap()
}

/// The metrics of a pod whose watches had their last response then.
pub(super) fn scrape(seconds_ago: i64) -> String {
    let at = at().as_second() - seconds_ago;
    let line =
        |resource| format!("squelch_watch_last_response_timestamp_seconds{{resource=\"{resource}\"}} {at}\n");
    WatchedResource::ALL.iter().map(|resource| line(resource.as_str())).collect::<Vec<_>>().concat()
}

pub(super) fn slice(addresses: &[&str]) -> EndpointSlice {
    let endpoints: Vec<_> = addresses.iter().map(|address| json!({ "addresses": [address] })).collect();
    serde_json::from_value(json!({ "addressType": "IPv4", "endpoints": endpoints, "metadata": {} })).unwrap()
}

pub(super) fn policy(name: &str, accepted: bool) -> Value {
    let status = if accepted { "True" } else { "False" };
    json!({
        "metadata": { "name": name, "namespace": "ns", "generation": 1 },
        "spec": { "series": { "heartbeatInterval": "30m" } },
        "status": { "observedGeneration": 1, "conditions": [
            { "type": "Accepted", "status": status }, { "type": "Effective", "status": status },
        ] },
    })
}

/// Two replicas, armed for two namespaces.
pub(super) fn healthy() -> Snapshot {
    let installation = Installation {
        namespace: "squelch".to_owned(),
        deployment: "squelch".to_owned(),
        own_user: "system:serviceaccount:squelch:squelch".to_owned(),
        secret: crate::SECRET.to_owned(),
        owner_role: Some("squelch".to_owned()),
        disarmed: false,
        mounted: false,
    };
    let (secret, ring) = keys();
    let names = ["clustereventpolicies.squelch.dev", "eventpolicies.squelch.dev"];
    let spec = json!({ "holderIdentity": "squelch-a_7f", "leaseDurationSeconds": 4, "renewTime": "2026-11-21T07:59:59.000000Z" });
    let ready = json!({ "replicas": 2, "readyReplicas": 2 });
    let template = json!({ "metadata": {}, "spec": { "containers": [] } });
    Snapshot {
        at: at(),
        version: ("1".to_owned(), "35".to_owned(), "v1.35.4".to_owned()),
        definitions: names.map(|name| (name.to_owned(), Ok(definition(name)))).into(),
        rights: Ok(needed(&installation).into_iter().map(|right| (right, true)).collect()),
        deployment: Ok(serde_json::from_value(json!({
            "metadata": {}, "spec": { "replicas": 2, "selector": {}, "template": template }, "status": ready,
        }))
        .unwrap()),
        pods: Ok(vec![pod("squelch-a", true), pod("squelch-b", false)]),
        scraped: Ok(["squelch-a", "squelch-b"].map(|pod| (pod.to_owned(), Ok(scrape(60)))).into()),
        lease: Ok(serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap()),
        endpoints: Some(Ok(vec![slice(&["10.244.0.7"])])),
        secret: Ok(secret),
        configuration: Ok(configuration_of(&ring)),
        owner_uid: Ok(OWNER.to_owned()),
        served: Some(Ok(Validity { begins: at(), ends: "2027-02-19T08:00:00Z".parse().unwrap() })),
        probe: Ok(Ok(())),
        api_servers: Ok(["10.0.0.1:6443", "10.0.0.2:6443"].map(|it| (it.to_owned(), Ok(Ok(())))).into()),
        policies: Ok(vec![policy("a", true)]),
        cluster_policies: Ok(Vec::new()),
        metrics: Ok(String::new()),
        installation,
    }
}

#[test]
fn a_healthy_installation_has_no_remedies() {
    let found = super::findings(&healthy());
    assert!(found.len() > 12);
    assert!(
        found.iter().all(|finding| finding.level == super::Level::Ok && finding.remedy.is_empty()),
        "{found:#?}"
    );
}
