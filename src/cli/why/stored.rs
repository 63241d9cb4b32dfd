//! The stored Events about the object. Pure.

use std::cmp::Reverse;

use k8s_openapi::api::core::v1::Event as CoreEvent;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;

use super::facts::{ReadItems, WhyFacts, printable};
use crate::api::EventType;

/// Maximum number of Events that are listed.
const NEWEST: usize = 5;

/// A stored Event. Texts are truncated and have no control characters.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ListedEvent {
    /// Kind of its object.
    #[serde(skip)]
    pub kind: String,
    /// Type.
    #[serde(rename = "type")]
    pub event_type: String,
    /// Reason.
    pub reason: String,
    /// Reporting component.
    pub component: String,
    /// The larger of its count and that of its series, or 1.
    pub count: i64,
    /// Time of its last occurrence.
    pub last_observed_time: Option<Time>,
    /// Message.
    pub message: String,
}

impl From<CoreEvent> for ListedEvent {
    fn from(event: CoreEvent) -> Self {
        let text = |text: Option<String>| printable(&text.unwrap_or_default());
        let series = event.series.as_ref();
        let counts = [series.and_then(|series| series.count), event.count];
        let count = counts.into_iter().flatten().max().unwrap_or(1);
        let times = [
            series.and_then(|series| series.last_observed_time.as_ref()).map(|time| time.0),
            event.last_timestamp.map(|time| time.0),
            event.event_time.map(|time| time.0),
            event.metadata.creation_timestamp.map(|time| time.0),
        ];
        let component = event.reporting_component.filter(|component| !component.is_empty());
        Self {
            kind: text(event.involved_object.kind),
            event_type: text(event.type_),
            reason: text(event.reason),
            component: text(component.or_else(|| event.source.and_then(|source| source.component))),
            count: count.into(),
            last_observed_time: times.into_iter().flatten().next().map(Time),
            message: text(event.message),
        }
    }
}

/// The stored Events about the object.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ObjectEvents {
    /// Number of Events.
    pub number: usize,
    /// Sum of their counts.
    pub occurrences: i64,
    /// Whether these are all. Otherwise there were too many to read.
    pub complete: bool,
    /// The newest of them.
    pub newest: Vec<ListedEvent>,
}

/// Returns those that the assumptions allow. `None` if they could not be listed.
pub(super) fn stored(facts: &WhyFacts) -> Option<ObjectEvents> {
    let ReadItems { items, complete } = facts.events.as_ref().ok()?;
    let assumed = &facts.assumed;
    let is = |assumed: &Option<String>, text: &str| assumed.as_deref().is_none_or(|it| printable(it) == text);
    let is_type = |text: &str| match assumed.event_type {
        None => true,
        Some(EventType::Normal) => text == "Normal",
        Some(EventType::Warning) => text != "Normal",
    };
    let chosen = items.iter().filter(|event| {
        facts.object.is_of(&event.kind)
            && is_type(&event.event_type)
            && is(&assumed.reason, &event.reason)
            && is(&assumed.component, &event.component)
    });
    let mut chosen: Vec<_> = chosen.cloned().collect();
    chosen.sort_by_key(|event| Reverse(event.last_observed_time.as_ref().map(|time| time.0)));
    let (number, occurrences) = (chosen.len(), chosen.iter().map(|event| event.count).sum());
    chosen.truncate(NEWEST);
    Some(ObjectEvents { number, occurrences, complete: *complete, newest: chosen })
}
