//! The content of a stored Event, packed into one allocation.

use crate::text::{cut, truncate};
use crate::{EventView, Masks, ObjectReference, Rules};

/// Maximum length of a kept message, in bytes. The API server accepts messages of events.k8s.io up to this
/// length.
pub(crate) const MAX_MESSAGE: usize = 1024;
/// Maximum length of any other kept field, in bytes. No field that the API server validates is longer.
const MAX_FIELD: usize = 1024;
/// Maximum length of labels or annotations, in bytes. Longer ones are left out, because truncated JSON is
/// invalid.
const MAX_JSON: usize = 2048;

/// Number of texts in a [`Content`].
const FIELDS: usize = 24;
/// Size of the length table in front of the texts: two bytes for each.
const LENGTHS: usize = 2 * FIELDS;
/// Bytes between the length table and the texts: whether `related` is present, the masks, and in two bytes the
/// length at which the message is compared.
const FLAGS: usize = 4;

/// The content that the engine needs to create a stored Event again: one allocation of 52 bytes and the text.
/// Most fields of most Events are empty; as strings they would take 24 bytes each.
#[derive(Clone, PartialEq, Eq)]
pub struct Content(Box<[u8]>);

impl std::fmt::Debug for Content {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A tenant wrote the text. It must not reach a log.
        write!(formatter, "Content({} bytes)", self.len())
    }
}

impl Content {
    /// Packs `event`.
    pub fn of(event: &EventView<'_>) -> Self {
        let fields = fields(event);
        let text = fields.iter().map(|field| field.len()).sum::<usize>();
        let mut packed = Vec::with_capacity(LENGTHS + FLAGS + text);
        for field in fields {
            let length = u16::try_from(field.len()).expect("a field is cut to 2 KiB at most");
            packed.extend(length.to_le_bytes());
        }
        packed.push(u8::from(event.related.is_some()));
        packed.push(0);
        packed.extend(0xffff_u16.to_le_bytes());
        for field in fields {
            packed.extend(field.as_bytes());
        }
        Self(packed.into_boxed_slice())
    }

    /// Records how these rules compare the message. The stored Event can have another one that is equal to them.
    pub(crate) fn compared_by(mut self, rules: &Rules) -> Self {
        self.0[LENGTHS + 1] = rules.normalize.bits();
        let length = rules.max_message_bytes.map_or(u16::MAX, |max| u16::try_from(max).unwrap_or(u16::MAX));
        self.0[LENGTHS + 2..LENGTHS + FLAGS].copy_from_slice(&length.to_le_bytes());
        self
    }

    /// Returns the packed fields.
    pub fn view(&self) -> EventView<'_> {
        let mut fields = self.fields();
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
            related: (self.flags()[0] == 1).then_some(related),
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

    /// Returns the content with another message.
    pub(crate) fn with_message(&self, message: &str) -> Self {
        Self::of(&EventView { message: message.into(), ..self.view() })
    }

    /// Whether `read` is the Event that this content was kept of. Compares regarding object, type, reason and
    /// reporter; also the message, if it is known to be `unchanged` in an Event of the new API. In core/v1 clients may
    /// change the message.
    pub(crate) fn is_event_like(&self, read: &Self, unchanged: bool) -> bool {
        let (kept, mut read) = (self.view(), read.view());
        kept.regarding == read.regarding
            && kept.event_type == read.event_type
            && kept.reason == read.reason
            && kept.reporter() == read.reporter()
            && (kept.event_time.is_empty() || !unchanged || self.has_equal_message(&mut read))
    }

    /// Whether the message of `read` equals the kept one, as its policy compares them.
    fn has_equal_message(&self, read: &mut EventView<'_>) -> bool {
        let [_, masks, length @ ..] = self.flags();
        let masks = Masks::from_bits(masks);
        cut(&mut read.message, usize::from(u16::from_le_bytes(length)));
        let kept = self.view();
        if masks.is_empty() { kept.message == read.message } else { masks.shown(&kept) == masks.shown(read) }
    }

    fn flags(&self) -> [u8; FLAGS] {
        self.0[LENGTHS..LENGTHS + FLAGS].try_into().expect("it has this length")
    }

    /// Returns the size in bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    fn fields(&self) -> impl Iterator<Item = &str> {
        let (lengths, mut rest) = (&self.0[..LENGTHS], &self.0[LENGTHS + FLAGS..]);
        lengths.chunks_exact(2).map(move |length| {
            let field;
            (field, rest) = rest.split_at(usize::from(u16::from_le_bytes([length[0], length[1]])));
            std::str::from_utf8(field).expect("it was text when it was packed")
        })
    }
}

/// Returns the truncated fields in the order in which [`Content::view`] reads them.
fn fields<'a>(event: &'a EventView<'_>) -> [&'a str; FIELDS] {
    let EventView { regarding, related, .. } = event;
    let related = related.as_ref();
    let of_related = |field: fn(&'a ObjectReference<'_>) -> &'a str| {
        related.map_or("", |it| truncate(field(it), MAX_FIELD))
    };
    [
        truncate(&regarding.api_version, MAX_FIELD),
        truncate(&regarding.kind, MAX_FIELD),
        truncate(&regarding.namespace, MAX_FIELD),
        truncate(&regarding.name, MAX_FIELD),
        truncate(&regarding.uid, MAX_FIELD),
        truncate(&regarding.field_path, MAX_FIELD),
        of_related(|it| &it.api_version),
        of_related(|it| &it.kind),
        of_related(|it| &it.namespace),
        of_related(|it| &it.name),
        of_related(|it| &it.uid),
        of_related(|it| &it.field_path),
        truncate(&event.event_type, MAX_FIELD),
        truncate(&event.reason, MAX_FIELD),
        truncate(&event.action, MAX_FIELD),
        truncate(&event.message, MAX_MESSAGE),
        truncate(&event.reporting_component, MAX_FIELD),
        truncate(&event.reporting_instance, MAX_FIELD),
        truncate(&event.source_component, MAX_FIELD),
        truncate(&event.source_host, MAX_FIELD),
        truncate(&event.first_timestamp, MAX_FIELD),
        truncate(&event.event_time, MAX_FIELD),
        if event.labels.len() > MAX_JSON { "" } else { event.labels },
        if event.annotations.len() > MAX_JSON { "" } else { event.annotations },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::write;

    #[test]
    fn unpacked_content_equals_the_packed_event() {
        let mut event = write().event;
        event.related = Some(ObjectReference { name: "other".into(), ..ObjectReference::default() });
        event.labels = r#"{"a":"b"}"#;
        event.message = "größer 🐙".into();
        assert_eq!(format!("{event:?}"), format!("{:?}", Content::of(&event).view()));
    }

    #[test]
    fn long_text_is_truncated_between_characters_and_long_json_is_omitted() {
        let mut event = write().event;
        event.message = "ü".repeat(600).into();
        let long = format!("{{\"a\":\"{}\"}}", "x".repeat(3000));
        event.annotations = &long;
        let content = Content::of(&event);
        assert_eq!(content.view().message, "ü".repeat(512));
        assert_eq!(content.view().annotations, "");
    }
}
