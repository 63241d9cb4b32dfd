//! A record: one Event write, what its policy did with it, and its names in OpenTelemetry.

use jiff::Timestamp;
use squelch_engine::{
    Api, Disposition, Mode, Observation, Operation, PolicyId, Rules, split_display, truncate,
};

/// Maximum length of an exported message in bytes. The API server limits notes of events.k8s.io to 1 KiB, and messages of
/// core/v1 to 1.5 MB.
const MAX_MESSAGE: usize = 4096;

/// Maximum length of any other exported text in bytes.
const MAX_TEXT: usize = 1024;

/// The size of a record without its texts in bytes, with what the allocator adds, rounded up.
const FIXED_SIZE: usize = 1024;

/// The severities of the OpenTelemetry log data model.
const INFO: i32 = 9;
const WARN: i32 = 13;

/// One exported write. Its texts are cut.
#[derive(Debug)]
pub struct ExportRecord {
    /// Unique in this process.
    number: u64,
    pub(super) received_at: Timestamp,
    /// When the Event occurred, according to its client.
    pub(super) occurred_at: Timestamp,
    /// Occurrences that the write carries. Never negative.
    pub(super) occurrences: u64,
    /// `type` of the Event.
    pub(super) event_type: Box<str>,
    pub(super) message: Box<str>,
    policy: PolicyId,
    mode: Mode,
    disposition: Disposition,
    operation: Operation,
    api: Api,
    /// `count` of the Event.
    count: i64,
    texts: Vec<(&'static str, Box<str>)>,
}

/// The value of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attribute<'a> {
    Text(&'a str),
    Number(i64),
}

impl ExportRecord {
    pub(super) fn new(
        number: u64,
        received_at: Timestamp,
        rules: &Rules,
        (disposition, occurrences): (Disposition, i64),
        write: &Observation<'_>,
        message: &str,
    ) -> Self {
        let event = &write.event;
        let regarding = &event.regarding;
        let (component, instance) = event.reporter();
        let name = write.name.as_deref().unwrap_or(&write.generate_name);
        // The names of the collector's receiver k8s_events, where it has one.
        let texts = [
            ("k8s.namespace.name", write.namespace),
            ("k8s.event.name", name),
            ("k8s.event.reason", &event.reason),
            ("k8s.event.action", &event.action),
            ("k8s.object.api_version", &regarding.api_version),
            ("k8s.object.kind", &regarding.kind),
            ("k8s.object.name", &regarding.name),
            ("k8s.object.uid", &regarding.uid),
            ("k8s.object.fieldpath", &regarding.field_path),
            ("squelch.event.reporting_component", component),
            ("squelch.event.reporting_instance", instance),
            ("user.name", write.user),
        ];
        let present = texts.into_iter().filter(|(_, text)| !text.is_empty());
        Self {
            number,
            received_at,
            occurred_at: write.occurred_at,
            occurrences: u64::try_from(occurrences).unwrap_or(0),
            event_type: truncate(&event.event_type, MAX_TEXT).into(),
            message: truncate(message, MAX_MESSAGE).into(),
            policy: rules.policy.clone(),
            mode: rules.mode,
            disposition,
            operation: write.operation,
            api: write.api,
            count: write.value,
            texts: present.map(|(name, text)| (name, truncate(text, MAX_TEXT).into())).collect(),
        }
    }

    /// Its identifier, `log.record.uid`. `process` distinguishes this process from others.
    pub(super) fn uid(&self, process: &str) -> String {
        format!("{process}-{}", self.number)
    }

    /// Its size in memory in bytes, at most 18 KiB.
    pub(super) fn size(&self) -> usize {
        let texts = self.texts.iter().map(|(_, text)| text.len()).sum::<usize>();
        FIXED_SIZE + self.message.len() + self.event_type.len() + texts
    }

    /// Its severity in OpenTelemetry. As in policies, every type but Normal counts as a Warning.
    pub(super) fn severity(&self) -> i32 {
        if &*self.event_type == "Normal" { INFO } else { WARN }
    }

    /// Its attributes. Absent texts are left out.
    pub(super) fn attributes(&self) -> impl Iterator<Item = (&'static str, Attribute<'_>)> {
        let (namespace, policy) = split_display(&self.policy.display);
        let kind = if namespace.is_some() { "EventPolicy" } else { "ClusterEventPolicy" };
        let operation = match self.operation {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
        };
        let api = match self.api {
            Api::Core => "v1",
            Api::Events => "events.k8s.io/v1",
        };
        let texts = self.texts.iter().map(|(name, text)| (*name, Attribute::Text(text)));
        let decision = [
            ("squelch.policy.kind", kind),
            ("squelch.policy.namespace", namespace.unwrap_or_default()),
            ("squelch.policy.name", policy),
            ("squelch.mode", self.mode.as_str()),
            ("squelch.disposition", self.disposition.as_str()),
            ("squelch.operation", operation),
            ("squelch.api_version", api),
        ];
        let decision = decision.into_iter().filter(|(_, text)| !text.is_empty());
        let numbers = [
            ("k8s.event.count", self.count),
            ("squelch.occurrences", i64::try_from(self.occurrences).unwrap_or(i64::MAX)),
        ];
        texts
            .chain(decision.map(|(name, text)| (name, Attribute::Text(text))))
            .chain(numbers.map(|(name, number)| (name, Attribute::Number(number))))
    }
}
