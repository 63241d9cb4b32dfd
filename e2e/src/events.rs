//! Stored Events.

use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use kube::{Api, Client};

/// Field selector of all Events except squelch's Events about policies.
pub const OF_OTHERS: &str = "involvedObject.apiVersion!=squelch.dev/v1alpha1";

/// The number of Events of a page.
const PAGE: u32 = 2000;

/// All Events of a namespace except squelch's Events about policies.
///
/// # Errors
/// The error of the API server.
pub async fn of_others(client: &Client, namespace: &str) -> kube::Result<Vec<Event>> {
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    let mut page = ListParams::default().fields(OF_OTHERS).limit(PAGE);
    let mut stored = Vec::new();
    loop {
        let list = api.list(&page).await?;
        stored.extend(list.items);
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(stored),
        }
    }
}

/// The count of an Event as kubectl shows it: `series.count`, else `count`, else 1.
pub fn value(event: &Event) -> i64 {
    let series = event.series.as_ref().and_then(|series| series.count);
    i64::from(series.or(event.count).unwrap_or(1).max(1))
}

/// Its name; empty without a name.
pub fn name(event: &Event) -> &str {
    event.metadata.name.as_deref().unwrap_or_default()
}

/// The name of its object.
pub fn object(event: &Event) -> &str {
    event.involved_object.name.as_deref().unwrap_or_default()
}

/// Name and count of each Event, for messages.
pub fn list(events: &[Event]) -> String {
    let shown = events.iter().map(|event| format!("{} ×{}", name(event), value(event)));
    shown.collect::<Vec<_>>().join(", ")
}
