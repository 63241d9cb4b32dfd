//! Reads the cluster, with the rights of the user.

use std::fmt::Debug;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::core::discovery::v2::APIGroupDiscoveryList;
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::WhyOptions;
use super::facts::{Assumptions, Part, ReadItems, Unread, WhyFacts};
use super::object::{ServedResource, WhyObject};
use super::stored::ListedEvent;
use crate::api::{ClusterEventPolicy, DROP_REPORT, DropReport, EventDropReport, EventPolicy, StoredPolicy};
use crate::cli::ClusterConnection;
use crate::cli::readable_event::ReadableEvent;
use crate::policy::Labels;

/// Maximum number of objects in one page of a list.
const PAGE: u32 = 50;

/// Maximum number of objects of a list that are read.
const MAX_OBJECTS: usize = 1000;

/// Reads everything that the answer depends on.
///
/// # Errors
/// The API server cannot be reached or does not answer, or the namespace does not exist.
pub(super) async fn read(cluster: &ClusterConnection, options: &WhyOptions) -> Result<WhyFacts> {
    let ClusterConnection { client, namespace } = cluster;
    let (served, discovery) = match served(client).await? {
        Ok(served) => (served, Ok(())),
        Err(unread) => (Vec::new(), Err(unread)),
    };
    let namespaces = (options.cluster.namespace(), namespace.as_str());
    let object = WhyObject::of(&options.object, &served, namespaces);
    let (events, event_policies, cluster_policies, labels, report) = tokio::try_join!(
        events(client, &object),
        async {
            let resource = ApiResource::erase::<EventPolicy>(&());
            policies(&Api::namespaced_with(client.clone(), &object.namespace, &resource)).await
        },
        async {
            let resource = ApiResource::erase::<ClusterEventPolicy>(&());
            policies(&Api::all_with(client.clone(), &resource)).await
        },
        labels(client, &object.namespace),
        report(client, &object.namespace),
    )?;
    let WhyOptions { reason, event_type, component, user, .. } = options.clone();
    let assumed = Assumptions { reason, event_type, component, user };
    Ok(WhyFacts { object, assumed, discovery, events, event_policies, cluster_policies, labels, report })
}

/// Two calls: that for the core group, and that for all others.
async fn served(client: &Client) -> Result<Part<Vec<ServedResource>>> {
    let lists = async {
        tokio::try_join!(client.list_core_api_versions_aggregated(), client.list_api_groups_aggregated())
    };
    let lists = part(lists.await, "API discovery")?;
    Ok(lists.map(|(core, others)| [core, others].into_iter().flat_map(resources).collect()))
}

fn resources(list: APIGroupDiscoveryList) -> Vec<ServedResource> {
    let groups = list.items.into_iter().flat_map(|group| {
        let name = group.metadata.and_then(|metadata| metadata.name).unwrap_or_default();
        group
            .versions
            .into_iter()
            .flat_map(|version| version.resources)
            .map(move |resource| (name.clone(), resource))
    });
    let resources = groups.filter_map(|(group, resource)| {
        let names = [resource.resource, resource.singular_resource].into_iter().flatten();
        Some(ServedResource {
            group,
            kind: resource.response_kind?.kind?,
            names: names.chain(resource.short_names).filter(|name| !name.is_empty()).collect(),
            is_namespaced: resource.scope.as_deref() == Some("Namespaced"),
        })
    });
    resources.collect()
}

async fn events(client: &Client, object: &WhyObject) -> Result<Part<ReadItems<ListedEvent>>> {
    let api: Api<ReadableEvent> = Api::namespaced(client.clone(), &object.namespace);
    let mut fields = format!("involvedObject.name={}", escaped(&object.name));
    if object.is_kind {
        fields = format!("{fields},involvedObject.kind={}", escaped(&object.kind));
    }
    let listed = |ReadableEvent(event)| ListedEvent::from(event);
    part(list(&api, ListParams::default().fields(&fields), listed).await, "Events")
}

/// As fields.EscapeValue of apimachinery.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=")
}

async fn policies(api: &Api<StoredPolicy>) -> Result<Part<ReadItems<DynamicObject>>> {
    part(list(api, ListParams::default(), |StoredPolicy(policy)| policy).await, "policies")
}

async fn labels(client: &Client, namespace: &str) -> Result<Part<Labels>> {
    let api: Api<Namespace> = Api::all(client.clone());
    match part(api.get_opt(namespace).await, "the namespace")? {
        Ok(None) => bail!("namespace {namespace} does not exist; select another one with --namespace"),
        Ok(Some(found)) => Ok(Ok(found.metadata.labels.unwrap_or_default())),
        Err(unread) => Ok(Err(unread)),
    }
}

/// A missing definition is a missing report too: the list of policies shows whether squelch is installed.
async fn report(client: &Client, namespace: &str) -> Result<Part<Option<DropReport>>> {
    let resource = ApiResource::erase::<EventDropReport>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let read = part(api.get_opt(DROP_REPORT).await, "the EventDropReport")?;
    let content = |found: DynamicObject| {
        DropReport::deserialize(found.data).context("cannot read the EventDropReport; upgrade squelch")
    };
    read.map(|found| found.map(content).transpose())
        .map_or_else(|unread| Ok(Err(unread)), |read| read.map(Ok))
}

/// Lists the first [`MAX_OBJECTS`] objects, page by page.
async fn list<K, T>(api: &Api<K>, params: ListParams, convert: fn(K) -> T) -> kube::Result<ReadItems<T>>
where
    K: Clone + Debug + DeserializeOwned,
{
    let (mut items, mut params) = (Vec::new(), params.limit(PAGE));
    loop {
        let page = api.list(&params).await?;
        items.extend(page.items.into_iter().map(convert));
        let more = page.metadata.continue_.filter(|token| !token.is_empty());
        match more {
            Some(token) if items.len() < MAX_OBJECTS => params = params.continue_token(&token),
            more => return Ok(ReadItems { items, complete: more.is_none() }),
        }
    }
}

/// Separates a missing right or definition, with which the command goes on, from errors.
fn part<T>(result: kube::Result<T>, what: &str) -> Result<Part<T>> {
    match result {
        Ok(read) => Ok(Ok(read)),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(Err(Unread::Forbidden)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Err(Unread::NotInstalled)),
        Err(error) => Err(error).with_context(|| {
            format!("cannot read {what}; check the address of the API server and the user in the kubeconfig")
        }),
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;
    use tower_test::mock;

    use super::*;

    #[tokio::test]
    async fn an_event_with_an_unreadable_time_is_listed() {
        let (service, mut server) = mock::pair::<Request<Body>, Response<Body>>();
        let client = Client::new(service, "default");
        let object = WhyObject::of(&"Pod/web".parse().unwrap(), &[], (None, "shop"));
        // The API server accepts every time up to the end of the year 9999.
        let event = json!({
            "metadata": { "name": "a", "namespace": "shop", "creationTimestamp": "2026-01-01T00:00:00Z" },
            "involvedObject": { "kind": "Pod", "name": "web" }, "reason": "BackOff", "count": 3,
            "lastTimestamp": "9999-12-31T23:59:59Z", "eventTime": "9999-12-31T23:59:59.000000Z",
            "series": { "count": 4, "lastObservedTime": "9999-12-31T23:59:59.000000Z" },
        });
        let list = json!({ "kind": "EventList", "apiVersion": "v1", "metadata": {}, "items": [event] });
        let serving = async {
            let (_, send) = server.next_request().await.unwrap();
            send.send_response(Response::new(Body::from(list.to_string().into_bytes())));
        };
        let (listed, ()) = tokio::join!(events(&client, &object), serving);
        let listed = listed.unwrap().unwrap().items;
        assert_eq!((listed.len(), &*listed[0].reason, listed[0].count), (1, "BackOff", 4));
        let time = listed[0].last_observed_time.as_ref().map(|time| time.0.to_string());
        assert_eq!(time.as_deref(), Some("2026-01-01T00:00:00Z"), "the first time that can be read");
    }
}
