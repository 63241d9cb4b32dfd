//! Stored Events.

use k8s_openapi::api::core::v1::Event;

/// Field selector of all Events except squelch's Events about policies.
pub const OF_OTHERS: &str = "involvedObject.apiVersion!=squelch.dev/v1alpha1";

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
