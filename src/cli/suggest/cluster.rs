//! The Events that a cluster stores, as a List.

use anyhow::{Context, Result, bail};
use kube::Api;
use kube::api::ListParams;

use crate::cli::ClusterConnection;
use crate::cli::readable_event::ReadableEvent;

/// Maximum Events of one page.
const PAGE: u32 = 500;

/// Maximum bytes of the List.
const MAX_BYTES: usize = 512 << 20;

/// Lists the Events of a namespace, or of all, and returns them as `kubectl get events -o json` prints them.
pub(super) async fn events(cluster: &ClusterConnection, namespace: Option<&str>) -> Result<Vec<u8>> {
    let client = cluster.client.clone();
    let (events, place): (Api<ReadableEvent>, _) = match namespace {
        Some(namespace) => (Api::namespaced(client, namespace), format!("namespace {namespace}")),
        None => (Api::all(client), "all namespaces".to_owned()),
    };
    let mut list = br#"{"apiVersion":"v1","kind":"List","items":["#.to_vec();
    let mut page = ListParams::default().limit(PAGE);
    let mut is_first = true;
    loop {
        let listed = match events.list(&page).await {
            Err(kube::Error::Api(status)) if status.code == 403 => bail!(
                "you may not list events in {place}, so there is nothing to examine; ask for the role view, select a \
                 namespace with -n, or examine a FILE with the output of `kubectl get events -o json`"
            ),
            listed => listed.with_context(|| format!("cannot list the Events in {place}"))?,
        };
        for ReadableEvent(event) in &listed.items {
            if !std::mem::take(&mut is_first) {
                list.push(b',');
            }
            serde_json::to_writer(&mut list, event)?;
        }
        if list.len() > MAX_BYTES {
            bail!("the Events in {place} have more than 512 MiB; select a namespace with -n");
        }
        match listed.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => break,
        }
    }
    list.extend_from_slice(b"]}");
    Ok(list)
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use serde_json::{Value, json};
    use tower_test::mock;

    use super::*;

    #[tokio::test]
    async fn an_event_with_an_unreadable_time_does_not_end_the_list() {
        let (service, mut server) = mock::pair::<Request<Body>, Response<Body>>();
        let client = Client::new(service, "default");
        let cluster = ClusterConnection { client, namespace: "shop".to_owned() };
        // The API server accepts every time up to the end of the year 9999.
        let event = json!({
            "metadata": { "name": "a", "namespace": "shop", "creationTimestamp": "2026-01-01T00:00:00Z" },
            "involvedObject": { "kind": "Pod", "name": "web" }, "reason": "BackOff", "count": 3,
            "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "9999-12-31T23:59:59Z",
        });
        let list = json!({ "kind": "EventList", "apiVersion": "v1", "metadata": {}, "items": [event] });
        let serving = async {
            let (_, send) = server.next_request().await.unwrap();
            send.send_response(Response::new(Body::from(list.to_string().into_bytes())));
        };
        let (listed, ()) = tokio::join!(events(&cluster, Some("shop")), serving);
        let listed: Value = serde_json::from_slice(&listed.unwrap()).unwrap();
        let event = &listed["items"][0];
        assert_eq!((&event["reason"], &event["count"]), (&json!("BackOff"), &json!(3)));
        assert_eq!(event["firstTimestamp"], "2026-01-01T00:00:00Z");
    }
}
