//! The Events of crash-looping Pods.

use std::borrow::Cow;

use squelch_engine::{EventView, ObjectReference};

pub(super) fn pod(number: usize) -> String {
    format!("checkout-{number:07}-x2x9k")
}

pub(super) fn stored_name(number: usize) -> String {
    format!("{}.187a2b3c4d5e6f70", pod(number))
}

pub(super) fn message(number: usize) -> String {
    format!("Back-off restarting failed container app in pod {}_shop({})", pod(number), uid(number))
}

pub(super) fn uid(number: usize) -> String {
    format!("5b0f5d0e-94a6-4a58-9a0f-{number:012}")
}

pub(super) fn event(number: usize, message: String) -> EventView<'static> {
    EventView {
        regarding: ObjectReference {
            api_version: "v1".into(),
            kind: "Pod".into(),
            namespace: "shop".into(),
            name: pod(number).into(),
            uid: uid(number).into(),
            field_path: "spec.containers{app}".into(),
        },
        event_type: "Warning".into(),
        reason: "BackOff".into(),
        message: Cow::Owned(message),
        reporting_component: "kubelet".into(),
        reporting_instance: "node-17".into(),
        source_component: "kubelet".into(),
        source_host: "node-17".into(),
        first_timestamp: "2026-11-21T08:54:00Z".into(),
        ..EventView::default()
    }
}
