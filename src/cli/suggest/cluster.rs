//! The Events that a cluster stores, as a List.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use kube::Api;
use kube::api::ListParams;
use tokio::time::timeout;

use crate::cli::ClusterConnection;
use crate::cli::readable_event::ReadableEvent;

/// Maximum Events of one page.
const PAGE: u32 = 500;

/// Maximum bytes of the List.
const MAX_BYTES: usize = 512 << 20;

/// The deadline of a page. The API server ends a list after this time.
const DEADLINE: Duration = Duration::from_secs(60);

/// The List before its first item.
const BEGINNING: &[u8] = br#"{"apiVersion":"v1","kind":"List","items":["#;

/// Lists the Events of a namespace, or of all, and returns them as `kubectl get events -o json` prints them.
pub(super) async fn events(cluster: &ClusterConnection, namespace: Option<&str>) -> Result<Vec<u8>> {
    let client = cluster.client.clone();
    let (events, place): (Api<ReadableEvent>, _) = match namespace {
        Some(namespace) => (Api::namespaced(client, namespace), format!("namespace {namespace}")),
        None => (Api::all(client), "all namespaces".to_owned()),
    };
    let mut list = BEGINNING.to_vec();
    let mut page = ListParams::default().limit(PAGE);
    let mut has_expired = false;
    loop {
        let listed = timeout(DEADLINE, events.list(&page)).await;
        let listed = listed.context("the API server did not answer within 60 s; run the command again")?;
        let listed = match listed {
            Err(kube::Error::Api(status)) if status.code == 410 && !has_expired => {
                has_expired = true;
                list = BEGINNING.to_vec();
                page = ListParams::default().limit(PAGE);
                continue;
            }
            Err(kube::Error::Api(status)) if status.code == 410 => bail!(
                "the list of the Events in {place} expires before its end; select a namespace with -n, or examine a \
                 FILE with the output of `kubectl get events -o json`"
            ),
            Err(kube::Error::Api(status)) if status.code == 403 => bail!(
                "you may not list events in {place}, so there is nothing to examine; ask for the role view, select a \
                 namespace with -n, or examine a FILE with the output of `kubectl get events -o json`"
            ),
            listed => listed.with_context(|| format!("cannot list the Events in {place}"))?,
        };
        for ReadableEvent(event) in &listed.items {
            if list.len() > BEGINNING.len() {
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

    /// The List after these answers of the API server.
    async fn listed(answers: Vec<(u16, Value)>) -> Result<Value> {
        let (service, mut server) = mock::pair::<Request<Body>, Response<Body>>();
        let client = Client::new(service, "default");
        let cluster = ClusterConnection { client, namespace: "shop".to_owned() };
        let serving = async {
            for (status, answer) in answers {
                let (_, send) = server.next_request().await.unwrap();
                let body = Body::from(answer.to_string().into_bytes());
                send.send_response(Response::builder().status(status).body(body).unwrap());
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = serving => unreachable!("it waits for more requests"),
            listed = events(&cluster, Some("shop")) => Ok(serde_json::from_slice(&listed?)?),
        }
    }

    fn list(next: &str, items: &[Value]) -> (u16, Value) {
        let metadata = json!({ "continue": next });
        (200, json!({ "kind": "EventList", "apiVersion": "v1", "metadata": metadata, "items": items }))
    }

    fn named(name: &str) -> Value {
        json!({ "metadata": { "name": name, "namespace": "shop" }, "involvedObject": {} })
    }

    #[tokio::test]
    async fn an_event_with_an_unreadable_time_does_not_end_the_list() {
        // The API server accepts every time up to the end of the year 9999.
        let event = json!({
            "metadata": { "name": "a", "namespace": "shop", "creationTimestamp": "2026-01-01T00:00:00Z" },
            "involvedObject": { "kind": "Pod", "name": "web" }, "reason": "BackOff", "count": 3,
            "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "9999-12-31T23:59:59Z",
        });
        let listed = listed(vec![list("", &[event])]).await.unwrap();
        let event = &listed["items"][0];
        assert_eq!((&event["reason"], &event["count"]), (&json!("BackOff"), &json!(3)));
        assert_eq!(event["firstTimestamp"], "2026-01-01T00:00:00Z");
    }

    #[tokio::test]
    async fn an_expired_list_is_begun_once_more() {
        let expired =
            || (410, json!({ "kind": "Status", "status": "Failure", "code": 410, "message": "no" }));
        let once = listed(vec![
            list("more", &[named("c")]),
            expired(),
            list("more", &[named("a")]),
            list("", &[named("b")]),
        ]);
        let once = once.await.unwrap();
        let names = once["items"].as_array().unwrap().iter().map(|event| &event["metadata"]["name"]);
        assert_eq!(names.collect::<Vec<_>>(), ["a", "b"]);
        let error = listed(vec![expired(), expired()]).await.unwrap_err().to_string();
        assert!(error.contains("expires before its end; select a namespace with -n"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_has_a_deadline() {
        let error = listed(Vec::new()).await.unwrap_err().to_string();
        assert_eq!(error, "the API server did not answer within 60 s; run the command again");
    }
}
