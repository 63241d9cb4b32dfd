//! Collects a snapshot of an installation. It writes nothing.

mod probe;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Pod, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::timeout;

use super::configuration::{ENTRIES, owner_role};
use super::rights::{Right, needed};
use super::served::served;
use super::snapshot::{Installation, Observed, Snapshot, Unreadable};
use crate::api::{PAGE, StoredPolicy};
use crate::arming::{ApiServerClients, CONFIGURATION};
use crate::clock;
use crate::leader::LEASE_NAME;
use crate::tls::Validity;
use probe::{probe_api_servers, send_probe};

/// The deadline of one call.
const DEADLINE: Duration = Duration::from_secs(5);

/// The name of the metrics port in the pods of the chart, and the default port if no port has this name.
const METRICS_PORT: &str = "metrics";
const USUAL_PORT: i32 = 8080;

/// The clients of a doctor.
pub struct Clients {
    /// With the permissions of the user.
    pub own: Client,
    /// With the permissions of squelch.
    pub squelch: Client,
    /// The same, for single API servers.
    pub api_servers: ApiServerClients,
    /// Whether this process runs in the cluster and can reach its Services.
    pub inside: bool,
}

/// Collects everything.
pub async fn collect(
    clients: &Clients,
    mut installation: Installation,
    version: (String, String, String),
) -> Snapshot {
    let configuration: Observed<MutatingWebhookConfiguration> =
        Collector { client: &clients.own, installation: &installation }.at(CONFIGURATION).await;
    if installation.owner_role.is_none() {
        // The flags of squelch are unknown.
        installation.owner_role = configuration.as_ref().ok().and_then(owner_role);
    }
    let collector = Collector { client: &clients.own, installation: &installation };
    let secret = collector.within::<Secret>(&installation.secret).await;
    let secret: Observed<BTreeMap<String, Vec<u8>>> =
        secret.map(|secret| secret.data.into_iter().flatten().map(|(name, bytes)| (name, bytes.0)).collect());
    let events = configuration
        .as_ref()
        .ok()
        .and_then(|it| it.webhooks.iter().flatten().find(|it| it.name == ENTRIES[0]));
    let api_servers = probe_api_servers(clients, &installation, secret.as_ref().ok(), events).await;
    let deployment = collector.within::<Deployment>(&installation.deployment).await;
    let pods = collector.pods(&deployment).await;
    Snapshot {
        at: clock::wall(),
        version,
        definitions: collector.definitions().await,
        rights: rights(&clients.squelch, &installation).await,
        scraped: collector.scrape(&deployment, &pods).await,
        pods,
        lease: collector.within::<Lease>(LEASE_NAME).await,
        endpoints: collector.endpoints(events).await,
        owner_uid: collector.owner_uid().await,
        served: match events {
            Some(entry) => collector.served(entry, clients.inside).await,
            None => None,
        },
        probe: send_probe(clients, &installation, secret.as_ref().ok(), events).await,
        api_servers,
        policies: collector.policies("EventPolicy", "eventpolicies").await,
        cluster_policies: collector.policies("ClusterEventPolicy", "clustereventpolicies").await,
        metrics: collector.metrics().await,
        deployment,
        secret,
        configuration,
        installation: installation.clone(),
    }
}

struct Collector<'a> {
    client: &'a Client,
    installation: &'a Installation,
}

impl Collector<'_> {
    async fn at<K>(&self, name: &str) -> Observed<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>
            + Clone
            + DeserializeOwned
            + Debug,
    {
        observed(Api::<K>::all(self.client.clone()).get(name)).await
    }

    async fn within<K>(&self, name: &str) -> Observed<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + Debug,
    {
        observed(self.api::<K>().get(name)).await
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.installation.namespace)
    }

    async fn definitions(&self) -> Vec<(String, Observed<CustomResourceDefinition>)> {
        let mut found = Vec::new();
        for (_, own) in crate::api::crds() {
            let name = own.metadata.name.unwrap_or_default();
            let live = self.at(&name).await;
            found.push((name, live));
        }
        found
    }

    async fn pods(&self, deployment: &Observed<Deployment>) -> Observed<Vec<Pod>> {
        let spec = deployment.as_ref().map_err(Clone::clone)?.spec.as_ref();
        let labels = spec.and_then(|spec| spec.selector.match_labels.as_ref()).ok_or(Unreadable::Missing)?;
        let selector: Vec<_> = labels.iter().map(|(label, value)| format!("{label}={value}")).collect();
        let parameters = ListParams::default().labels(&selector.join(","));
        let mut pods = observed(self.api::<Pod>().list(&parameters)).await?.items;
        pods.retain(|pod| !has_ended(pod));
        Ok(pods)
    }

    /// Reads the metrics of each pod through the API server.
    async fn scrape(
        &self,
        deployment: &Observed<Deployment>,
        pods: &Observed<Vec<Pod>>,
    ) -> Observed<Vec<(String, Observed<String>)>> {
        let deployment = deployment.as_ref().map_err(Clone::clone)?;
        let template = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
        let containers = template.map(|pod| pod.containers.as_slice()).unwrap_or_default();
        let mut ports = containers.iter().flat_map(|container| container.ports.iter().flatten());
        let port = ports.find(|port| port.name.as_deref() == Some(METRICS_PORT));
        let port = port.map_or(USUAL_PORT, |port| port.container_port);
        let mut scraped = Vec::new();
        for pod in pods.as_ref().map_err(Clone::clone)? {
            let name = pod.metadata.name.clone().unwrap_or_default();
            let namespace = &self.installation.namespace;
            let path = format!("/api/v1/namespaces/{namespace}/pods/{name}:{port}/proxy/metrics");
            let metrics = self.text(&path).await;
            scraped.push((name, metrics));
        }
        Ok(scraped)
    }

    async fn endpoints(&self, entry: Option<&MutatingWebhook>) -> Option<Observed<Vec<EndpointSlice>>> {
        let service = entry?.client_config.service.as_ref()?;
        let of_service = format!("kubernetes.io/service-name={}", service.name);
        let parameters = ListParams::default().labels(&of_service);
        let slices: Api<EndpointSlice> = Api::namespaced(self.client.clone(), &service.namespace);
        Some(observed(slices.list(&parameters)).await.map(|slices| slices.items))
    }

    async fn owner_uid(&self) -> Observed<String> {
        let name = self.installation.owner_role.as_deref().ok_or(Unreadable::Missing)?;
        let role: ClusterRole = self.at(name).await?;
        role.metadata.uid.ok_or(Unreadable::Missing)
    }

    /// Makes a handshake with the webhook. A Service can be reached only from within the cluster.
    async fn served(&self, entry: &MutatingWebhook, inside: bool) -> Option<Result<Validity, String>> {
        let client = &entry.client_config;
        let trusted = client.ca_bundle.as_ref().map(|bundle| bundle.0.as_slice()).unwrap_or_default();
        let (address, name) = match &client.service {
            Some(_) if !inside => return None,
            Some(service) => {
                let Ok(found) = self.within::<Service>(&service.name).await else { return None };
                let address = found.spec.and_then(|spec| spec.cluster_ip)?;
                let host = if address.contains(':') { format!("[{address}]") } else { address };
                let port = service.port.unwrap_or(443);
                (format!("{host}:{port}"), format!("{}.{}.svc", service.name, service.namespace))
            }
            None => {
                let uri: http::Uri = client.url.as_deref()?.parse().ok()?;
                let host = uri.host()?;
                (
                    format!("{host}:{}", uri.port_u16().unwrap_or(443)),
                    host.trim_matches(['[', ']']).to_owned(),
                )
            }
        };
        Some(served(&address, &name, trusted).await)
    }

    async fn policies(&self, kind: &str, plural: &str) -> Observed<Vec<Value>> {
        let kind = GroupVersionKind::gvk("squelch.dev", "v1alpha1", kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, plural);
        let all: Api<StoredPolicy> = Api::all_with(self.client.clone(), &resource);
        let mut page = ListParams::default().limit(PAGE);
        let mut values = Vec::new();
        loop {
            let listed = observed(all.list(&page)).await?;
            for StoredPolicy(policy) in &listed.items {
                values.push(
                    serde_json::to_value(policy).map_err(|error| Unreadable::Failed(error.to_string()))?,
                );
            }
            page.continue_token = listed.metadata.continue_.filter(|token| !token.is_empty());
            if page.continue_token.is_none() {
                return Ok(values);
            }
        }
    }

    async fn metrics(&self) -> Observed<String> {
        self.text("/metrics").await
    }

    async fn text(&self, path: &str) -> Observed<String> {
        let request = http::Request::get(path).body(Vec::new());
        let request = request.map_err(|error| Unreadable::Failed(error.to_string()))?;
        observed(self.client.request_text(request)).await
    }
}

/// Whether the containers of a pod have ended for good. An evicted pod keeps its labels, and has no metrics.
fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Failed" | "Succeeded"))
}

/// Asks the API server for each permission of squelch.
async fn rights(squelch: &Client, installation: &Installation) -> Observed<Vec<(Right, bool)>> {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(squelch.clone());
    let mut found = Vec::new();
    for right in needed(installation) {
        let some = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let attributes = ResourceAttributes {
            verb: some(&right.verb),
            group: some(&right.group),
            resource: some(&right.resource),
            subresource: some(&right.subresource),
            name: some(&right.name),
            namespace: some(&right.namespace),
            ..ResourceAttributes::default()
        };
        let spec =
            SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        let parameters = PostParams::default();
        let answer = observed(reviews.create(&parameters, &review)).await?;
        found.push((right, answer.status.is_some_and(|status| status.allowed)));
    }
    Ok(found)
}

/// Waits for a call, and classifies its error.
async fn observed<T>(call: impl Future<Output = kube::Result<T>>) -> Observed<T> {
    match timeout(DEADLINE, call).await {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Err(Unreadable::Missing),
        Ok(Err(kube::Error::Api(status))) if status.code == 403 => Err(Unreadable::Forbidden),
        Ok(Err(kube::Error::Api(status))) => {
            let answer = format!("the API server answered {}: {}", status.code, status.message);
            Err(Unreadable::Failed(super::finding::printable(&answer)))
        }
        Ok(Err(error)) => Err(Unreadable::Failed(super::finding::printable(&error.to_string()))),
        Err(_) => Err(Unreadable::Failed(format!("no answer within {} s", DEADLINE.as_secs()))),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_evicted_pod_is_no_replica() {
        let ended = |status: Value| {
            has_ended(&serde_json::from_value(json!({ "metadata": {}, "status": status })).unwrap())
        };
        assert!(ended(json!({ "phase": "Failed" })) && ended(json!({ "phase": "Succeeded" })));
        assert!(!ended(json!({ "phase": "Running" })) && !ended(json!({})));
    }

    #[tokio::test]
    async fn an_error_of_the_api_server_is_its_code_and_its_message() {
        let status = Status { code: 400, message: "address not allowed".into(), ..Status::default() };
        let refused = observed::<()>(async { Err(kube::Error::Api(Box::new(status))) }).await;
        let Err(Unreadable::Failed(message)) = refused else { panic!("{refused:?}") };
        assert_eq!(message, "the API server answered 400: address not allowed");
    }
}
