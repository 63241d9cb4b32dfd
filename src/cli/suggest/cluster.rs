//! The Events that a cluster stores, as a List.

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::ListParams;

use crate::cli::ClusterConnection;

/// Maximum Events of one page.
const PAGE: u32 = 500;

/// Maximum bytes of the List.
const MAX_BYTES: usize = 512 << 20;

/// Lists the Events of a namespace, or of all, and returns them as `kubectl get events -o json` prints them.
pub(super) async fn events(cluster: &ClusterConnection, namespace: Option<&str>) -> Result<Vec<u8>> {
    let client = cluster.client.clone();
    let (events, place): (Api<Event>, _) = match namespace {
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
        for event in &listed.items {
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
