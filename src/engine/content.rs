//! What is needed to create a stored Event again, packed into one allocation.

use super::{EventView, ObjectReference};

/// The API server takes a message of events.k8s.io up to this many bytes; remembered ones are cut to it.
const MAX_MESSAGE: usize = 1024;
/// Any other single field is cut to this many bytes: no field that the API server checks is longer.
const MAX_FIELD: usize = 1024;
/// Labels and annotations longer than this are left out: cut JSON would be no JSON.
const MAX_JSON: usize = 2048;

/// How many texts [`Content`] packs.
const FIELDS: usize = 24;

/// The remembered content of a stored Event.
#[derive(Clone, PartialEq, Eq)]
pub struct Content {
    text: Box<str>,
    ends: [u32; FIELDS],
    has_related: bool,
}

impl std::fmt::Debug for Content {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Event text is a tenant's: it does not belong into a log, even by accident.
        write!(formatter, "Content({} bytes)", self.text.len())
    }
}

impl Content {
    /// Packs what `event` says.
    pub fn of(event: &EventView<'_>) -> Self {
        let empty = ObjectReference::default();
        let related = event.related.as_ref().unwrap_or(&empty);
        let fields = [
            cut(&event.regarding.api_version, MAX_FIELD),
            cut(&event.regarding.kind, MAX_FIELD),
            cut(&event.regarding.namespace, MAX_FIELD),
            cut(&event.regarding.name, MAX_FIELD),
            cut(&event.regarding.uid, MAX_FIELD),
            cut(&event.regarding.field_path, MAX_FIELD),
            cut(&related.api_version, MAX_FIELD),
            cut(&related.kind, MAX_FIELD),
            cut(&related.namespace, MAX_FIELD),
            cut(&related.name, MAX_FIELD),
            cut(&related.uid, MAX_FIELD),
            cut(&related.field_path, MAX_FIELD),
            cut(&event.event_type, MAX_FIELD),
            cut(&event.reason, MAX_FIELD),
            cut(&event.action, MAX_FIELD),
            cut(&event.message, MAX_MESSAGE),
            cut(&event.reporting_component, MAX_FIELD),
            cut(&event.reporting_instance, MAX_FIELD),
            cut(&event.source_component, MAX_FIELD),
            cut(&event.source_host, MAX_FIELD),
            cut(&event.first_timestamp, MAX_FIELD),
            cut(&event.event_time, MAX_FIELD),
            if event.labels.len() > MAX_JSON { "" } else { event.labels },
            if event.annotations.len() > MAX_JSON { "" } else { event.annotations },
        ];
        let mut ends = [0; FIELDS];
        let mut text = String::with_capacity(fields.iter().map(|field| field.len()).sum());
        for (field, end) in fields.iter().zip(&mut ends) {
            text.push_str(field);
            *end = u32::try_from(text.len()).expect("24 fields of at most 2 KiB");
        }
        Self { text: text.into_boxed_str(), ends, has_related: event.related.is_some() }
    }

    /// The content as it was packed.
    pub fn view(&self) -> EventView<'_> {
        let mut fields = (0..FIELDS).map(|at| self.field(at));
        let mut next = || fields.next().unwrap_or_default();
        let mut reference = || ObjectReference {
            api_version: next().into(),
            kind: next().into(),
            namespace: next().into(),
            name: next().into(),
            uid: next().into(),
            field_path: next().into(),
        };
        let (regarding, related) = (reference(), reference());
        EventView {
            regarding,
            related: self.has_related.then_some(related),
            event_type: next().into(),
            reason: next().into(),
            action: next().into(),
            message: next().into(),
            reporting_component: next().into(),
            reporting_instance: next().into(),
            source_component: next().into(),
            source_host: next().into(),
            first_timestamp: next().into(),
            event_time: next().into(),
            labels: next(),
            annotations: next(),
        }
    }

    fn field(&self, at: usize) -> &str {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start as usize..self.ends[at] as usize]
    }
}

/// The longest prefix of at most `limit` bytes that ends between two characters.
pub(super) fn cut(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

#[cfg(test)]
mod tests {
    use super::super::testing::write;
    use super::*;

    #[test]
    fn what_was_packed_comes_out() {
        let mut event = write().event;
        event.related = Some(ObjectReference { name: "other".into(), ..ObjectReference::default() });
        event.labels = r#"{"a":"b"}"#;
        event.message = "größer 🐙".into();
        assert_eq!(format!("{event:?}"), format!("{:?}", Content::of(&event).view()));
    }

    #[test]
    fn long_text_is_cut_between_characters_and_long_json_left_out() {
        let mut event = write().event;
        event.message = "ü".repeat(600).into();
        let long = format!("{{\"a\":\"{}\"}}", "x".repeat(3000));
        event.annotations = &long;
        let content = Content::of(&event);
        assert_eq!(content.view().message, "ü".repeat(512));
        assert_eq!(content.view().annotations, "");
    }
}
