//! An Event of either API: squelch reads the same values as Kubernetes' own types.

#![no_main]

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::events::v1 as events;
use libfuzzer_sys::fuzz_target;
use squelch::webhook::review::{ParsedEvent, Write};
use squelch_engine::{Api, Operation};

/// The compared values.
#[derive(Debug, PartialEq)]
struct ReadEvent {
    texts: [String; 9],
    value: i64,
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let read = |api| ParsedEvent::parse(text, Some(api)).ok().filter(|parsed| parsed.api == api);
    let [core, new] = [Api::Core, Api::Events].map(read);
    if let (Some(parsed), Ok(oracle)) = (core, serde_json::from_str::<core::Event>(text)) {
        assert_eq!(as_squelch_reads(&parsed), of_core(oracle));
    }
    if let (Some(parsed), Ok(oracle)) = (new, serde_json::from_str::<events::Event>(text)) {
        assert_eq!(as_squelch_reads(&parsed), of_events(oracle));
    }
});

fn as_squelch_reads(parsed: &ParsedEvent<'_>) -> Option<ReadEvent> {
    let write = Write {
        operation: Operation::Create,
        api: parsed.api,
        user: "u",
        dry_run: false,
        namespace: "shop",
        name: "",
        object: &parsed.event,
        old_object: None,
        stale: false,
    };
    let seen = write.observe("own", Timestamp::UNIX_EPOCH).ok()?;
    let event = &seen.event;
    let texts = [
        seen.name.as_deref().unwrap_or_default(),
        &event.regarding.kind,
        &event.regarding.name,
        &event.event_type,
        &event.reason,
        &event.action,
        &event.message,
        &event.reporting_component,
        &event.source_component,
    ];
    Some(ReadEvent { texts: texts.map(ToOwned::to_owned), value: seen.value })
}

fn of_core(event: core::Event) -> Option<ReadEvent> {
    let texts = [
        event.metadata.name,
        event.involved_object.kind,
        event.involved_object.name,
        event.type_,
        event.reason,
        event.action,
        event.message,
        event.reporting_component,
        event.source.and_then(|source| source.component),
    ];
    let series = event.series.and_then(|series| series.count);
    Some(ReadEvent { texts: texts.map(Option::unwrap_or_default), value: value(series.or(event.count)) })
}

fn of_events(event: events::Event) -> Option<ReadEvent> {
    let regarding = event.regarding.unwrap_or_default();
    let texts = [
        event.metadata.name,
        regarding.kind,
        regarding.name,
        event.type_,
        event.reason,
        event.action,
        event.note,
        event.reporting_controller,
        event.deprecated_source.and_then(|source| source.component),
    ];
    let series = event.series.map(|series| series.count);
    Some(ReadEvent {
        texts: texts.map(Option::unwrap_or_default),
        value: value(series.or(event.deprecated_count)),
    })
}

fn value(count: Option<i32>) -> i64 {
    i64::from(count.unwrap_or(1).max(1))
}
