//! Events as they are stored.

use k8s_openapi::api::core::v1::Event;

/// A field selector: all Events but those that squelch tells about policies.
pub const OF_OTHERS: &str = "involvedObject.apiVersion!=squelch.dev/v1alpha1";

/// What an Event says of how often it happened, as kubectl shows it: `series.count`, else `count`, else 1.
pub fn value(event: &Event) -> i64 {
    let series = event.series.as_ref().and_then(|series| series.count);
    i64::from(series.or(event.count).unwrap_or(1).max(1))
}

/// Its name; empty if it has none.
pub fn name(event: &Event) -> &str {
    event.metadata.name.as_deref().unwrap_or_default()
}

/// The name of the object that it is about.
pub fn object(event: &Event) -> &str {
    event.involved_object.name.as_deref().unwrap_or_default()
}

/// For messages: each Event's name and value.
pub fn list(events: &[Event]) -> String {
    let shown = events.iter().map(|event| format!("{} ×{}", name(event), value(event)));
    shown.collect::<Vec<_>>().join(", ")
}
