//! The difference between a write and the stored Event.

use super::json::Emptiness;
use super::wire::{Event, Metadata};

/// The difference between a write and the stored Event.
pub(super) struct EventDifference<'r, 'a> {
    /// The Event with the content: the stored one of an UPDATE, because a later note does not change the series.
    pub(super) content: &'r Event<'a>,
    pub(super) content_metadata: &'r Metadata<'a>,
    pub(super) old_value: i64,
    pub(super) edited: bool,
    pub(super) unchanged: bool,
}

impl<'r, 'a> EventDifference<'r, 'a> {
    pub(super) fn new(written: &'r Event<'a>, metadata: &'r Metadata<'a>) -> Self {
        Self { content: written, content_metadata: metadata, old_value: 0, edited: false, unchanged: false }
    }

    pub(super) fn between(
        written: &'r Event<'a>,
        metadata: &'r Metadata<'a>,
        value: i64,
        old: &'r Event<'a>,
        old_metadata: &'r Metadata<'a>,
    ) -> Self {
        let old_value = super::write::value(&old.series.read(), old);
        let counted = [
            (written.count, old.count),
            (written.series, old.series),
            (written.last_timestamp, old.last_timestamp),
        ];
        Self {
            content: old,
            content_metadata: old_metadata,
            old_value,
            edited: fields_differ(written, old) || metadata_differs(metadata, old_metadata),
            // A changed value saves the comparison of the fields.
            unchanged: value == old_value
                && counted.iter().all(|(new, old)| new.same(*old, Emptiness::Fields)),
        }
    }
}

/// Whether a field other than `count`, `lastTimestamp`, `message` and `series` differs.
fn fields_differ(written: &Event<'_>, old: &Event<'_>) -> bool {
    let known = [
        (written.involved_object, old.involved_object),
        (written.related, old.related),
        (written.event_type, old.event_type),
        (written.reason, old.reason),
        (written.action, old.action),
        (written.source, old.source),
        (written.reporting_component, old.reporting_component),
        (written.reporting_instance, old.reporting_instance),
        (written.first_timestamp, old.first_timestamp),
        (written.event_time, old.event_time),
    ];
    known.iter().any(|(new, old)| !new.same(*old, Emptiness::Fields))
        || unknown_fields_differ(written, old)
        || unknown_fields_differ(old, written)
}

fn unknown_fields_differ(written: &Event<'_>, old: &Event<'_>) -> bool {
    written.unknown.iter().any(|(key, value)| {
        let other = old.unknown.iter().rfind(|(other, _)| other == key).map(|(_, value)| *value);
        !value.same(other.unwrap_or_default(), Emptiness::Fields)
    })
}

fn metadata_differs(written: &Metadata<'_>, old: &Metadata<'_>) -> bool {
    !(written.labels.same(old.labels, Emptiness::Keys)
        && written.annotations.same(old.annotations, Emptiness::Keys)
        && written.owner_references.same(old.owner_references, Emptiness::Fields)
        && written.finalizers.same(old.finalizers, Emptiness::Fields))
}
